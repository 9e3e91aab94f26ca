"""What was used today, and by the last failover: read from the meter's files beside the loop, and kept for a moment.

A failover is paid for in both namespaces, so the partner is asked for its part. It tells what its meter has counted,
not what that costs: prices are the asking side's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from tandembus.errors import BusError, MalformedData, StoreUnavailable
from tandembus.front_end.http.api.pair import Looked, PairWatch
from tandembus.front_end.http.surroundings import Surroundings
from tandembus.metering.bills import Used
from tandembus.metering.files import Totals
from tandembus.metering.looking_back import (
    MAX_ROWS,
    FailoverReader,
    counted_before,
    counted_between,
    meter_folders,
)
from tandembus.metering.slot import OPERATIONS, REASONS, Count
from tandembus.namespace.namespace import Namespace
from tandembus.pair_view.backlog_paths import primary_of
from tandembus.pair_view.picture import last_failover

USED_PATH: Final = "/$api/cost/used"
KEPT_S: Final = 2.0
MAX_WINDOWS: Final = 4
"""Stretches of time that are kept: the own last failover, the partner's idea of it, and a moment of each before."""
T = TypeVar("T")
_FIGURES: Final = 4
_COLUMNS: Final = 8


@dataclass(frozen=True, slots=True)
class FailoverUsed:
    since: float
    until: float | None
    rows: Sequence[Used]
    """Of both namespaces."""
    is_partial: bool


@dataclass(frozen=True, slots=True)
class Rows:
    used: Sequence[Used]
    is_complete: bool


class _Window:
    """A stretch of time that somebody asks about again and again."""

    def __init__(self, since: int, until: int | None) -> None:
        self._since = since
        self._until = until
        self._readers: dict[Path, FailoverReader] = {}
        self.read_at: float | None = None
        self.rows = Rows((), is_complete=False)

    def read(self, folders: Sequence[Path], namespace: str) -> None:
        used: list[Used] = []
        for folder in folders:
            reader = self._readers.setdefault(folder, FailoverReader(folder, self._since, self._until))
            reader.read()
            used += reader.used(namespace)
        is_complete = all(reader.is_complete for reader in self._readers.values()) and len(used) <= MAX_ROWS
        self.rows = Rows(used[:MAX_ROWS], is_complete)


class CostWatch:
    def __init__(self, namespace: Namespace, surroundings: Surroundings, pair: PairWatch) -> None:
        self._namespace = namespace
        self._surroundings = surroundings
        self._pair = pair
        self._reading = asyncio.Lock()
        self._today: tuple[float, date, Totals] | None = None
        self._before_today: tuple[date, Mapping[Path, Totals]] | None = None
        self._windows: dict[tuple[int, int | None], _Window] = {}

    # Today.

    async def today(self) -> tuple[date, Totals]:
        """The day by UTC, and what was counted on it until now, but for the last second."""
        clock = self._namespace.clock
        async with self._reading:
            day = datetime.fromtimestamp(clock.now(), UTC).date()
            kept = self._today
            if kept is None or kept[1] != day or clock.monotonic() - kept[0] >= KEPT_S:
                kept = clock.monotonic(), day, await _in_thread(partial(self._read_today, day))
                self._today = kept
            return kept[1], kept[2]

    def _read_today(self, day: date) -> Totals:
        """What was counted before the day is the same all day long."""
        midnight = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
        if self._before_today is None or self._before_today[0] != day:
            self._before_today = (day, {})
        before = dict(self._before_today[1])
        totals: Totals = {}
        for folder in self._folders():
            if folder not in before:
                before[folder] = counted_before(folder, midnight)
            for key, count in counted_between(before[folder], counted_before(folder, None)).items():
                totals.setdefault(key, Count()).include(count)
        self._before_today = (day, before)
        return totals

    # The last failover.

    async def failover(self) -> FailoverUsed | None:
        """None where none was seen since the start."""
        looked = await self._pair.look()
        window = last_failover(looked.picture.entities)
        if window is None:
            return None
        since, until = window
        own, theirs = await asyncio.gather(self.used(since, until), self._ask(looked, since, until))
        is_partial = not own.is_complete or theirs is None or not theirs.is_complete
        rows = [*own.used, *([] if theirs is None else theirs.used)]
        return FailoverUsed(since, until, rows, is_partial)

    async def used(self, since: float, until: float | None) -> Rows:
        """By this namespace, for failovers in a stretch of time."""
        key = int(since), None if until is None else int(until)
        async with self._reading:
            window = self._windows.pop(key, None) or _Window(*key)
            while len(self._windows) >= MAX_WINDOWS:
                del self._windows[next(iter(self._windows))]
            self._windows[key] = window
            now = self._namespace.clock.monotonic()
            if window.read_at is None or now - window.read_at >= KEPT_S:
                await _in_thread(partial(window.read, self._folders(), self._namespace.name))
                window.read_at = now
            return window.rows

    def _folders(self) -> list[Path]:
        root = self._surroundings.meter_folder
        return [] if root is None else meter_folders(root)

    async def _ask(self, looked: Looked, since: float, until: float | None) -> Rows | None:
        """The partner's rows, by our clock; None where it cannot be asked."""
        ask, partner = self._surroundings.ask_partner, looked.partner
        if ask is None or partner is None or partner.answer is None:
            return None
        offset_s = partner.answer.offset_s
        query = f"?since={int(since - offset_s)}" + ("" if until is None else f"&until={int(until - offset_s)}")
        try:
            document = await ask(USED_PATH + query)
            rows = await asyncio.to_thread(rows_from_document, document, partner.answer.view.name)
        except BusError:
            return None
        return Rows([row for row in rows.used if _is_ours(row, self._namespace.name)], rows.is_complete)


async def _in_thread(read: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(read)
    except OSError as error:
        # Such as a file that the size cap has removed just now: who asks again finds the others.
        raise StoreUnavailable(f"The meter's files cannot be read: {error.strerror}.") from error


def _is_ours(row: Used, name: str) -> bool:
    """What a secondary holds for other primaries is not this pair's."""
    primary = primary_of(row.entity)
    return primary is None or primary.lower() == name.lower()


# As a document.


def rows_to_document(rows: Rows) -> dict[str, object]:
    return {
        "rows": [
            [
                row.day.isoformat(),
                row.entity,
                row.operation,
                row.reason,
                row.calls,
                row.messages,
                row.operations,
                row.size_bytes,
            ]
            for row in rows.used
        ],
        "is_complete": rows.is_complete,
    }


def rows_from_document(document: Mapping[str, object], namespace: str) -> Rows:
    """Raises MalformedData."""
    rows = document.get("rows")
    if not isinstance(rows, list) or len(rows) > MAX_ROWS:
        raise MalformedData("no rows, or too many, where a namespace tells what it has used")
    return Rows([_row(row, namespace) for row in rows], document.get("is_complete") is True)


def _row(row: object, namespace: str) -> Used:
    if not isinstance(row, list) or len(row) != _COLUMNS:
        raise MalformedData("a row of what was used without its figures")
    day, entity, operation, reason, *figures = row
    counts = [one for one in figures if isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 2**63]
    if len(counts) != _FIGURES or operation not in OPERATIONS or reason not in REASONS or not isinstance(entity, str):
        raise MalformedData("a row of what was used that no meter has written")
    return Used(namespace, entity, operation, reason, _day(day), *counts)


def _day(text: object) -> date:
    try:
        return date.fromisoformat(str(text))
    except ValueError:
        raise MalformedData("a row of what was used without its day") from None
