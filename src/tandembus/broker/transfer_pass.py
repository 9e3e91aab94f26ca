"""One pass of forwarding: what becomes of the next messages of a lane.

Where a message goes, its lane says: the main lane's and the dead letters' destination is the entity's setting, what was
sent via the entity has its own. Who that is, is the namespace's to say, through the `TransferPort`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from tandembus.broker.expiring import expire
from tandembus.broker.fragment import Fragment
from tandembus.broker.locks import REMOVE, CallbackSettleReply, MessageLock
from tandembus.broker.moving import check_can_take_in, move, refuse_move
from tandembus.broker.reading import read_messages
from tandembus.broker.subscriptions import MAX_EVALUATIONS
from tandembus.broker.transfer_destination import as_forwarded, destination_of
from tandembus.clock import Clock
from tandembus.errors import (
    BusError,
    EntityNotFound,
    InvalidArgument,
    InvalidOperation,
    MalformedData,
    MessageTooLarge,
    QuotaExceeded,
)
from tandembus.message import Message
from tandembus.metering.slot import operations_for
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, TRANSFER

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

PASS_MESSAGES: Final = 500
PASS_BYTES: Final = 1 << 20
"""What one lane moves at once, in one commit; then it is somebody else's turn."""
READ_MESSAGES: Final = 100
"""Of these, what is read in a row."""
FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 60.0
MAX_HOPS: Final = 4

REASONS: Final[dict[type[BusError], str]] = {
    EntityNotFound: "TransferDestinationNotFound",
    InvalidOperation: "TransferNotAllowed",
    InvalidArgument: "TransferNotAllowed",
    MalformedData: "TransferNotAllowed",
    MessageTooLarge: "MessageSizeExceeded",
}
"""Refusals for good, and the reason told with the transfer dead letter. All others pass."""
TOO_MANY_HOPS: Final = "MaxTransferHopCountExceeded"
NO_SESSION: Final = "The destination requires sessions, and the message has no SessionId."


class TransferPort(Protocol):
    """Finds where a message is to go."""

    async def find(self, path: str) -> Fragment:
        """The open fragment of the queue or topic with this path. Raises why nothing can be sent to it."""


class Waiting:
    """For a destination that takes nothing for now."""

    def __init__(self, now: float, delay_s: float, full: Fragment | None) -> None:
        self.retry_at = now + delay_s
        self.delay_s: Final = delay_s
        self.full: Final = full


class Job:
    """What leaves one lane of one fragment: one pass at a time, since order counts."""

    def __init__(self, fragment: Fragment, lane: int) -> None:
        self.fragment: Final = fragment
        self.lane: Final = lane
        self.cursor = 1
        """Of a transfer lane: where the search goes on behind messages whose destinations are waited for."""
        self.is_queued = False
        self.is_running = False
        self.is_asked_again = False
        self.moving_count = 0
        """Moves that are staged and not yet committed."""
        self.waiting: dict[str, Waiting] = {}
        """By destination that takes nothing for now; the empty path for trouble of our own."""
        self._moved = (0, 0, 0)

    @property
    def is_busy(self) -> bool:
        return self.is_running or self.moving_count > 0

    def path(self) -> str | None:
        """Where all of the lane goes; None where each message says for itself."""
        settings = self.fragment.settings
        if self.lane == TRANSFER:
            return None
        return settings.forward_to if self.lane == MAIN else settings.forward_dead_letters_to

    def is_waiting_for(self, path: str, now: float) -> bool:
        return path in self.waiting and self.waiting[path].retry_at > now

    def is_due(self, now: float) -> bool:
        return any(one.retry_at <= now for one in self.waiting.values())

    def wait_for(self, path: str, now: float, full: Fragment | None = None) -> None:
        """`full` is a destination that will take more when something has left it."""
        last_s = self.waiting[path].delay_s if path in self.waiting else FIRST_RETRY_S / 2
        self.waiting[path] = Waiting(now, min(last_s * 2, LAST_RETRY_S), full)

    def full_ones(self) -> list[Fragment]:
        return [one.full for one in self.waiting.values() if one.full is not None]

    def stop_waiting(self, now: float, full: Fragment | None = None) -> bool:
        """For one destination, or for all; returns whether it did."""
        is_over = False
        for one in self.waiting.values():
            if full is None or one.full is full:
                one.retry_at = now
                is_over = True
        return is_over

    def note_moved(self, path: str, size_bytes: int) -> None:
        self.waiting.pop(path, None)
        messages, operations, total_bytes = self._moved
        self._moved = (messages + 1, operations + operations_for(size_bytes), total_bytes + size_bytes)

    def take_moved(self) -> tuple[int, int, int]:
        """Messages, billable operations and bytes since the last time."""
        moved, self._moved = self._moved, (0, 0, 0)
        return moved


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to become of one message: it arrives somewhere, or it is a transfer dead letter for a reason."""

    message: Message
    path: str
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
        self._found: dict[str, Fragment | BusError] = {}
        self._brought: dict[int, tuple[int, int]] = {}
        """By destination: how many messages, and how many bytes, this pass brings it."""
        self._plans: list[Plan] = []
        self._size_bytes = 0

    async def run(self) -> None:
        """Stage the moves of the next messages, all at once, so that they share a commit; or find that there are none,
        or that they have to wait."""
        if await self._may_begin():
            await self._plan()
            for plan in self._plans:
                self._stage(plan)

    async def _plan(self) -> None:
        job = self._job
        lane = job.fragment.lane(job.lane)
        at = 1 if job.path() is not None else job.cursor
        while len(self._plans) < PASS_MESSAGES and self._size_bytes < PASS_BYTES:
            numbers = lane.next_available(at, READ_MESSAGES)
            if not numbers:
                self._reach_the_end()
                return
            records = await read_messages(self._broker, job.fragment, lane, numbers, PASS_BYTES)
            if not await self._take([record for record in records if isinstance(record, Message)]):
                return
            at = job.cursor = int(records[-1].number) + 1
            await asyncio.sleep(0)
            if job.fragment.is_void or job.fragment.is_closed:
                return

    def _reach_the_end(self) -> None:
        """What came back meanwhile has a number below the cursor: look once more from the beginning."""
        job = self._job
        is_from_beginning = job.path() is not None or job.cursor == 1
        if is_from_beginning and not self._plans:
            job.waiting.clear()  # what waited was taken away by somebody else
        elif not is_from_beginning and not job.waiting:
            job.is_asked_again = True
        job.cursor = 1

    async def _may_begin(self) -> bool:
        """What can be known without reading a message."""
        job, now = self._job, self._clock.monotonic()
        path = job.path()
        if path == "" or job.is_waiting_for("", now) or (path is not None and job.is_waiting_for(path, now)):
            return False
        if job.fragment.is_short_of_room or job.fragment.is_full:
            job.wait_for("", now)
            return False
        job.waiting.pop("", None)
        return path is None or await self._takes_something(path)

    async def _takes_something(self, path: str) -> bool:
        try:
            check_can_take_in(await self._destination(path), 1, 0)
        except BusError as error:
            if type(error) in REASONS:
                return True  # it never will, so the messages need not wait
            self._put_off(path, error)
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
            self._plans.append(Plan(message, "", None, None, TOO_MANY_HOPS, description))
            return True
        only_path = job.path()
        path = destination_of(message) if only_path is None else only_path
        if job.is_waiting_for(path, self._clock.monotonic()):
            return only_path is None
        try:
            return self._move(message, path, await self._destination(path))
        except BusError as error:
            if type(error) in REASONS:
                self._plans.append(Plan(message, path, None, None, REASONS[type(error)], str(error)))
                return True
            self._put_off(path, error)
            return only_path is None

    async def _destination(self, path: str) -> Fragment:
        found = self._found.get(path)
        if found is None:
            try:
                found = await self._port.find(path)
            except BusError as error:
                found = error
            self._found[path] = found
        if isinstance(found, BusError):
            raise found
        return found

    def _put_off(self, path: str, error: BusError) -> None:
        found = self._found.get(path)
        is_full = isinstance(error, QuotaExceeded)
        full = found if is_full and isinstance(found, Fragment) else None
        self._job.wait_for(path, self._clock.monotonic(), full)

    def _move(self, message: Message, path: str, destination: Fragment) -> bool:
        """Returns whether the destination may be given more in this pass."""
        job = self._job
        arriving = as_forwarded(message, job.fragment.settings.path if job.lane == DEAD_LETTER else "")
        _check_fits(arriving, destination)
        count, size_bytes = self._brought.get(int(destination.key), (0, 0))
        count, size_bytes = count + 1, size_bytes + len(arriving.sections)
        check_can_take_in(destination, count, size_bytes)
        self._brought[int(destination.key)] = (count, size_bytes)
        self._plans.append(Plan(message, path, arriving, destination))
        self._size_bytes += len(arriving.sections)
        return count < _most_at_once(destination)

    def _stage(self, plan: Plan) -> None:
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
            job.note_moved(plan.path, len(plan.message.sections))
        job.moving_count -= 1
        job.is_asked_again = job.is_asked_again or error is None
        if job.moving_count == 0:
            self._when_done(job)


def _check_fits(arriving: Message, destination: Fragment) -> None:
    """What a sender would be told."""
    settings = destination.settings
    if settings.requires_session and arriving.session_id is None:
        raise InvalidOperation(NO_SESSION)
    size_bytes = len(arriving.sections)
    if size_bytes > settings.max_message_bytes:
        raise MessageTooLarge(
            f"The message has {size_bytes} bytes, and '{settings.path}' takes {settings.max_message_bytes} at most."
        )


def _most_at_once(destination: Fragment) -> int:
    """A topic with many rules gets few messages at a time, so that their evaluation holds nobody up."""
    if destination.fan_out is None:
        return PASS_MESSAGES
    rule_count = sum(len(one.rules.rules) for one in destination.fan_out.subscriptions.values())
    return max(1, MAX_EVALUATIONS // max(rule_count, 1))
