"""A ledger made of plain Service Bus operations: a message is set aside by deferring it.

Nobody else may defer messages in such an entity, and one query reads it at a time: the service cannot tell whose
deferred messages they are.
"""

from __future__ import annotations

import logging
import uuid
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from tandembus.client import Disposition, Management, ReceivedMessage, Receiver
from tandembus.client.errors import ClientFailure, ConnectionLost, SomeLocksLost
from tandembus.clock import Clock
from tandembus.errors import EntityNotFound, InvalidOperation, MessageLockLost, MessageNotFound
from tandembus.spark.source.decoding import NUMBER_BITS
from tandembus.spark.source.ledger import raise_unless_retired
from tandembus.spark.source.link import Link
from tandembus.spark.source.marks import Marks, marks_of, sequence_number_of
from tandembus.spark.source.options import SourceOptions
from tandembus.spark.source.ranges import Batch, FragmentRanges, full_number, numbers_of, ranges_of

log = logging.getLogger("tandembus.spark")

RECEIVED_TOGETHER: Final = 250
SETTLED_TOGETHER: Final = 100
PEEKED_TOGETHER: Final = 250
SETTLING_TRIES: Final = 16
"""Calls to find what somebody has locked among so many; what is not settled then is left for the next time."""
MOST_LATE: Final = 10_000
"""Messages that came too late, in hand while others are looked for."""
FIRST_WAIT_S: Final = 1.0
NEXT_WAIT_S: Final = 0.2
LAST_SEQUENCE_NUMBER: Final = (1 << 63) - 1
DEFERRED: Final = 1


class DeferralLedger:
    """Sets messages aside in entities without sessions, on any Service Bus."""

    def __init__(self, link: Link, options: SourceOptions, clock: Clock) -> None:
        self._link: Final = link
        self._entities: Final = options.entities
        self._patience_s: Final = options.retry_for_s
        self._clock: Final = clock
        self._not_after: float | None = None
        self._unsettled: Final[dict[str, set[int]]] = {}
        """Done with, and locked by somebody else when they were to be settled: a driver that died a moment ago. By the
        entity's name in lower case, since a checkpoint may have another spelling."""
        self._held: Final[dict[str, dict[int, uuid.UUID]]] = {}
        """Received, and nothing more is known: the connection was lost before the service had confirmed what came next.
        By number, the lock token."""

    async def open(self) -> None:
        """The service knows no owners."""

    async def settle(self, batch: Batch) -> None:
        """What could not be settled earlier is tried again, whatever the batch is."""
        for entity, ranges in batch.items():
            self._unsettled.setdefault(entity.lower(), set()).update(numbers_of(ranges))
        for entity, numbers in self._unsettled.items():
            try:
                await self._settle(entity, numbers)
            except EntityNotFound as error:
                raise_unless_retired(error, entity, self._entities)
                numbers.clear()

    def unsettled(self) -> Batch:
        """Nothing is written down: a process that is started again finds them by looking."""
        return {}

    async def _settle(self, entity: str, numbers: set[int]) -> None:
        waiting = sorted(numbers)
        for start in range(0, len(waiting), SETTLED_TOGETHER):
            node = await self._link.management(entity)
            await _settle(node, waiting[start : start + SETTLED_TOGETHER], numbers)

    async def still_set_aside(self, batch: Batch) -> Batch:
        """Nobody else can have what is deferred; and what is not there is left out when it is read."""
        found: Batch = {}
        for entity, ranges in batch.items():
            try:
                await (await self._link.management(entity)).peek(1, 1)
            except EntityNotFound as error:
                raise_unless_retired(error, entity, self._entities)
            else:
                found[entity] = ranges
        return found

    async def left_over(self) -> Batch:
        found: Batch = {}
        for entity in self._entities:
            node = await self._link.management(entity)
            numbers: set[int] = set()
            at = 0
            while page := await _peek(node, at):
                numbers.update(int(one.number) for one in page if one.state == DEFERRED)
                at = _behind(page, at)
            ours = numbers - self._unsettled.get(entity.lower(), set())
            if ours:
                found[entity] = ranges_of(ours)
        return found

    async def plan(self, entity: str, max_messages: int, max_bytes: int) -> FragmentRanges:
        numbers = await self._defer_held(entity)
        try:
            await self._defer_more(entity, numbers, max_messages, max_bytes)
        except Exception as error:
            # What is deferred is planned now, or nobody would look for it. The rest comes back when its locks lapse.
            if not numbers:
                raise
            log.warning("%s: only what is deferred by now is planned: %s", entity, error)
        return ranges_of(numbers)

    async def _defer_held(self, entity: str) -> list[int]:
        """What was received before a connection was lost comes first, or later messages would overtake it."""
        held = self._held.get(entity)
        if not held:
            return []
        node = await self._link.management(entity)
        states = await _states(node, sorted(held))
        await _defer_locked(node, held, [number for number, state in states.items() if state != DEFERRED])
        states = await _states(node, sorted(held))
        held.clear()
        return [number for number, state in states.items() if state == DEFERRED]

    async def _defer_more(self, entity: str, numbers: list[int], max_messages: int, max_bytes: int) -> None:
        """Adds to the numbers. Messages that came too late for the query stay locked until others were looked for."""
        receiver = await self._receiver(entity)
        late: list[ReceivedMessage] = []
        room = max_bytes
        give_up_at = self._clock.monotonic() + self._patience_s
        try:
            while len(numbers) < max_messages and room > 0:
                wanted = min(RECEIVED_TOGETHER, max_messages - len(numbers))
                messages = await receiver.receive(wanted, NEXT_WAIT_S if numbers else FIRST_WAIT_S)
                timely: list[ReceivedMessage] = []
                for message in messages:
                    (late if self._is_late(marks_of(message.payload)) else timely).append(message)
                self._hold(entity, timely)
                taken = _within(timely, room, not numbers)
                room -= sum(len(message.payload) for message in taken)
                if len(taken) < len(timely):
                    await receiver.release(*timely[len(taken) :])
                    self._let_go(entity, timely[len(taken) :])
                    room = 0
                numbers += await self._defer(entity, receiver, taken)
                if not taken and (numbers or not await self._is_to_wait(entity, give_up_at, len(late))):
                    break
        finally:
            await _give_back(receiver, late)

    async def _defer(self, entity: str, receiver: Receiver, messages: Sequence[ReceivedMessage]) -> list[int]:
        """The numbers of those that were still ours to defer."""
        if not messages:
            return []
        numbers = {message.delivery_id: sequence_number_of(message.payload) for message in messages}
        lost: frozenset[int] = frozenset()
        try:
            await receiver.defer(*messages)
        except SomeLocksLost as loss:
            lost = loss.delivery_ids
        except MessageLockLost as error:
            raise ConnectionLost(str(error)) from error  # the link went, and they may be ours all the same
        self._let_go(entity, messages)
        return [number for delivery_id, number in numbers.items() if delivery_id not in lost]

    def _hold(self, entity: str, messages: Sequence[ReceivedMessage]) -> None:
        held = self._held.setdefault(entity, {})
        held.update(
            (sequence_number_of(one.payload), token) for one in messages if (token := one.lock_token) is not None
        )

    def _let_go(self, entity: str, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            self._held[entity].pop(sequence_number_of(message.payload), None)

    async def _is_to_wait(self, entity: str, give_up_at: float, late_count: int) -> bool:
        """Nothing was received. A query that is to end with what is there goes on as long as something is: the service
        may be slow, or another receiver may give back what it holds."""
        if self._not_after is None:
            return False
        if not await self._has_timely(entity):
            return False
        if self._clock.monotonic() < give_up_at and late_count < MOST_LATE:
            return True
        log.warning("%s: messages are left that another receiver holds; start the query again for them", entity)
        return False

    async def _has_timely(self, entity: str) -> bool:
        """What stands behind a message that came too late came later still: the rest of its fragment is passed over,
        since whoever sends meanwhile may be faster than this."""
        node = await self._link.management(entity)
        at = 0
        while at <= LAST_SEQUENCE_NUMBER and (page := await _peek(node, at)):
            active = [one for one in page if one.is_active()]
            if not all(map(self._is_late, active)):
                return True
            is_late_from_here = page[-1].is_active()
            fragment = int(page[-1].number) >> NUMBER_BITS
            at = full_number(fragment + 1, 0) if is_late_from_here else _behind(page, at)
        return False

    def _is_late(self, marks: Marks) -> bool:
        return self._not_after is not None and int(marks.enqueued_ms) > self._not_after * 1000

    async def _receiver(self, entity: str) -> Receiver:
        try:
            return await self._link.receiver(entity)
        except InvalidOperation as error:
            raise InvalidOperation(
                f"{entity} cannot be a stream: {error} (backend=azure takes queues and subscriptions without sessions)"
            ) from error

    async def remember_ends(self) -> None:
        self._not_after = self._clock.now()


async def _defer_locked(node: Management, held: dict[int, uuid.UUID], numbers: list[int]) -> None:
    """Those whose locks have lapsed are held no more: they are received again, by us or by somebody else."""
    try:
        if numbers:
            await node.settle(Disposition.DEFER, [held[number] for number in numbers])
    except MessageLockLost:
        if len(numbers) == 1:
            del held[numbers[0]]
        else:  # one that is lost fails the whole call
            for number in numbers:
                await _defer_locked(node, held, [number])


async def _settle(node: Management, numbers: list[int], unsettled: set[int]) -> None:
    """One number that is not there fails the whole call: one look tells which are, and of these the list is halved
    until those are found that somebody has locked."""
    if await _complete(node, numbers, unsettled):
        return
    there = await _states(node, [number for number in numbers if number in unsettled])
    unsettled.difference_update(set(numbers) - set(there))
    waiting = [sorted(there)] if there else []
    for _ in range(SETTLING_TRIES):
        if not waiting:
            return
        part = waiting.pop()
        if not await _complete(node, part, unsettled) and len(part) > 1:
            half = len(part) // 2
            waiting += [part[half:], part[:half]]


async def _complete(node: Management, numbers: list[int], unsettled: set[int]) -> bool:
    """Whether all of them are settled now."""
    try:
        messages = await node.receive_deferred(numbers)
        tokens = [token for message in messages if (token := message.lock_token) is not None]
        if tokens:
            await node.settle(Disposition.COMPLETE, tokens)
    except (MessageNotFound, MessageLockLost):
        return False
    unsettled.difference_update(sequence_number_of(message.payload) for message in messages)
    return len(messages) == len(numbers)


async def _peek(node: Management, at: int) -> list[Marks]:
    return [marks_of(message.payload) for message in await node.peek(at, PEEKED_TOGETHER)]


def _behind(page: list[Marks], at: int) -> int:
    """Where to go on; further in any case."""
    return max(at, max(int(one.number) for one in page)) + 1


async def _states(node: Management, numbers: Sequence[int]) -> dict[int, int]:
    """Of ascending numbers, those that are there: active, deferred or scheduled."""
    wanted = frozenset(numbers)
    found: dict[int, int] = {}
    place = 0
    while place < len(numbers):
        page = await _peek(node, numbers[place])
        if not page:
            break
        found |= {int(one.number): int(one.state) for one in page if one.number in wanted}
        place = bisect_right(numbers, _behind(page, numbers[place]) - 1)
    return found


def _within(messages: Sequence[ReceivedMessage], max_bytes: int, has_one: bool) -> Sequence[ReceivedMessage]:
    """The first ones that fit; `has_one`: one does in any case."""
    size = 0
    for place, message in enumerate(messages):
        size += len(message.payload)
        if size > max_bytes and not (has_one and place == 0):
            return messages[:place]
    return messages


async def _give_back(receiver: Receiver, messages: Sequence[ReceivedMessage]) -> None:
    """Where that fails, their locks lapse."""
    try:
        await receiver.release(*messages)
    except ClientFailure:
        pass
