"""Meters of several processes: each writes files of its own, and what they count is told as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tandembus.errors import MalformedData
from tandembus.limits import Limits
from tandembus.metering.files import MeterSettings, Totals
from tandembus.metering.meter import EntityTotal, Meter, MeterTotals
from tandembus.metering.slot import Count
from tandembus.namespace.catalog_change import CatalogEvent, EntityEnded

METER: Final = "meter"
"""The call that asks for totals."""
_FIGURES: Final = 4


def meter_settings(limits: Limits) -> MeterSettings:
    return MeterSettings(
        roll_size_bytes=limits.meter_file_bytes, total_size_bytes=limits.meter_file_bytes * limits.meter_files
    )


def forget_ended(meter: Meter, events: Sequence[CatalogEvent]) -> None:
    """Entities that are gone give their counters back, wherever they were deleted."""
    for event in events:
        if isinstance(event, EntityEnded):
            meter.forget(event.entry.key)


def meter_to_wire(totals: MeterTotals) -> dict[object, object]:
    return {
        "since_start": [[one.entity, one.operation, one.reason, *_figures(one.count)] for one in totals.since_start],
        "cumulative": [[*key, *_figures(count)] for key, count in totals.cumulative.items()],
        "started_at": totals.started_at,
        "gap": None if totals.gap is None else list(totals.gap),
    }


def meter_from_wire(value: object) -> MeterTotals:
    if not isinstance(value, dict):
        raise MalformedData("no totals where totals must be")
    gap = value.get("gap")
    return MeterTotals(
        [EntityTotal(texts[0], texts[1], texts[2], count) for texts, count in _rows(value, "since_start", 3)],
        {(texts[0], texts[1]): count for texts, count in _rows(value, "cumulative", 2)},
        float(value.get("started_at", 0.0)),
        (gap[0], gap[1]) if isinstance(gap, list) and len(gap) == 2 else None,
    )


def summed(parts: Iterable[MeterTotals]) -> MeterTotals:
    """As if one meter had counted everything: since the first of them began, and with all that any of them misses."""
    entities: dict[tuple[str, str, str], Count] = {}
    cumulative: Totals = {}
    started: list[float] = []
    gaps: list[tuple[int, int]] = []
    for part in parts:
        for row in part.since_start:
            entities.setdefault((row.entity, row.operation, row.reason), Count()).include(row.count)
        for key, count in part.cumulative.items():
            cumulative.setdefault(key, Count()).include(count)
        started.append(part.started_at)
        if part.gap is not None:
            gaps.append(part.gap)
    since_start = [EntityTotal(*key, count) for key, count in entities.items()]
    gap = (min(one[0] for one in gaps), max(one[1] for one in gaps)) if gaps else None
    return MeterTotals(since_start, cumulative, min(started, default=0.0), gap)


def _figures(count: Count) -> list[int]:
    return [count.calls, count.messages, count.operations, count.size_bytes]


def _rows(value: Mapping[object, object], name: str, names: int) -> list[tuple[list[str], Count]]:
    rows = value.get(name)
    if not isinstance(rows, list) or any(len(row) != names + _FIGURES for row in rows):
        raise MalformedData("a row of totals without its figures")
    return [([str(text) for text in row[:names]], Count(*[int(figure) for figure in row[names:]])) for row in rows]
