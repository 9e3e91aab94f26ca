"""Reading a described list field by field, straight from the frame's bytes.

Every performative is such a list. Reading it this way builds only what is asked for, so the same code serves
a rare `open` and a million transfers a second, and every read is checked against the list's end.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from tandembus.amqp.encoding.codec import decode_between, skip_value
from tandembus.amqp.encoding.descriptors import code_of
from tandembus.errors import MalformedData

UINT_MAX: Final = 0xFFFFFFFF
INT64_MAX: Final = 0x7FFFFFFFFFFFFFFF


@final
class Fields:
    """A cursor over one list; kept and used again for every frame of a connection."""

    __slots__ = ("at", "data", "left", "list_at", "stop")

    def __init__(self) -> None:
        self.data: bytes = b""
        self.at: i64 = 0
        self.stop: i64 = 0
        self.left: i64 = 0
        self.list_at: i64 = 0

    def open(self, data: bytes, at: i64, end: i64) -> i64:
        """Begin with the described list at `at`; returns its descriptor's code."""
        if at + 4 > end or data[at] != 0:
            raise MalformedData("a described list is expected here")
        code: i64
        if data[at + 1] == 0x53:
            code = data[at + 2]
            at += 3
        else:
            start: i64 = at + 1
            at = skip_value(data, start, end)
            code = code_of(decode_between(data, start, at))
        self.open_list(data, at, end)
        return code

    def open_list(self, data: bytes, at: i64, end: i64) -> None:
        if at >= end:
            raise MalformedData("the data ends where a list should begin")
        self.list_at = at
        code: i64 = data[at]
        count: i64
        if code == 0xC0 and at + 3 <= end:
            stop: i64 = at + 2 + i64(data[at + 1])
            count = data[at + 2]
            at += 3
        elif code == 0xD0 and at + 9 <= end:
            stop = at + 5 + (i64(read_i32_be(data, at + 1)) & UINT_MAX)
            count = i64(read_i32_be(data, at + 5)) & UINT_MAX
            at += 9
        elif code == 0x45:
            at += 1
            stop = at
            count = 0
        else:
            raise MalformedData("a list is expected here")
        if stop > end or at > stop or count > stop - at:
            raise MalformedData("a size or count that does not fit the data")
        self.data = data
        self.at = at
        self.stop = stop
        self.left = count

    def _next(self) -> i64:
        """The next field's constructor; null when the list has ended."""
        if self.left <= 0:
            return 0x40
        if self.at >= self.stop:
            raise MalformedData("the data ends within a list")
        return self.data[self.at]

    def number(self, absent: i64) -> i64:
        """An unsigned number of at most 32 bits."""
        code: i64 = self._next()
        self.left -= 1
        at: i64 = self.at + 1
        if code == 0x40:
            if self.left >= 0:
                self.at = at
            return absent
        if code == 0x43:
            self.at = at
            return 0
        if (code == 0x52 or code == 0x50) and at < self.stop:
            self.at = at + 1
            return self.data[at]
        if code == 0x70 and at + 4 <= self.stop:
            self.at = at + 4
            return i64(read_i32_be(self.data, at)) & UINT_MAX
        return self._any_number(UINT_MAX)

    def _any_number(self, highest: int) -> i64:
        """Another integer type than the specification's, which some peers send and nobody can mistake."""
        value = self._take()
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise MalformedData("a number is expected here")
        if value <= highest:
            return i64(value)
        if highest == INT64_MAX:
            return i64(highest)
        raise MalformedData("a number that is too large")

    def size(self) -> i64:
        """A ulong; zero when absent, cut at 2^63-1, which no size reaches."""
        code: i64 = self._next()
        self.left -= 1
        if code == 0x40:
            if self.left >= 0:
                self.at += 1
            return 0
        return self._any_number(INT64_MAX)

    def flag(self, absent: bool) -> bool:
        code: i64 = self._next()
        self.left -= 1
        at: i64 = self.at + 1
        if code == 0x40:
            if self.left >= 0:
                self.at = at
            return absent
        if code == 0x41 or code == 0x42:
            self.at = at
            return code == 0x41
        if code == 0x56 and at < self.stop and self.data[at] <= 1:
            self.at = at + 1
            return self.data[at] == 1
        raise MalformedData("a boolean is expected here")

    def binary(self) -> bytes | None:
        code: i64 = self._next()
        self.left -= 1
        at: i64 = self.at + 1
        if code == 0x40:
            if self.left >= 0:
                self.at = at
            return None
        if code == 0xA0 and at < self.stop:
            end: i64 = at + 1 + i64(self.data[at])
            if end <= self.stop:
                self.at = end
                return self.data[at + 1 : end]
        value = self._take()
        if not isinstance(value, bytes):
            raise MalformedData("a binary is expected here")
        return value

    def text(self) -> str | None:
        value = self.value()
        if value is None or isinstance(value, str):
            return value
        raise MalformedData("a string or symbol is expected here")

    def value(self) -> object:
        """Any value, untyped."""
        code: i64 = self._next()
        self.left -= 1
        if code == 0x40:
            if self.left >= 0:
                self.at += 1
            return None
        return self._take()

    def _take(self) -> object:
        start: i64 = self.at
        self.at = skip_value(self.data, start, self.stop)
        return decode_between(self.data, start, self.at)

    def raw(self) -> bytes:
        """The next field as it stands; empty for null."""
        code: i64 = self._next()
        self.left -= 1
        if code == 0x40:
            if self.left >= 0:
                self.at += 1
            return b""
        start: i64 = self.at
        self.at = skip_value(self.data, start, self.stop)
        return self.data[start : self.at]

    def skip(self, count: i64) -> None:
        while count > 0:
            if self.left > 0:
                self.at = skip_value(self.data, self.at, self.stop)
            self.left -= 1
            count -= 1

    def symbol_keyed(self) -> dict[str, object] | None:
        """A map of the protocol's type `fields`."""
        value = self.value()
        if value is None:
            return None
        if not isinstance(value, dict):
            raise MalformedData("a map is expected here")
        return text_keys(value)


def text_keys(entries: dict[object, object]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in entries.items():
        if not isinstance(key, str):
            raise MalformedData("a map key that is not a symbol")
        result[key] = value
    return result
