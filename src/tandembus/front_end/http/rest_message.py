"""Between a message as HTTP carries it (a body, headers, JSON) and as the broker does (encoded sections)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tandembus.amqp.encoding.descriptors import DATA
from tandembus.amqp.encoding.sections import (
    MessageSections,
    application_properties_section,
    data_section,
    decode_message,
    header_section,
    message_annotations_section,
    properties_section,
)
from tandembus.amqp.encoding.values import timestamp
from tandembus.errors import InvalidArgument
from tandembus.front_end.http.broker_properties import (
    HEADER,
    BrokerProperties,
    broker_properties_of,
    read_json,
    write_broker_properties,
)
from tandembus.front_end.http.property_headers import json_value, plain, properties_of_json, write_property_headers
from tandembus.front_end.http.values import format_http_time
from tandembus.message import UINT_MAX

BATCH_TYPE: Final = "application/vnd.microsoft.servicebus.json"
ANY_TYPE: Final = "application/octet-stream"
LONGEST_S: Final = 922337203685.47754
"""The time to live of a message that never expires, as the service says it."""
STATES: Final = ("Active", "Deferred", "Scheduled")

_PARTITION_KEY: Final = "x-opt-partition-key"
_VIA_PARTITION_KEY: Final = "x-opt-via-partition-key"
_SCHEDULED: Final = "x-opt-scheduled-enqueue-time"
_PROPERTY_FIELDS: Final = (
    (0, "MessageId"),
    (2, "To"),
    (3, "Label"),
    (4, "ReplyTo"),
    (5, "CorrelationId"),
    (6, "ContentType"),
    (10, "SessionId"),
    (12, "ReplyToSessionId"),
)


def encode_sent(body: bytes, broker: BrokerProperties, properties: Mapping[str, object], now_ms: int) -> bytes:
    """The sections of a message to be sent."""
    return encode_head(broker, properties, now_ms) + data_section(body)


def encode_head(
    broker: BrokerProperties,
    properties: Mapping[str, object],
    now_ms: int,
    more_annotations: Mapping[str, object] | None = None,
) -> bytes:
    """The sections in front of the body."""
    annotations: dict[str, object] = dict(more_annotations or {})
    if broker.partition_key is not None:
        annotations[_PARTITION_KEY] = broker.partition_key
    if broker.via_partition_key is not None:
        annotations[_VIA_PARTITION_KEY] = broker.via_partition_key
    if broker.scheduled_at_ms is not None:
        annotations[_SCHEDULED] = timestamp(broker.scheduled_at_ms)
    return b"".join(
        [
            _header(broker),
            message_annotations_section(annotations) if annotations else b"",
            _properties(broker, now_ms),
            application_properties_section(dict(properties)) if properties else b"",
        ]
    )


def _header(broker: BrokerProperties) -> bytes:
    ttl_ms = broker.time_to_live_ms
    return header_section(durable=True, ttl_ms=None if ttl_ms is None else min(ttl_ms, UINT_MAX))


def _properties(broker: BrokerProperties, now_ms: int) -> bytes:
    """A time to live that the header's field cannot hold is the difference of two times here."""
    is_long = broker.time_to_live_ms is not None and broker.time_to_live_ms >= UINT_MAX
    return properties_section(
        message_id=broker.message_id,
        user_id=broker.user_id,
        to=broker.to,
        subject=broker.label,
        reply_to=broker.reply_to,
        correlation_id=broker.correlation_id,
        content_type=_ascii(broker.content_type, "content type"),
        content_encoding=_ascii(broker.content_encoding, "content encoding"),
        absolute_expiry_time=now_ms + (broker.time_to_live_ms or 0) if is_long else None,
        creation_time=now_ms if is_long else None,
        group_id=broker.session_id,
        reply_to_group_id=broker.reply_to_session_id,
    )


def _ascii(text: str | None, name: str) -> str | None:
    if text is not None and not text.isascii():
        raise InvalidArgument(f"The {name} must be ASCII.")
    return text or None


def read_batch(body: bytes, max_messages: int, now_ms: int) -> list[bytes]:
    """The encoded messages of a batch: a JSON array of objects with Body, BrokerProperties and UserProperties."""
    batch = read_json(body, "The batch")
    if not isinstance(batch, list) or not batch:
        raise InvalidArgument("A batch must be a JSON array with at least one message.")
    if len(batch) > max_messages:
        raise InvalidArgument(f"A batch may hold at most {max_messages} messages.")
    return [_read_batched(one, now_ms) for one in batch]


def _read_batched(message: object, now_ms: int) -> bytes:
    if not isinstance(message, dict):
        raise InvalidArgument("Each message of a batch must be a JSON object.")
    unknown = set(message) - {"Body", "BrokerProperties", "UserProperties"}
    if unknown:
        known = "Body, BrokerProperties and UserProperties"
        raise InvalidArgument(f"A message of a batch has {known}; '{min(unknown)[:64]}' is an unknown key.")
    body = message.get("Body")
    if body is not None and not isinstance(body, str):
        raise InvalidArgument("The Body of a message in a batch must be a string.")
    broker = broker_properties_of({} if message.get(HEADER) is None else message[HEADER])
    properties = properties_of_json(message.get("UserProperties"))
    try:
        data = (body or "").encode()
    except UnicodeEncodeError:
        raise InvalidArgument("The Body of a message holds half of a surrogate pair.") from None
    return encode_sent(data, broker, properties, now_ms)


@dataclass(frozen=True, slots=True)
class ReceivedOverHttp:
    """A message on its way out: the answer's body and headers."""

    body: bytes
    headers: Mapping[str, str]
    message_id: str
    sequence_number: int


def present_received(payload: bytes, lock_token: bytes | None, time_to_live_ms: int | None) -> ReceivedOverHttp:
    """From a delivery's bytes. Without a lock the message is the receiver's already."""
    sections = decode_message(payload, typed=True)
    annotations = {str(plain(key)): plain(value) for key, value in (sections.message_annotations or {}).items()}
    sequence_number = _integer(annotations.get("x-opt-sequence-number")) or 0
    texts = {name: _text(sections.property_at(index)) for index, name in _PROPERTY_FIELDS}
    entries: dict[str, object] = {
        **texts,
        "SequenceNumber": sequence_number,
        "EnqueuedSequenceNumber": _integer(annotations.get("x-opt-enqueue-sequence-number")),
        "EnqueuedTimeUtc": _time(annotations.get("x-opt-enqueued-time")),
        "DeliveryCount": _delivery_count(sections) + 1,
        "LockToken": str(uuid.UUID(bytes_le=lock_token)) if lock_token is not None else None,
        "LockedUntilUtc": _time(annotations.get("x-opt-locked-until")),
        "TimeToLive": LONGEST_S if time_to_live_ms is None else time_to_live_ms / 1000,
        "ScheduledEnqueueTimeUtc": _time(annotations.get(_SCHEDULED)),
        "PartitionKey": _text(annotations.get(_PARTITION_KEY)),
        "ViaPartitionKey": _text(annotations.get(_VIA_PARTITION_KEY)),
        "DeadLetterSource": _text(annotations.get("x-opt-deadletter-source")),
        "ForcePersistence": False,
        "State": STATES[_integer(annotations.get("x-opt-message-state")) or 0],
    }
    headers = write_property_headers(sections.application_properties or {})
    headers[HEADER] = write_broker_properties(entries)
    body, kind = _body(sections)
    headers["Content-Type"] = _safe_type(texts["ContentType"]) or kind
    return ReceivedOverHttp(body, headers, texts["MessageId"] or "", sequence_number)


def _body(sections: MessageSections) -> tuple[bytes, str]:
    """Bytes and text as they are; a value or sequence, which HTTP has no form for, as JSON."""
    if sections.body_kind == DATA or not sections.bodies:
        return b"".join([part for part in sections.bodies if isinstance(part, bytes)]), ANY_TYPE
    value = plain(sections.bodies[0]) if len(sections.bodies) == 1 else sections.bodies
    if isinstance(value, bytes):
        return value, ANY_TYPE
    if isinstance(value, str):
        return value.encode(), "text/plain;charset=utf-8"
    return json.dumps(json_value(value)).encode(), "application/json"


def _safe_type(content_type: str | None) -> str | None:
    """As a header, if it can be one: the sender may have written anything there."""
    if content_type and content_type.isascii() and content_type.isprintable():
        return content_type
    return None


def _delivery_count(sections: MessageSections) -> int:
    header = sections.header or []
    return _integer(plain(header[4])) or 0 if len(header) > 4 else 0


def _text(value: object) -> str | None:
    value = plain(value)
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _time(value: object) -> str | None:
    return format_http_time(value) if isinstance(value, int) else None
