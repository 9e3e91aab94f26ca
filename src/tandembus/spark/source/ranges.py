"""Ranges of sequence numbers, and how they are spread over Spark's tasks. Plain functions on plain data."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tandembus.spark.source.decoding import NUMBER_BITS, NUMBER_MASK

Range = tuple[int, int]
"""First and last number, both included: the low 48 bits of sequence numbers."""
FragmentRanges = dict[int, list[Range]]
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


def packed(slices: Sequence[Slice], partition_count: int) -> list[list[Slice]]:
    """At most so many partitions, about equally full. A slice is never split, since its messages have an order."""
    partitions: list[list[Slice]] = [[] for _ in range(min(partition_count, len(slices)))]
    counts = [0] * len(partitions)
    for each in sorted(slices, key=lambda one: -one.count):
        lightest = counts.index(min(counts))
        partitions[lightest].append(each)
        counts[lightest] += each.count
    return partitions
