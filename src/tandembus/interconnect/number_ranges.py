"""Numbers that mostly follow each other, told as ranges: a commit answers hundreds of them at once.

They come in any order, since a commit goes from fragment to fragment and a sender goes round them. In their own order
few ranges are left.
"""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.encoder import write_u32
from tandembus.errors import MalformedData
from tandembus.interconnect.fields import Cursor


@final
class NumberRanges:
    __slots__ = ("_is_in_order", "_last", "_numbers")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._last: i64 = -1
        self._is_in_order: bool = True

    def is_empty(self) -> bool:
        return not self._numbers

    def add(self, number: i64) -> None:
        if number < self._last:
            self._is_in_order = False
        self._last = number
        self._numbers.append(int(number))

    def take(self) -> list[tuple[int, int]]:
        """All that was added since the last time: the first number of each range, and its last."""
        numbers = self._numbers
        if not self._is_in_order:
            numbers.sort()
        self.clear()
        ranges: list[tuple[int, int]] = []
        if not numbers:
            return ranges
        first: i64 = numbers[0]
        last = first
        for number in numbers:
            if i64(number) > last + 1:
                ranges.append((int(first), int(last)))
                first = number
            last = number
        ranges.append((int(first), int(last)))
        return ranges

    def take_into(self, out: BytesWriter) -> None:
        for first, last in self.take():
            write_i64_be(out, first)
            write_u32(out, last - first + 1)

    def clear(self) -> None:
        self._numbers = []
        self._last = -1
        self._is_in_order = True


def read_range(cursor: Cursor, most: i64) -> tuple[i64, i64]:
    """The next range: its first number, and the one behind its last. Raises for one of more numbers than can be."""
    first = cursor.long()
    count = cursor.u32()
    if first < 0 or count > most:
        raise MalformedData("a range of numbers that cannot be")
    return first, first + count
