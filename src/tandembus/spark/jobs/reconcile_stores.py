"""Which messaging stores and lanes the audit records are of, and how far these records can be trusted. Plain data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

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
    """None if no record of it is whole."""
    count: int
    first_at: int
    last_at: int
    copies: int
    """How often the line that is there most often is there."""


@dataclass(frozen=True, slots=True)
class Stream:
    """What the marks between a store's records say. Earlier versions wrote none."""

    store: str
    namespace: str
    index: int
    """The number of this store in its namespace."""
    store_count: int
    trimmed: int
    """Records up to this one have given way to newer ones."""
    ended: int
    """The last record before the store was closed in order; 0 if it was not."""


@dataclass(frozen=True, slots=True)
class StoreRecords:
    """The records of one store. Times are in milliseconds."""

    store: str
    namespace: str
    stream: Stream | None = None
    epoch: int = 0
    """Epoch of the life that wrote the newest record."""
    first: int = 0
    last: int = 0
    """A newer record is still being written."""
    lost_before: int = 0
    """Records that are missing before the first one, and have not given way."""
    missing_count: int = 0
    """Records that are missing between others, or after the last one."""
    pause_count: int = 0
    """How often the store was open without an audit, or was restored from a copy, since the records begin."""
    doubtful_until: int = 0
    """Up to this record, the store was open without an audit or records are missing: a message of that time may have
    left without a record."""
    doubtful_until_at: int = 0
    """The time of that record. A message may have been accepted before it without a record, too."""
    last_at: int = 0
    end_at: int = 0
    """There may be later records that were not read."""

    @property
    def is_partial(self) -> bool:
        """An acceptance may have been in a file that gave way, or is missing."""
        return self.first > 1 or self.missing_count > 0


@dataclass(frozen=True, slots=True)
class Lane:
    """One sequence of places in one fragment. `number` is the job's own: names are long."""

    number: int
    store: str
    namespace: str
    fragment: int
    lane: int
    entity: str | None
    fragment_index: int
    first_recorded: int
    """A message with a lower number may have been accepted without a record."""
    dropped_number: int | None
    dropped_at: int | None

    @property
    def key(self) -> tuple[str, str]:
        """Identifies its entity; names are compared in lower case."""
        return self.namespace.lower(), (self.entity or "").lower()

    @property
    def primary_name(self) -> str | None:
        """The namespace that a backlog queue holds messages for; None for any other entity."""
        found = _BACKLOG.fullmatch(self.entity or "") if self.lane == MAIN_LANE else None
        return found and found[1]


def stores_of(lives: Iterable[Life], lanes: Sequence[Lane], streams: Iterable[Stream] = ()) -> list[StoreRecords]:
    names = {lane.store: lane.namespace for lane in lanes}
    by_store: dict[str, list[Life]] = {}
    for life in lives:
        by_store.setdefault(life.store, []).append(life)
    marks = {stream.store: stream for stream in streams}
    return [
        _store(store, names.get(store, ""), marks.get(store), by_store[store])
        if store in by_store
        else StoreRecords(store, marks[store].namespace, marks[store], missing_count=marks[store].ended)
        for store in sorted({*by_store, *marks})
    ]


def _store(store: str, namespace: str, stream: Stream | None, lives: list[Life]) -> StoreRecords:
    lives = sorted(lives, key=lambda life: life.first)
    first = lives[0].first
    last = max([life.last or 0 for life in lives])
    last_at = max([life.last_at for life in lives])
    missing_count = max(0, last - first + 1 - sum([life.count for life in lives])) if last else 0
    lost_before, has_ended = 0, False
    if stream is not None:
        missing_count += max(0, stream.ended - last)
        lost_before = max(0, first - 1 - stream.trimmed)
        has_ended = stream.ended == last
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
        ALWAYS_MS if has_ended else last_at,
    )


def _breaks(lives: list[Life]) -> list[tuple[int, int]]:
    """Record and time of each life that does not continue where the one before it ended."""
    breaks: list[tuple[int, int]] = []
    for one, following in pairwise(lives):
        last = following.last or following.first
        if one.last is not None and following.first < one.last:
            breaks.append((last + 1, following.last_at))  # an older copy was restored, and counts lives from there
        elif following.epoch != one.epoch + 1:
            breaks.append((following.first, following.first_at))
    return breaks


def missing_stores(stores: Iterable[StoreRecords]) -> list[tuple[str, int]]:
    """Namespace and index of each store without records whose namespace has it, by the marks of its other stores. Where
    two namespaces have the same name, each index is expected twice."""
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


def lanes_of(rows: Iterable[Row]) -> list[Lane]:
    """Merges what the lines say of each lane: not every line has all of it."""
    merged: dict[tuple[str, int, int], list[Row]] = {}
    spaces: dict[str, str] = {}
    for row in rows:
        spaces[row["store"]] = max(spaces.get(row["store"], ""), row["namespace"])
        key = (row["store"], -1, 0) if row["fragment"] is None else (row["store"], row["fragment"], row["lane"])
        merged.setdefault(key, []).append(row)
    return [_lane(number, key, spaces[key[0]], found) for number, (key, found) in enumerate(sorted(merged.items()))]


def _lane(number: int, key: tuple[str, int, int], namespace: str, rows: list[Row]) -> Lane:
    def most(name: str) -> Any:
        return max([row[name] for row in rows if row[name] is not None], default=None)

    begin = (most("fragment_index") or 0, most("first_recorded") or 0)
    store, fragment, lane = key
    return Lane(
        number, store, namespace, fragment, lane, most("entity"), *begin, most("dropped_number"), most("dropped_at")
    )


@dataclass(frozen=True, slots=True)
class Spaces:
    """The namespaces that the records are of, by their names in lower case."""

    doubtful_until_at: dict[str, int]
    end_at: dict[str, int]
    partial: frozenset[str]
    """Namespaces of which some records are gone, or were never written."""

    @classmethod
    def of(cls, stores: Sequence[StoreRecords]) -> Spaces:
        doubts: dict[str, int] = {}
        ends: dict[str, int] = {}
        partial: set[str] = set()
        for store in stores:
            key = store.namespace.lower()
            doubts[key] = max(doubts.get(key, 0), store.doubtful_until_at)
            ends[key] = min(ends.get(key, ALWAYS_MS), store.end_at)
            if store.is_partial or store.doubtful_until:
                partial.add(key)
        for namespace, _ in missing_stores(stores):
            doubts[namespace.lower()] = ALWAYS_MS
            partial.add(namespace.lower())
        return cls(doubts, ends, frozenset(partial))

    @property
    def lacks_stores(self) -> bool:
        return ALWAYS_MS in self.doubtful_until_at.values()

    def doubt(self, space: str) -> int:
        """A message may have been accepted there before this moment without a record."""
        return self.doubtful_until_at.get(space, ALWAYS_MS)

    def home_of(self, lane: Lane) -> str:
        """The namespace where this lane's messages belong. A backlog queue has the primary's name as senders knew it:
        if no records bear that name and there is one other namespace, that one is meant."""
        own = lane.namespace.lower()
        if lane.primary_name is None:
            return own
        name = lane.primary_name.lower()
        others = [each for each in self.doubtful_until_at if each != own]
        return others[0] if name not in self.doubtful_until_at and len(others) == 1 else name

    def unrecorded(self, lanes: Iterable[Lane], in_use: Collection[str]) -> list[str]:
        """Those of the namespaces `in_use` that a backlog is held for and no records are of."""
        homes = {self.home_of(lane) for lane in lanes if lane.primary_name is not None and not self._has_home(lane)}
        return sorted([home for home in homes if home in in_use])

    def backlog_doubt(self, lane: Lane) -> int:
        """The `doubt` of the namespace that a backlog queue is for."""
        return self.doubt(self.home_of(lane)) if self._has_home(lane) else ALWAYS_MS

    def backlog_end(self, lane: Lane) -> int:
        """The `end_at` of the namespace that a backlog queue is for."""
        return self.end_at.get(self.home_of(lane), 0)

    def _has_home(self, lane: Lane) -> bool:
        """No namespace holds a backlog for itself: if it seems so, two have the same name."""
        home = self.home_of(lane)
        return home in self.doubtful_until_at and home != lane.namespace.lower()
