"""Between AMQP's types and the values that expressions compute with.

Reading is the hot side: strings and integers, which nearly all properties are, take a short way.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.codec import decode_between, skip_value
from tandembus.amqp.encoding.values import (
    DECIMAL32,
    DECIMAL64,
    DECIMAL128,
    TIMESTAMP,
    Described,
    Typed,
)
from tandembus.errors import BusError
from tandembus.rules.values import INT64_MAX, INT64_MIN, OPAQUE, TICKS_PER_MS, Duration, Fault, Instant

TIMESPAN: Final = "com.microsoft:timespan"
DATETIME_OFFSET: Final = "com.microsoft:datetime-offset"
URI: Final = "com.microsoft:uri"
EPOCH_TICKS: Final = 621_355_968_000_000_000
"""1970 in .NET's ticks, which count from year 1."""

UNREADABLE: Final = Fault("a property's value cannot be read")
UNREPRESENTABLE: Final = Fault("no AMQP type holds the value")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def value_at(data: bytes, at: i64, end: i64) -> object:
    """The value that stands at `at`, in data whose structure was checked when the message came."""
    code: i64 = data[at]
    if code == 0xA1:
        return _text(data[at + 2 : at + 2 + i64(data[at + 1])])
    if code == 0x54 or code == 0x55:
        small: i64 = data[at + 1]
        return int(small - 256) if small > 127 else int(small)
    if code == 0x71:
        return int(i64(read_i32_be(data, at + 1)))
    if code == 0x81:
        return int(read_i64_be(data, at + 1))
    if code == 0x45 or code >= 0xC0 or (code == 0 and not _is_simply_described(data, at, end)):
        return OPAQUE
    return _decoded(data, at, end)


def _text(content: bytes) -> object:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return UNREADABLE


def _is_simply_described(data: bytes, at: i64, end: i64) -> bool:
    """Anything else is not worth building, whatever its size."""
    descriptor: i64 = data[at + 1]
    if descriptor == 0xA3 or descriptor == 0xB3:
        code: i64 = data[skip_value(data, at + 1, end)]
        return code != 0 and code != 0x45 and code < 0xC0
    return False


def _decoded(data: bytes, at: i64, end: i64) -> object:
    try:
        return value_of(decode_between(data, at, skip_value(data, at, end), True))
    except BusError:
        return UNREADABLE


def value_of(decoded: object) -> object:
    """A decoded (typed) AMQP value, or one of Python's own, as expressions see it."""
    if decoded is None or isinstance(decoded, str) or isinstance(decoded, bool):  # noqa: SIM101
        return decoded
    if isinstance(decoded, int) or isinstance(decoded, float):  # noqa: SIM101
        return decoded
    if isinstance(decoded, uuid.UUID) or isinstance(decoded, bytes):  # noqa: SIM101
        return decoded
    if isinstance(decoded, Typed):
        return _typed(decoded.code, decoded.value)
    if isinstance(decoded, Described):
        return _described(decoded.descriptor, value_of(decoded.value))
    if isinstance(decoded, datetime):
        aware = decoded if decoded.tzinfo is not None else decoded.replace(tzinfo=UTC)
        return Instant((aware - _EPOCH) // _MICROSECOND * 10)
    if isinstance(decoded, timedelta):
        return Duration(decoded // _MICROSECOND * 10)
    return OPAQUE


def _typed(code: int, value: object) -> object:
    if code == TIMESTAMP and isinstance(value, int):
        return Instant(value * TICKS_PER_MS, True)
    if isinstance(value, bytes) and (code == DECIMAL32 or code == DECIMAL64 or code == DECIMAL128):
        return _double_of_decimal(value)
    return value


def _described(descriptor: object, value: object) -> object:
    if descriptor == TIMESPAN and isinstance(value, int):
        return Duration(value)
    if descriptor == DATETIME_OFFSET and isinstance(value, int):
        return Instant(value - EPOCH_TICKS)
    if descriptor == URI and isinstance(value, str):
        return value
    return OPAQUE


def _double_of_decimal(content: bytes) -> object:
    """A decimal in its binary integer form (IEEE 754-2008, 3.5.2), as the nearest double."""
    bits = int.from_bytes(content, "big")
    width = 8 * len(content)
    exponent_bits = width // 16 + 6 if width > 32 else 8
    fraction_bits = width - 1 - exponent_bits
    bias = {32: 101, 64: 398, 128: 6176}[width]
    is_negative = bits >> (width - 1) == 1
    special = (bits >> (width - 5)) & 15
    if special == 15:
        return UNREADABLE
    if special >= 12:
        # The coefficient begins with 100 in binary; one of that size is out of range for 128 bits, and so it is zero.
        exponent = (bits >> (fraction_bits - 2)) & ((1 << exponent_bits) - 1)
        coefficient = 0 if width == 128 else (4 << (fraction_bits - 2)) | (bits & ((1 << (fraction_bits - 2)) - 1))
    else:
        exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1)
        coefficient = bits & ((1 << fraction_bits) - 1)
    number = float(f"{coefficient}E{exponent - bias}")
    return -number if is_negative else number


def encodable(value: object) -> object:
    """A value as the encoder takes it; a Fault where AMQP cannot say it."""
    if isinstance(value, Instant):
        ticks = value.ticks
        return Typed(TIMESTAMP, ticks // TICKS_PER_MS) if INT64_MIN <= ticks <= INT64_MAX else UNREPRESENTABLE
    if isinstance(value, Duration):
        return Described(TIMESPAN, value.ticks) if INT64_MIN <= value.ticks <= INT64_MAX else UNREPRESENTABLE
    if isinstance(value, int) and not isinstance(value, bool) and value > INT64_MAX:
        return Typed(0x80, value)
    if value is OPAQUE:
        return UNREPRESENTABLE
    return value
