"""A message as the broker holds it: the envelope parsed once, the sections kept as the bytes that came.

Parsing looks at what a broker must see (time to live, message id, session, key, schedule) and passes over the rest.
The fields of the header that the sender set become flags. What remains is kept in canonical order, so that a delivery
is a header, the annotations with ours added, and the untouched rest; delivery annotations, which few senders use, stand
behind all of it. Which values are allowed where (size limits, keys that must agree) is decided by the entity, not here.
"""

from __future__ import annotations

import os
from typing import Final, final

from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.codec import decode, encode, skip_value
from tandembus.amqp.encoding.descriptors import (
    AMQP_SEQUENCE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from tandembus.errors import MalformedData
from tandembus.message_sections import (
    annotation_name,
    check_map,
    compound_count,
    first_element,
    in_order,
    key_text,
    short_text,
    text,
    timestamp_at,
    uint,
)

BATCH_FORMAT: Final = 0x80013700
MAX_KEY_CHARACTERS: Final = 128
DEFAULT_PRIORITY: Final = 4
UINT_MAX: Final = 0xFFFFFFFF
SESSION_ID_INDEX: Final = 10
"""Where `group-id` stands among the properties."""
MAX_TTL_MS: Final = 922_337_203_685_477
"""The longest time span that the service knows; more would not fit behind any date."""

PING_CONTENT_TYPE: Final = b"application/vnd.ms-servicebus-ping"
PARTITION_KEY: Final = b"x-opt-partition-key"
VIA_PARTITION_KEY: Final = b"x-opt-via-partition-key"
SCHEDULED_ENQUEUE_TIME: Final = b"x-opt-scheduled-enqueue-time"
TRANSFER_DESTINATION: Final = b"x-opt-transfer-destination"
BROKER_OWNED: Final = frozenset(
    (
        TRANSFER_DESTINATION,
        b"x-opt-lock-token",
        b"x-opt-sequence-number",
        b"x-opt-enqueued-time",
        b"x-opt-locked-until",
        b"x-opt-enqueue-sequence-number",
        b"x-opt-message-state",
        b"x-opt-deadletter-source",
        b"x-opt-partition-id",
    )
)
"""Annotations only the broker may set; a sender's values of these are left out."""

# Message flags, one byte of them. Two bits hold a boolean of the header.
IS_SCHEDULED: Final = 1
"""Message flag: `expires_at` holds the time to live, which counts from activation."""
WAS_SCHEDULED: Final = 128
"""Message flag: it was activated here, or handed out by a topic where it was. Clients see that in its state."""
HAS_PRIORITY: Final = 2
DURABLE_AT: Final = 2
FIRST_ACQUIRER_AT: Final = 4
HEADER_FLAGS: Final = HAS_PRIORITY | 3 << DURABLE_AT | 3 << FIRST_ACQUIRER_AT
"""What the sender said in the header."""
HAS_DELIVERY_ANNOTATIONS: Final = 64
ABSENT: Final = 0
FALSE: Final = 1
TRUE: Final = 2


@final
class Message:
    """One message. `sections` holds annotations, properties, application properties, body and footer, in this order,
    and behind them the sender's delivery annotations."""

    __slots__ = (
        "annotations_end",
        "application_end",
        "application_properties",
        "delivery_count",
        "enqueued_at",
        "expires_at",
        "flags",
        "hops",
        "is_ping",
        "number",
        "original_number",
        "partition_key",
        "priority",
        "properties_end",
        "scheduled_at",
        "sections",
        "session_id",
        "ttl_ms",
        "wire_size",
    )

    def __init__(self, sections: bytes) -> None:
        self.sections: bytes = sections
        self.annotations_end: i64 = 0
        self.properties_end: i64 = 0
        self.application_end: i64 = 0
        self.priority: i64 = DEFAULT_PRIORITY
        self.ttl_ms: i64 = -1
        self.scheduled_at: i64 = 0
        self.session_id: str | None = None
        self.partition_key: str | None = None
        self.is_ping: bool = False
        self.wire_size: i64 = len(sections)
        # The fragment's part, given when the message takes its place in a lane.
        self.number: i64 = 0
        self.enqueued_at: i64 = 0
        self.expires_at: i64 = 0
        self.original_number: i64 = 0
        self.hops: i64 = 0
        self.flags: i64 = 0
        # What it has gained since (its overlay): earlier deliveries, and a section that replaces its own.
        self.delivery_count: i64 = 0
        self.application_properties: bytes = b""


def stored_message(
    number: i64,
    enqueued_at: i64,
    expires_at: i64,
    original_number: i64,
    hops: i64,
    flags: i64,
    priority: i64,
    annotations_end: i64,
    properties_end: i64,
    application_end: i64,
    sections: bytes,
) -> Message:
    """A message read back from a store: its envelope was checked when it was accepted."""
    message = Message(sections)
    message.number = number
    message.enqueued_at = enqueued_at
    message.expires_at = expires_at
    message.original_number = original_number
    message.hops = hops
    message.flags = flags
    message.priority = priority
    message.annotations_end = annotations_end
    message.properties_end = properties_end
    message.application_end = application_end
    return message


def copy_of(message: Message) -> Message:
    """The same content, for another place: a dead-letter lane, or the tail after a schedule."""
    return stored_message(
        message.number,
        message.enqueued_at,
        message.expires_at,
        message.original_number,
        message.hops,
        message.flags,
        message.priority,
        message.annotations_end,
        message.properties_end,
        message.application_end,
        message.sections,
    )


def parse_message(payload: bytes, max_key_characters: i64 = MAX_KEY_CHARACTERS) -> Message:
    """Read the envelope. Raises MalformedData for bytes that are no message, InvalidArgument for keys too long."""
    message = _parse_canonical(payload, max_key_characters)
    if message is None:
        message = _parse_canonical(in_order(payload), max_key_characters)
        assert message is not None
        message.wire_size = len(payload)
    return message


def _parse_canonical(payload: bytes, max_key_characters: i64) -> Message | None:
    """One pass over the sections; None where they are not in the order and form that nearly everybody sends."""
    end: i64 = len(payload)
    at: i64 = 0
    previous: i64 = 0
    sections_at: i64 = 0
    envelope = _Envelope(max_key_characters)
    while at < end:
        if end - at < 4 or payload[at] != 0:
            raise MalformedData("a message section does not start with a descriptor")
        code: i64 = payload[at + 2]
        if payload[at + 1] != 0x53 or code < previous or (code == previous and code != DATA and code != AMQP_SEQUENCE):
            return None
        if code < HEADER or code > FOOTER:
            raise MalformedData(f"0x{code:02x} is not a message section")
        previous = code
        value_at: i64 = at + 3
        at = skip_value(payload, value_at, end)
        if code <= APPLICATION_PROPERTIES:
            if code <= DELIVERY_ANNOTATIONS:
                sections_at = at
            envelope.read(payload, code, value_at, at)
        elif code == FOOTER:
            check_map(payload, value_at, at, "footer")
    return envelope.message(payload, sections_at)


@final
class _Envelope:
    """What one pass over a message found. Positions are those of the payload that was read."""

    __slots__ = (
        "_annotations_end",
        "_application_end",
        "_delivery_annotations",
        "_flags",
        "_has_id",
        "_has_odd_annotations",
        "_is_ping",
        "_max_key_characters",
        "_partition_key",
        "_priority",
        "_properties_end",
        "_scheduled_at",
        "_session_id",
        "_ttl_ms",
    )

    def __init__(self, max_key_characters: i64) -> None:
        self._max_key_characters: i64 = max_key_characters
        self._annotations_end: i64 = 0
        self._properties_end: i64 = 0
        self._application_end: i64 = 0
        self._priority: i64 = DEFAULT_PRIORITY
        self._flags: i64 = 0
        self._delivery_annotations: bytes = b""
        self._ttl_ms: i64 = -1
        self._scheduled_at: i64 = 0
        self._session_id: str | None = None
        self._partition_key: str | None = None
        self._has_id: bool = False
        self._has_odd_annotations: bool = False
        self._is_ping: bool = False

    def read(self, data: bytes, code: i64, at: i64, end: i64) -> None:
        """One section in front of the body: its value stands at data[at:end]."""
        if code == PROPERTIES:
            self._read_properties(data, at, end)
            self._properties_end = end
        elif code == HEADER:
            self._read_header(data, at, end)
        elif code == MESSAGE_ANNOTATIONS:
            self._read_annotations(data, at, end)
            self._annotations_end = end
        elif code == APPLICATION_PROPERTIES:
            check_map(data, at, end, "application-properties")
            self._application_end = end
        else:
            self._delivery_annotations = _own_annotations(data, at, end)
            if self._delivery_annotations:
                self._flags |= HAS_DELIVERY_ANNOTATIONS

    def message(self, payload: bytes, sections_at: i64) -> Message:
        sections = payload[sections_at:]
        if self._delivery_annotations:
            sections += self._delivery_annotations
        message = Message(sections)
        message.wire_size = len(payload)
        message.annotations_end = max(self._annotations_end - sections_at, i64(0))
        message.properties_end = max(self._properties_end - sections_at, message.annotations_end)
        message.application_end = max(self._application_end - sections_at, message.properties_end)
        message.priority = self._priority
        message.flags = self._flags
        message.ttl_ms = self._ttl_ms
        message.scheduled_at = self._scheduled_at
        message.session_id = self._session_id
        message.partition_key = self._partition_key
        if self._is_ping:
            message.is_ping = _body_is_empty(message)
        if self._has_odd_annotations:
            _put_annotations_right(message)
        if not self._has_id:
            _assign_message_id(message)
        return message

    def _read_header(self, data: bytes, at: i64, end: i64) -> None:
        if data[at] == 0x45:
            return
        position = first_element(data, at, end, 0xC0, 0xD0, "header")
        count = compound_count(data, at, 0xC0)
        index: i64 = 0
        while index < count and index < 4:
            behind = skip_value(data, position, end)
            if index == 0:
                self._flags |= _boolean(data, position) << DURABLE_AT
            elif index == 3:
                self._flags |= _boolean(data, position) << FIRST_ACQUIRER_AT
            elif index == 1 and data[position] == 0x50:
                self._priority = data[position + 1]
                self._flags |= HAS_PRIORITY
            elif index == 2 and data[position] != 0x40:
                self._ttl_ms = uint(data, position, "the header's ttl")
                if self._ttl_ms == 0:
                    self._ttl_ms = -1  # Java's SDK sets 0 in the copy of a message that never expires
            position = behind
            index += 1

    def _read_annotations(self, data: bytes, at: i64, end: i64) -> None:
        position = first_element(data, at, end, 0xC1, 0xD1, "message-annotations")
        count = compound_count(data, at, 0xC1)
        if count & 1:
            raise MalformedData("the message-annotations map has a key without a value")
        while count > 0:
            value_at = skip_value(data, position, end)
            behind = skip_value(data, value_at, end)
            self._read_annotation(data, annotation_name(data, position, value_at), value_at)
            position = behind
            count -= 2
        if position != end:
            raise MalformedData("the message-annotations map's size and count disagree")

    def _read_annotation(self, data: bytes, key: bytes, value_at: i64) -> None:
        if key == PARTITION_KEY or key == VIA_PARTITION_KEY:
            is_via = key == VIA_PARTITION_KEY
            value = key_text(data, value_at, self._max_key_characters, "ViaPartitionKey" if is_via else "PartitionKey")
            if not is_via:
                self._partition_key = value
            code: i64 = data[value_at]
            if code != 0xA1 and code != 0xB1 and code != 0x40:
                self._has_odd_annotations = True
        elif key == SCHEDULED_ENQUEUE_TIME:
            self._scheduled_at = timestamp_at(data, value_at)
        elif key in BROKER_OWNED:
            self._has_odd_annotations = True

    def _read_properties(self, data: bytes, at: i64, end: i64) -> None:
        if data[at] == 0x45:
            return
        position = first_element(data, at, end, 0xC0, 0xD0, "properties")
        count = compound_count(data, at, 0xC0)
        created_at: i64 = 0
        expires_at: i64 = 0
        index: i64 = 0
        while index < count:
            behind = skip_value(data, position, end)
            code: i64 = data[position]
            if code != 0x40:
                if index == 0:
                    self._has_id = True
                    if behind - position > self._max_key_characters + 2:
                        short_text(data, position, self._max_key_characters, "MessageId")
                elif index == 6:
                    self._is_ping = text(data, position, behind) == PING_CONTENT_TYPE
                elif index == 8 and code == 0x83:
                    expires_at = read_i64_be(data, position + 1)
                elif index == 9 and code == 0x83:
                    created_at = read_i64_be(data, position + 1)
                elif index == SESSION_ID_INDEX:
                    self._session_id = short_text(data, position, self._max_key_characters, "SessionId")
            position = behind
            index += 1
        if position != end:
            raise MalformedData("the properties list's size and count disagree")
        if self._ttl_ms == UINT_MAX and expires_at > created_at and created_at > 0:
            # A time to live beyond 49 days does not fit the header's field: the two times say what was meant.
            self._ttl_ms = min(expires_at - created_at, MAX_TTL_MS)


def _boolean(data: bytes, at: i64) -> i64:
    code: i64 = data[at]
    if code == 0x56:
        code = 0x42 - i64(data[at + 1])
    if code == 0x41:
        return TRUE
    return FALSE if code == 0x42 else ABSENT


def _own_annotations(data: bytes, at: i64, end: i64) -> bytes:
    """The delivery annotations whose map stands at data[at:end], as a section, without what only the broker may say.
    The others stay the bytes that came."""
    check_map(data, at, end, "delivery-annotations")
    out = BytesWriter()
    count: i64 = 0
    position = first_element(data, at, end, 0xC1, 0xD1, "delivery-annotations")
    while position < end:
        value_at = skip_value(data, position, end)
        behind = skip_value(data, value_at, end)
        if annotation_name(data, position, value_at) not in BROKER_OWNED:
            out.write(data[position:behind])
            count += 2
        position = behind
    if count == compound_count(data, at, 0xC1):
        return b"\x00\x53\x71" + data[at:end]
    if count == 0:
        return b""
    content = out.getvalue()
    head = BytesWriter()
    head.write(b"\x00\x53\x71\xd1")
    size: i64 = len(content) + 4
    write_i64_be(head, (size << 32) | count)
    return head.getvalue() + content


def delivery_annotations_at(message: Message) -> i64:
    """Where they stand in the sections: at the end of them, where there are any."""
    data = message.sections
    end: i64 = len(data)
    if message.flags & HAS_DELIVERY_ANNOTATIONS == 0:
        return end
    at = message.application_end
    while at < end and data[at + 2] != DELIVERY_ANNOTATIONS:
        at = skip_value(data, at + 3, end)
    return at


def _body_is_empty(message: Message) -> bool:
    rest = message.sections[message.application_end : delivery_annotations_at(message)]
    return rest in (b"", b"\x00\x53\x75\xa0\x00", b"\x00\x53\x75\xb0\x00\x00\x00\x00", b"\x00\x53\x77\x40")


def replace_section(message: Message, first: i64, last: i64, section: bytes) -> None:
    """Put `section` in place of sections[first:last]; the caller moves the ends."""
    data = message.sections
    message.sections = data[:first] + section + data[last:]


def _put_annotations_right(message: Message) -> None:
    """Leave out what only the broker may say. Keys become strings: SDKs send on in binary what they received."""
    annotations, _ = decode(message.sections, 3, True)
    assert isinstance(annotations, dict)
    kept: dict[object, object] = {}
    for key, value in annotations.items():
        name = getattr(key, "value", key)
        name = name if isinstance(name, bytes) else str(name).encode()
        if name == PARTITION_KEY or name == VIA_PARTITION_KEY:
            value = getattr(value, "value", value)
            kept[key] = value.decode() if isinstance(value, bytes) else value
        elif name not in BROKER_OWNED:
            kept[key] = value
    section = b"\x00\x53\x72" + encode(kept) if kept else b""
    moved: i64 = i64(len(section)) - message.annotations_end
    replace_section(message, 0, message.annotations_end, section)
    message.annotations_end += moved
    message.properties_end += moved
    message.application_end += moved


def _assign_message_id(message: Message) -> None:
    """Clients cannot settle what has no id: the service makes one."""
    at = message.annotations_end
    fields: list[object] = []
    if message.properties_end > at:
        value, _ = decode(message.sections, int(at) + 3, True)
        assert isinstance(value, list)
        fields = value
    fields = [os.urandom(16).hex(), *fields[1:]]
    section = b"\x00\x53\x73" + encode(fields)
    moved: i64 = i64(len(section)) - (message.properties_end - at)
    replace_section(message, at, message.properties_end, section)
    message.properties_end += moved
    message.application_end += moved


def explicit_key_of(message: Message, has_sessions: bool) -> str | None:
    """The key that its sender chose: the SessionId, else the PartitionKey. An empty SessionId is one where sessions are
    required, and none elsewhere."""
    session_id = message.session_id
    return session_id if session_id or (session_id == "" and has_sessions) else message.partition_key


def compared(key: str, ignores_case: bool) -> str:
    """A SessionId or PartitionKey in the form in which it is compared, hashed and locked."""
    return key.casefold() if ignores_case else key


def session_id_of(message: Message) -> str | None:
    """The session of a message that was read back from a store, where only its sections are kept."""
    if message.session_id is not None:
        return message.session_id
    at = message.annotations_end + 3
    end = message.properties_end
    data = message.sections
    if at >= end or data[at] == 0x45:
        return None
    index = compound_count(data, at, 0xC0)
    if index <= SESSION_ID_INDEX:
        return None
    position = first_element(data, at, end, 0xC0, 0xD0, "properties")
    index = 0
    while index < SESSION_ID_INDEX:
        position = skip_value(data, position, end)
        index += 1
    return short_text(data, position, UINT_MAX, "SessionId")


def message_id_of(message: Message) -> str:
    """The id as text; ids of other AMQP types are legal and shown as text."""
    at = message.annotations_end
    if message.properties_end <= at:
        return ""
    fields, _ = decode(message.sections, int(at) + 3)
    if not isinstance(fields, list) or not fields:
        return ""
    value = fields[0]
    return value.hex() if isinstance(value, bytes) else str(value)
