"""Takes an encoded message apart and puts it together again without building the values in it.

For those who change a few named things of a message and must leave the rest as the bytes that came. Positions are
checked against the bytes that are there; what does not add up is MalformedData.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i32_be, write_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.codec import decode, decode_between, skip_value
from tandembus.amqp.encoding.descriptors import FOOTER, HEADER, UNKNOWN, code_of
from tandembus.errors import MalformedData

_NULL: Final = 0x40
_LIST_0: Final = 0x45


@final
class Section:
    """One section of a message: data[at:end], of which data[value_at:end] is the value."""

    __slots__ = ("at", "code", "end", "value_at")

    def __init__(self, code: int, at: int, value_at: int, end: int) -> None:
        self.code: Final = code
        self.at: Final = at
        self.value_at: Final = value_at
        self.end: Final = end


@final
class CutMap:
    """A map's entries without some of them: `entries` are `count` keys and values as the bytes that came."""

    __slots__ = ("count", "entries", "taken")

    def __init__(self, count: int, entries: bytes, taken: dict[str, object]) -> None:
        self.count: Final = count
        self.entries: Final = entries
        self.taken: Final = taken


def split_message(payload: bytes) -> list[Section]:
    """The sections of a message, in the order in which they stand."""
    sections: list[Section] = []
    end: i64 = len(payload)
    at: i64 = 0
    while at < end:
        if payload[at] != 0:
            raise MalformedData("a message section does not start with a descriptor")
        code: i64
        value_at: i64
        if end - at > 2 and payload[at + 1] == 0x53:
            code = payload[at + 2]
            value_at = at + 3
        else:
            descriptor, behind = decode(payload, int(at) + 1)
            code = code_of(descriptor)
            value_at = behind
        if code == UNKNOWN or code < HEADER or code > FOOTER:
            raise MalformedData("an unknown message section")
        after = skip_value(payload, value_at, end)
        sections.append(Section(int(code), int(at), int(value_at), int(after)))
        at = after
    return sections


def sized_parts(data: bytes) -> list[bytes]:
    """Parts that stand one behind the other, each after its length (u32)."""
    parts: list[bytes] = []
    end: i64 = len(data)
    at: i64 = 0
    while at < end:
        start: i64 = at + 4
        if start > end:
            raise MalformedData("the data ends within a length")
        at = start + (i64(read_i32_be(data, at)) & 0xFFFFFFFF)
        if at > end:
            raise MalformedData("the data ends within a part")
        parts.append(data[start:at])
    return parts


def cut_map(payload: bytes, section: Section, names: dict[bytes, str]) -> CutMap:
    """Takes the entries out whose keys are strings or symbols in `names`; their values are decoded, with types."""
    at: i64 = section.value_at
    end: i64 = section.end
    position, count = _elements(payload, at, end, 0xC1, 0xD1)
    if count & 1:
        raise MalformedData("a map has a key without a value")
    kept_from: i64 = position
    out: BytesWriter | None = None
    taken: dict[str, object] = {}
    kept: i64 = count
    while count > 0:
        value_at = skip_value(payload, position, end)
        behind = skip_value(payload, value_at, end)
        name = names.get(_text(payload, position, value_at))
        if name is not None:
            if out is None:
                out = BytesWriter()
            out.write(payload[kept_from:position])
            kept_from = behind
            kept -= 2
            taken[name] = decode_between(payload, value_at, behind, True)
        position = behind
        count -= 2
    if position != end:
        raise MalformedData("a map's size and count disagree")
    if out is None:
        return CutMap(int(kept), payload[kept_from:end], taken)
    out.write(payload[kept_from:end])
    return CutMap(int(kept), out.getvalue(), taken)


def list_fields(payload: bytes, section: Section) -> list[bytes]:
    """The fields of a list, each as the bytes that came."""
    at: i64 = section.value_at
    end: i64 = section.end
    fields: list[bytes] = []
    if payload[at] == _LIST_0:
        return fields
    position, count = _elements(payload, at, end, 0xC0, 0xD0)
    while count > 0:
        behind = skip_value(payload, position, end)
        fields.append(payload[position:behind])
        position = behind
        count -= 1
    if position != end:
        raise MalformedData("a list's size and count disagree")
    return fields


def map_of(code: int, entries: bytes, count: int) -> bytes:
    """A section that holds a map of these encoded keys and values; nothing if there are none."""
    return _compound(code, 0xC1, entries, count) if count > 0 else b""


def list_of(code: int, fields: list[bytes]) -> bytes:
    """A section that holds a list of these encoded fields; nulls at its end go without saying."""
    count: i64 = len(fields)
    while count > 0 and fields[int(count) - 1] == b"\x40":
        count -= 1
    if count == 0:
        return bytes((0x00, 0x53, code, _LIST_0))
    return _compound(code, 0xC0, b"".join(fields[: int(count)]), int(count))


def _compound(code: int, small: int, content: bytes, count: int) -> bytes:
    out = BytesWriter()
    size: i64 = len(content)
    out.write(b"\x00\x53")
    out.append(code)
    if size < 255 and count < 256:
        out.append(small)
        out.append(int(size) + 1)
        out.append(count)
    else:
        out.append(small + 0x10)
        write_i64_be(out, ((size + 4) << 32) | i64(count))
    out.write(content)
    return out.getvalue()


def _elements(data: bytes, at: i64, end: i64, small: i64, large: i64) -> tuple[i64, i64]:
    """Where the elements of the list or map at data[at:end] start, and how many there are."""
    if data[at] == small and at + 3 <= end:
        return at + 3, i64(data[at + 2])
    if data[at] == large and at + 9 <= end:
        return at + 9, i64(read_i32_be(data, at + 5)) & 0xFFFFFFFF
    raise MalformedData("a section is not of its type")


def _text(data: bytes, at: i64, behind: i64) -> bytes:
    """The content of a string or symbol in either form; of anything else there is none."""
    code: i64 = data[at]
    if code == 0xA1 or code == 0xA3:
        return data[at + 2 : behind]
    if code == 0xB1 or code == 0xB3:
        return data[at + 5 : behind]
    return b""
