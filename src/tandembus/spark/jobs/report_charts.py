"""Charts as SVG, made of figures and nothing else: no script, no font, no file from anywhere.

Colours come from the page's style sheet, so that light, dark and paper each have their own. Every chart has a title and
a description for those who cannot see it, and every mark its figure as a tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tandembus.spark.jobs.report_text import escaped, label, moment, short, tick_moment

WIDTH: Final = 1100
"""Of charts over time, which have the page to themselves."""
HALF_WIDTH: Final = 560
"""Of charts with a table beside them."""
LEFT: Final = 80
RIGHT: Final = 36
TOP: Final = 30
PLOT_HEIGHT: Final = 190
BOTTOM: Final = 54
ROW_HEIGHT: Final = 24
NAME_WIDTH: Final = 226
CHARACTER_WIDTH: Final = 7.6
TIME_TICKS: Final = 10
TICKS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
VALUE_TICKS: Final = 4


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    parts: tuple[int, ...]
    shown: str
    """The figure beside it."""


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    colour: int
    """Of the page's colours, from 1 on."""
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TimeAxis:
    start: int
    step_s: int
    count: int

    @property
    def span_s(self) -> int:
        return self.step_s * self.count

    def x(self, second: float) -> float:
        return LEFT + (second - self.start) / self.span_s * (WIDTH - LEFT - RIGHT)


def ticks_up_to(largest: float) -> list[int]:
    """Round figures from 0 on, the last of them not below the largest."""
    if largest <= VALUE_TICKS:
        return list(range(max(math.ceil(largest), 1) + 1))
    raw = largest / VALUE_TICKS
    power = 10 ** math.floor(math.log10(raw))
    step = int(next(power * each for each in (1, 2, 5, 10) if power * each >= raw))
    return list(range(0, math.ceil(largest / step) * step + 1, step))


def time_ticks(start: int, span_s: int) -> list[int]:
    """Round moments within the time, not more of them than fit."""
    days = -(-span_s // (86_400 * TIME_TICKS)) * 86_400
    step_s = next((each for each in TICKS_S if span_s <= each * TIME_TICKS), days)
    first = -(-start // step_s) * step_s
    return list(range(first, start + span_s + 1, step_s))


def bars(
    identity: str, title: str, rows: Sequence[Bar], legend: Sequence[tuple[str, int]] = (), width: int = HALF_WIDTH
) -> str:
    """Lying bars, one for each name; of several parts where there is a legend."""
    top = TOP if legend else 8
    height = top + ROW_HEIGHT * len(rows) + 8
    largest = max([sum(row.parts) for row in rows] + [1])
    room = width - NAME_WIDTH - CHARACTER_WIDTH * max([len(row.shown) for row in rows] + [1]) - 16
    used = [any(row.parts[index] for row in rows) for index in range(len(legend))]
    marks = [_legend([entry for entry, is_used in zip(legend, used, strict=True) if is_used])]
    for place, row in enumerate(rows):
        y = top + place * ROW_HEIGHT
        marks.append(
            f'<text class="name" x="{NAME_WIDTH - 8}" y="{y + 16}" text-anchor="end">{escaped(label(row.name))}'
            f"<title>{escaped(row.name)}</title></text>"
        )
        x = float(NAME_WIDTH)
        for index, part in enumerate(row.parts):
            length = part / largest * room
            colour = legend[index][1] if legend else 1
            what = f"{row.name}: {legend[index][0]} {part:,}" if legend else f"{row.name}: {row.shown}"
            if part:
                marks.append(_box(x, y + 4, max(length, 1.0), ROW_HEIGHT - 8, colour, what))
            x += length
        marks.append(f'<text class="figure" x="{x + 6:.1f}" y="{y + 16}">{escaped(row.shown)}</text>')
    summary = "; ".join([f"{row.name}: {row.shown}" for row in rows])
    return _chart(identity, title, summary, (width, height), marks)


def columns(
    identity: str,
    title: str,
    unit: str,
    axis: TimeAxis,
    series: Sequence[Series],
    shaded: Sequence[tuple[int, int, str]] = (),
    marks_at: Sequence[tuple[int, str]] = (),
) -> str:
    """Standing bars over time, one on top of the other; with stretches of time shaded, and moments marked below."""
    totals = [sum(values) for values in zip(*[each.values for each in series], strict=True)]
    scale = _Scale(ticks_up_to(max([*totals, 0])))
    marks = [_legend_beside(unit, [each for each in series if any(each.values)]), *_frame(axis, scale, unit)]
    marks[1:1] = [_shade(axis, *each) for each in shaded]
    width = (WIDTH - LEFT - RIGHT) / axis.count
    gap = min(width * 0.15, 2.0)
    for place in range(axis.count):
        second = axis.start + place * axis.step_s
        below = 0
        for each in series:
            value = each.values[place]
            if value:
                top, bottom = scale.y(below + value), scale.y(below)
                what = f"{moment(second)} UTC: {each.name} {value:,}"
                marks.append(_box(axis.x(second) + gap / 2, top, width - gap, bottom - top, each.colour, what))
                below += value
    for second, what in marks_at:
        x, y = axis.x(second + axis.step_s / 2), scale.bottom + 4
        marks.append(f'<path class="mark" d="M{x:.1f} {y}l-4 7h8z"><title>{escaped(what)}</title></path>')
    summary = "; ".join([f"{each.name}: {sum(each.values):,} {unit} in all" for each in series])
    return _chart(identity, title, summary, (WIDTH, TOP + PLOT_HEIGHT + BOTTOM), marks)


def lines(
    identity: str, title: str, unit: str, axis: TimeAxis, series: Sequence[Series], is_filled: bool = False
) -> str:
    """Levels over time: each value holds from the end of its step on."""
    scale = _Scale(ticks_up_to(max([value for each in series for value in each.values] + [0])))
    marks = [_legend_beside(unit, series), *_frame(axis, scale, unit)]
    for order, each in enumerate(series):
        path = _steps(axis, scale, each.values)
        if is_filled:
            closed = f"{path}V{scale.bottom}H{axis.x(axis.start):.1f}Z"
            marks.append(f'<path class="area c{each.colour}" d="{closed}"/>')
        dashes = ' stroke-dasharray="7 4"' if order else ""
        named = f"<title>{escaped(each.name)}</title>"
        marks.append(f'<path class="line c{each.colour}" d="{path}"{dashes}>{named}</path>')
    summary = "; ".join(
        [
            f"{each.name}: at most {max(each.values, default=0):,} {unit}, {each.values[-1]:,} at the end"
            for each in series
        ]
    )
    return _chart(identity, title, summary, (WIDTH, TOP + PLOT_HEIGHT + BOTTOM), marks)


class _Scale:
    def __init__(self, ticks: Sequence[int]) -> None:
        self.ticks: Final = ticks
        self.bottom: Final = TOP + PLOT_HEIGHT

    def y(self, value: float) -> float:
        return self.bottom - value / self.ticks[-1] * PLOT_HEIGHT


def _chart(identity: str, title: str, summary: str, extent: tuple[int, int], marks: Sequence[str]) -> str:
    wide = ' class="wide"' if extent[0] == WIDTH else ""
    return (
        f'<svg{wide} viewBox="0 0 {extent[0]} {extent[1]}" role="img" aria-labelledby="{identity}-t {identity}-d">'
        f'<title id="{identity}-t">{escaped(title)}</title><desc id="{identity}-d">{escaped(summary)}</desc>'
        f"{''.join(marks)}</svg>"
    )


def _legend(entries: Sequence[tuple[str, int]], left: float = LEFT) -> str:
    drawn = []
    x = float(left)
    for name, colour in entries:
        drawn.append(f'<rect class="c{colour}" x="{x:.0f}" y="6" width="12" height="12" rx="2"/>')
        drawn.append(f'<text class="figure" x="{x + 17:.0f}" y="16">{escaped(name)}</text>')
        x += 17 + CHARACTER_WIDTH * len(name) + 24
    return "".join(drawn)


def _legend_beside(unit: str, series: Sequence[Series]) -> str:
    """Behind the name of the axis, which stands at the left."""
    left = max(float(LEFT), CHARACTER_WIDTH * len(unit) + 24)
    return _legend([(each.name, each.colour) for each in series], left)


def _frame(axis: TimeAxis, scale: _Scale, unit: str) -> list[str]:
    right = WIDTH - RIGHT
    marks = [
        f'<text class="figure" x="0" y="16">{escaped(unit)}</text>',
        f'<text class="figure" x="{(LEFT + right) / 2}" y="{scale.bottom + 47}" text-anchor="middle">time (UTC)</text>',
    ]
    for tick in scale.ticks:
        y = scale.y(tick)
        marks.append(f'<path class="{"base" if tick == 0 else "grid"}" d="M{LEFT} {y:.1f}H{right}"/>')
        marks.append(f'<text class="figure" x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    for second in time_ticks(axis.start, axis.span_s):
        x, text = axis.x(second), tick_moment(second, axis.span_s)
        marks.append(f'<path class="base" d="M{x:.1f} {scale.bottom}v4"/>')
        marks.append(f'<text class="figure" x="{x:.1f}" y="{scale.bottom + 25}" text-anchor="middle">{text}</text>')
    return marks


def _shade(axis: TimeAxis, start: int, end: int, what: str) -> str:
    first, last = axis.start, axis.start + axis.span_s
    left, right = axis.x(min(max(start, first), last)), axis.x(min(max(end, first), last))
    return (
        f'<rect class="shade" x="{left:.1f}" y="{TOP}" width="{max(right - left, 1.5):.1f}" height="{PLOT_HEIGHT}">'
        f"<title>{escaped(what)}</title></rect>"
    )


def _box(x: float, y: float, width: float, height: float, colour: int, what: str) -> str:
    return (
        f'<rect class="c{colour}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(height, 0.5):.1f}">'
        f"<title>{escaped(what)}</title></rect>"
    )


def _steps(axis: TimeAxis, scale: _Scale, values: Sequence[int]) -> str:
    path = [f"M{axis.x(axis.start):.1f} {scale.y(values[0]):.1f}"]
    for place, value in enumerate(values):
        path.append(f"V{scale.y(value):.1f}H{axis.x(axis.start + (place + 1) * axis.step_s):.1f}")
    return "".join(path)
