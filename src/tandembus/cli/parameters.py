"""Values as people type them: durations, moments, typed properties."""

from __future__ import annotations

import re
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from tandembus.amqp.encoding.values import int_, timestamp
from tandembus.client.durations import NEVER, duration_of
from tandembus.clock import SystemClock
from tandembus.errors import MalformedData

STANDARD_INPUT: Final = "-"
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "": 1.0}
_SHORT: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w|)")
PROPERTY_TYPES: Final = ("string", "int", "long", "double", "bool", "uuid", "timestamp")
_BOOLEANS: Final = {"true": True, "false": False}


def duration(text: str) -> float:
    """Seconds, from `30`, `90s`, `5m`, `2h`, `14d`, `never` or ISO 8601 (`PT1M`)."""
    if text.strip().lower() == "never":
        return NEVER
    seconds = _short_duration(text)
    if seconds is not None:
        return seconds
    try:
        return duration_of(text.upper())
    except MalformedData:
        raise click.BadParameter(
            f"{text!r} is no duration: write 30s, 5m, 2h, 14d, never, or ISO 8601 such as PT1M"
        ) from None


def moment(text: str) -> float:
    """Wall time, from a duration from now (`10m`) or ISO 8601 (`2030-01-31T08:00:00Z`; no zone: local)."""
    seconds = _short_duration(text)
    if seconds is not None:
        return SystemClock().now() + seconds
    try:
        return _iso_moment(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is no time: write a duration from now (10m) or 2030-01-31T08:00:00Z"
        ) from None


def past_moment(text: str) -> float:
    """Wall time, from a duration until now (`1h`: an hour ago) or ISO 8601."""
    seconds = _short_duration(text)
    if seconds is not None:
        return SystemClock().now() - seconds
    try:
        return _iso_moment(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is no time: write a duration until now (1h: an hour ago) or 2030-01-31T08:00:00Z"
        ) from None


def typed_property(text: str) -> tuple[str, object]:
    """An application property: `name=value`, a string, or `name:type=value` for any other AMQP type."""
    name_and_type, equals, value = text.partition("=")
    name, _, kind = name_and_type.partition(":")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not of the form name=value")
    try:
        return name, _property_value(kind or "string", value)
    except (ValueError, KeyError, OverflowError):
        types = ", ".join(PROPERTY_TYPES)
        raise click.BadParameter(f"{value!r} is not a value of type {kind!r}; types: {types}") from None


def _short_duration(text: str) -> float | None:
    match = _SHORT.fullmatch(text.strip())
    return None if match is None else float(match[1]) * _UNITS[match[2]]


def _iso_moment(text: str) -> float:
    return datetime.fromisoformat(text.strip().replace("Z", "+00:00")).timestamp()


def _property_value(kind: str, text: str) -> object:
    match kind:
        case "string":
            return text
        case "int":
            return int_(_integer(text, 32))
        case "long":
            return _integer(text, 64)
        case "double":
            return float(text)
        case "bool":
            return _BOOLEANS[text.lower()]
        case "uuid":
            return uuid.UUID(text)
        case "timestamp":
            return timestamp(round(_iso_moment(text) * 1000))
        case _:
            raise KeyError(kind)


def _integer(text: str, bits: int) -> int:
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(text)
    return value


def content_of(noun: str, text: str | None, file: Path | None) -> bytes:
    """What an argument says, a file holds, or standard input brings: for `-`, and where neither is given."""
    if text is not None and file is not None:
        raise click.UsageError(f"Give the {noun} as an argument or as --file, not both.")
    if text is not None and text != STANDARD_INPUT:
        return text.encode()
    if file is not None and str(file) != STANDARD_INPUT:
        return file.read_bytes()
    if text is None and file is None and sys.stdin.isatty():
        raise click.UsageError(f"Where is the {noun}? Give it as an argument, as --file, or pipe it in.")
    return sys.stdin.buffer.read()


def duration_words(seconds: float) -> str:
    """A duration as a person would write it, and as `duration` reads it."""
    if seconds == NEVER:
        return "never"
    for unit in ("w", "d", "h", "m", "s"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:.0f}{unit}"
    return f"{seconds:g}s"


def count_words(count: int | None, is_limited: bool) -> int | str:
    """A count of an entity for people. `is_limited`: a part of the entity is out of reach and not counted."""
    if count is None:
        return "unknown"
    return f"at least {count:,}" if is_limited else count


def moment_text(seconds: float | None) -> str | None:
    """ISO 8601 in UTC, to the millisecond."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
