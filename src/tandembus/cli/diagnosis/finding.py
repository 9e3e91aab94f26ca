"""What an examination comes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from tandembus.errors import BusError


class Level(Enum):
    OK = "ok"
    WARNING = "warning"
    """It works, but not as well, or not for long."""
    PROBLEM = "problem"
    """It does not work, or loses something."""


@dataclass(frozen=True, slots=True)
class Finding:
    area: str
    subject: str
    level: Level
    text: str
    advice: str = ""
    """What to do next; empty where all is well."""


@dataclass(frozen=True, slots=True)
class Area:
    """Makes findings of one area."""

    name: str

    def ok(self, subject: str, text: str) -> Finding:
        return Finding(self.name, subject, Level.OK, text)

    def warning(self, subject: str, text: str, advice: str) -> Finding:
        return Finding(self.name, subject, Level.WARNING, text, advice)

    def problem(self, subject: str, text: str, advice: str) -> Finding:
        return Finding(self.name, subject, Level.PROBLEM, text, advice)


def examined(area: Area, examine: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What cannot be looked at is a finding, too, and keeps nobody from looking at the rest."""
    found: list[Finding] = []
    try:
        found.extend(examine())
    except (OSError, BusError, ValueError) as error:
        found.append(area.problem("look", f"could not be looked at: {error}", "Run this as the namespace's own user."))
    return found


def worst(findings: Iterable[Finding]) -> Level:
    levels = {finding.level for finding in findings}
    return next((level for level in (Level.PROBLEM, Level.WARNING) if level in levels), Level.OK)


def size_text(size_bytes: float) -> str:
    """For people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:,.0f} {unit}" if unit == "bytes" else f"{size_bytes:,.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:,.1f} TiB"
