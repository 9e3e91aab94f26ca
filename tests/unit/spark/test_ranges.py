"""Ranges of sequence numbers and how they are spread over tasks."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tandembus.spark.source.ranges import Listed, Slice, count_of, joined, numbers_of, packed, ranges_of, slices_of

numbers = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 200)), max_size=80)


@given(numbers)
def test_numbers_become_ranges_and_come_back(pairs: list[tuple[int, int]]) -> None:
    full = sorted({fragment << 48 | number for fragment, number in pairs})
    ranges = ranges_of(full)
    assert numbers_of(ranges) == full
    assert count_of(ranges) == len(full)
    for parts in ranges.values():
        assert all(earlier[1] + 1 < later[0] for earlier, later in itertools.pairwise(parts))


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(0, 20))
def test_joined_ranges_cover_all_and_are_further_apart_than_the_gap(found: list[int], gap: int) -> None:
    ranges = ranges_of(found)[0]
    wide = joined(ranges, gap)
    listed = Listed(ranges)
    assert all(any(first <= number <= last for first, last in wide) for number in found)
    assert all(later[0] - earlier[1] - 1 > gap for earlier, later in itertools.pairwise(wide))
    assert [number for number in range(302) if number in listed] == sorted(set(found))


def test_slices_are_packed_whole_and_evenly() -> None:
    slices = [Slice("q", fragment, ((1, size),)) for fragment, size in enumerate((10, 20, 30, 40, 50))]
    partitions = packed(slices, 2)
    assert sorted(sum(part.count for part in one) for one in partitions) == [70, 80]
    assert sorted((part for one in partitions for part in one), key=lambda one: one.count) == slices


def test_there_are_no_more_partitions_than_slices() -> None:
    assert len(packed([Slice("q", 0, ((1, 5),))], 8)) == 1
    assert packed([], 8) == []


def test_a_batch_is_sliced_by_entity_and_fragment() -> None:
    batch = {"b": {1: [(1, 2)], 0: [(3, 4)]}, "a": {0: [(5, 6), (8, 9)], 1: []}}
    assert slices_of(batch) == [Slice("a", 0, ((5, 6), (8, 9))), Slice("b", 0, ((3, 4),)), Slice("b", 1, ((1, 2),))]
