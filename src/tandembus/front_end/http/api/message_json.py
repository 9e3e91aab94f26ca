"""A message as JSON: all that it holds, whoever sent it, as far as it can be read.

Messages come from strangers. What stands in one is text here, never markup, and what cannot be read is shown as bytes:
there is no message that cannot be looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from tandembus.amqp.encoding.codec import decode_between, skip_value
from tandembus.amqp.encoding.descriptors import AMQP_SEQUENCE, AMQP_VALUE, DATA, DELIVERY_ANNOTATIONS, FOOTER
from tandembus.errors import BusError, MalformedData
from tandembus.front_end.http.api.typed_values import Shown, shown_at, to_base64
from tandembus.front_end.http.property_headers import json_value, plain
from tandembus.front_end.http.values import format_time_ms
from tandembus.message import Message
from tandembus.message_sections import text
from tandembus.store.messaging_store import NUMBER_BITS

MessageJson: TypeAlias = dict[str, object]

STATES: Final = ("active", "deferred", "scheduled")
LISTED_BODY_BYTES: Final = 2 * 1024
"""Of a body in a list of messages."""
SHOWN_BODY_BYTES: Final = 1024 * 1024
"""Of the body of one message."""
WHOLE: Final = 2**62
MAX_VALUE_BYTES: Final = 1024 * 1024
"""A list or map that is larger is not built to be shown."""

REASON: Final = b"DeadLetterReason"
DESCRIPTION: Final = b"DeadLetterErrorDescription"
_FIELDS: Final = (
    (0, "message_id"),
    (2, "to"),
    (3, "subject"),
    (4, "reply_to"),
    (5, "correlation_id"),
    (6, "content_type"),
    (7, "content_encoding"),
    (10, "session_id"),
    (12, "reply_to_session_id"),
)
"""Of the properties section, by their places."""
_USER_ID: Final = 1
_KINDS: Final = {DATA: "data", AMQP_SEQUENCE: "sequence", AMQP_VALUE: "value"}
_SECTION_START: Final = 3
"""Bytes of a section's descriptor, as it is kept."""
_EMPTY_LIST: Final = 0x45
_MILLISECONDS: Final = re.compile(r"-?\d{1,19}", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def message_json(message: Message, sequence_number: int, state: int, max_body_bytes: int) -> MessageJson:
    fields = _fields(message)
    annotations = list(_entries(message.sections, 0, int(message.annotations_end)))
    properties = list(_entries(*_application_properties(message)))
    by_name = {str(entry["name"]): entry["value"] for entry in annotations}
    expires_at, enqueued_at = int(message.expires_at), int(message.enqueued_at)
    return {
        "sequence_number": str(sequence_number),
        "fragment": sequence_number >> NUMBER_BITS,
        "state": STATES[state],
        **{name: _text(fields[index]) if index < len(fields) else None for index, name in _FIELDS},
        "user_id": _bytes(fields[_USER_ID]) if len(fields) > _USER_ID else None,
        "partition_key": by_name.get("x-opt-partition-key"),
        "enqueued_at": format_time_ms(enqueued_at),
        "scheduled_for": _time(by_name.get("x-opt-scheduled-enqueue-time")),
        "expires_at": format_time_ms(expires_at) if expires_at > 0 else None,
        "time_to_live_s": (expires_at - enqueued_at) / 1000 if expires_at > 0 else None,
        "delivery_count": int(message.delivery_count),
        "priority": int(message.priority),
        "dead_letter_reason": property_text(message, REASON),
        "dead_letter_description": property_text(message, DESCRIPTION),
        "dead_letter_source": by_name.get("x-opt-deadletter-source"),
        "size_bytes": size_of(message),
        "properties": properties,
        "annotations": annotations,
        "body": body_json(message.sections, int(message.application_end), max_body_bytes),
    }


def size_of(message: Message) -> int:
    """With what it has gained since it was sent."""
    changed = len(message.application_properties)
    own = int(message.application_end - message.properties_end) if changed else 0
    return len(message.sections) - own + changed


def dead_letter_reason(message: Message) -> str | None:
    return property_text(message, REASON)


def property_text(message: Message, name: bytes) -> str | None:
    """The application property of this name, if it is there and a string; nothing else is decoded."""
    data, start, end = _application_properties(message)
    for key_at, value_at, behind in _places(data, start, end):
        if text(data, key_at, value_at) == name:
            return text(data, value_at, behind).decode(errors="replace") if data[value_at] in (0xA1, 0xB1) else None
    return None


# Sections.


def _application_properties(message: Message) -> tuple[bytes, int, int]:
    """Where they stand: what replaced them since, or the message's own."""
    changed = message.application_properties
    if changed:
        return changed, 0, len(changed)
    return message.sections, int(message.properties_end), int(message.application_end)


def _fields(message: Message) -> list[object]:
    """Of the properties section. Whatever stands in one of them, the others are read."""
    data, at, end = message.sections, int(message.annotations_end) + _SECTION_START, int(message.properties_end)
    fields: list[object] = []
    if at >= end or data[at] == _EMPTY_LIST:
        return fields
    position = at + (3 if data[at] == 0xC0 else 9)
    while position < end:
        behind = int(skip_value(data, position, end))
        fields.append(_decoded(data, position, behind))
        position = behind
    return fields


def _decoded(data: bytes, at: int, end: int) -> object:
    try:
        return plain(decode_between(data, at, end, True))
    except BusError:
        return data[at:end].decode(errors="replace")


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)


def _time(value: object) -> object:
    """Some senders write the milliseconds as a plain number; others write anything, under a key that only looks so."""
    is_number = isinstance(value, str) and _MILLISECONDS.fullmatch(value) is not None
    return format_time_ms(int(str(value))) if is_number else value


def _bytes(value: object) -> str | None:
    if value is None:
        return None
    return to_base64(value if isinstance(value, bytes) else str(value).encode(errors="replace"))


def _entries(data: bytes, start: int, end: int) -> Iterator[Shown]:
    """The entries of a map section, each by itself: one that cannot be read hides no other."""
    for key_at, value_at, behind in _places(data, start, end):
        yield {"name": _text(_decoded(data, key_at, value_at)) or "", **shown_at(data, value_at, behind)}


def _places(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Key, value and end of each entry; that they add up was checked when the message came."""
    position = start + (6 if end > start and data[start + _SECTION_START] == 0xC1 else 12)
    while position < end:
        value_at = int(skip_value(data, position, end))
        behind = int(skip_value(data, value_at, end))
        yield position, value_at, behind
        position = behind


# Bodies.


def body_json(data: bytes, start: int, max_bytes: int) -> Shown:
    """`data` from `start` on: the body's sections, the footer and the sender's delivery annotations. `encoded` is given
    where the rest of it does not say all: sent again, it is the same body."""
    try:
        kind, places, has_more = _body_places(data, start)
        body = _readable(kind, data, places, max_bytes)
    except BusError:
        kind, has_more = FOOTER, True
        body = {"kind": "unreadable", **_content(data[start : start + max_bytes], len(data) - start, is_binary=True)}
    is_all_said = kind == DATA and not has_more
    if not is_all_said and max_bytes > LISTED_BODY_BYTES and len(data) - start <= max_bytes:
        body["encoded"] = to_base64(data[start:])
    return body


def _body_places(data: bytes, start: int) -> tuple[int, list[tuple[int, int]], bool]:
    """Which kind of body, and where the values of its sections stand. Without a body it is empty data."""
    kind = 0
    places: list[tuple[int, int]] = []
    has_more = False
    at, end = start, len(data)
    while at < end:
        code, value_at = data[at + 2], at + _SECTION_START
        at = int(skip_value(data, value_at, end))
        if code == FOOTER or code == DELIVERY_ANNOTATIONS:
            has_more = True
            continue
        if kind not in (0, code):
            raise MalformedData("a message with two kinds of body")
        kind = code
        places.append((value_at, at))
    return kind or DATA, places, has_more


def _readable(kind: int, data: bytes, places: list[tuple[int, int]], max_bytes: int) -> Shown:
    if kind == DATA:
        parts = [_binary(data, at, end) for at, end in places]
        size = sum([len(part) for part in parts])
        return {"kind": "data", **_content(b"".join(parts)[:max_bytes], size)}
    size = sum([end - at for at, end in places])
    told: Shown = {"kind": _KINDS[kind]}
    if size > MAX_VALUE_BYTES and data[places[0][0]] not in (0xA0, 0xA1, 0xB0, 0xB1):
        return {**told, "size_bytes": size, "text": None, "base64": None, "is_truncated": True}
    values = [decode_between(data, at, end, True) for at, end in places]
    value = plain(values[0]) if len(values) == 1 else values
    if isinstance(value, bytes):
        return {**told, **_content(value[:max_bytes], len(value), is_binary=True)}
    content = (value if isinstance(value, str) else json.dumps(json_value(value), ensure_ascii=False)).encode(
        errors="replace"
    )
    return {**told, **_content(content[:max_bytes], len(content))}


def _binary(data: bytes, at: int, end: int) -> bytes:
    if data[at] == 0xA0:
        return data[at + 2 : end]
    if data[at] == 0xB0:
        return data[at + 5 : end]
    raise MalformedData("a data section that is not binary")


def _content(content: bytes, size: int, is_binary: bool = False) -> Shown:
    """Text where it can be read as such, else base64. What was cut may end within a character."""
    is_cut = len(content) < size
    found = None if is_binary else _as_text(content, is_cut)
    base64 = to_base64(content) if found is None else None
    return {"size_bytes": size, "text": found, "base64": base64, "is_truncated": is_cut}


def _as_text(content: bytes, is_cut: bool) -> str | None:
    for end in range(len(content), max(len(content) - (4 if is_cut else 1), -1), -1):
        try:
            found = content[:end].decode()
        except UnicodeDecodeError:
            continue
        return None if _CONTROL.search(found) else found
    return None
