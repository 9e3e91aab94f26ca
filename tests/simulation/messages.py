"""Messages of the simulation: each says in its last eight bytes which one it is."""

from __future__ import annotations

from tandembus.amqp.encoding.codec import decode, encode
from tandembus.amqp.encoding.sections import data_section, message_annotations_section, properties_section
from tandembus.amqp.encoding.values import timestamp, uint
from tandembus.message import Message

MARK = "mark"
"""The application property that settlements change."""
PING = "application/vnd.ms-servicebus-ping"


def build_message(key: bytes, ttl_ms: int | None, scheduled_at_ms: int, session_id: str | None = None) -> bytes:
    header = b"" if ttl_ms is None else b"\x00\x53\x70" + encode([True, None, uint(ttl_ms)])
    annotations = b""
    if scheduled_at_ms:
        annotations = message_annotations_section({"x-opt-scheduled-enqueue-time": timestamp(scheduled_at_ms)})
    properties = properties_section(message_id=key.decode(), group_id=session_id)
    return header + annotations + properties + data_section(key)


def build_ping() -> bytes:
    return properties_section(message_id="ping", content_type=PING) + data_section(b"")


def key_of(message: Message) -> bytes:
    return message.sections[-8:]


def mark_of(message: Message) -> int:
    section = message.application_properties or message.sections[message.properties_end : message.application_end]
    if not section:
        return 0
    properties, _ = decode(section, 3)
    assert isinstance(properties, dict)
    mark = properties.get(MARK, 0)
    assert isinstance(mark, int)
    return mark
