"""Sets of messages of a queue: ranges of numbers by fragment, inclusive, in order and apart from each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
Ranges: TypeAlias = dict[int, list[Range]]
"""By fragment; a fragment without any is left out."""


def ranges_of(numbers: Iterable[tuple[int, int]]) -> Ranges:
    """Of single messages: fragment and number."""
    gathered: Ranges = {}
    for fragment, number in sorted(numbers):
        some = gathered.setdefault(fragment, [])
        if some and number <= some[-1][1] + 1:
            some[-1] = (some[-1][0], number)
        else:
            some.append((number, number))
    return gathered


def count_in(ranges: Ranges) -> int:
    return sum(last - first + 1 for some in ranges.values() for first, last in some)


def union(parts: Iterable[Ranges]) -> Ranges:
    gathered: Ranges = {}
    for part in parts:
        for fragment, some in part.items():
            gathered.setdefault(fragment, []).extend(some)
    return {fragment: _joined(sorted(some)) for fragment, some in gathered.items() if some}


def intersection(ours: Ranges, others: Ranges) -> Ranges:
    found = {fragment: _common(some, others.get(fragment, [])) for fragment, some in ours.items()}
    return {fragment: some for fragment, some in found.items() if some}


def without(ours: Ranges, others: Ranges) -> Ranges:
    found = {fragment: _rest(some, others.get(fragment, [])) for fragment, some in ours.items()}
    return {fragment: some for fragment, some in found.items() if some}


def first_of(ranges: Ranges, count: int) -> Ranges:
    """So many at most, the lowest numbers of each fragment; fragments get equal shares, and what others leave."""
    found: Ranges = {}
    by_size = sorted(ranges, key=lambda fragment: count_in({fragment: ranges[fragment]}))
    for position, fragment in enumerate(by_size):
        taken = _first(ranges[fragment], count // (len(by_size) - position))
        if taken:
            found[fragment] = taken
            count -= count_in({fragment: taken})
    return found


def _joined(some: list[Range]) -> list[Range]:
    joined: list[Range] = []
    for first, last in some:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


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
