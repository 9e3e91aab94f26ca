"""Dead letters on their way back: to the entity they died in, or to another one.

A message leaves the dead letters only when it is durable where it goes; within a queue both happen in one commit. So an
interruption may leave a message in both places, and never in none. What the target drops (a duplicate, or what no
subscription of a topic takes) stays where it is, since accepting it would be the end of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from tandembus.amqp.encoding.codec import decode
from tandembus.amqp.encoding.sections import application_properties_section, header_section
from tandembus.broker import browsing
from tandembus.broker.locks import COMPLETE, RELEASE, MessageLock, SettleReply
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.reading import read_messages
from tandembus.broker.transactions import CallbackTransactionReply, TransactionOperation, TransactionSettlement
from tandembus.broker.transfer_destination import destination_of
from tandembus.descriptions import EntityKind
from tandembus.errors import BusError, InvalidOperation, StoreUnavailable
from tandembus.front_end.amqp.sender_link import SendChecks
from tandembus.message import Message
from tandembus.namespace.entity import Entity

SLICE_MESSAGES: Final = 100
SLICE_BYTES: Final = 4 * 1024 * 1024
MAX_REFUSALS: Final = 10
MARKS: Final = ("DeadLetterReason", "DeadLetterErrorDescription")


@dataclass(slots=True)
class Progress:
    moved: int = 0
    moved_bytes: int = 0
    refused: int = 0
    refusals: list[tuple[int, str]] = field(default_factory=list)
    """The first of them: number and reason."""

    def refuse(self, number: int, error: BusError) -> None:
        self.refused += 1
        if len(self.refusals) < MAX_REFUSALS:
            self.refusals.append((number, str(error)))


@dataclass(frozen=True, slots=True)
class Move:
    """One message: its lock among the dead letters, and itself as it is sent again."""

    lock: MessageLock
    message: Message


class Resubmission:
    def __init__(
        self, broker: MessageBroker, source: Entity, lane: int, target: Entity, is_home: bool, checks: SendChecks
    ) -> None:
        """`is_home`: nobody chose the target, it is where messages of the source come from."""
        self._is_home = is_home
        self._broker = broker
        self._source = source
        self._lane = lane
        self._target = target
        self._checks = checks
        is_same = source.fragment is target.fragment
        self._is_one_commit = is_same and target.fragment.duplicates is None

    async def run(self, max_count: int) -> AsyncIterator[Progress]:
        """Moves what is there now, oldest first: what dies while this goes on is left for another time."""
        progress = Progress()
        fragment = self._source.fragment
        at, end = 1, int(fragment.lane(self._lane).visible_end)
        while progress.moved + progress.refused < max_count:
            wanted = min(SLICE_MESSAGES, max_count - progress.moved - progress.refused)
            lane = fragment.lane(self._lane)
            numbers = [number for number in lane.next_available(at, wanted) if number < end]
            if not numbers:
                return
            records = await read_messages(self._broker, fragment, lane, numbers, SLICE_BYTES)
            at = numbers[len(records) - 1] + 1
            await self._move_all([one for one in records if isinstance(one, Message)], progress)
            yield progress

    async def _move_all(self, dead: list[Message], progress: Progress) -> None:
        fragment = self._source.fragment
        moves: list[Move] = []
        for message in dead:
            if not fragment.lane(self._lane).is_waiting(message.number):
                continue  # somebody has taken it while it was read
            try:
                self._check_destination(message)
                (again,) = self._checks.parse(sent_again(message), 0)
                moves.append(Move(browsing.lock_waiting(fragment, self._lane, message), again))
            except StoreUnavailable:
                raise
            except BusError as error:
                progress.refuse(int(message.number), error)
        outcomes = await asyncio.gather(*[self._move(move) for move in moves], return_exceptions=True)
        failure: BaseException | None = None
        for move, outcome in zip(moves, outcomes, strict=True):
            if outcome is None:
                progress.moved += 1
                progress.moved_bytes += int(move.message.wire_size)
            elif isinstance(outcome, BusError) and not outcome.retryable:
                progress.refuse(int(move.lock.number), outcome)
            else:
                failure = outcome
        if failure is not None:
            raise failure

    def _check_destination(self, message: Message) -> None:
        destination = destination_of(message)
        if destination and self._is_home:
            raise InvalidOperation(f"It was sent for '{destination}', not for '{self._target.name}': say where to.")

    async def _move(self, move: Move) -> None:
        try:
            if self._is_one_commit:
                await self._move_in_one_commit(move)
            else:
                await self._send(move.message)
        except BusError:
            self._give_back(move.lock)
            raise
        if not self._is_one_commit:
            await browsing.settle_each([move.lock], self._complete)

    def _complete(self, lock: MessageLock, reply: SettleReply) -> None:
        self._source.fragment.settle(lock, COMPLETE, reply)

    async def _send(self, message: Message) -> None:
        done: asyncio.Future[BusError | None] = asyncio.get_running_loop().create_future()
        reply = CallbackSendReply(lambda _operation, error: done.set_result(error))
        self._target.fragment.send(SendOperation([message], message.wire_size, reply, 0))
        error = await done
        if error is not None:
            raise error
        if message.number == 0:
            raise InvalidOperation(self._why_dropped())

    def _why_dropped(self) -> str:
        duplicate = f"as a duplicate, since '{self._target.name}' has seen its message id within its detection window"
        unwanted = "because no subscription takes it"
        if self._target.kind is not EntityKind.TOPIC:
            return f"The target would drop it: {duplicate}."
        if self._target.fragment.duplicates is None:
            return f"The target would drop it: {unwanted}."
        return f"The target would drop it: {duplicate}, or {unwanted}."

    async def _move_in_one_commit(self, move: Move) -> None:
        done: asyncio.Future[BusError | None] = asyncio.get_running_loop().create_future()
        ignored = CallbackSendReply(_ignore)
        operation = TransactionOperation(
            [SendOperation([move.message], move.message.wire_size, ignored, 0)],
            [TransactionSettlement(move.lock, COMPLETE)],
            CallbackTransactionReply(lambda _operation, error: done.set_result(error)),
        )
        self._source.fragment.discharge(operation)
        error = await done
        if error is not None:
            raise error

    def _give_back(self, lock: MessageLock) -> None:
        try:
            self._source.fragment.settle(lock, RELEASE, None)
        except BusError:
            return  # the lock is over, one way or the other


def _ignore(_operation: SendOperation, _error: BusError | None) -> None:
    return


def sent_again(message: Message) -> bytes:
    """The dead message as its sender sent it, as far as that is known: without the reason of its death."""
    sections, start, end = message.sections, int(message.properties_end), int(message.application_end)
    properties = message.application_properties or sections[start:end]
    header = header_section(durable=True, priority=int(message.priority))
    return header + sections[:start] + _unmarked(properties) + sections[end:]


def _unmarked(section: bytes) -> bytes:
    if not section:
        return b""
    entries, _ = decode(section, 3, True)
    assert isinstance(entries, dict)
    kept = {key: value for key, value in entries.items() if key not in MARKS}
    return application_properties_section(kept) if kept else b""
