"""Durations, times and booleans as the administration's XML writes them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Final

from tandembus.descriptions import NEVER_S
from tandembus.errors import InvalidArgument

NEVER: Final = "P10675199DT2H48M5.4775807S"
NOT_SET: Final = "0001-01-01T00:00:00Z"
_TICKS_PER_S: Final = 10_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DURATION: Final = re.compile(
    r"(?P<sign>-?)P(?:(?P<years>\d{1,9})Y)?(?:(?P<months>\d{1,9})M)?(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,12}(?:\.\d{0,20})?)S)?)?",
    re.ASCII,
)
_SECONDS_OF: Final = {
    "years": 365 * 86_400,
    "months": 30 * 86_400,
    "days": 86_400,
    "hours": 3_600,
    "minutes": 60,
    "seconds": 1,
}
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)


def format_duration(duration_s: float | None) -> str:
    """ISO-8601 with the service's resolution of 100 ns; None, and anything beyond the longest, is never."""
    if duration_s is None or duration_s >= NEVER_S:
        return NEVER
    ticks = round(duration_s * _TICKS_PER_S)
    minutes, ticks = divmod(ticks, 60 * _TICKS_PER_S)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    seconds = f"{ticks // _TICKS_PER_S}.{ticks % _TICKS_PER_S:07d}".rstrip("0").rstrip(".")
    time = "".join(
        [
            part
            for part, is_there in ((f"{hours}H", hours), (f"{minutes}M", minutes), (f"{seconds}S", ticks))
            if is_there
        ]
    )
    if not days and not time:
        return "PT0S"
    return "P" + (f"{days}D" if days else "") + (f"T{time}" if time else "")


def parse_duration(text: str, name: str) -> float | None:
    """Seconds; None is never, from the longest duration's days on, as clients round its last digits."""
    match = _DURATION.fullmatch(text)
    parts = {unit: match.group(unit) for unit in _SECONDS_OF if match.group(unit)} if match is not None else {}
    if match is None or not parts or text.endswith("T"):
        raise InvalidArgument(f"{name}: '{text[:64]}' is not a duration such as PT30S, PT1M or P14D.")
    if match.group("sign"):
        raise InvalidArgument(f"{name}: '{text[:64]}' is negative.")
    duration_s = sum([float(value) * _SECONDS_OF[unit] for unit, value in parts.items()], 0.0)
    return None if duration_s >= NEVER_S else duration_s


def format_time(at: float) -> str:
    """UTC in whole microseconds; a time that was never set has the service's own zero."""
    if at <= 0.0:
        return NOT_SET
    # Not fromtimestamp: its float arithmetic may be a microsecond off.
    moment = _EPOCH + timedelta(microseconds=round(at * 1_000_000))
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds").rstrip("0").rstrip(".") + "Z"


def format_boolean(value: bool) -> str:
    return "true" if value else "false"


def parse_boolean(text: str, name: str) -> bool:
    folded = text.lower()
    if folded in ("true", "1"):
        return True
    if folded in ("false", "0"):
        return False
    raise InvalidArgument(f"{name}: '{text[:64]}' is neither true nor false.")


def parse_integer(text: str, name: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise InvalidArgument(f"{name}: '{text[:64]}' is not a whole number.")
    return int(text)
