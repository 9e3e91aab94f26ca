"""Prometheus's text format: what is counted, as a scraper reads it.

Written here rather than taken from a library: figures come from several processes over connections of our own, and the
cost of a scrape has to have a bound. Which figures there are is said where they are counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
_INFINITE: Final = "+Inf"


@dataclass(frozen=True, slots=True)
class Family:
    """All series of one name."""

    name: str
    kind: str
    about: str
    labels: tuple[str, ...] = ()


@final
class Histogram:
    """How often a figure was within which bounds. One of seconds has these for everything from a fast disk to an
    outage."""

    __slots__ = ("bounds", "counts", "total")

    SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds: Final = bounds
        self.counts: Final = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@final
class Exposition:
    """The series of one part, gathered by family. `constant` labels stand on every one of them."""

    def __init__(self, constant: Mapping[str, str] | None = None) -> None:
        self._constant = [f'{name}="{escaped(value)}"' for name, value in (constant or {}).items()]
        self._lines: dict[str, list[str]] = {}

    def add(self, family: Family, value: float, *labels: str) -> None:
        self._line(family, "", self._labels(family, labels), value)

    def add_histogram(self, family: Family, histogram: Histogram, *labels: str) -> None:
        told = self._labels(family, labels)
        below = 0
        for bound, count in zip((*map(_number, histogram.bounds), _INFINITE), histogram.counts, strict=True):
            below += count
            self._line(family, "_bucket", [*told, f'le="{bound}"'], below)
        self._line(family, "_sum", told, histogram.total)
        self._line(family, "_count", told, below)

    def blocks(self) -> dict[str, str]:
        """The lines of each family, by its name."""
        return {name: "".join(lines) for name, lines in self._lines.items()}

    def _labels(self, family: Family, values: Sequence[str]) -> list[str]:
        own = [f'{name}="{escaped(value)}"' for name, value in zip(family.labels, values, strict=True)]
        return own + self._constant

    def _line(self, family: Family, suffix: str, labels: Sequence[str], value: float) -> None:
        told = f"{{{','.join(labels)}}}" if labels else ""
        self._lines.setdefault(family.name, []).append(f"{family.name}{suffix}{told} {_number(value)}\n")


def document(families: Iterable[Family], parts: Sequence[Mapping[str, str]]) -> str:
    """What several parts tell, each family in one piece, as the format wants it. Families that nobody tells of are left
    out."""
    text: list[str] = []
    for family in families:
        blocks = [part[family.name] for part in parts if part.get(family.name)]
        if blocks:
            text += [f"# HELP {family.name} {_help(family.about)}\n# TYPE {family.name} {family.kind}\n", *blocks]
    return "".join(text)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.15g}"
