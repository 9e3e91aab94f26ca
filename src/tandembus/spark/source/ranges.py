"""Ranges of sequence numbers as sets, and how they are spread over Spark's tasks. Plain functions on plain data."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from tandembus.spark.source.decoding import NUMBER_BITS, NUMBER_MASK

Range = tuple[int, int]
"""First and last number, both included: the low 48 bits of sequence numbers."""
FragmentRanges = dict[int, list[Range]]
"""By fragment, in order and apart from each other; a fragment without any is left out."""
Batch = dict[str, FragmentRanges]
"""Entity -> fragment -> ranges."""
SMALL_GAP: Final = 256
"""Ranges this close are read together, and what lies between them is left out afterwards."""


@dataclass(frozen=True)
class Slice:
    """A part of an entity that one task reads, in order. `fragment` None: all of them, in one walk."""

    entity: str
    fragment: int | None
    ranges: tuple[Range, ...]
    fragments: tuple[int, ...] = ()
    """Where `fragment` is None: only these; empty for all."""

    @property
    def count(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)


def full_number(fragment: int, number: int) -> int:
    return fragment << NUMBER_BITS | number


def ranges_of(sequence_numbers: Iterable[int]) -> FragmentRanges:
    """Full sequence numbers as ranges by fragment."""
    by_fragment: FragmentRanges = {}
    for each in sorted(set(sequence_numbers)):
        ranges = by_fragment.setdefault(each >> NUMBER_BITS, [])
        number = each & NUMBER_MASK
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return by_fragment


def numbers_of(ranges: FragmentRanges) -> list[int]:
    """Full sequence numbers, fragment by fragment."""
    return [
        full_number(fragment, number)
        for fragment, parts in sorted(ranges.items())
        for first, last in parts
        for number in range(first, last + 1)
    ]


def count_of(ranges: FragmentRanges) -> int:
    return sum(last - first + 1 for parts in ranges.values() for first, last in parts)


def joined(ranges: Sequence[Range], gap: int = SMALL_GAP) -> list[Range]:
    """Fewer and wider ranges that cover these: what is `gap` or less apart becomes one."""
    wide: list[Range] = []
    for first, last in sorted(ranges):
        if wide and first - wide[-1][1] - 1 <= gap:
            wide[-1] = (wide[-1][0], max(last, wide[-1][1]))
        else:
            wide.append((first, last))
    return wide


class Listed:
    """Tells whether a number lies in one of the ranges."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        ordered = sorted(ranges)
        self._firsts: Final = [first for first, _ in ordered]
        self._lasts: Final = [last for _, last in ordered]

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._firsts, number) - 1
        return place >= 0 and number <= self._lasts[place]


def slices_of(batch: Batch) -> list[Slice]:
    return [
        Slice(entity, fragment, tuple(ranges))
        for entity, fragments in sorted(batch.items())
        for fragment, ranges in sorted(fragments.items())
        if ranges
    ]


class Counted(Protocol):
    @property
    def count(self) -> int: ...


C = TypeVar("C", bound=Counted)


def packed(parts: Sequence[C], partition_count: int) -> list[list[C]]:
    """At most so many partitions, about equally full. A part is never split, since its messages have an order."""
    partitions: list[list[C]] = [[] for _ in range(min(partition_count, len(parts)))]
    counts = [0] * len(partitions)
    for each in sorted(parts, key=lambda one: -one.count):
        lightest = counts.index(min(counts))
        partitions[lightest].append(each)
        counts[lightest] += each.count
    return partitions


def union(parts: Iterable[FragmentRanges]) -> FragmentRanges:
    gathered: FragmentRanges = {}
    for part in parts:
        for fragment, some in part.items():
            gathered.setdefault(fragment, []).extend(some)
    return {fragment: joined(some, 0) for fragment, some in gathered.items() if some}


def intersection(ours: FragmentRanges, others: FragmentRanges) -> FragmentRanges:
    found = {fragment: _common(some, others.get(fragment, [])) for fragment, some in ours.items()}
    return {fragment: some for fragment, some in found.items() if some}


def without(ours: FragmentRanges, others: FragmentRanges) -> FragmentRanges:
    found = {fragment: _rest(some, others.get(fragment, [])) for fragment, some in ours.items()}
    return {fragment: some for fragment, some in found.items() if some}


def first_of(ranges: FragmentRanges, count: int) -> FragmentRanges:
    """So many at most, the lowest numbers of each fragment; fragments get equal shares, and what others leave."""
    found: FragmentRanges = {}
    by_size = sorted(ranges, key=lambda fragment: count_of({fragment: ranges[fragment]}))
    for position, fragment in enumerate(by_size):
        taken = _first(ranges[fragment], count // (len(by_size) - position))
        if taken:
            found[fragment] = taken
            count -= count_of({fragment: taken})
    return found


def _common(ours: list[Range], others: list[Range]) -> list[Range]:
    found: list[Range] = []
    at = 0
    for first, last in ours:
        while at < len(others) and others[at][1] < first:
            at += 1
        here = at
        while here < len(others) and others[here][0] <= last:
            found.append((max(first, others[here][0]), min(last, others[here][1])))
            here += 1
    return found


def _rest(ours: list[Range], others: list[Range]) -> list[Range]:
    found: list[Range] = []
    at = 0
    for first, last in ours:
        while at < len(others) and others[at][1] < first:
            at += 1
        here = at
        while here < len(others) and others[here][0] <= last:
            if others[here][0] > first:
                found.append((first, others[here][0] - 1))
            first = others[here][1] + 1
            here += 1
        if first <= last:
            found.append((first, last))
    return found


def _first(some: list[Range], count: int) -> list[Range]:
    found: list[Range] = []
    for first, last in some:
        if count <= 0:
            break
        found.append((first, min(last, first + count - 1)))
        count -= last - first + 1
    return found
