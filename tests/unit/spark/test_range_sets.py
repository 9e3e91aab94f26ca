"""Ranges of sequence numbers against plain sets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tandembus.spark.source.ranges import (
    FragmentRanges,
    count_of,
    first_of,
    full_number,
    intersection,
    ranges_of,
    union,
    without,
)

Numbers = set[tuple[int, int]]
numbers = st.sets(st.tuples(st.integers(0, 2), st.integers(1, 20)))


def ranges(numbers: Numbers) -> FragmentRanges:
    return ranges_of([full_number(*each) for each in numbers])


def numbers_in(ranges: FragmentRanges) -> Numbers:
    assert all(ranges.values()), "a fragment without numbers"
    for some in ranges.values():
        assert all(before[1] + 1 < after[0] for before, after in pairwise(some))
    return {(fragment, number) for fragment, some in ranges.items() for a, b in some for number in range(a, b + 1)}


@given(numbers, numbers)
def test_ranges_are_sets(ours: Numbers, others: Numbers) -> None:
    one, other = ranges(ours), ranges(others)
    assert numbers_in(one) == ours
    assert count_of(one) == len(ours)
    assert numbers_in(union((one, other))) == ours | others
    assert set(numbers_in(intersection(one, other))) == ours & others
    assert numbers_in(without(one, other)) == ours - others


@given(numbers, st.integers(0, 70))
def test_the_first_of_some_are_the_lowest_of_each_fragment(ours: Numbers, count: int) -> None:
    first = numbers_in(first_of(ranges(ours), count))
    assert len(first) == min(count, len(ours))
    for fragment, number in ours - first:
        assert all(taken < number for at, taken in first if at == fragment)
