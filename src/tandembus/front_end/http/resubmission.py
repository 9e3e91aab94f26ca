"""Messages on their way to another entity: above all dead letters, back to the one they died in.

A message leaves the lane it is in only when it is durable where it goes; within a fragment both happen in one commit.
So an interruption may leave a message in both places, and never in none. What the target drops (a duplicate, or what no
subscription of a topic takes) stays where it is, since accepting it would be the end of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from tandembus.amqp.encoding.codec import decode
from tandembus.amqp.encoding.sections import application_properties_section
from tandembus.broker.locks import COMPLETE, MessageLock
from tandembus.broker.operations import SendOperation
from tandembus.broker.transfer_destination import destination_of
from tandembus.descriptions import EntityKind, SubscriptionDescription
from tandembus.errors import BusError, InvalidOperation
from tandembus.front_end.amqp.sender_link import SendChecks
from tandembus.front_end.http.taking import SLICE_BYTES, SLICE_MESSAGES, Held, Progress, give_back, whole_number
from tandembus.interconnect.answers import move_in_one_commit, settle_all, unanswered
from tandembus.message import HEADER_FLAGS, Message
from tandembus.metering import slot as metered
from tandembus.metering.meter import Meter
from tandembus.metering.slot import NORMAL, RECEIVE, SEND
from tandembus.namespace.entity import Entity
from tandembus.store.messaging_store import MAIN, NUMBER_BITS

MARKS: Final = ("DeadLetterReason", "DeadLetterErrorDescription")


@dataclass(frozen=True, slots=True)
class Move:
    """One message: its lock where it is, and itself as it is sent again."""

    lock: MessageLock
    message: Message

    @property
    def sequence_number(self) -> int:
        return whole_number(self.lock)


class Resubmission:
    def __init__(self, source: Entity, lane: int, target: Entity, is_home: bool, checks: SendChecks) -> None:
        """`is_home`: nobody chose the target, it is where messages of the source come from."""
        self._is_home = is_home
        self._source = source
        self._lane = lane
        self._target = target
        self._checks = checks
        self._may_share_commits = source.traffic is target.traffic and not _detects_duplicates(target)

    async def run(self, progress: Progress, max_count: int) -> AsyncIterator[None]:
        """Moves what is there now, fragment after fragment, oldest first: what dies while this goes on is left for
        another time. After every slice somebody may look at the progress."""
        for end in await self._source.requests.ends(self._lane):
            at = (end >> NUMBER_BITS << NUMBER_BITS) + 1
            while at < end and progress.moved + progress.refused < max_count:
                wanted = min(SLICE_MESSAGES, max_count - progress.moved - progress.refused)
                taken = await self._source.requests.take_waiting(self._lane, at, end, wanted, SLICE_BYTES)
                at = taken.next_number
                if taken.messages:
                    await self._move_all(taken.messages, progress)
                    yield

    async def run_picked(self, progress: Progress, picked: AsyncIterator[list[Held]]) -> AsyncIterator[None]:
        """Moves these, a slice at a time."""
        async for held in picked:
            await self._move_all(held, progress)
            yield

    async def _move_all(self, held: Sequence[Held], progress: Progress) -> None:
        moves: list[Move] = []
        for lock, message in held:
            try:
                self._check_destination(message)
                moves.append(Move(lock, self._again(message)))
            except BusError as error:
                give_back(self._source, lock)
                progress.refuse(whole_number(lock), error)
        outcomes = await asyncio.gather(*[self._move(move) for move in moves], return_exceptions=True)
        failure: BaseException | None = None
        for move, outcome in zip(moves, outcomes, strict=True):
            if outcome is None:
                progress.moved += 1
                progress.moved_bytes += int(move.message.wire_size)
            elif isinstance(outcome, BusError) and not outcome.retryable:
                progress.refuse(move.sequence_number, outcome)
            else:
                failure = outcome
        if failure is not None:
            raise failure

    def _again(self, message: Message) -> Message:
        """As the target takes it. One that has not died lives as long as its sender said, from its arrival there on."""
        is_dead = self._lane != MAIN
        (again,) = self._checks.parse(sent_again(message, is_dead), 0)
        again.priority = message.priority
        again.flags |= message.flags & HEADER_FLAGS
        if not is_dead and message.expires_at > 0:
            again.ttl_ms = message.expires_at - message.enqueued_at
        return again

    def _check_destination(self, message: Message) -> None:
        destination = destination_of(message)
        if destination and self._is_home:
            raise InvalidOperation(f"It was sent for '{destination}', not for '{self._target.name}': say where to.")

    async def _move(self, move: Move) -> None:
        send = SendOperation([move.message], move.message.wire_size, unanswered(), 0)
        try:
            if self._shares_a_commit(send, move.lock):
                await move_in_one_commit(self._source.traffic, send, move.lock, COMPLETE)
                return
            await self._send(move.message)
        except BusError:
            give_back(self._source, move.lock)
            raise
        await settle_all(self._source.traffic, [move.lock], COMPLETE)

    def _shares_a_commit(self, send: SendOperation, lock: MessageLock) -> bool:
        """Where it goes to the fragment that it is in. One without a key goes to whichever is next."""
        if not self._may_share_commits:
            return False
        traffic = self._target.traffic
        if not traffic.is_partitioned:
            return True
        try:
            return bool(traffic.transaction_index(send) == lock.index)
        except InvalidOperation:
            return False

    async def _send(self, message: Message) -> None:
        (number,) = await self._target.requests.schedule([message], int(message.wire_size))
        if number == 0:
            raise InvalidOperation(why_dropped(self._target))


def why_dropped(target: Entity) -> str:
    """What the target accepts and does not keep: whoever moves it would lose it."""
    duplicate = f"as a duplicate, since '{target.name}' has seen its message id within its detection window"
    unwanted = "because no subscription takes it"
    if target.kind is not EntityKind.TOPIC:
        return f"The target would drop it: {duplicate}."
    if not _detects_duplicates(target):
        return f"The target would drop it: {unwanted}."
    return f"The target would drop it: {duplicate}, or {unwanted}."


def count_moved(meter: Meter, source: Entity, target: Entity, count: int, size_bytes: int) -> None:
    for key, operation in ((source.entry.key, RECEIVE), (source.entry.key, metered.COMPLETE), (target.entry.key, SEND)):
        meter.count(key, operation, NORMAL, count, count, 0 if operation == metered.COMPLETE else size_bytes)


def _detects_duplicates(entity: Entity) -> bool:
    description = entity.entry.description
    return not isinstance(description, SubscriptionDescription) and description.requires_duplicate_detection


def sent_again(message: Message, is_dead: bool = True) -> bytes:
    """The sections as the sender sent them, as far as that is known: of a dead one without the reason of its death."""
    sections, start, end = message.sections, int(message.properties_end), int(message.application_end)
    properties = message.application_properties or sections[start:end]
    return sections[:start] + (_unmarked(properties) if is_dead else properties) + sections[end:]


def _unmarked(section: bytes) -> bytes:
    if not section:
        return b""
    entries, _ = decode(section, 3, True)
    assert isinstance(entries, dict)
    kept = {key: value for key, value in entries.items() if key not in MARKS}
    return application_properties_section(kept) if kept else b""
