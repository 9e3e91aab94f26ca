"""Decoding of AMQP 1.0 values (specification part 1, types); encoding stands in `encoder.py`, offered here too.

The bytes come from strangers. Every size and count is compared with the bytes that are really there before
anything is allocated, nesting is limited (compiled code has no stack guard), and whatever is wrong is a
`MalformedData`.
"""

from __future__ import annotations

import uuid
from typing import Final, final

from librt.strings import read_f32_be, read_f64_be, read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.encoder import MAX_DEPTH, encode, encode_into
from tandembus.amqp.encoding.values import SHORT_SYMBOL, Array, Described, Typed
from tandembus.errors import MalformedData

__all__ = [
    "MAX_DEPTH",
    "ZERO_WIDTH_ALLOWANCE",
    "decode",
    "decode_between",
    "encode",
    "encode_into",
    "skip",
    "skip_value",
]

ZERO_WIDTH_ALLOWANCE: Final = 256
"""Array items without bytes: at most this many, plus one per byte of the data, in one call of `decode`."""

_SIZE_8: Final = 0xE0
_SIZE_32: Final = 0xE1
_UNKNOWN: Final = 0xFF


def _width_table() -> bytes:
    """For every constructor: the bytes that follow it, or how wide the size is that follows it."""
    table = bytearray([_UNKNOWN] * 256)
    for codes, width in (
        (b"\x40\x41\x42\x43\x44\x45", 0),
        (b"\x50\x51\x52\x53\x54\x55\x56", 1),
        (b"\x60\x61", 2),
        (b"\x70\x71\x72\x73\x74", 4),
        (b"\x80\x81\x82\x83\x84", 8),
        (b"\x94\x98", 16),
        (b"\xa0\xa1\xa3\xc0\xc1\xe0", _SIZE_8),
        (b"\xb0\xb1\xb3\xd0\xd1\xf0", _SIZE_32),
    ):
        for code in codes:
            table[code] = width
    return bytes(table)


_WIDTHS: Final = _width_table()


@final
class _Reader:
    """A position in the data, and what may still be built from it."""

    __slots__ = ("at", "data", "typed", "zero_width_left")

    def __init__(self, data: bytes, at: i64, end: i64, typed: bool) -> None:
        self.data: Final = data
        self.at: i64 = at
        self.typed: Final = typed
        self.zero_width_left: i64 = ZERO_WIDTH_ALLOWANCE + end - at


def decode(data: bytes, at: int = 0, typed: bool = False) -> tuple[object, int]:
    """The value at `at`, and the position behind it.

    Plain: every integer and timestamp is an int, symbol and char are str, an array is a list. `typed` keeps
    apart what Python cannot tell apart, so that encoding the result gives the same value with the same types.
    """
    if at < 0:
        raise MalformedData("a position before the data")
    reader = _Reader(data, at, len(data), typed)
    value = _read(reader, len(data), 0)
    return value, reader.at


def decode_between(data: bytes, at: i64, end: i64, typed: bool = False) -> object:
    """The one value that fills the data from `at` to `end`, both known to lie within it."""
    reader = _Reader(data, at, end, typed)
    value = _read(reader, end, 0)
    if reader.at != end:
        raise MalformedData("a value that does not fill its place")
    return value


def skip(data: bytes, at: int, end: int) -> int:
    """The position behind the value at `at`, which must lie before `end`; the value is not built."""
    if at < 0 or end > len(data):
        raise MalformedData("a position outside the data")
    return skip_value(data, at, end)


def skip_value(data: bytes, at: i64, end: i64) -> i64:
    """`skip` for positions that are known to lie within the data."""
    depth: i64 = 0
    values_left: i64 = 1
    while values_left > 0:
        if at >= end:
            raise MalformedData("the data ends within a value")
        code: i64 = data[at]
        at += 1
        if code == 0:
            depth += 1
            if depth > MAX_DEPTH:
                raise MalformedData("values are nested too deep")
            values_left += 1
            continue
        at += _size_behind(data, at, end, code)
        if at > end:
            raise MalformedData("the data ends within a value")
        values_left -= 1
    return at


def _size_behind(data: bytes, at: i64, end: i64, code: i64) -> i64:
    """Bytes that follow a constructor."""
    width: i64 = _WIDTHS[code]
    if width <= 16:
        return width
    if width == _SIZE_8:
        if at >= end:
            raise MalformedData("the data ends within a size")
        return 1 + i64(data[at])
    if width == _SIZE_32:
        return 4 + _u32(data, at, end)
    raise MalformedData(f"unknown constructor 0x{code:02X}")


def _u32(data: bytes, at: i64, end: i64) -> i64:
    if at + 4 > end:
        raise MalformedData("the data ends within a size")
    return i64(read_i32_be(data, at)) & 0xFFFFFFFF


def _read(reader: _Reader, end: i64, depth: i64) -> object:
    data = reader.data
    at: i64 = reader.at
    if at >= end:
        raise MalformedData("the data ends where a value should begin")
    code: i64 = data[at]
    reader.at = at + 1
    if code == 0:
        return _read_described(reader, end, depth)
    return _read_body(reader, end, depth, code)


def _read_described(reader: _Reader, end: i64, depth: i64) -> Described:
    if depth >= MAX_DEPTH:
        raise MalformedData("values are nested too deep")
    descriptor = _read_descriptor(reader, end, depth + 1)
    return Described(descriptor, _read(reader, end, depth + 1))


def _read_descriptor(reader: _Reader, end: i64, depth: i64) -> object:
    """An int for a ulong and a str for a symbol, in both modes: what descriptors are. Others stay marked."""
    start: i64 = reader.at
    value = _read(reader, end, depth)
    if not reader.typed:
        return value
    code: i64 = reader.data[start]
    if isinstance(value, Typed) and (code == 0x80 or code == 0x53 or code == 0x44 or code == 0xA3 or code == 0xB3):
        return value.value
    if code == 0x81 or code == 0x55:
        return Typed(0x81, value)
    if code == 0xA1 or code == 0xB1:
        return Typed(0xB1, value)
    return value


def _read_body(reader: _Reader, end: i64, depth: i64, code: i64) -> object:
    """What follows the constructor `code`; arrays call it once per element."""
    width: i64 = code >> 4
    if width == 10 or width == 11:
        return _read_variable(reader, end, code, width == 10)
    if width == 4:
        return _zero_width(code, reader.typed)
    if width == 5:
        return _read_1(reader, end, code)
    if width == 7:
        return _read_4(reader, end, code)
    if width == 8:
        return _read_8(reader, end, code)
    if width == 12 or width == 13:
        return _read_compound(reader, end, depth, code, width == 12)
    if width == 14 or width == 15:
        return _read_array(reader, end, depth, code, width == 14)
    if width == 6:
        return _read_2(reader, end, code)
    if width == 9:
        return _read_16(reader, end, code)
    raise MalformedData(f"unknown constructor 0x{code:02X}")


def _zero_width(code: i64, typed: bool) -> object:
    if code == 0x40:
        return None
    if code == 0x41:
        return True
    if code == 0x42:
        return False
    if code == 0x43:
        return Typed(0x70, 0) if typed else 0
    if code == 0x44:
        return Typed(0x80, 0) if typed else 0
    if code == 0x45:
        empty: list[object] = []
        return empty
    raise MalformedData(f"unknown constructor 0x{code:02X}")


def _advance(reader: _Reader, end: i64, size: i64) -> i64:
    """Step over `size` bytes that must be there; returns where they begin."""
    at: i64 = reader.at
    if at + size > end:
        raise MalformedData("the data ends within a value")
    reader.at = at + size
    return at


def _read_1(reader: _Reader, end: i64, code: i64) -> object:
    number: i64 = reader.data[_advance(reader, end, 1)]
    typed = reader.typed
    if code == 0x56:
        if number > 1:
            raise MalformedData("a boolean that is neither true nor false")
        return number == 1
    if code == 0x50 or code == 0x52 or code == 0x53:
        if not typed:
            return int(number)
        return Typed(0x50 if code == 0x50 else 0x70 if code == 0x52 else 0x80, int(number))
    if number > 127:
        number -= 256
    if code == 0x55:
        return int(number)
    if code == 0x54 or code == 0x51:
        if not typed:
            return int(number)
        return Typed(0x51 if code == 0x51 else 0x71, int(number))
    raise MalformedData(f"unknown constructor 0x{code:02X}")


def _read_2(reader: _Reader, end: i64, code: i64) -> object:
    number: i64 = i64(read_i16_be(reader.data, _advance(reader, end, 2)))
    if code == 0x60:
        number &= 0xFFFF
    elif code != 0x61:
        raise MalformedData(f"unknown constructor 0x{code:02X}")
    return Typed(int(code), int(number)) if reader.typed else int(number)


def _read_4(reader: _Reader, end: i64, code: i64) -> object:
    at: i64 = _advance(reader, end, 4)
    if code == 0x72:
        fraction = read_f32_be(reader.data, at)
        return Typed(0x72, fraction) if reader.typed else fraction
    if code == 0x74:
        decimal = reader.data[at : at + 4]
        return Typed(0x74, decimal) if reader.typed else decimal
    number: i64 = i64(read_i32_be(reader.data, at))
    if code == 0x73:
        if number < 0 or number > 0x10FFFF:
            raise MalformedData("a char outside Unicode")
        return Typed(0x73, chr(int(number))) if reader.typed else chr(int(number))
    if code == 0x70:
        number &= 0xFFFFFFFF
    elif code != 0x71:
        raise MalformedData(f"unknown constructor 0x{code:02X}")
    return Typed(int(code), int(number)) if reader.typed else int(number)


def _read_8(reader: _Reader, end: i64, code: i64) -> object:
    at: i64 = _advance(reader, end, 8)
    if code == 0x82:
        return read_f64_be(reader.data, at)
    if code == 0x84:
        decimal = reader.data[at : at + 8]
        return Typed(0x84, decimal) if reader.typed else decimal
    number = int(read_i64_be(reader.data, at))
    if code == 0x81:
        return number
    if code == 0x80:
        if number < 0:
            number += 1 << 64
    elif code != 0x83:
        raise MalformedData(f"unknown constructor 0x{code:02X}")
    return Typed(int(code), number) if reader.typed else number


def _read_16(reader: _Reader, end: i64, code: i64) -> object:
    at: i64 = _advance(reader, end, 16)
    content = reader.data[at : at + 16]
    if code == 0x98:
        return uuid.UUID(bytes=content)
    if code == 0x94:
        return Typed(0x94, content) if reader.typed else content
    raise MalformedData(f"unknown constructor 0x{code:02X}")


def _read_variable(reader: _Reader, end: i64, code: i64, is_short: bool) -> object:
    size: i64
    if is_short:
        size = reader.data[_advance(reader, end, 1)]
    else:
        size = _u32(reader.data, reader.at, end)
        reader.at += 4
    at: i64 = _advance(reader, end, size)
    content = reader.data[at : at + size]
    kind: i64 = code & 15
    if kind == 0:
        return content
    if kind == 1:
        return _text(content)
    if kind == 3:
        # A symbol should be ASCII; some peers are not so careful, and UTF-8 contains it.
        return Typed(SHORT_SYMBOL, _text(content)) if reader.typed else _text(content)
    raise MalformedData(f"unknown constructor 0x{code:02X}")


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise MalformedData("text that is not UTF-8") from error


def _read_compound(reader: _Reader, end: i64, depth: i64, code: i64, is_short: bool) -> object:
    if depth >= MAX_DEPTH:
        raise MalformedData("values are nested too deep")
    count: i64
    if is_short:
        at: i64 = _advance(reader, end, 2)
        stop: i64 = at + 1 + i64(reader.data[at])
        count = reader.data[at + 1]
    else:
        at = _advance(reader, end, 8)
        stop = at + 4 + _u32(reader.data, at, end)
        count = _u32(reader.data, at + 4, end)
    if stop > end or stop < reader.at or count > stop - reader.at:
        raise MalformedData("a size or count that does not fit the data")
    kind: i64 = code & 15
    if kind == 0:
        value: object = _read_items(reader, stop, depth + 1, count)
    elif kind == 1:
        value = _read_entries(reader, stop, depth + 1, count)
    else:
        raise MalformedData(f"unknown constructor 0x{code:02X}")
    if reader.at != stop:
        raise MalformedData("a size that its content does not have")
    return value


def _read_items(reader: _Reader, stop: i64, depth: i64, count: i64) -> list[object]:
    items: list[object] = []
    while count > 0:
        items.append(_read(reader, stop, depth))
        count -= 1
    return items


def _read_entries(reader: _Reader, stop: i64, depth: i64, count: i64) -> dict[object, object]:
    if count & 1:
        raise MalformedData("a map with a key that has no value")
    entries: dict[object, object] = {}
    while count > 0:
        key = _read(reader, stop, depth)
        value = _read(reader, stop, depth)
        try:
            entries[key] = value
        except TypeError as error:
            raise MalformedData("a map key that is a list or a map") from error
        count -= 2
    return entries


def _read_array(reader: _Reader, end: i64, depth: i64, code: i64, is_short: bool) -> object:
    if depth >= MAX_DEPTH:
        raise MalformedData("values are nested too deep")
    if code & 15:
        raise MalformedData(f"unknown constructor 0x{code:02X}")
    count: i64
    if is_short:
        at: i64 = _advance(reader, end, 2)
        stop: i64 = at + 1 + i64(reader.data[at])
        count = reader.data[at + 1]
    else:
        at = _advance(reader, end, 8)
        stop = at + 4 + _u32(reader.data, at, end)
        count = _u32(reader.data, at + 4, end)
    if stop > end or stop < reader.at:
        raise MalformedData("a size that does not fit the data")
    value = _read_elements(reader, stop, depth + 1, count)
    if reader.at != stop:
        raise MalformedData("a size that its content does not have")
    return value


def _read_elements(reader: _Reader, stop: i64, depth: i64, count: i64) -> object:
    at: i64 = _advance(reader, stop, 1)
    code: i64 = reader.data[at]
    descriptor: object = None
    if code == 0:
        descriptor = _read_descriptor(reader, stop, depth)
        at = _advance(reader, stop, 1)
        code = reader.data[at]
    if _WIDTHS[code] == _UNKNOWN:
        raise MalformedData(f"unknown constructor 0x{code:02X}")
    if code >> 4 == 4:
        reader.zero_width_left -= count
        if reader.zero_width_left < 0:
            raise MalformedData("too many array items without bytes")
    elif count > stop - reader.at:
        raise MalformedData("a count that does not fit the data")
    items: list[object] = []
    while count > 0:
        item = _read_body(reader, stop, depth, code)
        items.append(item.value if isinstance(item, Typed) else item)
        count -= 1
    if reader.typed:
        return Array(_canonical(code), items, descriptor)
    if descriptor is not None:
        return [Described(descriptor, item) for item in items]
    return items


def _canonical(code: i64) -> int:
    """The widest constructor of the element type, which is how `Array` names it."""
    if code == 0x41 or code == 0x42:
        return 0x56
    if code == 0x43 or code == 0x52:
        return 0x70
    if code == 0x44 or code == 0x53:
        return 0x80
    if code == 0x54:
        return 0x71
    if code == 0x55:
        return 0x81
    if code == 0x45 or code == 0xC0:
        return 0xD0
    if code == 0xC1:
        return 0xD1
    if code == 0xE0:
        return 0xF0
    if code == 0xA0:
        return 0xB0
    if code == 0xA1:
        return 0xB1
    if code == 0xB3:
        return 0xA3
    return int(code)
