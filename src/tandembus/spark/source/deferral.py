"""A ledger made of plain Service Bus operations: a message is set aside by deferring it.

Nobody else may defer messages in such an entity, and one query reads it at a time: the service cannot tell whose
deferred messages they are.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from tandembus.client import Disposition, Management, ReceivedMessage, Receiver
from tandembus.client.errors import SomeLocksLost
from tandembus.clock import Clock
from tandembus.errors import InvalidOperation, MessageLockLost, MessageNotFound
from tandembus.spark.source.link import Link
from tandembus.spark.source.options import SourceOptions
from tandembus.spark.source.ranges import Batch, FragmentRanges, numbers_of, ranges_of

log = logging.getLogger("tandembus.spark")

RECEIVED_TOGETHER: Final = 250
SETTLED_TOGETHER: Final = 100
PEEKED_TOGETHER: Final = 250
FIRST_WAIT_S: Final = 1.0
NEXT_WAIT_S: Final = 0.2
DEFERRED: Final = "deferred"


class DeferralLedger:
    """Sets messages aside in entities without sessions, on any Service Bus."""

    def __init__(self, link: Link, options: SourceOptions, clock: Clock) -> None:
        self._link: Final = link
        self._entities: Final = options.entities
        self._clock: Final = clock
        self._not_after: float | None = None
        self._unsettled: Final[dict[str, set[int]]] = {}
        """Done with, and locked by somebody else when they were to be settled: a driver that died a moment ago."""

    async def open(self) -> None:
        """The service knows no owners."""

    async def settle(self, batch: Batch) -> None:
        for entity, ranges in batch.items():
            self._unsettled.setdefault(entity, set()).update(numbers_of(ranges))
        for entity, numbers in self._unsettled.items():
            node = await self._link.management(entity)
            waiting = sorted(numbers)
            for start in range(0, len(waiting), SETTLED_TOGETHER):
                await self._settle(node, waiting[start : start + SETTLED_TOGETHER], numbers)

    async def _settle(self, node: Management, numbers: list[int], unsettled: set[int]) -> None:
        """One number that is not there fails the whole call: so the list is halved until that one is alone."""
        try:
            messages = await node.receive_deferred(numbers)
            tokens = [token for message in messages if (token := message.lock_token) is not None]
            if tokens:
                await node.settle(Disposition.COMPLETE, tokens)
            missing = set(numbers) - {message.sequence_number for message in messages}
        except (MessageNotFound, MessageLockLost):
            if len(numbers) > 1:
                half = len(numbers) // 2
                await self._settle(node, numbers[:half], unsettled)
                await self._settle(node, numbers[half:], unsettled)
                return
            missing = set(numbers)
        unsettled.difference_update(set(numbers) - missing)
        for number in missing:
            if not await _is_there(node, number):
                unsettled.discard(number)

    async def left_over(self) -> Batch:
        found: Batch = {}
        for entity in self._entities:
            node = await self._link.management(entity)
            numbers: list[int] = []
            at = 0
            while page := await node.peek(at, PEEKED_TOGETHER):
                numbers += [message.sequence_number for message in page if message.state == DEFERRED]
                at = page[-1].sequence_number + 1
            ours = set(numbers) - self._unsettled.get(entity, set())
            if ours:
                found[entity] = ranges_of(ours)
        return found

    async def plan(self, entity: str, max_messages: int, max_bytes: int) -> FragmentRanges:
        receiver = await self._receiver(entity)
        numbers: list[int] = []
        size = 0
        try:
            while len(numbers) < max_messages and size < max_bytes:
                wanted = min(RECEIVED_TOGETHER, max_messages - len(numbers))
                messages = await receiver.receive(wanted, NEXT_WAIT_S if numbers else FIRST_WAIT_S)
                taken = self._within(messages, max_bytes - size)
                if len(taken) < len(messages):
                    await receiver.release(*messages[len(taken) :])
                numbers += [message.sequence_number for message in await _deferred(receiver, taken)]
                size += sum(len(message.payload) for message in taken)
                if len(taken) < len(messages) or not messages:
                    break
        except OSError:
            # What is deferred already is planned now; the rest comes back when its locks lapse.
            if not numbers:
                raise
        return ranges_of(numbers)

    def _within(self, messages: Sequence[ReceivedMessage], max_bytes: int) -> Sequence[ReceivedMessage]:
        """The first ones that are old enough and fit; at least one fits."""
        size = 0
        for place, message in enumerate(messages):
            size += len(message.payload)
            is_late = self._not_after is not None and (message.enqueued_at or 0.0) > self._not_after
            if is_late or (place > 0 and size > max_bytes):
                return messages[:place]
        return messages

    async def _receiver(self, entity: str) -> Receiver:
        try:
            return await self._link.receiver(entity)
        except InvalidOperation as error:
            raise InvalidOperation(
                f"{entity} is no stream for backend=azure, which takes entities without sessions ({error})"
            ) from error

    async def remember_ends(self) -> None:
        self._not_after = self._clock.now()


async def _deferred(receiver: Receiver, messages: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
    """Those that were still ours to defer."""
    if not messages:
        return messages
    try:
        await receiver.defer(*messages)
    except SomeLocksLost as loss:
        return [message for message in messages if message.delivery_id not in loss.delivery_ids]
    return messages


async def _is_there(node: Management, number: int) -> bool:
    """Somebody has locked it, if it is there and cannot be received."""
    found = await node.peek(number, 1)
    return bool(found) and found[0].sequence_number == number
