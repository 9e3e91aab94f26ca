"""SET keeps the type that a property has, where the new value allows it."""

from __future__ import annotations

import math
import uuid
from typing import Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.values import (
    BYTE,
    CHAR,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    SHORT_SYMBOL,
    STRING,
    TIMESTAMP,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    UUID,
    Typed,
)
from tandembus.rules.values import INT64_MAX, INT64_MIN, TICKS_PER_MS, Instant, text_of

_LOWEST: Final = {BYTE: -128, SHORT: -32_768, INT: -(2**31), LONG: INT64_MIN}
_HIGHEST: Final = {
    BYTE: 127,
    SHORT: 32_767,
    INT: 2**31 - 1,
    LONG: INT64_MAX,
    UBYTE: 255,
    USHORT: 65_535,
    UINT: 2**32 - 1,
    ULONG: 2**64 - 1,
}
_FLOAT_MAX: Final = 3.4028234663852886e38
_MAX_NUMBER_CHARACTERS: Final = 40


@final
class Converted:
    """A value twice: as expressions see it, and as it is encoded."""

    __slots__ = ("encodable", "value")

    def __init__(self, value: object, encodable: object) -> None:
        self.value: Final = value
        self.encodable: Final = encodable


def converted(value: object, code: i64) -> Converted:
    """The value in the type of the constructor `code` (-1: there is none), or as it is when that cannot hold it."""
    kind = _type_of(code)
    if value is None or kind < 0:
        return Converted(value, value)
    if kind in _HIGHEST:
        return _as_integer(value, kind)
    if kind == DOUBLE or kind == FLOAT:
        return _as_double(value, kind)
    if kind == STRING or kind == SHORT_SYMBOL or kind == CHAR:
        return _as_text(value, kind)
    if kind == TIMESTAMP and isinstance(value, int) and not isinstance(value, bool):
        return Converted(Instant(value * TICKS_PER_MS, True), Typed(TIMESTAMP, value))
    if kind == UUID and isinstance(value, str):
        return _as_uuid(value)
    if kind == 0x56 and isinstance(value, str) and value.lower() in ("true", "false"):
        return Converted(value.lower() == "true", value.lower() == "true")
    return Converted(value, value)


def _type_of(code: i64) -> int:
    """The type that a constructor is of, as `Typed` names it; -1 for those that nothing is converted to."""
    if code == 0x43 or code == 0x52:
        return UINT
    if code == 0x44 or code == 0x53:
        return ULONG
    if code == 0x54:
        return INT
    if code == 0x55:
        return LONG
    if code == 0x41 or code == 0x42:
        return 0x56
    if code == 0xA1:
        return STRING
    if code == 0xB3:
        return SHORT_SYMBOL
    return -1 if code == 0x40 else int(code)


def _as_integer(value: object, kind: int) -> Converted:
    number = _number_in(value) if isinstance(value, str) else value
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, int) and not isinstance(number, bool) and _LOWEST.get(kind, 0) <= number <= _HIGHEST[kind]:
        return Converted(number, Typed(kind, number))
    return Converted(value, value)


def _as_double(value: object, kind: int) -> Converted:
    number = _number_in(value) if isinstance(value, str) else value
    if isinstance(number, int) and not isinstance(number, bool):
        if int(float(number)) != number:
            return Converted(value, value)
        number = float(number)
    if not isinstance(number, float):
        return Converted(value, value)
    if kind == FLOAT and (abs(number) > _FLOAT_MAX and not math.isinf(number)):
        return Converted(number, number)
    return Converted(number, Typed(kind, number))


def _number_in(text: str) -> object:
    """A number that is written in the text, else the text itself."""
    if len(text) > _MAX_NUMBER_CHARACTERS or not text.isascii() or "_" in text:
        return text
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return text
    return text if math.isnan(number) or math.isinf(number) else number


def _as_text(value: object, kind: int) -> Converted:
    text = text_of(value)
    if text is None or (kind == CHAR and len(text) != 1):
        return Converted(value, value)
    return Converted(text, Typed(kind, text))


def _as_uuid(text: str) -> Converted:
    try:
        value = uuid.UUID(text)
    except ValueError:
        return Converted(text, text)
    return Converted(value, value)
