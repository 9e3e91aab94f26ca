"""Messages as this client hands them over: easy to build, cheap to receive, never changed on the way.

A received message keeps the bytes that came and reads them only when asked, because whoever moves a million
messages looks into few of them. `as_new` makes those bytes sendable again without touching body or
properties.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tandembus.amqp.encoding.codec import encode
from tandembus.amqp.encoding.descriptors import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from tandembus.amqp.encoding.message_parts import Section, cut_map, list_fields, list_of, map_of, split_message
from tandembus.amqp.encoding.sections import (
    MessageSections,
    application_properties_section,
    data_section,
    decode_message,
    message_annotations_section,
    properties_section,
    section,
)
from tandembus.amqp.encoding.time_to_live import LAST_MS, header_ttl, times_of, ttl_of
from tandembus.amqp.encoding.values import Described, Typed, timestamp, uint
from tandembus.clock import SystemClock

BATCH_FORMAT: Final = 0x80013700
TAG_BYTES: Final = 16
STATES: Final = ("active", "deferred", "scheduled")

SEQUENCE_NUMBER: Final = "x-opt-sequence-number"
ENQUEUED_TIME: Final = "x-opt-enqueued-time"
LOCKED_UNTIL: Final = "x-opt-locked-until"
SCHEDULED_ENQUEUE_TIME: Final = "x-opt-scheduled-enqueue-time"
PARTITION_KEY: Final = "x-opt-partition-key"
MESSAGE_STATE: Final = "x-opt-message-state"
GIVEN_BY_THE_SERVICE: Final = frozenset(
    (
        SEQUENCE_NUMBER,
        ENQUEUED_TIME,
        LOCKED_UNTIL,
        MESSAGE_STATE,
        "x-opt-lock-token",
        "x-opt-enqueue-sequence-number",
        "x-opt-deadletter-source",
        "x-opt-partition-id",
    )
)

_SERVICE_NAMES: Final = {name.encode(): name for name in GIVEN_BY_THE_SERVICE}

DEAD_LETTER_REASON: Final = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION: Final = "DeadLetterErrorDescription"


@dataclass(slots=True)
class OutgoingMessage:
    """A message to send. Property values keep their AMQP type: wrap them (`uint(7)`) where Python's own is another."""

    body: bytes | str = b""
    message_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    session_id: str | None = None
    correlation_id: str | None = None
    content_type: str | None = None
    subject: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    partition_key: str | None = None
    time_to_live_s: float | None = None
    scheduled_at: float | None = None
    properties: Mapping[str, object] = field(default_factory=dict)

    def encode(self) -> bytes:
        ttl_ms = None if self.time_to_live_s is None else int(min(self.time_to_live_s * 1000, LAST_MS))
        parts = [self._header(ttl_ms), self._annotations(), self._properties(ttl_ms)]
        if self.properties:
            parts.append(application_properties_section(dict(self.properties)))
        parts.append(data_section(self.body.encode() if isinstance(self.body, str) else self.body))
        return b"".join(parts)

    def _header(self, ttl_ms: int | None) -> bytes:
        return section(HEADER, [True] if ttl_ms is None else [True, None, uint(header_ttl(ttl_ms))])

    def _annotations(self) -> bytes:
        annotations: dict[str, object] = {}
        if self.partition_key is not None:
            annotations[PARTITION_KEY] = self.partition_key
        if self.scheduled_at is not None:
            annotations[SCHEDULED_ENQUEUE_TIME] = timestamp(round(self.scheduled_at * 1000))
        return message_annotations_section(annotations) if annotations else b""

    def _properties(self, ttl_ms: int | None) -> bytes:
        created_at, expires_at = times_of(ttl_ms, SystemClock().now())
        return properties_section(
            message_id=self.message_id,
            to=self.to,
            subject=self.subject,
            reply_to=self.reply_to,
            correlation_id=self.correlation_id,
            content_type=self.content_type,
            absolute_expiry_time=expires_at,
            creation_time=created_at,
            group_id=self.session_id,
            reply_to_group_id=self.reply_to_session_id,
        )


Payload = bytes | OutgoingMessage
"""What can be sent: a message, or the bytes of one that is encoded already (not the bytes of a body)."""


def payload_of(message: Payload) -> bytes:
    return message if isinstance(message, bytes) else message.encode()


def batches_of(messages: Iterable[Payload], size: int, limit_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Batches of at most `size` messages and `limit_bytes`, each with the number of messages in it.

    A batch is one transfer of format `BATCH_FORMAT`: stored all or none, in this order. A message that is alone in
    its batch stays as it is, without the bytes of a batch around it: so the largest that the service takes fits, too.
    """
    parts: list[bytes] = []
    alone = b""
    total = 0
    for message in messages:
        payload = payload_of(message)
        part = data_section(payload)
        if parts and (len(parts) == size or total + len(part) > limit_bytes):
            yield (alone if len(parts) == 1 else b"".join(parts)), len(parts)
            parts, total = [], 0
        if not parts:
            alone = payload
        parts.append(part)
        total += len(part)
    if parts:
        yield (alone if len(parts) == 1 else b"".join(parts)), len(parts)


def as_new(payload: bytes, without_properties: frozenset[str] = frozenset()) -> bytes:
    """The bytes of a received message, fit to be sent again.

    What the service wrote on it goes (delivery count, sequence number, times, lock); body, properties and the
    sender's own annotations stay as the bytes that came, readable or not. `without_properties` names application
    properties to leave out.
    """
    names = {name.encode(): name for name in without_properties}
    kept: list[bytes] = []
    for part in split_message(payload):
        if part.code == HEADER:
            kept.append(list_of(HEADER, list_fields(payload, part)[:4]))
        elif part.code == MESSAGE_ANNOTATIONS or part.code == DELIVERY_ANNOTATIONS:
            kept.append(_map_without(payload, part, _SERVICE_NAMES))
        elif part.code == APPLICATION_PROPERTIES and names:
            kept.append(_map_without(payload, part, names))
        else:
            kept.append(payload[part.at : part.end])
    return b"".join(kept)


def with_message_id(payload: bytes, message_id: str) -> bytes:
    """The bytes of a message that has no id, or an empty one, with this one; all else stays as it is."""
    before: list[bytes] = []
    fields: list[bytes] = []
    after: list[bytes] = []
    for part in split_message(payload):
        if part.code == PROPERTIES:
            fields = list_fields(payload, part)[1:]
        else:
            (before if part.code < PROPERTIES else after).append(payload[part.at : part.end])
    return b"".join([*before, list_of(PROPERTIES, [encode(message_id), *fields]), *after])


def _map_without(payload: bytes, part: Section, names: dict[bytes, str]) -> bytes:
    kept = cut_map(payload, part, names)
    return map_of(part.code, kept.entries, kept.count)


class ReceivedMessage:
    """A message as it came. `payload` is the whole encoded message; everything else is read from it when asked for."""

    __slots__ = ("_parsed", "delivery_id", "payload", "tag")

    def __init__(self, payload: bytes, tag: bytes = b"", delivery_id: int = -1) -> None:
        self.payload = payload
        self.tag = tag
        self.delivery_id = delivery_id
        self._parsed: MessageSections | None = None

    @property
    def lock_token(self) -> uuid.UUID | None:
        """The lock's name on the management node; the delivery tag is the same in the byte order of a .NET Guid."""
        return uuid.UUID(bytes_le=self.tag) if len(self.tag) == TAG_BYTES else None

    @property
    def sections(self) -> MessageSections:
        if self._parsed is None:
            self._parsed = decode_message(self.payload)
        return self._parsed

    @property
    def body(self) -> object:
        """Bytes as a rule; a list or any other value where the sender chose such a body."""
        bodies = self.sections.bodies
        if self.sections.body_kind == DATA:
            return b"".join([part for part in bodies if isinstance(part, bytes)])
        return bodies[0] if bodies else b""

    @property
    def properties(self) -> dict[str, object]:
        """Application properties as plain Python values."""
        properties = self.sections.application_properties or {}
        return {str(key): _plain(value) for key, value in properties.items()}

    @property
    def typed_properties(self) -> dict[str, object]:
        """Application properties with their AMQP types, as `OutgoingMessage.properties` takes them."""
        properties = decode_message(self.payload, True).application_properties or {}
        return {str(key): value for key, value in properties.items()}

    @property
    def annotations(self) -> dict[object, object]:
        return self.sections.message_annotations or {}

    @property
    def message_id(self) -> str | None:
        return self._text(0)

    @property
    def to(self) -> str | None:
        return self._text(2)

    @property
    def subject(self) -> str | None:
        return self._text(3)

    @property
    def reply_to(self) -> str | None:
        return self._text(4)

    @property
    def correlation_id(self) -> str | None:
        return self._text(5)

    @property
    def content_type(self) -> str | None:
        return self._text(6)

    @property
    def session_id(self) -> str | None:
        return self._text(10)

    @property
    def reply_to_session_id(self) -> str | None:
        return self._text(12)

    @property
    def time_to_live_s(self) -> float | None:
        created_at, expires_at = self.sections.property_at(9), self.sections.property_at(8)
        value = ttl_of(self._header(2), created_at, expires_at)
        return None if value is None else value / 1000

    @property
    def delivery_count(self) -> int:
        """How often it was delivered before, in vain."""
        return self._header(4) or 0

    @property
    def sequence_number(self) -> int:
        value = self.annotations.get(SEQUENCE_NUMBER)
        return value if isinstance(value, int) else 0

    @property
    def enqueued_at(self) -> float | None:
        return self._time(ENQUEUED_TIME)

    @property
    def locked_until(self) -> float | None:
        return self._time(LOCKED_UNTIL)

    @property
    def scheduled_at(self) -> float | None:
        return self._time(SCHEDULED_ENQUEUE_TIME)

    @property
    def partition_key(self) -> str | None:
        value = self.annotations.get(PARTITION_KEY)
        return value if isinstance(value, str) else None

    @property
    def state(self) -> str:
        value = self.annotations.get(MESSAGE_STATE)
        return STATES[value] if isinstance(value, int) and 0 <= value < len(STATES) else STATES[0]

    @property
    def dead_letter_reason(self) -> str | None:
        return self._property_text(DEAD_LETTER_REASON)

    @property
    def dead_letter_description(self) -> str | None:
        return self._property_text(DEAD_LETTER_DESCRIPTION)

    def _text(self, index: int) -> str | None:
        value = self.sections.property_at(index)
        return None if value is None else str(value)

    def _header(self, index: int) -> int | None:
        header = self.sections.header or []
        value = header[index] if index < len(header) else None
        return value if isinstance(value, int) else None

    def _time(self, annotation: str) -> float | None:
        value = self.annotations.get(annotation)
        return value / 1000 if isinstance(value, int) else None

    def _property_text(self, name: str) -> str | None:
        value = (self.sections.application_properties or {}).get(name)
        return None if value is None else str(value)


def _plain(value: object) -> object:
    return value.value if isinstance(value, (Described, Typed)) else value
