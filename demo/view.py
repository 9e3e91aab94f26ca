"""What is to be seen while it goes on: one picture that changes on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

SHOWN_EVENTS: Final = 14
LINE_EVERY_S: Final = 2.0
RATE_OVER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Picture:
    """One moment."""

    elapsed_s: float
    act: str
    is_primary_up: bool
    states: Mapping[str, str]
    """Of each queue, as the senders see it."""
    accepted: int
    diverted: int
    delivered: int
    refused: int
    backlog_depth: int | None
    """None while it is not known."""


@dataclass(frozen=True, slots=True)
class Rates:
    to_primary: float
    to_backlog: float
    delivered: float
    refused: float


class Speedometer:
    """Rates over the last second, from pictures as they come."""

    def __init__(self) -> None:
        self._pictures: Final[deque[Picture]] = deque()

    def rates(self, now: Picture) -> Rates:
        self._pictures.append(now)
        while now.elapsed_s - self._pictures[0].elapsed_s > RATE_OVER_S and len(self._pictures) > 2:
            self._pictures.popleft()
        then = self._pictures[0]
        seconds = max(now.elapsed_s - then.elapsed_s, 0.001)
        sent, diverted = now.accepted - then.accepted, now.diverted - then.diverted
        return Rates(
            to_primary=(sent - diverted) / seconds,
            to_backlog=diverted / seconds,
            delivered=(now.delivered - then.delivered) / seconds,
            refused=(now.refused - then.refused) / seconds,
        )


class View:
    """`with`; `show` as often as one likes, `tell` what happens when it does."""

    def __init__(self, console: Console, elapsed: Callable[[], float]) -> None:
        self._console: Final = console
        self._elapsed: Final = elapsed
        self._events: Final[deque[Text]] = deque(maxlen=SHOWN_EVENTS)
        self._speed: Final = Speedometer()
        self._live: Final = Live(console=console, refresh_per_second=8, transient=True)
        self._line_at = 0.0

    def __enter__(self) -> View:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """On a terminal what happened stays, without the picture."""
        if self._console.is_terminal:
            self._live.stop()
            self._console.print(Group(*self._events))

    def tell(self, text: str, style: str = "") -> None:
        event = Text.assemble((f"{self._elapsed():6.1f} s  ", "dim"), (text, style))
        self._events.append(event)
        if not self._console.is_terminal:
            self._console.print(event, soft_wrap=True)

    def show(self, picture: Picture) -> None:
        rates = self._speed.rates(picture)
        if self._console.is_terminal:
            self._live.update(_drawn(picture, rates, list(self._events)))
        elif picture.elapsed_s >= self._line_at:
            self._line_at = picture.elapsed_s + LINE_EVERY_S
            self._console.print(_line(picture, rates), soft_wrap=True)


def _line(picture: Picture, rates: Rates) -> str:
    states = " ".join(sorted(set(picture.states.values())))
    return (
        f"{picture.elapsed_s:6.1f} s    {states:11}  to primary {rates.to_primary:4.0f}/s  "
        f"to backlog {rates.to_backlog:4.0f}/s  received {rates.delivered:4.0f}/s  "
        f"backlog {_depth(picture)}  accepted {picture.accepted:,}  delivered {picture.delivered:,}"
    )


def _drawn(picture: Picture, rates: Rates, events: list[Text]) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    up = Text("up", "bold green") if picture.is_primary_up else Text("KILLED", "bold red")
    table.add_row("primary", up, "")
    for queue, state in picture.states.items():
        table.add_row(queue, Text(state, "green" if state == "healthy" else "bold red"), "")
    table.add_row("to the primary", f"{rates.to_primary:,.0f}/s", _bar(rates.to_primary, "green"))
    table.add_row("to the backlog", f"{rates.to_backlog:,.0f}/s", _bar(rates.to_backlog, "yellow"))
    table.add_row("refused", f"{rates.refused:,.0f}/s", _bar(rates.refused, "red"))
    table.add_row("received", f"{rates.delivered:,.0f}/s", _bar(rates.delivered, "blue"))
    table.add_row("in the backlog", _depth(picture), "")
    table.add_row("accepted", f"{picture.accepted:,}", "")
    table.add_row("delivered", f"{picture.delivered:,}", "")
    title = f"{picture.elapsed_s:.0f} s: {picture.act}"
    return Group(Panel(table, title=title, title_align="left"), *events)


def _bar(rate: float, style: str) -> Text:
    return Text("█" * min(40, round(rate / 10)), style)


def _depth(picture: Picture) -> str:
    return "?" if picture.backlog_depth is None else f"{picture.backlog_depth:,}"
