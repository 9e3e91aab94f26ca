"""Messages, locks and counts as the plain values of a call. Both ends of a channel read and write them here."""

from __future__ import annotations

from collections.abc import Sequence

from librt.strings import BytesWriter

from tandembus.broker.locks import MessageLock
from tandembus.errors import MalformedData
from tandembus.interconnect.fields import Cursor
from tandembus.interconnect.requests import Browsed, Counts
from tandembus.interconnect.wire_messages import read_stored, write_stored
from tandembus.message import Message
from tandembus.store.messaging_store import LANES


class Values:
    """What a call brought, one by one. Raises MalformedData for what is not what it must be."""

    def __init__(self, value: object) -> None:
        if not isinstance(value, list):
            raise MalformedData("no list of values")
        self._values = value
        self._at = 0

    def _next(self) -> object:
        """What an older version does not say yet is None."""
        value = self._values[self._at] if self._at < len(self._values) else None
        self._at += 1
        return value

    def integer(self) -> int:
        value = self._next()
        if isinstance(value, bool) or not isinstance(value, int):
            raise MalformedData("no number where one must be")
        return value

    def lane(self) -> int:
        lane = self.integer()
        if lane not in LANES:
            raise MalformedData("a lane that does not exist")
        return lane

    def integer_or_none(self) -> int | None:
        value = self._next()
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise MalformedData("no number where one may be")
        return value

    def text_or_none(self) -> str | None:
        value = self._next()
        if value is not None and not isinstance(value, str):
            raise MalformedData("no text where one may be")
        return value

    def boolean(self) -> bool:
        value = self._next()
        if not isinstance(value, bool):
            raise MalformedData("no yes or no where one must be")
        return value

    def bytes_or_none(self) -> bytes | None:
        value = self._next()
        if value is not None and not isinstance(value, bytes):
            raise MalformedData("no bytes where some may be")
        return value

    def data(self) -> bytes:
        value = self.bytes_or_none()
        if value is None:
            raise MalformedData("no bytes where some must be")
        return value

    def integers(self) -> list[int]:
        return [one for one in self.items() if isinstance(one, int)]

    def texts(self) -> list[str]:
        return [one for one in self.items() if isinstance(one, str)]

    def parts(self) -> list[bytes]:
        return [one for one in self.items() if isinstance(one, bytes)]

    def lists(self) -> list[Values]:
        return [Values(one) for one in self.items()]

    def items(self) -> list[object]:
        value = self._next()
        if not isinstance(value, list):
            raise MalformedData("no list where one must be")
        return value


def stored_value(message: Message) -> bytes:
    out = BytesWriter()
    write_stored(out, message)
    return out.getvalue()


def stored_of(value: bytes) -> Message:
    return read_stored(Cursor(value, 0, len(value)))


def lock_value(lock: MessageLock) -> list[object]:
    return [
        lock.token,
        int(lock.lane),
        int(lock.number),
        int(lock.locked_until_ms),
        int(lock.size_bytes),
        int(lock.expires_at),
        int(lock.delivery_count),
        lock.application_properties,
        lock.is_deferred,
    ]


def lock_of(values: Values, now: float, now_ms: int) -> MessageLock:
    """As a front end knows it: the broker has the last word."""
    token, lane, number = values.data(), values.integer(), values.integer()
    until_ms, size_bytes, expires_at = values.integer(), values.integer(), values.integer()
    lock = MessageLock(token, lane, number, now + (until_ms - now_ms) / 1000, size_bytes, expires_at)
    lock.locked_until_ms = until_ms
    lock.delivery_count = values.integer()
    lock.application_properties = values.data()
    lock.is_deferred = values.boolean()
    return lock


def counts_value(counts: Counts) -> list[object]:
    return [
        counts.active,
        counts.dead_letter,
        counts.scheduled,
        counts.transfer,
        counts.transfer_dead_letter,
        counts.size_bytes,
        counts.deferred,
    ]


def counts_of(value: object) -> Counts:
    values = Values(value)
    return Counts(*[values.integer() for _ in range(7)])


def browsed_value(found: Sequence[Browsed]) -> list[object]:
    return [[stored_value(one.message), one.sequence_number, one.state] for one in found]


def browsed_of(value: object) -> list[Browsed]:
    found = []
    for one in value if isinstance(value, list) else []:
        values = Values(one)
        found.append(Browsed(stored_of(values.data()), values.integer(), values.integer()))
    return found


def taken_value(taken: Sequence[tuple[MessageLock, Message]]) -> list[object]:
    return [[lock_value(lock), stored_value(message)] for lock, message in taken]


def taken_of(value: object, now: float, now_ms: int) -> list[tuple[MessageLock, Message]]:
    taken = []
    for one in value if isinstance(value, list) else []:
        values = Values(one)
        lock = lock_of(Values(values.items()), now, now_ms)
        taken.append((lock, stored_of(values.data())))
    return taken
