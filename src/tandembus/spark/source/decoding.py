"""From encoded messages to columns, message by message: the innermost step of reading, and compiled where possible.

Values are taken where they stand; what is rare is decoded in general ways. Messages come from strangers: of one that
cannot be read there is a row all the same, with what is certain and the bytes that came.
"""

from __future__ import annotations

import uuid
from typing import Final, final

from librt.strings import read_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.codec import decode_between, skip_value
from tandembus.amqp.encoding.descriptors import (
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from tandembus.amqp.encoding.time_to_live import LAST_MS, MAX_HEADER_TTL_MS
from tandembus.errors import MalformedData
from tandembus.spark.source.marks import Marks, elements, integer_at, marks_of, read_marks, section_at
from tandembus.spark.source.property_values import to_text

NUMBER_BITS: Final = 48
NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1
STATES: Final = ("active", "deferred", "scheduled")
UNREADABLE: Final = "tandembus:unreadable"
"""The property that marks the row of a message that cannot be read; its text says why."""
_REASON: Final = "DeadLetterReason"
_EMPTY_LIST: Final = 0x45
_NULL: Final = 0x40
_INT_MAX: Final = 0x7FFFFFFF

_FIELDS: Final = 11
"""Of the properties, as far as they are columns; and their places."""
_MESSAGE_ID: Final = 0
_USER_ID: Final = 1
_TO: Final = 2
_SUBJECT: Final = 3
_REPLY_TO: Final = 4
_CORRELATION_ID: Final = 5
_CONTENT_TYPE: Final = 6
_CONTENT_ENCODING: Final = 7
_EXPIRY_TIME: Final = 8
_CREATION_TIME: Final = 9
_GROUP_ID: Final = 10


@final
class Rows:
    """Columns that grow by a row per message; times are in microseconds, maps are flat with their ends."""

    __slots__ = (
        "bodies",
        "content_types",
        "correlation_ids",
        "delivery_counts",
        "enqueued",
        "expires",
        "map_ends",
        "map_names",
        "map_types",
        "map_values",
        "message_ids",
        "numbers",
        "partition_keys",
        "reasons",
        "reply_tos",
        "session_ids",
        "states",
        "subjects",
        "tos",
        "unreadable",
    )

    def __init__(self) -> None:
        self.numbers: Final[list[int]] = []
        self.message_ids: Final[list[str | None]] = []
        self.session_ids: Final[list[str | None]] = []
        self.partition_keys: Final[list[str | None]] = []
        self.subjects: Final[list[str | None]] = []
        self.content_types: Final[list[str | None]] = []
        self.correlation_ids: Final[list[str | None]] = []
        self.reply_tos: Final[list[str | None]] = []
        self.tos: Final[list[str | None]] = []
        self.enqueued: Final[list[int | None]] = []
        self.expires: Final[list[int | None]] = []
        self.delivery_counts: Final[list[int]] = []
        self.states: Final[list[str]] = []
        self.reasons: Final[list[str | None]] = []
        self.map_ends: Final[list[int]] = [0]
        self.map_names: Final[list[str]] = []
        self.map_values: Final[list[str | None]] = []
        self.map_types: Final[list[str]] = []
        self.bodies: Final[list[bytes]] = []
        self.unreadable: Final[list[str]] = []
        """Why, for each message that could not be read."""


@final
class _Envelope:
    """What stands in front of a message's body; nothing of it is in the columns before all of it was read."""

    __slots__ = ("created_ms", "delivery_count", "expires_ms", "marks", "texts", "ttl_ms")

    def __init__(self) -> None:
        self.marks: Marks = Marks()
        self.ttl_ms: i64 = -1
        self.delivery_count: i64 = 0
        self.created_ms: i64 = -1
        self.expires_ms: i64 = -1
        self.texts: list[str | None] = [None] * _FIELDS


def add_message(rows: Rows, payload: bytes) -> None:
    """One more row, whatever the bytes are."""
    map_end = len(rows.map_names)
    try:
        _add_readable(rows, payload)
    except Exception as error:  # whatever a stranger's bytes bring about: it must not be in the way of all others
        del rows.map_names[map_end:]
        del rows.map_values[map_end:]
        del rows.map_types[map_end:]
        _add_unreadable(rows, payload, _why(error))


def _add_readable(rows: Rows, payload: bytes) -> None:
    envelope = _Envelope()
    reason: str | None = None
    body = b""
    parts: list[bytes] | None = None
    seen: i64 = 0
    at: i64 = 0
    end: i64 = len(payload)
    while at < end:
        code, value_at = section_at(payload, at, end)
        at = skip_value(payload, value_at, end)
        if code >= DATA:
            if code <= AMQP_VALUE:
                part = _data(payload, value_at, at) if code == DATA else _value(payload, value_at, at)
                if parts is None:
                    body = part
                    parts = []
                else:
                    if not parts:
                        parts.append(body)
                    parts.append(part)
            continue
        if seen & (1 << (code - HEADER)):
            raise MalformedData("a message section that stands twice")
        seen |= 1 << (code - HEADER)
        if code == APPLICATION_PROPERTIES:
            reason = _add_properties(rows, payload, value_at, at)
        else:
            _read_section(envelope, payload, code, value_at, at)
    if parts:
        body = b"".join(parts)
    partition_key: str | None = None
    if envelope.marks.key_at > 0:
        partition_key = _text_at(payload, envelope.marks.key_at, envelope.marks.key_end)
    _add_envelope(rows, envelope, partition_key)
    rows.reasons.append(reason)
    rows.map_ends.append(len(rows.map_names))
    rows.bodies.append(body)


def _add_unreadable(rows: Rows, payload: bytes, why: str) -> None:
    """What the service has written, those of the message's own fields that can be read, the mark, and all bytes."""
    envelope = _Envelope()
    partition_key: str | None = None
    try:
        at: i64 = 0
        end: i64 = len(payload)
        while at < end:
            code, value_at = section_at(payload, at, end)
            at = skip_value(payload, value_at, end)
            if code == HEADER or code == PROPERTIES:
                _read_fields(envelope, payload, code, value_at, at, True)
    except Exception:  # what has been read up to here is certain
        pass
    envelope.marks = marks_of(payload)
    if envelope.marks.key_at > 0:
        partition_key = _text_if_any(payload, envelope.marks.key_at, envelope.marks.key_end)
    _add_envelope(rows, envelope, partition_key)
    rows.reasons.append(None)
    rows.map_names.append(UNREADABLE)
    rows.map_values.append(why)
    rows.map_types.append("string")
    rows.map_ends.append(len(rows.map_names))
    rows.bodies.append(payload)
    rows.unreadable.append(why)


def _why(error: Exception) -> str:
    """Without any of the content."""
    if isinstance(error, MalformedData):
        return str(error)
    return "text that is not UTF-8" if isinstance(error, UnicodeError) else type(error).__name__


def _add_envelope(rows: Rows, envelope: _Envelope, partition_key: str | None) -> None:
    """Nothing here can fail: all columns get their row, or none."""
    marks = envelope.marks
    texts = envelope.texts
    rows.numbers.append(int(marks.number))
    rows.message_ids.append(texts[_MESSAGE_ID])
    rows.session_ids.append(texts[_GROUP_ID])
    rows.partition_keys.append(partition_key)
    rows.subjects.append(texts[_SUBJECT])
    rows.content_types.append(texts[_CONTENT_TYPE])
    rows.correlation_ids.append(texts[_CORRELATION_ID])
    rows.reply_tos.append(texts[_REPLY_TO])
    rows.tos.append(texts[_TO])
    rows.delivery_counts.append(int(min(envelope.delivery_count, i64(_INT_MAX))))
    rows.states.append(STATES[int(marks.state)] if 0 <= marks.state < 3 else STATES[0])
    if marks.enqueued_ms < 0:
        rows.enqueued.append(None)
        rows.expires.append(None)
        return
    rows.enqueued.append(int(marks.enqueued_ms) * 1000)
    ttl_ms: i64 = envelope.ttl_ms
    if ttl_ms < 0:
        rows.expires.append(None)
        return
    if ttl_ms == MAX_HEADER_TTL_MS and 0 < envelope.created_ms < envelope.expires_ms:
        ttl_ms = max(ttl_ms, envelope.expires_ms - envelope.created_ms)  # the header's field is too small for it
    rows.expires.append(int(marks.enqueued_ms + min(ttl_ms, i64(LAST_MS) - marks.enqueued_ms)) * 1000)


def _read_section(envelope: _Envelope, payload: bytes, code: i64, at: i64, end: i64) -> None:
    if code == MESSAGE_ANNOTATIONS:
        read_marks(envelope.marks, payload, at, end)
    elif code == HEADER or code == PROPERTIES:
        _read_fields(envelope, payload, code, at, end, False)


def _read_fields(envelope: _Envelope, payload: bytes, code: i64, at: i64, end: i64, is_lenient: bool) -> None:
    """Header or properties. Lenient: fields that cannot be read are passed over."""
    if payload[at] == _EMPTY_LIST:
        return
    position, count = elements(payload, at, end, 0xC0)
    index: i64 = 0
    while index < count:
        behind = skip_value(payload, position, end)
        if payload[position] != _NULL:
            if code == HEADER:
                _read_header_field(envelope, payload, index, position)
            elif is_lenient:
                try:
                    _read_property(envelope, payload, index, position, behind)
                except Exception:  # this one is what makes the message unreadable
                    pass
            else:
                _read_property(envelope, payload, index, position, behind)
        position = behind
        index += 1
    if position != end:
        raise MalformedData("a list's size and count disagree")


def _read_header_field(envelope: _Envelope, payload: bytes, index: i64, at: i64) -> None:
    if index == 2:
        envelope.ttl_ms = integer_at(payload, at, -1)
    elif index == 4:
        envelope.delivery_count = max(integer_at(payload, at, 0), i64(0))


def _read_property(envelope: _Envelope, payload: bytes, index: i64, at: i64, end: i64) -> None:
    if index == _EXPIRY_TIME:
        if payload[at] == 0x83:
            envelope.expires_ms = read_i64_be(payload, at + 1)
    elif index == _CREATION_TIME:
        if payload[at] == 0x83:
            envelope.created_ms = read_i64_be(payload, at + 1)
    elif index < _FIELDS and index != _USER_ID and index != _CONTENT_ENCODING:
        envelope.texts[int(index)] = _text_at(payload, at, end)


def _text_at(payload: bytes, at: i64, end: i64) -> str | None:
    """A field as text: strings and symbols as they are, numbers and ids in their usual form, bytes in hexadecimal."""
    code: i64 = payload[at]
    if code == 0xA1 or code == 0xA3:
        return payload[at + 2 : end].decode()
    if code == 0xB1 or code == 0xB3:
        return payload[at + 5 : end].decode()
    value = decode_between(payload, at, end)
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (int, uuid.UUID)):
        return str(value)
    raise MalformedData("a field of the message is not of its type")


def _text_if_any(payload: bytes, at: i64, end: i64) -> str | None:
    try:
        return _text_at(payload, at, end)
    except Exception:
        return None


def _add_properties(rows: Rows, payload: bytes, at: i64, end: i64) -> str | None:
    """Returns the reason of a dead letter."""
    reason: str | None = None
    first = len(rows.map_names)
    position, count = elements(payload, at, end, 0xC1)
    while count > 1:
        value_at = skip_value(payload, position, end)
        behind = skip_value(payload, value_at, end)
        name = _name_at(payload, position, value_at)
        code: i64 = payload[value_at]
        text: str | None
        if code == 0xA1:
            text = payload[value_at + 2 : behind].decode()
            rows.map_types.append("string")
        else:
            text, kind = to_text(decode_between(payload, value_at, behind, True))
            rows.map_types.append(kind)
        if name == _REASON:
            reason = text
        rows.map_names.append(name)
        rows.map_values.append(text)
        position = behind
        count -= 2
    if count != 0 or position != end:
        raise MalformedData("a map's size and count disagree")
    names = rows.map_names[first:]
    if len(names) > 1 and len(set(names)) < len(names):
        raise MalformedData("two properties of one name")
    return reason


def _name_at(payload: bytes, at: i64, end: i64) -> str:
    code: i64 = payload[at]
    if code == 0xA1 or code == 0xA3:
        return payload[at + 2 : end].decode()
    if code == 0xB1 or code == 0xB3:
        return payload[at + 5 : end].decode()
    raise MalformedData("the name of a property is no text")


def _data(payload: bytes, at: i64, end: i64) -> bytes:
    code: i64 = payload[at]
    if code == 0xA0:
        return payload[at + 2 : end]
    if code == 0xB0:
        return payload[at + 5 : end]
    raise MalformedData("the data of a message must be binary")


def _value(payload: bytes, at: i64, end: i64) -> bytes:
    """A body that is a value or a list: texts and bytes as they are, anything else in its encoding."""
    code: i64 = payload[at]
    if code == 0xA0 or code == 0xA1:
        return payload[at + 2 : end]
    if code == 0xB0 or code == 0xB1:
        return payload[at + 5 : end]
    return payload[at:end]
