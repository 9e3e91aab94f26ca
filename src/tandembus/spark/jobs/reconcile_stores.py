"""What stores and lanes are behind the records of a reconciliation, and how far these can be trusted. Plain data."""

from __future__ import annotations

import re
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
class StoreRecords:
    store: str
    namespace: str
    first: int
    last: int
    """A newer record is still being written."""
    missing_count: int
    """Records that are missing in between."""
    doubtful_until: int
    """The store was open without an audit before this record, or records are missing: what was there by then may have
    left without one."""
    doubtful_until_at: int
    """The same in milliseconds; what was accepted earlier need not have a record, either."""
    last_at: int

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


def stores_of(lives: Iterable[Life], lanes: Sequence[Lane]) -> list[StoreRecords]:
    names = {lane.store: lane.namespace for lane in lanes}
    by_store: dict[str, list[Life]] = {}
    for life in lives:
        by_store.setdefault(life.store, []).append(life)
    return [_store(store, names.get(store, ""), each) for store, each in sorted(by_store.items())]


def _store(store: str, namespace: str, lives: list[Life]) -> StoreRecords:
    lives = sorted(lives, key=lambda life: life.first)
    first = lives[0].first
    last = max([life.last or 0 for life in lives])
    last_at = max([life.last_at for life in lives])
    missing_count = max(0, last - first + 1 - sum([life.count for life in lives])) if last else 0
    breaks = [(0, lives[0].first_at), *_breaks(lives)]
    doubtful_until, doubtful_until_at = max(breaks)
    if missing_count:
        doubtful_until, doubtful_until_at = last, last_at
    return StoreRecords(store, namespace, first, last, missing_count, doubtful_until, doubtful_until_at, last_at)


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
    partial: frozenset[str]
    """Where some records are gone, or were never written."""

    @classmethod
    def of(cls, stores: Iterable[StoreRecords]) -> Spaces:
        found: dict[str, int] = {}
        partial: set[str] = set()
        for store in stores:
            key = store.namespace.lower()
            found[key] = max(found.get(key, 0), store.doubtful_until_at)
            if store.is_partial or store.doubtful_until:
                partial.add(key)
        return cls(found, frozenset(partial))

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

    def _has_home(self, lane: Lane) -> bool:
        """None holds a backlog for itself: two namespaces have the same name then."""
        home = self.home_of(lane)
        return home in self.doubtful_until_at and home != lane.namespace.lower()

    def doubt(self, space: str) -> int:
        """Before this moment, an acceptance there need not have a record."""
        return self.doubtful_until_at.get(space, ALWAYS_MS)
