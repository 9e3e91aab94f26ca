"""What a front end asks for over a channel, read from its frames: settlements and whole transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.codec import decode_between
from tandembus.broker.locks import COMPLETE, LAPSE, LOCK_LOST, REMOVE, TOKEN_BYTES
from tandembus.broker.operations import SendOperation
from tandembus.broker.transactions import TransactionOperation, TransactionReply, TransactionSettlement
from tandembus.errors import BusError, MalformedData, MessageLockLost
from tandembus.interconnect.channel_operations import HAS_CHANGES, HAS_REASON
from tandembus.interconnect.deferred import Deferred
from tandembus.interconnect.fields import Cursor
from tandembus.interconnect.frames import SENDS
from tandembus.interconnect.local_traffic import LocalTraffic

if TYPE_CHECKING:
    from tandembus.interconnect.served_channel import ServedChannel


@final
class Settlement:
    """What a front end asks to become of a lock."""

    __slots__ = ("changes", "description", "reason", "settlement", "token")

    def __init__(self, token: bytes, settlement: i64) -> None:
        self.token: Final = token
        self.settlement: i64 = settlement
        self.reason: str | None = None
        self.description: str | None = None
        self.changes: dict[str, object] | None = None


def read_settlement(cursor: Cursor) -> Settlement:
    part = Settlement(cursor.bytes_of(TOKEN_BYTES), cursor.byte())
    if not COMPLETE <= part.settlement <= LAPSE and part.settlement != REMOVE:
        raise MalformedData("a settlement that nobody may ask for")
    facts = cursor.byte()
    if facts & HAS_REASON:
        part.reason = cursor.text_or_none()
        part.description = cursor.text_or_none()
    if facts & HAS_CHANGES:
        part.changes = _read_changes(cursor)
    return part


def _read_changes(cursor: Cursor) -> dict[str, object]:
    size = cursor.u32()
    at = cursor.skip(size)
    changes = decode_between(cursor.data, at, at + size, True)
    if not isinstance(changes, dict):
        raise MalformedData("changes that are no map")
    named: dict[str, object] = {}
    for name, value in changes.items():
        named[str(name)] = value
    return named


@final
class Discharge(Deferred):
    """A whole transaction."""

    def __init__(self, channel: ServedChannel, number: i64) -> None:
        self.number: i64 = number
        self.sends: Final[list[SendOperation]] = []
        self.settlements: Final[list[Settlement]] = []
        self._channel: Final = channel

    def carry_out(self, traffic: LocalTraffic) -> None:
        try:
            parts = [self._part(traffic, one) for one in self.settlements]
            traffic.discharge(TransactionOperation(self.sends, parts, _Discharged(self._channel, self.number)))
        except BusError as error:
            self.refuse(error)

    def _part(self, traffic: LocalTraffic, settlement: Settlement) -> TransactionSettlement:
        lock = traffic.fragment.locks.find(settlement.token)
        if lock is None:
            raise MessageLockLost(LOCK_LOST)
        self._channel.receivers.was_settled(lock)
        return TransactionSettlement(
            lock, settlement.settlement, None, False, settlement.reason, settlement.description, settlement.changes
        )

    def refuse(self, error: BusError) -> None:
        self._channel.answer(SENDS, self.number, error)


@final
class _Discharged(TransactionReply):
    def __init__(self, channel: ServedChannel, number: i64) -> None:
        self._channel: Final = channel
        self._number: i64 = number

    def collected(self, operation: TransactionOperation) -> None:
        self._channel.collected(SENDS, self._number)

    def discharged(self, operation: TransactionOperation, error: BusError | None) -> None:
        self._channel.answer(SENDS, self._number, error)
