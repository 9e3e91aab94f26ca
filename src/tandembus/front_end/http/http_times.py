"""Times as headers of HTTP write them (RFC 1123)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from tandembus.descriptions.durations import EPOCH, moment_of_ms, parse_iso_time

_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HTTP_TIME: Final = re.compile(
    rf"(?:{'|'.join(_WEEKDAYS)}), (\d\d) ({'|'.join(_MONTHS)}) (\d{{4}}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII
)


def format_http_time(at_ms: int) -> str:
    """In whole seconds; a time that no calendar has is the nearest that one has."""
    moment = moment_of_ms(at_ms)
    weekday, month = _WEEKDAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{weekday}, {moment.day:02} {month} {moment.year:04} {moment:%H:%M:%S} GMT"


def parse_http_time(text: str) -> int | None:
    """Milliseconds since 1970 of an RFC 1123 or ISO 8601 time; None for anything else. Without a zone it is UTC."""
    match = _HTTP_TIME.fullmatch(text)
    moment = parse_iso_time(text)
    if match is not None:
        day, month, year, hour, minute, second = match.groups()
        try:
            at = (int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second))
            moment = datetime(*at, tzinfo=UTC)
        except ValueError:
            return None
    return None if moment is None else (moment - EPOCH) // timedelta(milliseconds=1)
