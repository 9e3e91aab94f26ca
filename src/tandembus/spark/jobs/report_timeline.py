"""What happened over time, out of the usage job's points: sends by where they went, and the backlog; and where a chart
of it has its marks."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Final

from tandembus.metering.slot import COMPLETE, DEAD_LETTER, FAILOVER, NORMAL, PING, SEND, SYPHON
from tandembus.spark.jobs.usage_result import UsageResult

DIVERTED: Final = {(SEND, FAILOVER)}
SETTLED: Final = {(COMPLETE, SYPHON), (DEAD_LETTER, SYPHON)}
"""What makes a backlog queue shorter."""
WIDTH, HEIGHT, LEFT, RIGHT, TOP = 1100, 274, 80, 36, 30
BOTTOM: Final = HEIGHT - 54
"""Where the axis of a chart lies."""
GEOMETRY: Final = {"WIDTH": WIDTH, "HEIGHT": HEIGHT, "LEFT": LEFT, "RIGHT": RIGHT, "TOP": TOP, "BOTTOM": BOTTOM}
TABLE_STEPS: Final = 24
TICKS: Final = 10
TICKS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Timeline:
    """Messages, step by step."""

    start: int
    step_s: int
    sent: Sequence[int]
    diverted: Sequence[int]
    home: Sequence[int]
    pings: Sequence[int]
    depth: Sequence[int]
    """In the backlog at the end of each step."""
    held: int
    """In the backlog before the first step."""

    @property
    def has_failover(self) -> bool:
        return any(self.diverted) or any(self.home) or any(self.depth)

    @property
    def home_so_far(self) -> list[int]:
        return list(accumulate(self.home))

    @property
    def diverted_so_far(self) -> list[int]:
        return [self.held + each for each in accumulate(self.diverted)]

    @property
    def step(self) -> str:
        """For headings."""
        units = ((DAY_S, "d"), (3600, "h"), (60, "min"), (1, "s"))
        length, unit = next(each for each in units if self.step_s % each[0] == 0)
        return "per second" if self.step_s == 1 else f"in each {self.step_s // length} {unit}"

    @property
    def end(self) -> int:
        return self.start + self.step_s * len(self.sent)

    def second(self, place: int) -> int:
        return self.start + place * self.step_s

    def x(self, second: float) -> float:
        share = (min(max(second, self.start), self.end) - self.start) / (self.end - self.start)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Round moments on the axis, and no more than fit."""
        span_s = self.end - self.start
        days_s = -(-span_s // (DAY_S * TICKS)) * DAY_S
        step_s = next((each for each in TICKS_S if span_s <= each * TICKS), days_s)
        form = "%b %d" if span_s > 2 * DAY_S else "%H:%M" if span_s >= 1800 else "%H:%M:%S"
        for second in range(-(-self.start // step_s) * step_s, self.end + 1, step_s):
            yield self.x(second), moment(second, form)

    def columns(self, *series: Sequence[int]) -> Iterator[tuple[int, int, int, str]]:
        """The parts of each column from below: step, series, figure, and the attributes of a rectangle."""
        highest = levels(*series)[-1]
        for place, values in enumerate(zip(*series, strict=True)):
            left, width = self.x(self.second(place)), self.x(self.second(place + 1)) - self.x(self.second(place))
            below = 0
            for number, value in enumerate(values):
                if value:
                    below += value
                    top, height = BOTTOM - below / highest * (BOTTOM - TOP), value / highest * (BOTTOM - TOP)
                    where = f'x="{left}" y="{top:.1f}" width="{width * 0.9:.1f}" height="{max(height, 0.5):.1f}"'
                    yield place, number, value, where

    def rows(self, *series: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
        """For a table: the steps in which a figure changes, and no more of them than can be read."""
        found: list[tuple[int, tuple[int, ...]]] = []
        for place, values in enumerate(zip(*series, strict=True)):
            if not found or values != found[-1][1]:
                found.append((self.second(place), values))
        return found[:: max(-(-len(found) // TABLE_STEPS), 1)]


def timeline(result: UsageResult) -> Timeline | None:
    """None where nothing was counted."""
    if result.period is None:
        return None
    step_s = result.step_s
    start = result.period[0] - result.period[0] % step_s
    count = (result.period[1] - start) // step_s + 1

    def messages(kinds: Collection[tuple[str, str]]) -> list[int]:
        values = [0] * count
        for point in result.points:
            if (point.operation, point.reason) in kinds:
                values[(point.second - start) // step_s] += point.messages
        return values

    diverted, settled = messages(DIVERTED), messages(SETTLED)
    changes = [came - went for came, went in zip(diverted, settled, strict=True)]
    # Where more leaves the backlog than came, it held something before the first record.
    held = max(_earlier(result, DIVERTED) - _earlier(result, SETTLED), -min(accumulate(changes)), 0)
    return Timeline(
        start=start,
        step_s=step_s,
        sent=messages({(SEND, NORMAL)}),
        diverted=diverted,
        home=messages({(SEND, SYPHON)}),
        pings=messages({(SEND, PING)}),
        depth=list(accumulate(changes, initial=held))[1:],
        held=held,
    )


def _earlier(result: UsageResult, kinds: Collection[tuple[str, str]]) -> int:
    return sum([each.messages for each in result.earlier if (each.operation, each.reason) in kinds])


def levels(*series: Iterable[int]) -> list[int]:
    """Round figures for the axis of stacked columns, from 0 to at least the highest."""
    largest = max(map(sum, zip(*series, strict=True)), default=0)
    if largest <= 4:
        return list(range(max(largest, 1) + 1))
    power = 10 ** math.floor(math.log10(largest / 4))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= largest / 4)
    return list(range(0, -(-largest // step) * step + 1, step))


def moment(second: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return datetime.fromtimestamp(second, UTC).strftime(form)
