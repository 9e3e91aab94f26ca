"""From encoded messages to columns, message by message: the innermost step of reading, and compiled where possible.

What is asked for rarely is decoded in general ways; what every message has is taken where it stands.
"""

from __future__ import annotations

import uuid
from typing import Final, final

from tandembus.amqp.encoding.codec import decode_between, encode, skip_value
from tandembus.amqp.encoding.descriptors import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from tandembus.amqp.encoding.time_to_live import LAST_MS, MAX_HEADER_TTL_MS, ttl_of
from tandembus.errors import MalformedData
from tandembus.spark.source.property_values import to_text

NUMBER_BITS: Final = 48
NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1
STATES: Final = ("active", "deferred", "scheduled")
_SEQUENCE_NUMBER: Final = "x-opt-sequence-number"
_ENQUEUED_TIME: Final = "x-opt-enqueued-time"
_PARTITION_KEY: Final = "x-opt-partition-key"
_STATE: Final = "x-opt-message-state"
_REASON: Final = "DeadLetterReason"
_NUMBER_KEY: Final = b"\xa3\x15x-opt-sequence-number\x81"


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


def sequence_number_of(payload: bytes) -> int:
    """Without decoding the rest."""
    at = payload.find(_NUMBER_KEY)
    if at >= 0:
        start = at + len(_NUMBER_KEY)
        return int.from_bytes(payload[start : start + 8], "big", signed=True)
    rows = Rows()
    add_message(rows, payload)
    return rows.numbers[0]


def add_message(rows: Rows, payload: bytes) -> None:
    """One more row. Raises MalformedData for what is no message."""
    header: list[object] = []
    annotations: dict[object, object] = {}
    properties: list[object] = []
    body = b""
    body_kind = 0
    reason: str | None = None
    at = 0
    end = len(payload)
    while at < end:
        if end - at < 4 or payload[at] != 0 or payload[at + 1] != 0x53:
            raise MalformedData("a message consists of described sections")
        code = payload[at + 2]
        value_at = at + 3
        after = int(skip_value(payload, value_at, end))
        if code == DATA:
            part = _binary(payload, value_at, after)
            body = part if body_kind == 0 else body + part
            body_kind = code
        elif code == HEADER:
            header = _list(decode_between(payload, value_at, after))
        elif code == MESSAGE_ANNOTATIONS:
            annotations = _map(decode_between(payload, value_at, after))
        elif code == PROPERTIES:
            properties = _list(decode_between(payload, value_at, after))
        elif code == APPLICATION_PROPERTIES:
            reason = _add_properties(rows, _map(decode_between(payload, value_at, after, True)))
        elif code == AMQP_VALUE or code == AMQP_SEQUENCE:
            part = _other_body(decode_between(payload, value_at, after, True))
            body = part if body_kind == 0 else body + part
            body_kind = code
        at = after
    number = annotations.get(_SEQUENCE_NUMBER)
    rows.numbers.append(number if isinstance(number, int) else 0)
    _add_times(rows, header, annotations, properties)
    _add_texts(rows, properties)
    rows.partition_keys.append(_text(annotations.get(_PARTITION_KEY)))
    state = annotations.get(_STATE)
    rows.states.append(STATES[state] if isinstance(state, int) and 0 <= state < 3 else STATES[0])
    rows.reasons.append(reason)
    rows.map_ends.append(len(rows.map_names))
    rows.bodies.append(body)


def _add_times(rows: Rows, header: list[object], annotations: dict[object, object], properties: list[object]) -> None:
    enqueued = annotations.get(_ENQUEUED_TIME)
    ttl = header[2] if len(header) > 2 else None
    count = header[4] if len(header) > 4 else None
    rows.delivery_counts.append(count if isinstance(count, int) else 0)
    if isinstance(enqueued, int):
        rows.enqueued.append(enqueued * 1000)
        if ttl == MAX_HEADER_TTL_MS and len(properties) > 9:
            ttl = ttl_of(MAX_HEADER_TTL_MS, properties[9], properties[8])
        rows.expires.append(min(enqueued + ttl, LAST_MS) * 1000 if isinstance(ttl, int) else None)
    else:
        rows.enqueued.append(None)
        rows.expires.append(None)


def _add_texts(rows: Rows, fields: list[object]) -> None:
    count = len(fields)
    rows.message_ids.append(_text(fields[0]) if count > 0 else None)
    rows.tos.append(_text(fields[2]) if count > 2 else None)
    rows.subjects.append(_text(fields[3]) if count > 3 else None)
    rows.reply_tos.append(_text(fields[4]) if count > 4 else None)
    rows.correlation_ids.append(_text(fields[5]) if count > 5 else None)
    rows.content_types.append(_text(fields[6]) if count > 6 else None)
    rows.session_ids.append(_text(fields[10]) if count > 10 else None)


def _add_properties(rows: Rows, entries: dict[object, object]) -> str | None:
    """Returns the reason of a dead letter."""
    reason: str | None = None
    for key, value in entries.items():
        name = key if isinstance(key, str) else str(to_text(key)[0])
        text, kind = to_text(value)
        if name == _REASON:
            reason = text
        rows.map_names.append(name)
        rows.map_values.append(text)
        rows.map_types.append(kind)
    return reason


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, (int, uuid.UUID)) else None


def _binary(payload: bytes, at: int, end: int) -> bytes:
    code = payload[at]
    if code == 0xA0:
        return payload[at + 2 : end]
    if code == 0xB0:
        return payload[at + 5 : end]
    raise MalformedData("the data of a message must be binary")


def _other_body(value: object) -> bytes:
    """A body that is a value or a list: texts and bytes as they are, anything else in its encoding."""
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else encode(value)


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise MalformedData("this section must be a list")
    return value


def _map(value: object) -> dict[object, object]:
    if not isinstance(value, dict):
        raise MalformedData("this section must be a map")
    return value
