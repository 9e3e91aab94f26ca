"""What stores and lanes are behind the records of a reconciliation, and how far these can be trusted. Plain data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Row

ALWAYS_MS: Final = 1 << 62
"""Later than any record."""
MAIN_LANE: Final = 0
_BACKLOG: Final = re.compile(r"(.+)/x-servicebus-transfer/\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Life:
    """The records of a store from one opening to the next."""

    store: str
    epoch: int
    first: int
    last: int | None
    """None: no record of it is whole."""
    count: int
    first_at: int
    last_at: int
    copies: int


@dataclass(frozen=True, slots=True)
class Stream:
    """Facts from the marks between the records of a store. Earlier versions wrote none."""

    store: str
    namespace: str
    index: int
    """Which of the namespace's stores it is."""
    store_count: int
    """How many stores the namespace has."""
    trimmed: int
    """Records that have given way to newer ones."""
    ended: int
    """The last record before the store was closed in order; 0 where it was not."""


@dataclass(frozen=True, slots=True)
class StoreRecords:
    store: str
    namespace: str
    stream: Stream | None
    epoch: int
    """Epoch of the life that wrote the newest record."""
    first: int
    last: int
    """A newer record is still being written."""
    lost_before: int
    """Records that are missing before the first one, and have not given way."""
    missing_count: int
    """Records that are missing in between, or behind the last one."""
    pause_count: int
    """How often the store was open without an audit, or was put back from a copy, since the records begin."""
    doubtful_until: int
    """The store was open without an audit before this record, or records are missing: what was there by then may have
    left without one."""
    doubtful_until_at: int
    """The same in milliseconds; what was accepted earlier need not have a record, either."""
    last_at: int
    end_at: int
    """Later than this there may be records that are not here, in milliseconds."""

    @property
    def is_partial(self) -> bool:
        """An acceptance may have been in a file that gave way, or is missing."""
        return self.first > 1 or self.missing_count > 0


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of places in one fragment."""

    number: int
    """Of our own: names are long."""
    store: str
    namespace: str
    fragment: int
    lane: int
    entity: str | None
    fragment_index: int
    first_recorded: int
    """What has a lower number may have been accepted without a record."""
    dropped_number: int | None
    dropped_at: int | None

    @property
    def key(self) -> tuple[str, str]:
        """Of its entity. Names are the same whatever their case."""
        return self.namespace.lower(), (self.entity or "").lower()

    @property
    def primary_name(self) -> str | None:
        """Of a backlog queue: the namespace it is for."""
        found = _BACKLOG.fullmatch(self.entity or "") if self.lane == MAIN_LANE else None
        return found and found[1]


def stores_of(lives: Iterable[Life], lanes: Sequence[Lane], streams: Iterable[Stream] = ()) -> list[StoreRecords]:
    names = {lane.store: lane.namespace for lane in lanes}
    marks = {stream.store: stream for stream in streams}
    by_store: dict[str, list[Life]] = {stream.store: [] for stream in marks.values()}
    for life in lives:
        by_store.setdefault(life.store, []).append(life)
    return [
        _store(store, names.get(store, ""), marks.get(store), each) if each else _empty(marks[store])
        for store, each in sorted(by_store.items())
    ]


def _empty(stream: Stream) -> StoreRecords:
    """There are marks of this store and no records, as every store has."""
    return StoreRecords(stream.store, stream.namespace, stream, 0, 0, 0, 0, stream.ended, 0, 0, 0, 0, 0)


def _store(store: str, namespace: str, stream: Stream | None, lives: list[Life]) -> StoreRecords:
    lives = sorted(lives, key=lambda life: life.first)
    first = lives[0].first
    last = max([life.last or 0 for life in lives])
    last_at = max([life.last_at for life in lives])
    missing_count = max(0, last - first + 1 - sum([life.count for life in lives])) if last else 0
    lost_before, ended = 0, False
    if stream is not None:
        missing_count += max(0, stream.ended - last)
        lost_before = max(0, first - 1 - stream.trimmed)
        ended = stream.ended == last
    breaks = _breaks(lives)
    doubtful_until, doubtful_until_at = max([(0, lives[0].first_at), *breaks])
    if missing_count:
        doubtful_until, doubtful_until_at = last, last_at
    return StoreRecords(
        store,
        namespace,
        stream,
        max(lives, key=lambda life: life.last or life.first).epoch,
        first,
        last,
        lost_before,
        missing_count,
        len(breaks),
        doubtful_until,
        doubtful_until_at,
        last_at,
        ALWAYS_MS if ended else last_at,
    )


def missing_stores(stores: Iterable[StoreRecords]) -> list[tuple[str, int]]:
    """Stores of which there are no records, by namespace and index, although those of others name them. Where two
    namespaces have the same name, each index is there twice."""
    counts: dict[str, int] = {}
    found: dict[str, Counter[int]] = {}
    for store in stores:
        if store.stream is not None:
            counts[store.namespace] = max(counts.get(store.namespace, 0), store.stream.store_count)
            found.setdefault(store.namespace, Counter())[store.stream.index] += 1
    return [
        (name, index)
        for name, count in sorted(counts.items())
        for index in range(count)
        if found[name][index] < max(found[name].values())
    ]


def _breaks(lives: list[Life]) -> list[tuple[int, int]]:
    """Where a life does not go on where the one before ended: record and time."""
    breaks: list[tuple[int, int]] = []
    for one, following in pairwise(lives):
        last = following.last or following.first
        if one.last is not None and following.first < one.last:
            breaks.append((last + 1, following.last_at))  # an older copy was put back, and counts lives anew
        elif following.epoch != one.epoch + 1:
            breaks.append((following.first, following.first_at))
    return breaks


def lanes_of(rows: Iterable[Row]) -> list[Lane]:
    """A lane is named in some of its lines only."""
    merged: dict[tuple[str, int, int], list[Row]] = {}
    spaces: dict[str, str] = {}
    for row in rows:
        spaces[row["store"]] = max(spaces.get(row["store"], ""), row["namespace"])
        key = (row["store"], -1, 0) if row["fragment"] is None else (row["store"], row["fragment"], row["lane"])
        merged.setdefault(key, []).append(row)
    return [_lane(number, key, spaces[key[0]], found) for number, (key, found) in enumerate(sorted(merged.items()))]


def _lane(number: int, key: tuple[str, int, int], namespace: str, rows: list[Row]) -> Lane:
    def most(name: str) -> int | None:
        return max([row[name] for row in rows if row[name] is not None], default=None)

    return Lane(
        number,
        key[0],
        namespace,
        key[1],
        key[2],
        max([row["entity"] for row in rows if row["entity"] is not None], default=None),
        most("fragment_index") or 0,
        most("first_recorded") or 0,
        most("dropped_number"),
        most("dropped_at"),
    )


@dataclass(frozen=True, slots=True)
class Spaces:
    """The namespaces that the records are of. Names are the same whatever their case."""

    doubtful_until_at: dict[str, int]
    end_at: dict[str, int]
    partial: frozenset[str]
    """Where some records are gone, or were never written."""

    @classmethod
    def of(cls, stores: Iterable[StoreRecords]) -> Spaces:
        found: dict[str, int] = {}
        ends: dict[str, int] = {}
        partial: set[str] = set()
        stores = list(stores)
        for store in stores:
            key = store.namespace.lower()
            found[key] = max(found.get(key, 0), store.doubtful_until_at)
            ends[key] = min(ends.get(key, ALWAYS_MS), store.end_at)
            if store.is_partial or store.doubtful_until:
                partial.add(key)
        for namespace, _ in missing_stores(stores):
            found[namespace.lower()] = ALWAYS_MS
            partial.add(namespace.lower())
        return cls(found, ends, frozenset(partial))

    @property
    def lacks_stores(self) -> bool:
        return ALWAYS_MS in self.doubtful_until_at.values()

    def home_of(self, lane: Lane) -> str:
        """Where the messages of this lane belong. A backlog queue has the primary's name as senders knew it: where no
        records bear that name and there is one other namespace, they mean that one."""
        own = lane.namespace.lower()
        if lane.primary_name is None:
            return own
        name = lane.primary_name.lower()
        others = [each for each in self.doubtful_until_at if each != own]
        return others[0] if name not in self.doubtful_until_at and len(others) == 1 else name

    def unrecorded(self, lanes: Iterable[Lane], in_use: Collection[str]) -> list[str]:
        """Namespaces that a backlog is held for, and that no records are of; of those `in_use`."""
        homes = {self.home_of(lane) for lane in lanes if lane.primary_name is not None and not self._has_home(lane)}
        return sorted([home for home in homes if home in in_use])

    def backlog_doubt(self, lane: Lane) -> int:
        """As `doubt`, of the namespace that a backlog queue is for."""
        return self.doubt(self.home_of(lane)) if self._has_home(lane) else ALWAYS_MS

    def backlog_end(self, lane: Lane) -> int:
        """As `end_at`, of the namespace that a backlog queue is for."""
        return self.end_at.get(self.home_of(lane), 0)

    def _has_home(self, lane: Lane) -> bool:
        """None holds a backlog for itself: two namespaces have the same name then."""
        home = self.home_of(lane)
        return home in self.doubtful_until_at and home != lane.namespace.lower()

    def doubt(self, space: str) -> int:
        """Before this moment, an acceptance there need not have a record."""
        return self.doubtful_until_at.get(space, ALWAYS_MS)
