"""One pass of forwarding: what becomes of the next messages of a lane.

Where a message goes, its lane says: the main lane's and the dead letters' destination is the entity's setting, what was
sent via the entity has its own. Who that is, is the namespace's to say, through the `TransferPort`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tandembus.broker.expiring import expire
from tandembus.broker.fragment import Fragment
from tandembus.broker.locks import REMOVE, CallbackSettleReply, MessageLock
from tandembus.broker.moving import check_can_take_in, move, refuse_move
from tandembus.broker.reading import read_messages
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.transfer_destination import destination_of
from tandembus.broker.transfer_flight import Flight
from tandembus.broker.transfer_job import OURSELVES, WHOLE, Job, Target
from tandembus.broker.transfer_port import REASONS, Destination, OneFragment, Outlet, TransferPort, is_for_good
from tandembus.clock import Clock
from tandembus.errors import (
    BusError,
    EntityNotFound,
    InvalidOperation,
    MessageTooLarge,
    QuotaExceeded,
    anew,
)
from tandembus.message import Message
from tandembus.store.messaging_store import MAIN

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

PASS_MESSAGES: Final = 500
PASS_BYTES: Final = 1 << 20
"""What one lane moves at once, in one commit; then it is somebody else's turn."""
READ_MESSAGES: Final = 100
"""Of these, what is read in a row."""
MAX_HOPS: Final = 4

TOO_MANY_HOPS: Final = "MaxTransferHopCountExceeded"
NO_SESSION: Final = "The destination requires sessions, and the message has no SessionId."


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to become of one message in this store: it arrives somewhere, or it is a transfer dead letter for a
    reason."""

    message: Message
    target: Target
    arriving: Message | None
    destination: Fragment | None
    reason: str = ""
    description: str = ""


class TransferPass:
    def __init__(
        self,
        broker: MessageBroker,
        port: TransferPort,
        clock: Clock,
        job: Job,
        max_hops: int,
        when_done: Callable[[Job], None],
    ) -> None:
        self._broker = broker
        self._port = port
        self._clock = clock
        self._job = job
        self._max_hops = max_hops
        self._when_done = when_done
        self._began_at = clock.monotonic()
        self._found: dict[str, Destination | BusError] = {}
        self._opened: dict[Target, Fragment | Outlet | BusError] = {}
        self._brought: dict[Target, tuple[int, int]] = {}
        """How many messages, and how many bytes, this pass brings each destination."""
        self._plans: list[Plan] = []
        self._refusals: list[Plan] = []
        self._flights: dict[Target, Flight] = {}
        self._count = 0
        self.size_bytes = 0
        self._may_skip = job.path() is None
        """Whether messages may go although some before them have to wait: they go elsewhere."""
        self._closed: set[Target] = set()
        """Destinations that get nothing in this pass, even if they would take it by now: something for them was passed
        by, and has to come first."""
        self._asked: set[Target] = set()
        """Destinations that were waited for and are asked again in this pass."""
        self._in_doubt: set[Target] = set()
        """Destinations where something may have arrived."""
        self._passed_by: set[Target] = set()
        """Those of them whose messages had to be passed by: when it is known what has arrived they come first, before
        all that is behind them."""
        self._held_at_first = 0
        """The lowest number that somebody held when the first message was looked for; 0: none."""
        self._has_seen = False
        self._has_left_out = False
        """Something was passed by whose destination takes more, only not in this pass."""

    async def run(self) -> None:
        """Start the next messages on their way, all at once, so that they share a commit; or find that there are none,
        or that they have to wait."""
        await self._ask_in_doubt()
        if await self._may_begin():
            await self._plan()
            if any(target not in self._job.flights for target in self._passed_by):
                self._job.rewind()
            self._stage()

    # What may have arrived.

    async def _ask_in_doubt(self) -> None:
        """Whoever may have taken something is asked first, whatever the settings say by now: nobody else may get it
        before that is known."""
        job = self._job
        for target, flight in list(job.flights.items()):
            await self._ask_again(target, flight)
            if job.fragment.is_void or job.fragment.is_closed:
                return

    async def _ask_again(self, target: Target, flight: Flight) -> None:
        """Who is waited for is not asked yet. That it is gone must be known all the same, before anything goes to
        another by its name: what is given back has lower numbers, and would be taken for old there."""
        job = self._job
        is_waiting = job.is_waiting_for(target, self._began_at)
        try:
            destination = await self._destination(target[0])
            is_there = _has(destination, target[1], flight.fragment_key)
            if is_there and is_waiting:
                return
            place = await self._open(destination, target) if is_there else None
        except EntityNotFound:
            place = None
        except BusError:
            if not is_waiting:
                job.wait_for(target, self._clock.monotonic())
            return
        if job.fragment.is_void or job.flights.get(target) is not flight:
            return
        flight.hold_again()
        if place is None or isinstance(place, Fragment):
            # The entity that it was sent to is gone, with all that it had taken.
            flight.give_up()
            job.forget(target)
            self._given_back()
        elif flight.messages:
            flight.send_again(place)

    def _given_back(self) -> None:
        """Those who wait for messages may get these, if they are not to leave any more."""
        self._job.rewind()
        self._broker.want(self._job.fragment)

    # What goes where.

    async def _plan(self) -> None:
        job = self._job
        lane = job.fragment.lane(job.lane)
        self._asked = job.due_ones(self._clock.monotonic())
        self._in_doubt = set(job.flights)
        self._closed = (job.waiting.keys() - self._asked) | self._in_doubt
        self._held_at_first = job.first_held()
        at = start = 1 if not self._may_skip or self._asked else job.cursor
        while self._count < PASS_MESSAGES and self.size_bytes < PASS_BYTES:
            numbers = lane.next_available(at, READ_MESSAGES)
            if not numbers:
                self._reach_the_end(start, int(lane.visible_end))
                return
            self._has_seen = True
            records = await read_messages(self._broker, job.fragment, lane, numbers, PASS_BYTES)
            if not await self._take([record for record in records if isinstance(record, Message)]):
                return
            at = job.cursor = self._next(int(records[-1].number) + 1)
            await asyncio.sleep(0)
            if job.fragment.is_void or job.fragment.is_closed:
                return

    def _next(self, number: int) -> int:
        """When all that are waited for were asked in vain, all that is left of what waits for them is passed over."""
        job = self._job
        return number if self._asked else max(number, job.skipped_to)

    def _reach_the_end(self, start: int, end: int) -> None:
        job = self._job
        if start == 1:
            job.forget_waiting(self._asked - set(self._brought))
        if start == 1 and not self._has_seen:
            job.forget_waiting(set(job.waiting))  # what waited was taken away by somebody else
        if job.waiting and self._may_skip:
            job.cursor = job.skipped_to = end
            return
        # What came back meanwhile has a number below the cursor: look once more from the beginning.
        job.is_asked_again = job.is_asked_again or start > 1
        job.rewind()

    async def _may_begin(self) -> bool:
        """What can be known without reading a message."""
        job = self._job
        path = job.path()
        if path == "":
            job.forget_waiting(set(job.waiting))
            return False
        if job.is_waiting_for(OURSELVES, self._began_at):
            return False
        if job.fragment.is_short_of_room or job.fragment.is_full:
            job.wait_for(OURSELVES, self._began_at)
            return False
        job.waiting.pop(OURSELVES, None)
        return path is None or await self._takes_something(path)

    async def _takes_something(self, path: str) -> bool:
        """Where all of the lane goes to one destination."""
        target = (path, WHOLE)
        if self._job.is_waiting_for(target, self._began_at):
            return False
        try:
            destination = await self._destination(path)
            self._may_skip = destination.fragment_count > 1
            target = (path, WHOLE if self._may_skip else 0)
            if self._job.is_waiting_for(target, self._began_at):
                return False
            if not self._may_skip:
                _check_takes(await self._open(destination, target), 1, 0)
        except BusError as error:
            if is_for_good(error):
                return True  # it never will, so the messages need not wait
            self._put_off(target, error)
            return False
        return True

    async def _take(self, messages: list[Message]) -> bool:
        """Returns whether those behind them may be looked at, too."""
        for message in messages:
            if not await self._take_one(message):
                return False
        return True

    async def _take_one(self, message: Message) -> bool:
        job = self._job
        fragment = job.fragment
        if job.lane == MAIN and fragment.is_expired(message):
            if fragment.main.is_waiting(message.number):
                expire(fragment, message)
            return True
        if message.hops >= self._max_hops:
            description = f"The message was forwarded {message.hops} times already."
            self._refuse(Plan(message, OURSELVES, None, None, TOO_MANY_HOPS, description))
            return True
        only_path = job.path()
        path = destination_of(message) if only_path is None else only_path
        if (path, WHOLE) in self._closed:
            return self._may_skip
        return await self._send_to(message, path)

    async def _send_to(self, message: Message, path: str) -> bool:
        target = (path, WHOLE)
        try:
            destination = await self._destination(path)
            arriving = self._job.as_arriving(message)
            _check_fits(arriving, destination.settings)
            target = (path, destination.index_of(arriving, int(message.number)))
            if target in self._closed:
                self._pass_by(target)
                return self._may_skip
            return self._add(message, arriving, target, destination, await self._open(destination, target))
        except BusError as error:
            if is_for_good(error):
                self._refuse(Plan(message, target, None, None, REASONS[type(error)], str(error)))
                return True
            self._put_off(target, error)
            return self._may_skip

    def _pass_by(self, target: Target) -> None:
        if target in self._in_doubt:
            self._passed_by.add(target)
        flight = self._job.flights.get(target)
        if flight is not None:
            flight.is_passed_by = True

    async def _destination(self, path: str) -> Destination:
        found = self._found.get(path)
        if found is None:
            try:
                place = await self._port.find(path)
                found = OneFragment(place) if isinstance(place, Fragment) else place
            except BusError as error:
                found = error
            self._found[path] = found
        if isinstance(found, BusError):
            raise anew(found)
        if self._job.waiting.pop((path, WHOLE), None) is not None:
            self._job.rewind()
        return found

    async def _open(self, destination: Destination, target: Target) -> Fragment | Outlet:
        place = self._opened.get(target)
        if place is None:
            try:
                place = await destination.open(target[1])
            except BusError as error:
                place = error
            self._opened[target] = place
        if isinstance(place, BusError):
            raise anew(place)
        return place

    def _put_off(self, target: Target, error: BusError) -> None:
        self._closed.add(target)
        self._asked.discard(target)
        place = self._opened.get(target)
        is_full = isinstance(error, QuotaExceeded) and isinstance(place, Fragment)
        self._job.wait_for(target, self._clock.monotonic(), place if is_full and isinstance(place, Fragment) else None)

    def _add(
        self,
        message: Message,
        arriving: Message,
        target: Target,
        destination: Destination,
        place: Fragment | Outlet,
    ) -> bool:
        """Returns whether those behind it may be looked at, too."""
        count, size_bytes = self._brought.get(target, (0, 0))
        most = min(destination.most_at_once, self._job.most.get(target, PASS_MESSAGES))
        if count >= most:
            self._has_left_out = True
            return self._may_skip
        count, size_bytes = count + 1, size_bytes + len(arriving.sections)
        _check_takes(place, count, size_bytes)
        self._brought[target] = (count, size_bytes)
        if isinstance(place, Fragment):
            self._plans.append(Plan(message, target, arriving, place))
        else:
            self._flight(target, destination.key_of(target[1]), place).add(message, arriving)
        self._count += 1
        self.size_bytes += len(arriving.sections)
        return True

    def _flight(self, target: Target, fragment_key: int, outlet: Outlet) -> Flight:
        flight = self._flights.get(target)
        if flight is None:
            flight = Flight(self._job, target, fragment_key, outlet, self._flight_failed, self._when_done)
            self._flights[target] = flight
        return flight

    def _refuse(self, plan: Plan) -> None:
        self._refusals.append(plan)
        self._count += 1

    # On their way.

    def _stage(self) -> None:
        """Messages for other stores come only from before everything that somebody holds and may give back, and that
        is refused but not yet gone: strict order (see `TransferSource`). Moves within the store need not wait, nor be
        waited for: what they move never goes to another store."""
        job = self._job
        if self._has_left_out:
            job.rewind()
        for plan in self._refusals:
            self._stage_one(plan)
        if self._flights and not job.fragment.is_void:
            first_held = self._first_held()
            for flight in self._flights.values():
                if first_held > 0 and flight.keep_below(first_held):
                    job.rewind()
            for flight in self._flights.values():
                flight.start()
        for plan in self._plans:
            self._stage_one(plan)

    def _first_held(self) -> int:
        """What came back since messages were looked for was not seen: it is not to be passed either, and goes first in
        another pass."""
        job = self._job
        before, now = self._held_at_first, job.first_held()
        if before == 0 or 0 < now <= before:
            return now
        job.is_asked_again = True
        return before

    def _stage_one(self, plan: Plan) -> None:
        """What has happened to the message since it was read decides; what happens to the destination until the
        commit is judged there."""
        fragment, lane, message = self._job.fragment, self._job.lane, plan.message
        reply = CallbackSettleReply(lambda lock, error: self._over(plan, lock, error))
        if plan.arriving is not None and plan.destination is not None:
            is_staged = move(fragment, lane, message, plan.arriving, plan.destination, reply)
        else:
            is_staged = refuse_move(fragment, lane, message, plan.reason, plan.description, reply)
        if is_staged:
            self._job.moving_count += 1

    def _over(self, plan: Plan, lock: MessageLock, error: BusError | None) -> None:
        job = self._job
        if error is None and lock.settlement == REMOVE and plan.destination is not None:
            job.note_moved(plan.target, plan.message)
        elif error is None and lock.settlement != REMOVE:
            job.rewind()
        job.moving_count -= 1
        job.is_asked_again = job.is_asked_again or error is None
        if job.moving_count == 0:
            self._when_done(job)

    def _flight_failed(self, flight: Flight, error: BusError) -> None:
        """What is refused because of one message is sent again in smaller parts, until that one is alone."""
        job, count = self._job, flight.sent_count
        if not flight.is_in_doubt:
            self._given_back()
        # One that is not found is looked for again: only the namespace knows whether there is another by that name.
        is_final = is_for_good(error) and not isinstance(error, EntityNotFound)
        if count > 1 and (is_final or isinstance(error, QuotaExceeded)):
            job.most[flight.target] = count // 2
        elif is_final:
            reason = REASONS[type(error)]
            self._stage_one(Plan(flight.messages[0], flight.target, None, None, reason, str(error)))
        else:
            job.wait_for(flight.target, self._clock.monotonic())


def _has(destination: Destination, index: int, fragment_key: int) -> bool:
    return index < destination.fragment_count and destination.key_of(index) == fragment_key


def _check_takes(place: Fragment | Outlet, count: int, size_bytes: int) -> None:
    """What can be known before it is sent. Raises."""
    if isinstance(place, Fragment):
        check_can_take_in(place, count, size_bytes)
        return
    failure = place.failure()
    if failure is not None:
        raise anew(failure)


def _check_fits(arriving: Message, settings: FragmentSettings) -> None:
    """What a sender would be told."""
    if settings.requires_session and arriving.session_id is None:
        raise InvalidOperation(NO_SESSION)
    size_bytes = len(arriving.sections)
    if size_bytes > settings.max_message_bytes:
        raise MessageTooLarge(
            f"The message has {size_bytes} bytes, and '{settings.path}' takes {settings.max_message_bytes} at most."
        )
