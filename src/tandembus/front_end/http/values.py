"""Durations, times and booleans as the administration's XML writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from tandembus.descriptions import NEVER_S
from tandembus.errors import InvalidArgument

NEVER: Final = "P10675199DT2H48M5.4775807S"
NOT_SET: Final = "0001-01-01T00:00:00Z"
_TICKS_PER_S: Final = 10_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
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
_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HTTP_TIME: Final = re.compile(
    rf"(?:{'|'.join(_WEEKDAYS)}), (\d\d) ({'|'.join(_MONTHS)}) (\d{{4}}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII
)
_ISO_TIME: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
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
    duration_s, is_negative = _duration(text, name)
    if is_negative:
        raise InvalidArgument(f"{name}: '{text[:64]}' is negative.")
    return None if duration_s >= NEVER_S else duration_s


def _duration(text: str, name: str) -> tuple[float, bool]:
    match = _DURATION.fullmatch(text)
    parts = {unit: match.group(unit) for unit in _SECONDS_OF if match.group(unit)} if match is not None else {}
    if match is None or not parts or text.endswith("T"):
        raise InvalidArgument(f"{name}: '{text[:64]}' is not a duration such as PT30S, PT1M or P14D.")
    return sum([float(value) * _SECONDS_OF[unit] for unit, value in parts.items()], 0.0), bool(match.group("sign"))


def parse_time_span(text: str, name: str) -> timedelta:
    """A duration that is somebody's value and no setting: as long, or as negative, as it may be."""
    duration_s, is_negative = _duration(text, name)
    try:
        return timedelta(seconds=-duration_s if is_negative else duration_s)
    except OverflowError:
        raise InvalidArgument(f"{name}: '{text[:64]}' is too long.") from None


def format_time_span(span: timedelta) -> str:
    text = format_duration(min(abs(span) / timedelta(seconds=1), NEVER_S))
    return f"-{text}" if span < timedelta(0) else text


def format_time(at: float) -> str:
    """UTC in whole microseconds; a time that was never set has the service's own zero."""
    if at <= 0.0:
        return NOT_SET
    # Not fromtimestamp: its float arithmetic may be a microsecond off.
    return format_moment(_EPOCH + timedelta(microseconds=round(at * 1_000_000)))


def format_time_ms(at_ms: int) -> str:
    """The same of milliseconds; a time that no calendar has is the nearest that one has."""
    return format_moment(_moment(at_ms))


def format_moment(moment: datetime) -> str:
    """In UTC; one without a zone is meant so."""
    in_utc = moment if moment.tzinfo is None else moment.astimezone(UTC)
    return in_utc.replace(tzinfo=None).isoformat(timespec="microseconds").rstrip("0").rstrip(".") + "Z"


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


def format_http_time(at_ms: int) -> str:
    """RFC 1123, in whole seconds; a time that no calendar has is the nearest that one has."""
    moment = _moment(at_ms)
    weekday, month = _WEEKDAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{weekday}, {moment.day:02} {month} {moment.year:04} {moment:%H:%M:%S} GMT"


def _moment(at_ms: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        return datetime.max if at_ms > 0 else datetime.min


def parse_http_time(text: str) -> int | None:
    """Milliseconds since 1970 of an RFC 1123 or ISO 8601 time; None for anything else. Without a zone it is UTC."""
    match = _HTTP_TIME.fullmatch(text)
    moment = parse_iso_time(text)
    if match is not None:
        day, month, year, hour, minute, second = match.groups()
        moment = _utc([int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second), 0])
    return None if moment is None else (moment - _EPOCH) // timedelta(milliseconds=1)


def ticks_beyond_microseconds(text: str) -> int:
    """The seventh digit of an ISO 8601 time's fraction, which Python's datetime has no place for."""
    match = _ISO_TIME.fullmatch(text)
    fraction = (match[7] if match is not None else None) or ""
    return int(fraction[6:7] or 0)


def parse_iso_time(text: str) -> datetime | None:
    match = _ISO_TIME.fullmatch(text)
    if match is None:
        return None
    *parts, fraction, zone = match.groups()
    moment = _utc([*[int(part) for part in parts], int((fraction or "0").ljust(9, "0")[:6])])
    if moment is None or zone in (None, "Z"):
        return moment
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
    try:
        return moment - offset if zone[0] == "+" else moment + offset
    except OverflowError:
        return None


def _utc(parts: list[int]) -> datetime | None:
    year, month, day, hour, minute, second, microsecond = parts
    try:
        return datetime(year, month, day, hour, minute, second, microsecond, UTC)
    except ValueError:
        return None
