"""The sections of a message, for those who build or read whole messages rarely: management, tokens, tools.

The broker's hot path does not come here: it passes sections on as the bytes that came.
"""

from __future__ import annotations

from typing import Final, final

from tandembus.amqp.encoding.codec import decode, encode
from tandembus.amqp.encoding.descriptors import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    code_of,
)
from tandembus.amqp.encoding.values import Described, symbol, timestamp, ubyte, uint, ulong
from tandembus.errors import MalformedData

NO_BODY: Final = 0
_SYMBOL_KEYED: Final = frozenset((DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, FOOTER))


@final
class MessageSections:
    """A message, section by section. `bodies` holds every body section's value, all of kind `body_kind`."""

    __slots__ = (
        "application_properties",
        "bodies",
        "body_kind",
        "delivery_annotations",
        "footer",
        "header",
        "message_annotations",
        "properties",
    )

    def __init__(self) -> None:
        self.header: list[object] | None = None
        self.delivery_annotations: dict[object, object] | None = None
        self.message_annotations: dict[object, object] | None = None
        self.properties: list[object] | None = None
        self.application_properties: dict[object, object] | None = None
        self.body_kind: int = NO_BODY
        self.bodies: list[object] = []
        self.footer: dict[object, object] | None = None

    @property
    def body(self) -> object:
        """The only (or first) body section's value; None without a body."""
        return self.bodies[0] if self.bodies else None

    def property_at(self, index: int) -> object:
        """A field of the properties section by its place; None when absent."""
        if self.properties is None or index >= len(self.properties):
            return None
        return self.properties[index]


def section(code: int, value: object) -> bytes:
    return bytes((0x00, 0x53, code)) + encode(value)


def data_section(body: bytes) -> bytes:
    return section(DATA, body)


def amqp_value_section(value: object) -> bytes:
    return section(AMQP_VALUE, value)


def amqp_value_with_block(entries: dict[str, object], name: str, block: bytes) -> list[bytes]:
    """A map as a value section, the last entry of which is `name` with `block`: in parts: whoever puts a message
    together copies a large block only once."""
    content = [encode(part) for entry in entries.items() for part in entry]
    content.append(encode(name))
    content.append(b"\xb0" + len(block).to_bytes(4, "big"))
    size = 4 + sum([len(part) for part in content]) + len(block)
    count = 2 * len(entries) + 2
    start = bytes((0x00, 0x53, AMQP_VALUE, 0xD1)) + size.to_bytes(4, "big") + count.to_bytes(4, "big")
    return [start, *content, block]


def map_section(code: int, entries: dict[object, object]) -> bytes:
    """Annotations and footer get symbol keys; application properties keep strings."""
    if code in _SYMBOL_KEYED:
        entries = {symbol(key) if isinstance(key, str) else key: value for key, value in entries.items()}
    return section(code, entries)


def application_properties_section(entries: dict[str, object]) -> bytes:
    return section(APPLICATION_PROPERTIES, entries)


def message_annotations_section(entries: dict[str, object]) -> bytes:
    return section(MESSAGE_ANNOTATIONS, {symbol(key): value for key, value in entries.items()})


def properties_section(
    message_id: object = None,
    user_id: bytes | None = None,
    to: str | None = None,
    subject: str | None = None,
    reply_to: str | None = None,
    correlation_id: object = None,
    content_type: str | None = None,
    content_encoding: str | None = None,
    absolute_expiry_time: int | None = None,
    creation_time: int | None = None,
    group_id: str | None = None,
    group_sequence: int | None = None,
    reply_to_group_id: str | None = None,
) -> bytes:
    fields: list[object] = [message_id, user_id, to, subject, reply_to, correlation_id, content_type]
    fields.extend((content_encoding, absolute_expiry_time, creation_time, group_id, group_sequence))
    fields.append(reply_to_group_id)
    return section(PROPERTIES, _property_types(fields))


def header_section(
    durable: bool = False, priority: int | None = None, ttl_ms: int | None = None, delivery_count: int = 0
) -> bytes:
    return section(HEADER, _header_types([durable, priority, ttl_ms, None, delivery_count]))


def _header_types(fields: list[object]) -> list[object]:
    """Plain integers get the types that the header's fields have."""
    result = fields.copy()
    for index in range(len(result)):
        value = result[index]
        if isinstance(value, int) and not isinstance(value, bool):
            result[index] = ubyte(value) if index == 1 else uint(value)
    return _trimmed(result)


def _property_types(fields: list[object]) -> list[object]:
    """Plain values get the types that the properties' fields have; typed ones stay as they are."""
    result = fields.copy()
    for index in range(len(result)):
        value = result[index]
        if isinstance(value, str) and (index == 6 or index == 7):
            result[index] = symbol(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            if index == 8 or index == 9:
                result[index] = timestamp(value)
            elif index == 11:
                result[index] = uint(value)
            elif index == 0 or index == 5:
                result[index] = ulong(value)
    return _trimmed(result)


def _trimmed(fields: list[object]) -> list[object]:
    while fields and fields[-1] is None:
        fields.pop()
    return fields


def decode_message(payload: bytes, typed: bool = False) -> MessageSections:
    """Sections in any order, since some clients write them so; a body may be missing altogether."""
    message = MessageSections()
    at = 0
    while at < len(payload):
        value, at = decode(payload, at, typed)
        if not isinstance(value, Described):
            raise MalformedData("a message consists of described sections")
        _take_section(message, code_of(value.descriptor), value.value)
    return message


def _take_section(message: MessageSections, code: int, value: object) -> None:
    if code == HEADER:
        message.header = _list(value)
    elif code == DELIVERY_ANNOTATIONS:
        message.delivery_annotations = _map(value)
    elif code == MESSAGE_ANNOTATIONS:
        message.message_annotations = _map(value)
    elif code == PROPERTIES:
        message.properties = _list(value)
    elif code == APPLICATION_PROPERTIES:
        message.application_properties = _map(value)
    elif code == FOOTER:
        message.footer = _map(value)
    elif code in (DATA, AMQP_SEQUENCE, AMQP_VALUE):
        if message.body_kind not in (NO_BODY, code):
            raise MalformedData("a message with two kinds of body")
        message.body_kind = code
        message.bodies.append(value)
    else:
        raise MalformedData("an unknown message section")


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise MalformedData("this section must be a list")
    return value


def _map(value: object) -> dict[object, object]:
    if not isinstance(value, dict):
        raise MalformedData("this section must be a map")
    return value


def encode_message(message: MessageSections) -> bytes:
    parts: list[bytes] = []
    if message.header is not None:
        parts.append(section(HEADER, _header_types(message.header)))
    if message.delivery_annotations is not None:
        parts.append(map_section(DELIVERY_ANNOTATIONS, message.delivery_annotations))
    if message.message_annotations is not None:
        parts.append(map_section(MESSAGE_ANNOTATIONS, message.message_annotations))
    if message.properties is not None:
        parts.append(section(PROPERTIES, _property_types(message.properties)))
    if message.application_properties is not None:
        parts.append(map_section(APPLICATION_PROPERTIES, message.application_properties))
    for body in message.bodies:
        parts.append(section(message.body_kind, body))
    if message.footer is not None:
        parts.append(map_section(FOOTER, message.footer))
    return b"".join(parts)
