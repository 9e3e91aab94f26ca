"""Messages in frames: what was read from the envelope once, and the sections as they are. Nobody parses them again.

Two forms: a message on its way to a fragment, as a sender's link or another fragment hands it over, and one that a
fragment has stored, on its way to a receiver.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.encoder import write_u32
from tandembus.errors import MalformedData
from tandembus.interconnect.fields import Cursor, write_sized, write_text
from tandembus.interconnect.frames import u32_at
from tandembus.message import Message, stored_message

HAS_SESSION: Final = 1
HAS_KEY: Final = 2
IS_PING: Final = 4
HAS_PROPERTIES: Final = 8
"""Application properties that replace the message's own."""

_SENT_BYTES: Final = 4 + 8 * 3 + 4 * 5
_STORED_BYTES: Final = 4 + 8 * 4 + 4 * 5


def write_sent(out: BytesWriter, message: Message) -> None:
    session_id, partition_key = message.session_id, message.partition_key
    facts: i64 = HAS_SESSION if session_id is not None else 0
    if partition_key is not None:
        facts |= HAS_KEY
    if message.is_ping:
        facts |= IS_PING
    if message.application_properties:
        facts |= HAS_PROPERTIES
    _write_start(out, message, facts)
    write_i64_be(out, message.ttl_ms)
    write_i64_be(out, message.scheduled_at)
    write_i64_be(out, message.original_number)
    write_u32(out, message.wire_size)
    _write_ends(out, message)
    out.write(message.sections)
    if session_id is not None:
        write_text(out, session_id)
    if partition_key is not None:
        write_text(out, partition_key)
    if message.application_properties:
        write_sized(out, message.application_properties)


def _write_start(out: BytesWriter, message: Message, facts: i64) -> None:
    write_u32(out, facts << 24 | (message.priority & 255) << 16 | (message.hops & 255) << 8 | (message.flags & 255))


def _write_ends(out: BytesWriter, message: Message) -> None:
    write_u32(out, message.annotations_end)
    write_u32(out, message.properties_end)
    write_u32(out, message.application_end)
    write_u32(out, len(message.sections))


def read_sent(cursor: Cursor) -> Message:
    data = cursor.data
    at = cursor.skip(_SENT_BYTES)
    start = u32_at(data, at)
    message = Message(cursor.bytes_of(u32_at(data, at + 44)))
    message.ttl_ms = read_i64_be(data, at + 4)
    message.scheduled_at = read_i64_be(data, at + 12)
    message.original_number = read_i64_be(data, at + 20)
    message.wire_size = u32_at(data, at + 28)
    message.annotations_end = u32_at(data, at + 32)
    message.properties_end = u32_at(data, at + 36)
    message.application_end = u32_at(data, at + 40)
    message.priority = (start >> 16) & 255
    message.hops = (start >> 8) & 255
    message.flags = start & 255
    facts = start >> 24
    if facts:
        if facts & HAS_SESSION:
            message.session_id = cursor.text()
        if facts & HAS_KEY:
            message.partition_key = cursor.text()
        message.is_ping = facts & IS_PING != 0
        if facts & HAS_PROPERTIES:
            message.application_properties = cursor.sized_bytes()
    _check_ends(message)
    return message


def write_stored(out: BytesWriter, message: Message) -> None:
    has_properties = len(message.application_properties) > 0
    _write_start(out, message, HAS_PROPERTIES if has_properties else 0)
    write_i64_be(out, message.number)
    write_i64_be(out, message.enqueued_at)
    write_i64_be(out, message.expires_at)
    write_i64_be(out, message.original_number)
    write_u32(out, message.delivery_count)
    _write_ends(out, message)
    out.write(message.sections)
    if has_properties:
        write_sized(out, message.application_properties)


def read_stored(cursor: Cursor) -> Message:
    data = cursor.data
    at = cursor.skip(_STORED_BYTES)
    start = u32_at(data, at)
    message = stored_message(
        read_i64_be(data, at + 4),
        read_i64_be(data, at + 12),
        read_i64_be(data, at + 20),
        read_i64_be(data, at + 28),
        (start >> 8) & 255,
        start & 255,
        (start >> 16) & 255,
        u32_at(data, at + 40),
        u32_at(data, at + 44),
        u32_at(data, at + 48),
        cursor.bytes_of(u32_at(data, at + 52)),
    )
    message.delivery_count = u32_at(data, at + 36)
    if (start >> 24) & HAS_PROPERTIES:
        message.application_properties = cursor.sized_bytes()
    _check_ends(message)
    return message


def _check_ends(message: Message) -> None:
    """Whoever cuts sections out relies on them."""
    size: i64 = len(message.sections)
    if not message.annotations_end <= message.properties_end <= message.application_end <= size:
        raise MalformedData("a message whose sections lie outside of it")
