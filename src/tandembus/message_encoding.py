"""A message on its way out: the broker's header and annotations around sections that go as they came."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i16_le, read_i32_le, read_i64_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64, u8

from tandembus.amqp.encoding.codec import encode, skip_value
from tandembus.amqp.encoding.encoder import write_u32
from tandembus.message import (
    DURABLE_AT,
    FIRST_ACQUIRER_AT,
    HAS_DELIVERY_ANNOTATIONS,
    HAS_PRIORITY,
    HEADER_FLAGS,
    UINT_MAX,
    WAS_SCHEDULED,
    Message,
    copy_of,
    delivery_annotations_at,
    replace_section,
)
from tandembus.message_sections import compound_count

_SEQUENCE_NUMBER_KEY: Final = b"\xa3\x15x-opt-sequence-number\x81"
_ENQUEUED_TIME_KEY: Final = b"\xa3\x13x-opt-enqueued-time\x83"
_LOCKED_UNTIL_KEY: Final = b"\xa3\x12x-opt-locked-until\x83"
_ORIGINAL_NUMBER_KEY: Final = b"\xa3\x1dx-opt-enqueue-sequence-number\x81"
_STATE_KEY: Final = b"\xa3\x13x-opt-message-state\x54"
_PARTITION_KEY: Final = b"\xa3\x12x-opt-partition-id\x61"
_LOCK_TOKEN_KEY: Final = b"\xa3\x10x-opt-lock-token\x98"
_LOCK_TOKEN_SECTION: Final = b"\x00\x53\x71\xc1\x24\x02" + _LOCK_TOKEN_KEY
"""All but the token of the delivery annotations that most deliveries have."""

_ALWAYS_BYTES: Final = 4 + len(_SEQUENCE_NUMBER_KEY) + len(_ENQUEUED_TIME_KEY) + len(_ORIGINAL_NUMBER_KEY) + 24
"""The count, and the annotations that every delivery has, each with a value of eight bytes."""
_ANNOTATIONS_START: Final = 0x005372D1
"""Descriptor and constructor of the annotations section, as a number."""
_LOCKED_UNTIL_BYTES: Final = len(_LOCKED_UNTIL_KEY) + 8
_PARTITION_BYTES: Final = len(_PARTITION_KEY) + 2
_STATE_BYTES: Final = len(_STATE_KEY) + 1
_SCHEDULED: Final = 2
"""The state of a message that was scheduled, also once it is active."""
_BOOLEANS: Final = b"\x40\x42\x41\x40"
"""Of the header, as the message's flags have them."""


def with_application_properties(message: Message, section: bytes) -> Message:
    """A copy whose application properties are `section` (whole, descriptor included)."""
    copy = copy_of(message)
    moved: i64 = i64(len(section)) - (message.application_end - message.properties_end)
    replace_section(copy, message.properties_end, message.application_end, section)
    copy.application_end += moved
    return copy


def without_body(message: Message) -> Message:
    """A copy with all sections but the body and the footer."""
    copy = copy_of(message)
    copy.sections = message.sections[: message.application_end] + message.sections[delivery_annotations_at(message) :]
    copy.delivery_count = message.delivery_count
    copy.application_properties = message.application_properties
    return copy


def encode_changes(changes: dict[str, object]) -> dict[bytes, bytes]:
    """Names and encoded values of properties to be set. Raises InvalidArgument for what AMQP has no form for."""
    encoded: dict[bytes, bytes] = {}
    for name, value in changes.items():
        encoded[encode(name)] = encode(value)
    return encoded


def application_properties_with(message: Message, changes: dict[bytes, bytes]) -> bytes:
    """The application-properties section after `changes`. All others stay as the bytes that came: they were never
    decoded here, and nothing in them may be in the way of moving a message."""
    section = message.application_properties
    if not section:
        section = message.sections[message.properties_end : message.application_end]
    out = BytesWriter()
    count: i64 = 0
    if section:
        position: i64 = 6 if section[3] == 0xC1 else 12
        end: i64 = len(section)
        while position < end:
            value_at = skip_value(section, position, end)
            behind = skip_value(section, value_at, end)
            if _short_key(section[position:value_at]) not in changes:
                out.write(section[position:behind])
                count += 2
            position = behind
    for name, value in changes.items():
        out.write(name)
        out.write(value)
        count += 2
    content = out.getvalue()
    head = BytesWriter()
    head.write(b"\x00\x53\x74\xd1")
    size: i64 = len(content) + 4
    write_i64_be(head, (size << 32) | count)
    return head.getvalue() + content


def _short_key(key: bytes) -> bytes:
    """A string as `encode` writes it: senders may write a short one in the long form."""
    if key[0] == 0xB1 and len(key) < 261:
        return b"\xa1" + key[4:]
    return key


def encode_delivery(
    message: Message,
    sequence_number: i64,
    locked_until_ms: i64,
    state: i64,
    lock_token: bytes = b"",
    partition: i64 = -1,
) -> bytes:
    """The message as a client receives it: the broker's part of the header and of the annotations, the rest as it came.

    `locked_until_ms` 0 leaves the lock out. The lock token, in the byte order of a .NET Guid, stands among the delivery
    annotations of what is delivered under a lock. `partition` is the fragment of a partitioned entity, else -1.
    """
    out = BytesWriter()
    _write_delivery(out, message, sequence_number, locked_until_ms, state, lock_token, partition)
    return out.getvalue()


def _write_delivery(
    out: BytesWriter,
    message: Message,
    sequence_number: i64,
    locked_until_ms: i64,
    state: i64,
    lock_token: bytes,
    partition: i64,
) -> None:
    _write_header(out, message)
    data = message.sections
    end: i64 = len(data)
    kept = _annotation_entries(data, message.annotations_end)
    count: i64 = 6
    size: i64 = _ALWAYS_BYTES + len(kept)
    if kept:
        count += compound_count(data, 3, 0xC1)
    if locked_until_ms > 0:
        count += 2
        size += _LOCKED_UNTIL_BYTES
    if state == 0 and message.flags & WAS_SCHEDULED:
        state = _SCHEDULED
    if state > 0:
        count += 2
        size += _STATE_BYTES
    if partition >= 0:
        count += 2
        size += _PARTITION_BYTES
    if message.flags & HAS_DELIVERY_ANNOTATIONS:
        end = delivery_annotations_at(message)
        write_u32(out, message.delivery_count)
        _write_own_annotations(out, data[end:], lock_token)
        write_i32_be(out, i32(_ANNOTATIONS_START))
    elif lock_token:
        write_u32(out, message.delivery_count)
        out.write(_LOCK_TOKEN_SECTION)
        _write_uuid(out, lock_token)
        write_i32_be(out, i32(_ANNOTATIONS_START))
    else:
        write_i64_be(out, (message.delivery_count << 32) | _ANNOTATIONS_START)
    write_i64_be(out, (size << 32) | count)
    if kept:
        out.write(kept)
    out.write(_SEQUENCE_NUMBER_KEY)
    write_i64_be(out, sequence_number)
    out.write(_ENQUEUED_TIME_KEY)
    write_i64_be(out, message.enqueued_at)
    out.write(_ORIGINAL_NUMBER_KEY)
    write_i64_be(out, message.original_number)
    if locked_until_ms > 0:
        out.write(_LOCKED_UNTIL_KEY)
        write_i64_be(out, locked_until_ms)
    if state > 0:
        out.write(_STATE_KEY)
        out.append(int(state))
    if partition >= 0:
        out.write(_PARTITION_KEY)
        write_i16_be(out, i16(partition))
    rest_at = message.annotations_end
    if message.expires_at > 0:
        out.write(_properties_with_expiry(message))
        rest_at = message.properties_end
    if message.application_properties:
        out.write(data[rest_at : message.properties_end])
        out.write(message.application_properties)
        rest_at = message.application_end
    out.write(data[rest_at:end])


def _write_own_annotations(out: BytesWriter, own: bytes, lock_token: bytes) -> None:
    """The sender's section of delivery annotations, with the token where there is one."""
    if not lock_token:
        out.write(own)
        return
    entries = _annotation_entries(own, len(own))
    size: i64 = 4 + len(entries) + len(_LOCK_TOKEN_KEY) + 16
    out.write(b"\x00\x53\x71\xd1")
    write_i64_be(out, (size << 32) | (compound_count(own, 3, 0xC1) + 2))
    out.write(entries)
    out.write(_LOCK_TOKEN_KEY)
    _write_uuid(out, lock_token)


def _write_uuid(out: BytesWriter, lock_token: bytes) -> None:
    """The token as clients read a uuid: in the other byte order."""
    write_i32_be(out, read_i32_le(lock_token, 0))
    write_i16_be(out, read_i16_le(lock_token, 4))
    write_i16_be(out, read_i16_le(lock_token, 6))
    write_i64_be(out, read_i64_be(lock_token, 8))


def encode_deliveries(
    messages: list[Message], states: list[int], sequence_base: i64, unit_bytes: i64
) -> tuple[bytes, int]:
    """Messages as clients look at them, one behind the other, each after its length (u32). Returns them, and how many
    units of `unit_bytes` they are, each of them one at least."""
    out = BytesWriter()
    units: i64 = 0
    for position in range(len(messages)):
        message = messages[position]
        start: i64 = len(out)
        write_i32_be(out, i32(0))  # its length, once that is known
        _write_delivery(out, message, sequence_base | message.number, 0, states[position], b"", -1)
        size: i64 = len(out) - start - 4
        out[start] = u8(size >> 24)
        out[start + 1] = u8((size >> 16) & 255)
        out[start + 2] = u8((size >> 8) & 255)
        out[start + 3] = u8(size & 255)
        units += (size + unit_bytes - 1) // unit_bytes
    return out.getvalue(), int(units)


def _annotation_entries(data: bytes, end: i64) -> bytes:
    """The sender's annotations without their map around them."""
    if end == 0:
        return b""
    return data[6:end] if data[3] == 0xC1 else data[12:end]


def _write_header(out: BytesWriter, message: Message) -> None:
    """The sender's fields and the time to live: all but the four bytes of the last field, the delivery count."""
    flags = message.flags & HEADER_FLAGS
    expires_at = message.expires_at
    if flags | expires_at == 0:
        out.write(b"\x00\x53\x70\xc0\x0a\x05\x40\x40\x40\x40\x70")
        return
    size: i64 = 10
    if flags & HAS_PRIORITY:
        size += 1
    if expires_at > 0:
        size += 4
    out.write(b"\x00\x53\x70\xc0")
    out.append(int(size))
    out.append(5)
    out.append(_BOOLEANS[(flags >> DURABLE_AT) & 3])
    if flags & HAS_PRIORITY:
        out.append(0x50)
        out.append(int(message.priority))
    else:
        out.append(0x40)
    if expires_at > 0:
        out.append(0x70)
        write_u32(out, min(max(expires_at - message.enqueued_at, i64(0)), i64(UINT_MAX)))
    else:
        out.append(0x40)
    out.append(_BOOLEANS[(flags >> FIRST_ACQUIRER_AT) & 3])
    out.append(0x70)


def _properties_with_expiry(message: Message) -> bytes:
    """On output absolute-expiry-time is what the broker computed, whatever the sender wrote there, and creation-time is
    the time of enqueueing: clients take their difference for the time to live. The other fields go as they came."""
    data = message.sections
    at: i64 = message.annotations_end + 3
    end: i64 = message.properties_end
    position: i64 = end
    left: i64 = 0
    if end > message.annotations_end and data[at] != 0x45:
        position = at + (3 if data[at] == 0xC0 else 9)
        left = compound_count(data, at, 0xC0)
    out = BytesWriter()
    index: i64 = 0
    while index < 10 or left > 0:
        behind = skip_value(data, position, end) if left > 0 else position
        if index == 8:
            _write_timestamp(out, message.expires_at)
        elif index == 9:
            _write_timestamp(out, message.enqueued_at)
        elif behind > position:
            out.write(data[position:behind])
        else:
            out.append(0x40)
        position = behind
        left -= 1
        index += 1
    content = out.getvalue()
    head = BytesWriter()
    head.write(b"\x00\x53\x73\xd0")
    size: i64 = len(content) + 4
    write_i64_be(head, (size << 32) | index)
    return head.getvalue() + content


def _write_timestamp(out: BytesWriter, at_ms: i64) -> None:
    out.append(0x83)
    write_i64_be(out, at_ms)
