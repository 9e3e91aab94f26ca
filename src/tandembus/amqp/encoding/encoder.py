"""Encoding of AMQP 1.0 values, always in their shortest form.

What is wrong here is our own program's or its caller's value, never a peer's bytes: `InvalidArgument`.
"""

from __future__ import annotations

import math
import uuid
from typing import Final

from librt.strings import BytesWriter, write_f32_be, write_f64_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64, u8

from tandembus.amqp.encoding.values import Array, Described, Encoded, Typed
from tandembus.errors import InvalidArgument

MAX_DEPTH: Final = 64

_INT64_MAX: Final = 0x7FFFFFFFFFFFFFFF
_FLOAT_MAX: Final = 3.4028234663852886e38


def encode(value: object) -> bytes:
    out = BytesWriter()
    _write(out, value, 0)
    return out.getvalue()


def encode_into(out: BytesWriter, value: object) -> None:
    _write(out, value, 0)


def write_u16(out: BytesWriter, number: i64) -> None:
    if number >= 0x8000:
        number -= 0x10000
    write_i16_be(out, i16(number))


def write_u32(out: BytesWriter, number: i64) -> None:
    if number >= 0x80000000:
        number -= 0x100000000
    write_i32_be(out, i32(number))


def patch_u32(out: BytesWriter, at: i64, number: i64) -> None:
    """Fill in a size that was not known when its place was written."""
    out[at] = u8((number >> 24) & 255)
    out[at + 1] = u8((number >> 16) & 255)
    out[at + 2] = u8((number >> 8) & 255)
    out[at + 3] = u8(number & 255)


def _write(out: BytesWriter, value: object, depth: i64) -> None:
    if value is None:
        out.append(0x40)
    elif isinstance(value, str):
        _write_variable(out, _utf8(value), 0xA1)
    elif isinstance(value, bool):
        out.append(0x41 if value else 0x42)
    elif isinstance(value, int):
        _write_long(out, value)
    elif isinstance(value, bytes):
        _write_variable(out, value, 0xA0)
    elif isinstance(value, Typed):
        _write_typed(out, value.code, value.value)
    elif isinstance(value, dict):
        _write_map(out, value, depth)
    elif isinstance(value, list):
        _write_list(out, value, depth)
    elif isinstance(value, Described):
        _write_described(out, value, depth)
    elif isinstance(value, Encoded):
        out.write(value.data)
    elif isinstance(value, float):
        out.append(0x82)
        write_f64_be(out, value)
    elif isinstance(value, uuid.UUID):
        out.append(0x98)
        out.write(value.bytes)
    elif isinstance(value, Array):
        _write_array(out, value, depth)
    else:
        raise InvalidArgument(f"no AMQP type for a {type(value).__name__}")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument("text with a lone surrogate") from error


def _write_variable(out: BytesWriter, content: bytes, short_code: i64) -> None:
    size: i64 = len(content)
    if size < 256:
        out.append(u8(short_code))
        out.append(u8(size))
    else:
        out.append(u8(short_code + 0x10))
        write_u32(out, size)
    out.write(content)


def _write_long(out: BytesWriter, number: int) -> None:
    if -128 <= number <= 127:
        out.append(0x55)
        out.append(u8(number & 255))
    else:
        _check_range(number, -_INT64_MAX - 1, _INT64_MAX)
        out.append(0x81)
        write_i64_be(out, i64(number))


def _check_range(number: int, lowest: int, highest: int) -> None:
    if number < lowest or number > highest:
        raise InvalidArgument(f"{number} is outside its type's range")


def _write_typed(out: BytesWriter, code: i64, value: object) -> None:
    """The compact form where the type has one, otherwise the constructor and its fixed bytes."""
    if code == 0xA3 or code == 0xB3:
        _write_variable(out, _utf8(_as_text(value)), 0xA3)
    elif code == 0xA1 or code == 0xB1:
        _write_variable(out, _utf8(_as_text(value)), 0xA1)
    elif code == 0xA0 or code == 0xB0:
        _write_variable(out, _as_bytes(value), 0xA0)
    elif code == 0x70 and _is_small(value):
        _write_small(out, _as_int(value), 0x43, 0x52)
    elif code == 0x80 and _is_small(value):
        _write_small(out, _as_int(value), 0x44, 0x53)
    elif code == 0x81:
        _write_long(out, _as_int(value))
    elif code == 0x71 and isinstance(value, int) and -128 <= value <= 127:
        out.append(0x54)
        out.append(u8(value & 255))
    elif code == 0x56:
        out.append(0x41 if value else 0x42)
    elif code == 0x40:
        out.append(0x40)
    else:
        out.append(u8(code))
        _write_fixed(out, code, value)


def _is_small(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= 255


def _write_small(out: BytesWriter, number: i64, zero_code: i64, small_code: i64) -> None:
    if number == 0:
        out.append(u8(zero_code))
    else:
        out.append(u8(small_code))
        out.append(u8(number))


def _as_text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgument("a symbol, string or char must be text")
    return value


def _as_bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise InvalidArgument("a binary or decimal must be bytes")
    return value


def _as_int(value: object) -> int:
    if not isinstance(value, int):
        raise InvalidArgument("an integer type must hold an integer")
    return value


def _as_float(value: object) -> float:
    if isinstance(value, float):
        return value
    return float(_as_int(value))


def _write_fixed(out: BytesWriter, code: i64, value: object) -> None:
    """The bytes behind a constructor of fixed width; array elements are written with it too."""
    if code == 0x72:
        _write_float(out, _as_float(value))
    elif code == 0x82:
        write_f64_be(out, _as_float(value))
    elif code == 0x73:
        _write_char(out, _as_text(value))
    elif code == 0x74 or code == 0x84 or code == 0x94:
        _write_exactly(out, _as_bytes(value), 4 if code == 0x74 else 8 if code == 0x84 else 16)
    elif code == 0x98:
        if not isinstance(value, uuid.UUID):
            raise InvalidArgument("a uuid type must hold a UUID")
        out.write(value.bytes)
    elif code == 0x56:
        out.append(1 if value else 0)
    else:
        _write_integer(out, code, _as_int(value))


def _write_float(out: BytesWriter, number: float) -> None:
    if abs(number) > _FLOAT_MAX and not math.isinf(number):
        raise InvalidArgument(f"{number} is outside its type's range")
    write_f32_be(out, number)


def _write_char(out: BytesWriter, text: str) -> None:
    if len(text) != 1:
        raise InvalidArgument("a char is one character")
    write_u32(out, ord(text))


def _write_exactly(out: BytesWriter, content: bytes, size: i64) -> None:
    if len(content) != size:
        raise InvalidArgument("a decimal of the wrong size")
    out.write(content)


def _write_integer(out: BytesWriter, code: i64, number: int) -> None:
    if code == 0x50:
        _check_range(number, 0, 0xFF)
        out.append(u8(number))
    elif code == 0x51:
        _check_range(number, -0x80, 0x7F)
        out.append(u8(number & 255))
    elif code == 0x60:
        _check_range(number, 0, 0xFFFF)
        write_u16(out, number)
    elif code == 0x61:
        _check_range(number, -0x8000, 0x7FFF)
        write_i16_be(out, i16(number))
    elif code == 0x70:
        _check_range(number, 0, 0xFFFFFFFF)
        write_u32(out, number)
    elif code == 0x71:
        _check_range(number, -0x80000000, 0x7FFFFFFF)
        write_i32_be(out, i32(number))
    elif code == 0x80:
        _check_range(number, 0, 0xFFFFFFFFFFFFFFFF)
        write_i64_be(out, i64(number - (1 << 64) if number > _INT64_MAX else number))
    elif code == 0x81 or code == 0x83:
        _check_range(number, -_INT64_MAX - 1, _INT64_MAX)
        write_i64_be(out, i64(number))
    else:
        raise InvalidArgument(f"unknown type code 0x{code:02X}")


def _write_described(out: BytesWriter, value: Described, depth: i64) -> None:
    if depth >= MAX_DEPTH:
        raise InvalidArgument("values are nested too deep")
    out.append(0)
    _write_descriptor(out, value.descriptor, depth + 1)
    _write(out, value.value, depth + 1)


def _write_descriptor(out: BytesWriter, descriptor: object, depth: i64) -> None:
    if isinstance(descriptor, str):
        _write_typed(out, 0xA3, descriptor)
    elif isinstance(descriptor, int) and not isinstance(descriptor, bool):
        _write_typed(out, 0x80, descriptor)
    else:
        _write(out, descriptor, depth)


def _write_list(out: BytesWriter, items: list[object], depth: i64) -> None:
    if depth >= MAX_DEPTH:
        raise InvalidArgument("values are nested too deep")
    if not items:
        out.append(0x45)
        return
    content = BytesWriter()
    for item in items:
        _write(content, item, depth + 1)
    _write_compound(out, 0xC0, len(items), content)


def _write_map(out: BytesWriter, entries: dict[object, object], depth: i64) -> None:
    if depth >= MAX_DEPTH:
        raise InvalidArgument("values are nested too deep")
    content = BytesWriter()
    for key, value in entries.items():
        _write(content, key, depth + 1)
        _write(content, value, depth + 1)
    _write_compound(out, 0xC1, 2 * len(entries), content)


def _write_array(out: BytesWriter, array: Array, depth: i64) -> None:
    if depth >= MAX_DEPTH:
        raise InvalidArgument("values are nested too deep")
    content = BytesWriter()
    _write_elements(content, array, depth + 1)
    _write_compound(out, 0xE0, len(array.items), content)


def _write_compound(out: BytesWriter, short_code: i64, count: i64, content: BytesWriter) -> None:
    size: i64 = len(content)
    if size < 255 and count < 256:
        out.append(u8(short_code))
        out.append(u8(size + 1))
        out.append(u8(count))
    else:
        out.append(u8(short_code + 0x10))
        write_u32(out, size + 4)
        write_u32(out, count)
    out.write(content.getvalue())


def _write_elements(out: BytesWriter, array: Array, depth: i64) -> None:
    if array.descriptor is not None:
        out.append(0)
        _write_descriptor(out, array.descriptor, depth)
    code: i64 = array.code
    if code == 0xA0 or code == 0xA1 or code == 0xA3 or code == 0xB0 or code == 0xB1 or code == 0xB3:
        _write_variable_elements(out, array.items, code & 15)
        return
    out.append(u8(code))
    for item in array.items:
        _write_element(out, code, item, depth)


def _write_variable_elements(out: BytesWriter, items: list[object], kind: i64) -> None:
    """All elements share one constructor: the short one if every element fits it."""
    contents = [_as_bytes(item) if kind == 0 else _utf8(_as_text(item)) for item in items]
    is_short = True
    for content in contents:
        if len(content) > 255:
            is_short = False
    out.append(u8(kind + 0xA0 if is_short else kind + 0xB0))
    for content in contents:
        if is_short:
            out.append(u8(len(content)))
        else:
            write_u32(out, len(content))
        out.write(content)


def _write_element(out: BytesWriter, code: i64, item: object, depth: i64) -> None:
    if code == 0x40:
        return
    if code == 0xD0 or code == 0xD1 or code == 0xF0:
        _write_compound_element(out, code, item, depth)
    else:
        _write_fixed(out, code, item)


def _write_compound_element(out: BytesWriter, code: i64, item: object, depth: i64) -> None:
    if depth >= MAX_DEPTH:
        raise InvalidArgument("values are nested too deep")
    start: i64 = len(out)
    write_i64_be(out, 0)
    count: i64
    if code == 0xF0 and isinstance(item, Array):
        _write_elements(out, item, depth + 1)
        count = len(item.items)
    elif code == 0xD0 and isinstance(item, list):
        for value in item:
            _write(out, value, depth + 1)
        count = len(item)
    elif code == 0xD1 and isinstance(item, dict):
        for key, value in item.items():
            _write(out, key, depth + 1)
            _write(out, value, depth + 1)
        count = 2 * len(item)
    else:
        raise InvalidArgument("an array item of another type than its array")
    patch_u32(out, start, i64(len(out)) - start - 4)
    patch_u32(out, start + 4, count)
