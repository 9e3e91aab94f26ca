"""Durations, times, booleans and numbers as the service writes them: ISO 8601, in ticks of 100 ns."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from tandembus.descriptions.settings import NEVER_S
from tandembus.errors import InvalidArgument

NEVER: Final = "P10675199DT2H48M5.4775807S"
NOT_SET: Final = "0001-01-01T00:00:00Z"
TICKS_PER_S: Final = 10_000_000
TICKS_PER_MS: Final = 10_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_DURATION: Final = re.compile(
    r"(?P<sign>-?)P(?:(?P<years>\d{1,9})Y)?(?:(?P<months>\d{1,9})M)?(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,12})(?:\.(?P<fraction>\d{0,20}))?S)?)?",
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
_ISO_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)


def format_duration(duration_s: float | None) -> str:
    """None, and anything from the service's longest duration on, is never."""
    return NEVER if duration_s is None or duration_s >= NEVER_S else format_ticks(round(duration_s * TICKS_PER_S))


def format_ticks(ticks: int) -> str:
    seconds, fraction = divmod(abs(ticks), TICKS_PER_S)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    last = f"{seconds}.{fraction:07d}".rstrip("0").rstrip(".") if fraction else str(seconds)
    parts = ((str(hours), "H"), (str(minutes), "M"), (last, "S"))
    time = "".join([number + unit for number, unit in parts if number != "0"])
    if not days and not time:
        return "PT0S"
    return ("-" if ticks < 0 else "") + "P" + (f"{days}D" if days else "") + (f"T{time}" if time else "")


def parse_duration(text: str, name: str) -> float | None:
    """Seconds; None is never."""
    ticks = parse_ticks(text, name)
    if ticks < 0:
        raise InvalidArgument(f"{name}: '{text[:64]}' is negative.")
    return None if ticks >= NEVER_S * TICKS_PER_S else ticks / TICKS_PER_S


def parse_ticks(text: str, name: str) -> int:
    """A duration of any length, or a negative one."""
    match = _DURATION.fullmatch(text)
    parts = {unit: int(match[unit]) for unit in _SECONDS_OF if match[unit]} if match is not None else {}
    if match is None or not parts or text.endswith("T"):
        raise InvalidArgument(f"{name}: '{text[:64]}' is not a duration such as PT30S, PT1M or P14D.")
    seconds = sum([number * _SECONDS_OF[unit] for unit, number in parts.items()])
    ticks = seconds * TICKS_PER_S + int((match["fraction"] or "").ljust(7, "0")[:7])
    return -ticks if match["sign"] else ticks


def format_time(at: float) -> str:
    """UTC in whole microseconds; a time that was never set has the service's own zero."""
    # Not fromtimestamp: its float arithmetic may be a microsecond off.
    return NOT_SET if at <= 0.0 else format_moment(EPOCH + timedelta(microseconds=round(at * 1_000_000)))


def format_time_ms(at_ms: int) -> str:
    """The same of milliseconds; a time that no calendar has is the nearest that one has."""
    return format_moment(moment_of_ms(at_ms))


def format_moment(moment: datetime) -> str:
    """In UTC; one without a zone is taken as UTC."""
    in_utc = moment if moment.tzinfo is None else moment.astimezone(UTC)
    return in_utc.replace(tzinfo=None).isoformat(timespec="microseconds").rstrip("0").rstrip(".") + "Z"


def moment_of_ms(at_ms: int) -> datetime:
    try:
        return EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        return datetime.max if at_ms > 0 else datetime.min


def parse_iso_time(text: str) -> datetime | None:
    """In UTC, in whole microseconds; a time without a zone is taken as UTC. None for anything else."""
    found = parse_time_ticks(text)
    return None if found is None else EPOCH + timedelta(microseconds=found[0] // 10)


def parse_time_ticks(text: str) -> tuple[int, bool] | None:
    """Ticks since 1970 of an ISO 8601 time, and whether it names its zone; None for anything else."""
    match = _ISO_TIME.fullmatch(text)
    if match is None:
        return None
    seconds, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(seconds + ("+00:00" if zone in (None, "Z") else zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    ticks = (moment - EPOCH) // _MICROSECOND * 10 + int((fraction or "").ljust(7, "0")[:7])
    return ticks, zone is not None


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
