"""Values of messages and rules with their types, as JSON: `{"type": "long", "value": "17"}`.

JSON has fewer types than AMQP. A value that it cannot say exactly (a map, a decimal, text that is no UTF-8) is shown as
well as may be, and goes along as `encoded`, the very bytes: what was read can be sent again without loss.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, TypeAlias

from tandembus.amqp.encoding.codec import decode_between, skip_value
from tandembus.amqp.encoding.values import (
    BYTE,
    CHAR,
    DECIMAL32,
    DECIMAL64,
    DECIMAL128,
    FLOAT,
    INT,
    SHORT,
    SHORT_SYMBOL,
    TIMESTAMP,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    Array,
    Described,
    Encoded,
    Typed,
    char,
    float_,
    symbol,
    timestamp,
)
from tandembus.errors import BusError, InvalidArgument
from tandembus.front_end.http.broker_properties import checked_text
from tandembus.front_end.http.property_headers import json_value
from tandembus.front_end.http.values import format_time_ms, parse_iso_time
from tandembus.rules.wire_values import DATETIME_OFFSET, EPOCH_TICKS, TIMESPAN, URI, value_of

Shown: TypeAlias = dict[str, object]

MAX_SHOWN: Final = 64
TICKS_PER_S: Final = 10_000_000
MAX_FLOAT: Final = 3.4028235677973366e38
"""From here on, rounding to 32 bits gives infinity."""
_INT64: Final = 2**63
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGERS: Final[Mapping[str, tuple[int | None, int, int]]] = {
    "byte": (BYTE, -(2**7), 2**7 - 1),
    "short": (SHORT, -(2**15), 2**15 - 1),
    "int": (INT, -(2**31), 2**31 - 1),
    "long": (None, -_INT64, _INT64 - 1),
    "ubyte": (UBYTE, 0, 2**8 - 1),
    "ushort": (USHORT, 0, 2**16 - 1),
    "uint": (UINT, 0, 2**32 - 1),
    "ulong": (ULONG, 0, 2**64 - 1),
}
"""By name: the code of the type (None: Python's own integers), and its range."""
_INTEGER_NAMES: Final = {code: name for name, (code, _, _) in _INTEGERS.items() if code is not None}
_DECIMALS: Final = {DECIMAL32: "decimal32", DECIMAL64: "decimal64", DECIMAL128: "decimal128"}
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_DIGITS: Final = re.compile(r"-?\d{1,20}", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)
_SECONDS: Final = re.compile(r"-?\d{1,12}(\.\d{1,7})?", re.ASCII)

TYPES: Final = (
    "string",
    "bool",
    *_INTEGERS,
    "float",
    "double",
    "datetime",
    "timedelta",
    "uuid",
    "bytes",
    "char",
    "symbol",
    "uri",
    "null",
)
"""What can be sent by its type and value alone."""


# From a message.


def shown_at(data: bytes, at: int, end: int) -> Shown:
    """The value that fills this place, whatever it is."""
    try:
        value = decode_between(data, at, end, True)
    except BusError:
        return {"type": "unreadable", "value": None, "encoded": to_base64(data[at:end])}
    found = shown(value)
    if found["type"] not in TYPES:
        found["encoded"] = to_base64(data[at:end])
    return found


def shown(value: object) -> Shown:
    """A value that was decoded with its types."""
    if value is None:
        return _of("null", None)
    if isinstance(value, bool):
        return _of("bool", value)
    if isinstance(value, str):
        return _of("string", value)
    if isinstance(value, int):
        return _of("long", str(value))
    if isinstance(value, float):
        return _of("double", _number(value))
    if isinstance(value, bytes):
        return _of("bytes", to_base64(value))
    if isinstance(value, uuid.UUID):
        return _of("uuid", str(value))
    if isinstance(value, Typed):
        return _typed(value.code, value.value)
    if isinstance(value, Described):
        return _described(value)
    kind = "array" if isinstance(value, Array) else "map" if isinstance(value, dict) else "list"
    return _of(kind, json_value(value))


def _of(kind: str, value: object) -> Shown:
    return {"type": kind, "value": value}


def _number(number: float) -> object:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _typed(code: int, value: object) -> Shown:
    name = _INTEGER_NAMES.get(code)
    if name is not None:
        return _of(name, str(value) if name == "ulong" else value)
    if code == TIMESTAMP and isinstance(value, int):
        return _of("datetime", _time_text(value))
    if code == FLOAT and isinstance(value, float):
        return _of("float", _number(value))
    if code in _DECIMALS:
        number = value_of(Typed(code, value))
        return _of(_DECIMALS[code], str(number) if isinstance(number, float) else None)
    if code == CHAR and isinstance(value, str) and not _is_half(value):
        return _of("char", value)
    if code == SHORT_SYMBOL and isinstance(value, str):
        return _of("symbol", value)
    return _of("unreadable", None)


def _is_half(character: str) -> bool:
    return any("\ud800" <= one <= "\udfff" for one in character)


def _time_text(at_ms: int) -> str:
    """A time that no calendar has is its milliseconds since 1970."""
    text = format_time_ms(at_ms)
    moment = parse_iso_time(text)
    return text if moment is not None and (moment - _EPOCH) // timedelta(milliseconds=1) == at_ms else str(at_ms)


def _described(value: Described) -> Shown:
    ticks = value.value
    if value.descriptor == TIMESPAN and isinstance(ticks, int):
        return _of("timedelta", _seconds_text(ticks))
    if value.descriptor == DATETIME_OFFSET and isinstance(ticks, int):
        return _of("datetime-offset", format_time_ms((ticks - EPOCH_TICKS) // 10_000))
    if value.descriptor == URI and isinstance(value.value, str):
        return _of("uri", value.value)
    return _of("described", json_value(value.value))


def _seconds_text(ticks: int) -> str:
    seconds, part = divmod(abs(ticks), TICKS_PER_S)
    fraction = f".{part:07d}".rstrip("0").rstrip(".")
    return f"{'-' if ticks < 0 else ''}{seconds}{fraction}"


# From a request.


def read_values(document: object, what: str, max_count: int) -> dict[str, object]:
    """Names and values, with the types that they are sent with."""
    if document is None:
        return {}
    if not isinstance(document, list) or len(document) > max_count:
        raise InvalidArgument(f"{what} must be a list of at most {max_count} objects with name, type and value.")
    values: dict[str, object] = {}
    for entry in document:
        name, value = _entry(entry, what)
        if name in values:
            raise InvalidArgument(f"{what}: '{name[:MAX_SHOWN]}' stands twice.")
        values[name] = value
    return values


def _entry(entry: object, what: str) -> tuple[str, object]:
    if not isinstance(entry, dict) or not entry.keys() <= {"name", "type", "value", "encoded"}:
        raise InvalidArgument(f"Each of {what} must be an object with name, type and value.")
    name = entry.get("name")
    if not isinstance(name, str):
        raise InvalidArgument(f"Each of {what} needs a name, as a text.")
    checked_text(name, f"A name in {what}")
    where = f"{what}: '{name[:MAX_SHOWN]}'"
    if entry.get("encoded") is not None:
        return name, _encoded(entry["encoded"], where)
    return name, read_value(entry.get("type", "string"), entry.get("value"), where)


def _encoded(text: object, where: str) -> Encoded:
    data = from_base64(text, f"{where}: encoded")
    if not data or skip_value(data, 0, len(data)) != len(data):
        raise InvalidArgument(f"{where}: encoded is not one value.")
    return Encoded(data)


def read_value(kind: object, value: object, where: str) -> object:
    """A value as the encoder takes it. Raises InvalidArgument for what its type cannot hold."""
    if not isinstance(kind, str) or kind not in TYPES:
        raise InvalidArgument(f"{where} has the type '{str(kind)[:MAX_SHOWN]}'; known are {', '.join(TYPES)}.")
    found = _read(kind, value, where)
    if found is None and kind != "null":
        raise InvalidArgument(f"{where}: {str(value)[:MAX_SHOWN]!r} is no {kind}.")
    return found


def _read(kind: str, value: object, where: str) -> object:
    """None for what is no such value."""
    if kind in _INTEGERS:
        return _read_integer(kind, value, where)
    if kind in ("float", "double"):
        return _read_number(kind, value)
    if kind == "bool":
        return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value))
    if kind == "timedelta":
        return _read_span(value, where)
    if kind == "null" or not isinstance(value, str):
        return None
    text = checked_text(value, where)
    if kind == "string":
        return text
    if kind == "datetime":
        return _read_time(text)
    if kind == "uuid":
        return _read_uuid(text)
    if kind == "bytes":
        return from_base64(text, where)
    if kind == "char":
        return char(text) if len(text) == 1 else None
    if kind == "symbol":
        return symbol(text) if text.isascii() else None
    return Described(URI, text)


def _read_integer(kind: str, value: object, where: str) -> object:
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    code, least, most = _INTEGERS[kind]
    if not least <= value <= most:
        raise InvalidArgument(f"{where}: {kind} is from {least} to {most}.")
    return value if code is None else Typed(code, value)


def _read_number(kind: str, value: object) -> object:
    number = _double(value)
    if number is None or kind == "double":
        return number
    is_in_range = not math.isfinite(number) or abs(number) < MAX_FLOAT
    return float_(number) if is_in_range else None


def _double(value: object) -> float | None:
    if isinstance(value, str):
        if value in _NOT_FINITE:
            return _NOT_FINITE[value]
        number = float(value) if _NUMBER.fullmatch(value) else math.nan
        return number if math.isfinite(number) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _INT64 or isinstance(value, float) else None


def _read_span(value: object, where: str) -> object:
    """Seconds, to 100 ns."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if isinstance(value, float):
        text = f"{value:.7f}"
    if _SECONDS.fullmatch(text) is None:
        return None
    ticks = int(Decimal(text) * TICKS_PER_S)
    if not -_INT64 <= ticks < _INT64:
        raise InvalidArgument(f"{where}: a timedelta has at most {_INT64 // TICKS_PER_S} seconds.")
    return Described(TIMESPAN, ticks)


def _read_time(text: str) -> object:
    if _DIGITS.fullmatch(text):
        at_ms = int(text)
        return timestamp(at_ms) if -_INT64 <= at_ms < _INT64 else None
    moment = parse_iso_time(text)
    return None if moment is None else timestamp((moment - _EPOCH) // timedelta(milliseconds=1))


def _read_uuid(text: str) -> object:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def from_base64(text: object, where: str) -> bytes:
    if not isinstance(text, str):
        raise InvalidArgument(f"{where} must be a text in base64.")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument(f"{where} is not base64.") from None
