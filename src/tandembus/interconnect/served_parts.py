"""What a front end asks for over a channel, read from its frames: settlements and whole transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.codec import decode_between
from tandembus.broker.locks import COMPLETE, LAPSE, LOCK_LOST, REMOVE, TOKEN_BYTES
from tandembus.broker.operations import SendOperation
from tandembus.broker.sessions import SESSION_LOST
from tandembus.broker.transactions import (
    PartReply,
    TransactionCancel,
    TransactionOperation,
    TransactionPart,
    TransactionReply,
    TransactionSettlement,
    TransactionState,
)
from tandembus.errors import BusError, MalformedData, MessageLockLost, SessionLockLost
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


def read_state(cursor: Cursor) -> tuple[int, bytes | None]:
    """Of a session: the number of its hold, and what is to be kept with it."""
    number, is_set = cursor.u32(), cursor.byte()
    state = cursor.sized_bytes()
    return int(number), state if is_set else None


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
class DischargePart:
    """What it does on one member of the family."""

    __slots__ = ("cancels", "fragment_key", "sends", "settlements", "states")

    def __init__(self, fragment_key: i64) -> None:
        self.fragment_key: i64 = fragment_key
        self.cancels: Final[list[TransactionCancel]] = []
        self.states: Final[list[tuple[int, bytes | None]]] = []
        """By the number of the hold."""
        self.sends: Final[list[SendOperation]] = []
        self.settlements: Final[list[Settlement]] = []


@final
class Discharge(Deferred):
    """A whole transaction."""

    def __init__(self, channel: ServedChannel, number: i64) -> None:
        self.number: i64 = number
        self.parts: Final[list[DischargePart]] = []
        self._channel: Final = channel

    def carry_out(self, traffic: LocalTraffic) -> None:
        """Waits on, where another member of the family has to be opened first."""
        ways: list[LocalTraffic] = []
        for part in self.parts:
            way = self._channel.traffic(part.fragment_key)
            if way is None:
                self._channel.defer(part.fragment_key, self)
                return
            ways.append(way)
        try:
            others = [
                TransactionPart(way, self._operation(part, way, PartReply(), None))
                for part, way in zip(self.parts[1:], ways[1:], strict=True)
            ]
            reply = _Discharged(self._channel, self.number)
            ways[0].discharge(self._operation(self.parts[0], ways[0], reply, others))
        except BusError as error:
            self.refuse(error)

    def _operation(
        self, part: DischargePart, way: LocalTraffic, reply: TransactionReply, others: list[TransactionPart] | None
    ) -> TransactionOperation:
        settlements = [self._part(way, one) for one in part.settlements]
        operation = TransactionOperation(part.sends, settlements, reply, others)
        operation.cancels = part.cancels
        operation.states = [self._state(number, state) for number, state in part.states]
        return operation

    def _state(self, number: int, state: bytes | None) -> TransactionState:
        hold = self._channel.receivers.sessions.hold_of(number)
        if hold is None:
            raise SessionLockLost(SESSION_LOST)
        return TransactionState(hold.session_id, state, hold.lock, 0)

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
