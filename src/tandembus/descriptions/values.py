"""Values in rules with their types: as AMQP encodes them, and as XML Schema names and writes them.

A value is kept in the type that it came with. Python's own types stand for what they are in AMQP (int is a long, float
a double) and for XML's dates and durations; every other type is a `Typed` or `Described` value.
"""

from __future__ import annotations

import base64
import binascii
import struct
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from functools import partial
from typing import Final

from tandembus.amqp.encoding.values import (
    BYTE,
    DATETIME_OFFSET,
    DECIMAL32,
    DECIMAL64,
    DECIMAL128,
    EPOCH_TICKS,
    FLOAT,
    INT,
    LOCAL_DATETIME,
    SHORT,
    TIMESPAN,
    TIMESTAMP,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    Described,
    Typed,
    decimal_text,
    timestamp,
)
from tandembus.descriptions.durations import (
    EPOCH,
    TICKS_PER_MS,
    TICKS_PER_S,
    format_boolean,
    format_ticks,
    parse_boolean,
    parse_integer,
    parse_ticks,
    parse_time_ticks,
)
from tandembus.errors import InvalidArgument

_MICROSECOND: Final = timedelta(microseconds=1)
_DECIMALS: Final = (DECIMAL32, DECIMAL64, DECIMAL128)
_DECIMAL128: Final = Context(prec=34, Emin=-6143, Emax=6144, clamp=1)
_DECIMAL128_BIAS: Final = 6176
_LONG_TEXT: Final = 64
"""Digits with which a decimal is written out; one with a larger exponent has an exponent."""


def plain_value(value: object) -> object:
    """The value as Python has it, to be shown: what is compared, without its type."""
    kind, text = kind_and_text(value)
    if kind in ("short", "int", "long"):
        return int(text)
    if kind in ("float", "double", "decimal"):
        return float(text)
    return value if isinstance(value, bool | str) else text


# AMQP.


def wire_value(value: object) -> object:
    """The value as AMQP encodes it. A date that milliseconds cannot say becomes .NET's DateTimeOffset."""
    if isinstance(value, datetime):
        ticks = _ticks_of(value)
        whole_ms = timestamp(ticks // TICKS_PER_MS)
        return whole_ms if ticks % TICKS_PER_MS == 0 else Described(DATETIME_OFFSET, EPOCH_TICKS + ticks)
    if isinstance(value, timedelta):
        return Described(TIMESPAN, value // _MICROSECOND * 10)
    if isinstance(value, Described) and value.descriptor == LOCAL_DATETIME:
        return Described(DATETIME_OFFSET, value.value)
    if isinstance(value, int) and value >= 2**63:
        return Typed(ULONG, value)
    return value


def _ticks_of(moment: datetime) -> int:
    """Since 1970; a date without a zone is taken as UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // _MICROSECOND * 10


# XML.


def kind_and_text(value: object) -> tuple[str, str]:
    """The name of the type, and how it writes the value. Types that XML Schema does not have become the nearest."""
    if isinstance(value, Described):
        return _described(value)
    if isinstance(value, Typed):
        return _typed(value.code, value.value)
    if isinstance(value, bool):
        return "boolean", format_boolean(value)
    if isinstance(value, int):
        return "long", str(value)
    if isinstance(value, float):
        return "double", _number(repr(value))
    if isinstance(value, datetime):
        return "dateTime", _moment_text(_ticks_of(value), value.tzinfo is not None)
    if isinstance(value, timedelta):
        return "duration", format_ticks(value // _MICROSECOND * 10)
    if isinstance(value, bytes):
        return "base64Binary", base64.b64encode(value).decode()
    return "string", str(value)


def _described(described: Described) -> tuple[str, str]:
    value = described.value
    if isinstance(value, int) and described.descriptor in (DATETIME_OFFSET, LOCAL_DATETIME):
        return "dateTime", _moment_text(value - EPOCH_TICKS, described.descriptor == DATETIME_OFFSET)
    if isinstance(value, int) and described.descriptor == TIMESPAN:
        return "duration", format_ticks(value)
    return kind_and_text(value)


def _typed(code: int, value: object) -> tuple[str, str]:
    if code == TIMESTAMP and isinstance(value, int):
        return "dateTime", _moment_text(value * TICKS_PER_MS, True)
    if code == FLOAT and isinstance(value, float):
        return "float", _float_text(value)
    if code in _DECIMALS and isinstance(value, bytes):
        return "decimal", _decimal_text(decimal_text(value))
    if code in (SHORT, INT):
        return ("short" if code == SHORT else "int"), str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return ("int" if -(2**31) <= value < 2**31 else "long"), str(value)
    return kind_and_text(value)


def _number(text: str) -> str:
    return {"nan": "NaN", "inf": "INF", "-inf": "-INF"}.get(text, text)


def _float_text(number: float) -> str:
    """The shortest text that means this number of 32 bits."""
    texts = [f"{number:.{digits}g}" for digits in (6, 7, 8, 9)]
    return _number(next((text for text in texts if _in_32_bits(float(text)) == number), repr(number)))


def _decimal_text(text: str) -> str:
    if not text:
        return "NaN"
    number = Decimal(text)
    return f"{number:f}" if abs(number.adjusted()) < _LONG_TEXT else str(number)


def _moment_text(ticks: int, is_zoned: bool) -> str:
    seconds, fraction = divmod(ticks, TICKS_PER_S)
    text = (EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    fraction_text = f".{fraction:07d}".rstrip("0").rstrip(".")
    return text + fraction_text + ("Z" if is_zoned else "")


def value_of_text(kind: str, text: str, name: str) -> object:
    """The value that a text of this type means. Raises InvalidArgument."""
    read = _READERS.get(kind)
    if read is None:
        raise InvalidArgument(f"'{name}' is of the type '{kind[:64]}'; known are {', '.join(_READERS)}.")
    return read(text if kind == "string" else text.strip(), name)


def _long(text: str, name: str) -> int:
    number = parse_integer(text, name)
    if not -(2**63) <= number < 2**63:
        raise InvalidArgument(f"{name}: '{text}' has more than 64 bits.")
    return number


def _integer(code: int, least: int, most: int, text: str, name: str) -> object:
    """Some clients call a large negative number an int: what its type cannot hold is a long."""
    number = _long(text, name)
    return Typed(code, number) if least <= number <= most else number


def _uuid(text: str, name: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise InvalidArgument(f"{name}: '{text[:64]}' is not a uuid.") from None


def _double(text: str, name: str) -> float:
    try:
        if text.isascii() and "_" not in text:
            return float(text)
    except ValueError:
        pass
    raise InvalidArgument(f"{name}: '{text[:64]}' is not a number.")


def _float(text: str, name: str) -> object:
    number = _double(text, name)
    rounded = _in_32_bits(number)
    return number if rounded is None else Typed(FLOAT, rounded)


def _in_32_bits(number: float) -> float | None:
    """None where the number is too large."""
    try:
        found: float = struct.unpack(">f", struct.pack(">f", number))[0]
    except OverflowError:
        return None
    return found


def _decimal(text: str, name: str) -> object:
    """A decimal128 in its binary integer form (IEEE 754-2008, 3.5.2), of 34 digits."""
    _double(text, name)
    try:
        number = _DECIMAL128.create_decimal(text)
    except ArithmeticError:
        number = Decimal("NaN")
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise InvalidArgument(f"{name}: '{text[:64]}' is not a decimal number.")
    coefficient = int("".join(map(str, digits)))
    bits = sign << 127 | (exponent + _DECIMAL128_BIAS) << 113 | coefficient
    return Typed(DECIMAL128, bits.to_bytes(16, "big"))


def _moment(text: str, name: str) -> object:
    """A datetime, without a zone if the text has none; in ticks where it has more digits than a datetime."""
    found = parse_time_ticks(text)
    if found is None:
        raise InvalidArgument(f"{name}: '{text[:64]}' is not a time such as 2030-01-31T12:00:00Z.")
    ticks, is_zoned = found
    if ticks % 10:
        return Described(DATETIME_OFFSET if is_zoned else LOCAL_DATETIME, EPOCH_TICKS + ticks)
    moment = EPOCH + timedelta(microseconds=ticks // 10)
    return moment if is_zoned else moment.replace(tzinfo=None)


def _span(text: str, name: str) -> object:
    ticks = parse_ticks(text, name)
    if not -(2**63) <= ticks < 2**63:
        raise InvalidArgument(f"{name}: '{text[:64]}' is too long.")
    return Described(TIMESPAN, ticks) if ticks % 10 else timedelta(microseconds=ticks // 10)


def _bytes(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument(f"{name}: the value is not base64.") from None


_READERS: Final[Mapping[str, Callable[[str, str], object]]] = {
    "string": lambda text, _name: text,
    "int": partial(_integer, INT, -(2**31), 2**31 - 1),
    "long": _long,
    "short": partial(_integer, SHORT, -(2**15), 2**15 - 1),
    "byte": partial(_integer, BYTE, -(2**7), 2**7 - 1),
    "unsignedByte": partial(_integer, UBYTE, 0, 2**8 - 1),
    "unsignedShort": partial(_integer, USHORT, 0, 2**16 - 1),
    "unsignedInt": partial(_integer, UINT, 0, 2**32 - 1),
    "double": _double,
    "float": _float,
    "decimal": _decimal,
    "boolean": parse_boolean,
    "dateTime": _moment,
    "duration": _span,
    "base64Binary": _bytes,
    "guid": _uuid,
}
VALUE_KINDS: Final = tuple(_READERS)
