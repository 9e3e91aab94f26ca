"""What a channel carries to its broker: sends, settlements and whole transactions, each until its fate is known."""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.codec import encode
from tandembus.amqp.encoding.encoder import write_u32
from tandembus.broker.locks import OPEN, RELEASE, MessageLock, SettleReply
from tandembus.broker.operations import SendOperation, TransferSource
from tandembus.broker.transactions import TransactionOperation, TransactionSettlement
from tandembus.errors import BusError
from tandembus.interconnect.fields import write_sized, write_text, write_u8
from tandembus.interconnect.frames import DISCHARGE, SCHEDULE, SEND, SETTLE
from tandembus.interconnect.open_operations import OpenOperation
from tandembus.interconnect.wire_messages import write_sent

IS_VIA: Final = 1
HAS_SOURCE: Final = 2
HAS_NUMBERS: Final = 4

HAS_REASON: Final = 1
HAS_CHANGES: Final = 2

SETTLE_BYTES: Final = 64
"""What a settlement counts for in a window of bytes."""


def write_send(out: BytesWriter, operation: SendOperation) -> None:
    source = operation.source
    facts: i64 = IS_VIA if operation.is_via else 0
    if source is not None:
        facts |= HAS_SOURCE
    promised = operation.promised
    if promised is not None:
        facts |= HAS_NUMBERS
    write_u8(out, facts)
    write_u32(out, operation.size_bytes)
    write_u32(out, len(operation.messages))
    for message in operation.messages:
        write_sent(out, message)
    if source is not None:
        _write_source(out, source)
    if promised is not None:
        for number in promised:
            write_i64_be(out, number)


def _write_source(out: BytesWriter, source: TransferSource) -> None:
    """A number for each message."""
    write_u32(out, source.fragment)
    write_u8(out, source.lane)
    for number in source.numbers:
        write_i64_be(out, number)


def write_settlement(
    out: BytesWriter, token: bytes, settlement: i64, reason: str | None, description: str | None, changes: bytes
) -> None:
    out.write(token)
    write_u8(out, settlement)
    facts: i64 = HAS_REASON if reason is not None or description is not None else 0
    if changes:
        facts |= HAS_CHANGES
    write_u8(out, facts)
    if facts & HAS_REASON:
        write_text(out, reason)
        write_text(out, description)
    if changes:
        write_sized(out, changes)


def encoded(changes: dict[str, object] | None) -> bytes:
    """Raises InvalidArgument for what AMQP has no form for: before anything is under way."""
    return encode(changes) if changes else b""


@final
class OpenSend(OpenOperation):
    def __init__(
        self, fragment_key: i64, index: i64, operation: SendOperation, deadline: float, wants_numbers: bool = False
    ) -> None:
        super().__init__(operation.size_bytes, deadline, index)
        self.numbers: list[int] | None = None
        """Of its messages, where its sender wants them. None when it is known from the mark alone that they are
        stored."""
        self._wants_numbers: bool = wants_numbers
        self._fragment_key: i64 = fragment_key
        self._operation: Final = operation

    def write(self, out: BytesWriter) -> None:
        write_u8(out, SCHEDULE if self._wants_numbers else SEND)
        write_i64_be(out, self.number)
        write_u32(out, self._fragment_key)
        write_send(out, self._operation)

    def answered(self, error: BusError | None) -> None:
        self._operation.reply.sent(self._operation, error)


@final
class OpenSettle(OpenOperation):
    def __init__(
        self, fragment_key: i64, lock: MessageLock, settlement: i64, reply: SettleReply | None, deadline: float
    ) -> None:
        super().__init__(SETTLE_BYTES, deadline, lock.index)
        self._fragment_key: i64 = fragment_key
        self._lock: Final = lock
        self._settlement: i64 = settlement
        self._reply: SettleReply | None = reply
        self._changes: bytes = encoded(lock.changes)

    def write(self, out: BytesWriter) -> None:
        lock, reply = self._lock, self._reply
        if reply is not None and not reply.is_wanted():
            self._release_instead()
        write_u8(out, SETTLE)
        write_i64_be(out, self.number)
        write_u32(out, self._fragment_key)
        write_settlement(out, lock.token, self._settlement, lock.reason, lock.description, self._changes)

    def _release_instead(self) -> None:
        """Whoever wanted it removed is gone, and the broker has not heard of it, or has not done it."""
        self._settlement = RELEASE
        self._lock.settlement = RELEASE
        self._reply = None

    def can_be_repeated(self) -> bool:
        return True

    def answered(self, error: BusError | None) -> None:
        lock, reply = self._lock, self._reply
        if error is not None:
            lock.settlement = OPEN  # it may be asked for again; the broker has the last word
        if reply is not None:
            reply.settled(lock, error)


@final
class OpenDischarge(OpenOperation):
    def __init__(self, fragment_key: i64, index: i64, operation: TransactionOperation, deadline: float) -> None:
        size_bytes = operation.size_bytes
        for part in operation.others:
            size_bytes += part.operation.size_bytes
        super().__init__(size_bytes, deadline, index)
        self._fragment_key: i64 = fragment_key
        self._operation: Final = operation
        self._changes: list[bytes] = _encoded_changes(operation)
        for part in operation.others:
            self._changes += _encoded_changes(part.operation)

    def write(self, out: BytesWriter) -> None:
        operation = self._operation
        write_u8(out, DISCHARGE)
        write_i64_be(out, self.number)
        write_u32(out, self._fragment_key)
        changes = self._write_part(out, operation, 0)
        write_u32(out, len(operation.others))
        for part in operation.others:
            write_u32(out, part.fragment_key)
            changes = self._write_part(out, part.operation, changes)

    def _write_part(self, out: BytesWriter, operation: TransactionOperation, changes: int) -> int:
        """`changes`: the place of its first settlement's among those of all; returns that of the next part's."""
        write_u32(out, len(operation.sends))
        for send in operation.sends:
            write_send(out, send)
        write_u32(out, len(operation.settlements))
        for part in operation.settlements:
            write_settlement(
                out, part.lock.token, part.settlement, part.reason, part.description, self._changes[changes]
            )
            changes += 1
        write_u32(out, len(operation.cancels))
        for cancel in operation.cancels:
            write_i64_be(out, cancel.number)
            write_i64_be(out, cancel.size_bytes)
            write_i64_be(out, cancel.due_ms)
        write_u32(out, len(operation.states))
        for change in operation.states:
            write_u32(out, change.hold_number)
            write_u8(out, 0 if change.state is None else 1)
            write_sized(out, change.state or b"")
        return changes

    def answered(self, error: BusError | None) -> None:
        tell_discharged(self._operation, error)


def tell_discharged(operation: TransactionOperation, error: BusError | None) -> None:
    """Its parts' own replies are called when it was carried out, in the order in which a fragment calls them."""
    if error is None:
        _tell_parts(operation)
        for other in operation.others:
            _tell_parts(other.operation)
    operation.reply.discharged(operation, error)


def _encoded_changes(operation: TransactionOperation) -> list[bytes]:
    return [encoded(one.changes) for one in operation.settlements]


def _tell_parts(operation: TransactionOperation) -> None:
    for part in operation.settlements:
        _carried_out(part)
    for send in operation.sends:
        send.reply.sent(send, None)


def _carried_out(part: TransactionSettlement) -> None:
    lock = part.lock
    lock.is_quiet = part.is_quiet
    lock.asked = part.settlement
    lock.settlement = part.settlement
    reply = part.reply
    if reply is not None:
        reply.settled(lock, None)
