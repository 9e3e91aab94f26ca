"""Numbers told as ranges, whatever order they came in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from tandembus.interconnect.fields import Cursor
from tandembus.interconnect.number_ranges import NumberRanges, read_range


def gathered(*numbers: int) -> NumberRanges:
    ranges = NumberRanges()
    for number in numbers:
        ranges.add(number)
    return ranges


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], []),
        ([7], [(7, 7)]),
        ([1, 2, 3], [(1, 3)]),
        ([1, 2, 5, 6, 9], [(1, 2), (5, 6), (9, 9)]),
        ([0, 4, 8, 1, 5, 9, 2, 6, 3, 7], [(0, 9)]),
        ([3, 1], [(1, 1), (3, 3)]),
        ([5, 5, 6], [(5, 6)]),
        ([2**32 - 1, 2**32 - 2], [(2**32 - 2, 2**32 - 1)]),
    ],
)
def test_numbers_are_told_in_as_few_ranges_as_they_make(numbers: list[int], expected: list[tuple[int, int]]) -> None:
    assert gathered(*numbers).take() == expected


def test_what_was_taken_is_not_told_again() -> None:
    ranges = gathered(9, 3)
    ranges.take()
    assert ranges.is_empty()
    assert ranges.take() == []
    ranges.add(4)
    assert ranges.take() == [(4, 4)]


@given(st.lists(st.integers(0, 300), unique=True))
def test_what_is_written_is_read_again(numbers: list[int]) -> None:
    out = BytesWriter()
    gathered(*numbers).take_into(out)
    data = out.getvalue()
    cursor = Cursor(data, 0, len(data))
    read: list[int] = []
    while cursor.has_more():
        first, end = read_range(cursor, 1000)
        read += range(first, end)
    assert read == sorted(numbers)
