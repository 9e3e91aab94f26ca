"""Walking through the sections of an encoded message without building what they hold.

Positions are checked against the bytes that are there; what does not add up is MalformedData. What the sections mean is
`message.py`'s to say.
"""

from __future__ import annotations

from librt.strings import BytesWriter, read_i32_be, read_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.codec import decode, skip_value
from tandembus.amqp.encoding.descriptors import AMQP_SEQUENCE, DATA, FOOTER, HEADER, code_of
from tandembus.errors import InvalidArgument, MalformedData


def in_order(payload: bytes) -> bytes:
    """Sections in an unusual order or under a long descriptor are legal: bring them into ours."""
    end: i64 = len(payload)
    at: i64 = 0
    parts: list[list[bytes]] = [[] for _ in range(FOOTER - HEADER + 1)]
    while at < end:
        if payload[at] != 0:
            raise MalformedData("a message section does not start with a descriptor")
        descriptor, value_at = decode(payload, int(at) + 1)
        code = _section_code(descriptor)
        behind = skip_value(payload, value_at, end)
        slot = parts[code - HEADER]
        if slot and code != DATA and code != AMQP_SEQUENCE:
            raise MalformedData(f"message section 0x{code:02x} stands twice")
        slot.append(payload[value_at:behind])
        at = behind
    out = BytesWriter()
    for code in range(HEADER, FOOTER + 1):
        for value in parts[code - HEADER]:
            out.write(b"\x00\x53")
            out.append(code)
            out.write(value)
    return out.getvalue()


def _section_code(descriptor: object) -> int:
    code = code_of(descriptor)
    if code < HEADER or code > FOOTER:
        raise MalformedData(f"{descriptor!r} is not a message section")
    return code


def u32(data: bytes, at: i64) -> i64:
    return i64(read_i32_be(data, at)) & 0xFFFFFFFF


def uint(data: bytes, at: i64, what: str) -> i64:
    code: i64 = data[at]
    if code == 0x70:
        return u32(data, at + 1)
    if code == 0x52:
        return i64(data[at + 1])
    if code == 0x43:
        return 0
    raise MalformedData(f"{what} is not a uint")


def first_element(data: bytes, at: i64, end: i64, small: i64, large: i64, what: str) -> i64:
    """Position of the first element of the list or map that stands at data[at:end]."""
    code: i64 = data[at]
    start: i64 = end + 1
    if code == small:
        start = at + 3
    elif code == large:
        start = at + 9
    if start > end:
        raise MalformedData(f"the {what} section is not of its type")
    return start


def compound_count(data: bytes, at: i64, small: i64) -> i64:
    """How many elements the list or map at `at` says it has."""
    if data[at] == small:
        return i64(data[at + 2])
    return u32(data, at + 5)


def check_map(data: bytes, at: i64, end: i64, what: str) -> None:
    """Walk a map's elements: receivers must never be handed one that does not add up."""
    position = first_element(data, at, end, 0xC1, 0xD1, what)
    count = compound_count(data, at, 0xC1)
    if count & 1:
        raise MalformedData(f"the {what} map has a key without a value")
    while count > 0:
        position = skip_value(data, position, end)
        count -= 1
    if position != end:
        raise MalformedData(f"the {what} map's size and count disagree")


def text(data: bytes, at: i64, behind: i64) -> bytes:
    """The content of a string or symbol in either form; of anything else there is none."""
    code: i64 = data[at]
    if code == 0xA3 or code == 0xA1:
        return data[at + 2 : behind]
    if code == 0xB3 or code == 0xB1:
        return data[at + 5 : behind]
    return b""


def annotation_name(data: bytes, at: i64, behind: i64) -> bytes:
    """The name of an annotation. In binary it is none by the specification, but clients read it as one."""
    code: i64 = data[at]
    if code == 0xA3 or code == 0xA1 or code == 0xA0:
        return data[at + 2 : behind]
    if code == 0xB3 or code == 0xB1 or code == 0xB0:
        return data[at + 5 : behind]
    return b""


def short_text(data: bytes, at: i64, max_characters: i64, what: str) -> str | None:
    value, _ = decode(data, int(at))
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} must be a string")
    if len(value) > max_characters:
        raise InvalidArgument(f"{what} is longer than {max_characters} characters")
    return value


def key_text(data: bytes, at: i64, max_characters: i64, what: str) -> str | None:
    """A key that may also come as binary, as SDKs send what they have received."""
    code: i64 = data[at]
    if code != 0xA0 and code != 0xB0:
        return short_text(data, at, max_characters, what)
    value, _ = decode(data, int(at))
    try:
        key = value.decode() if isinstance(value, bytes) else ""
    except UnicodeDecodeError:
        raise InvalidArgument(f"{what} must be text in UTF-8") from None
    if len(key) > max_characters:
        raise InvalidArgument(f"{what} is longer than {max_characters} characters")
    return key


def timestamp_at(data: bytes, at: i64) -> i64:
    code: i64 = data[at]
    if code == 0x83 or code == 0x81:
        return read_i64_be(data, at + 1)
    if code == 0x40:
        return 0
    raise InvalidArgument("x-opt-scheduled-enqueue-time must be a timestamp")


def split_batch(payload: bytes) -> list[bytes]:
    """The messages of a batch transfer: one data section each; the envelope around them says nothing of its own."""
    messages: list[bytes] = []
    end: i64 = len(payload)
    at: i64 = 0
    while at < end:
        if end - at < 4 or payload[at] != 0:
            raise MalformedData("a batch section does not start with a descriptor")
        value_at: i64
        if payload[at + 1] == 0x53:
            code: i64 = payload[at + 2]
            value_at = at + 3
        else:
            descriptor, behind = decode(payload, int(at) + 1)
            code = _section_code(descriptor)
            value_at = behind
        at = skip_value(payload, value_at, end)
        if code == DATA:
            messages.append(_binary(payload, value_at, at))
    if not messages:
        raise MalformedData("a batch without messages")
    return messages


def _binary(data: bytes, at: i64, behind: i64) -> bytes:
    code: i64 = data[at]
    if code == 0xA0:
        return data[at + 2 : behind]
    if code == 0xB0:
        return data[at + 5 : behind]
    raise MalformedData("a data section must hold binary")
