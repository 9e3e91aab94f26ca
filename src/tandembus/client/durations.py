"""Durations as the service writes them: ISO 8601, with one text that means "for ever"."""

from __future__ import annotations

import re
from typing import Final

from tandembus.errors import MalformedData

NEVER_DAYS: Final = 10675199
NEVER: Final = float("inf")
"""A duration that means "for ever": no time to live, never idle for too long."""

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def duration_text(seconds: float) -> str:
    """ISO 8601, to the millisecond; for ever is the longest time span of the service."""
    if seconds == NEVER:
        return f"P{NEVER_DAYS}DT2H48M5.4775807S"
    days, milliseconds = divmod(round(seconds * 1000), 86_400_000)
    rest = f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".")
    return f"P{days}DT{rest}S" if days else f"PT{rest}S"


def duration_of(text: str) -> float:
    """Seconds of an ISO 8601 duration without years and months; at least the longest time span is `NEVER`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or text.strip() in ("P", "PT"):
        raise MalformedData(f"{text!r} is not a duration")
    days, hours, minutes, seconds = (float(match[part] or 0) for part in ("days", "hours", "minutes", "seconds"))
    return NEVER if days >= NEVER_DAYS else ((days * 24 + hours) * 60 + minutes) * 60 + seconds
