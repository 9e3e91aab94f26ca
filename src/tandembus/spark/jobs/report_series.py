"""What happened over time, out of the usage job's points: sends by where they went, the backlog, and what came home."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tandembus.metering.slot import COMPLETE, DEAD_LETTER, FAILOVER, NORMAL, PING, SEND, SYPHON
from tandembus.spark.jobs.report_charts import TimeAxis
from tandembus.spark.jobs.usage_result import UsageResult

SETTLED: Final = ((COMPLETE, SYPHON), (DEAD_LETTER, SYPHON))
"""What makes a backlog queue shorter."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Messages, step by step."""

    axis: TimeAxis
    ordinary: tuple[int, ...]
    to_backlog: tuple[int, ...]
    home: tuple[int, ...]
    pings: tuple[int, ...]
    depth: tuple[int, ...]
    """In the backlog at the end of each step."""
    diverted_so_far: tuple[int, ...]
    home_so_far: tuple[int, ...]

    @property
    def has_failover(self) -> bool:
        return any(self.to_backlog) or any(self.home) or any(self.depth)


def timeline(result: UsageResult) -> Timeline | None:
    """None where nothing was counted."""
    if result.period is None:
        return None
    step_s = result.step_s
    start = result.period[0] - result.period[0] % step_s
    axis = TimeAxis(start, step_s, (result.period[1] - start) // step_s + 1)
    to_backlog = _messages(result, axis, [(SEND, FAILOVER)])
    home = _messages(result, axis, [(SEND, SYPHON)])
    settled = _messages(result, axis, SETTLED)
    before = _earlier(result, [(SEND, FAILOVER)]) - _earlier(result, SETTLED)
    changes = [came - went for came, went in zip(to_backlog, settled, strict=True)]
    levels = _so_far(changes, 0)
    # Where more leaves the backlog than came, it held something before the first record.
    level = max(before, -min([*levels, 0]), 0)
    return Timeline(
        axis=axis,
        ordinary=_messages(result, axis, [(SEND, NORMAL)]),
        to_backlog=to_backlog,
        home=home,
        pings=_messages(result, axis, [(SEND, PING)]),
        depth=_so_far(changes, level),
        diverted_so_far=_so_far(to_backlog, level),
        home_so_far=_so_far(home, 0),
    )


def _messages(result: UsageResult, axis: TimeAxis, kinds: Iterable[tuple[str, str]]) -> tuple[int, ...]:
    chosen = set(kinds)
    values = [0] * axis.count
    for point in result.points:
        if (point.operation, point.reason) in chosen:
            values[(point.second - axis.start) // axis.step_s] += point.messages
    return tuple(values)


def _earlier(result: UsageResult, kinds: Iterable[tuple[str, str]]) -> int:
    chosen = set(kinds)
    return sum([each.messages for each in result.earlier if (each.operation, each.reason) in chosen])


def _so_far(changes: Iterable[int], start: int) -> tuple[int, ...]:
    levels = []
    for change in changes:
        start += change
        levels.append(start)
    return tuple(levels)
