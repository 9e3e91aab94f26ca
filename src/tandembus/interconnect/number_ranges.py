"""Numbers that mostly follow each other, written as ranges: a commit answers hundreds of them at once."""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.encoder import write_u32
from tandembus.errors import MalformedData
from tandembus.interconnect.fields import Cursor


@final
class NumberRanges:
    __slots__ = ("_end", "_first", "_out")

    def __init__(self) -> None:
        self._out: BytesWriter = BytesWriter()
        self._first: i64 = 0
        self._end: i64 = 0

    def is_empty(self) -> bool:
        return self._first == self._end

    def add(self, number: i64) -> None:
        if number == self._end and self._first != self._end:
            self._end = number + 1
            return
        self._close()
        self._first = number
        self._end = number + 1

    def _close(self) -> None:
        if self._first != self._end:
            write_i64_be(self._out, self._first)
            write_u32(self._out, self._end - self._first)

    def take_into(self, out: BytesWriter) -> None:
        """All that was added since the last time."""
        self._close()
        out.write(self._out.getvalue())
        self._out = BytesWriter()
        self._first = 0
        self._end = 0

    def clear(self) -> None:
        self._out = BytesWriter()
        self._first = 0
        self._end = 0


def read_range(cursor: Cursor, most: i64) -> tuple[i64, i64]:
    """The next range: its first number, and the one behind its last. Raises for one of more numbers than can be."""
    first = cursor.long()
    count = cursor.u32()
    if first < 0 or count > most:
        raise MalformedData("a range of numbers that cannot be")
    return first, first + count
