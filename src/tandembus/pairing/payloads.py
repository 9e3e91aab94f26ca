"""Encoded messages and their backlog form (N8): only what the rules in `aliases.py` name is touched.

Everything else, bodies and properties of any type included, goes as the bytes that came. That is faster than building
messages, and it is the only way to keep every type, so both ports of the syphon move messages in this form.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tandembus.amqp.encoding.codec import decode, encode
from tandembus.amqp.encoding.descriptors import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from tandembus.amqp.encoding.message_parts import (
    CutMap,
    Section,
    cut_map,
    list_fields,
    list_of,
    map_of,
    split_message,
)
from tandembus.amqp.encoding.values import Typed, symbol, timestamp, uint
from tandembus.client.messages import GIVEN_BY_THE_SERVICE, LOCKED_UNTIL, MESSAGE_STATE, SEQUENCE_NUMBER
from tandembus.errors import MalformedData
from tandembus.pairing.aliases import (
    MALFORMED_MESSAGE,
    MAX_TIMESTAMP_MS,
    PATH,
    RESERVED,
    Aliases,
    MalformedBacklogMessage,
    aliases_to_keep,
    read_aliases,
    shown,
    why_not_a_path,
)
from tandembus.pairing.errors import ReservedPropertyName

NULL: Final = b"\x40"
TTL: Final = 2
"""Places of fields in the header and in the properties."""
DELIVERY_COUNT: Final = 4
ABSOLUTE_EXPIRY_TIME: Final = 8
CREATION_TIME: Final = 9
GROUP_ID: Final = 10
MAX_HEADER_TTL_MS: Final = 0xFFFFFFFF

SCHEDULED: Final = "x-opt-scheduled-enqueue-time"
_SCHEDULED_KEY: Final = encode(symbol(SCHEDULED))
_RESERVED_NAMES: Final = {name.encode(): name for name in RESERVED}
_SCHEDULE_NAMES: Final = {SCHEDULED.encode(): SCHEDULED}
_SERVICE_NAMES: Final = {name.encode(): name for name in (*GIVEN_BY_THE_SERVICE, SCHEDULED)}
_BROWSED_NAMES: Final = {name.encode(): name for name in (SEQUENCE_NUMBER, MESSAGE_STATE)}
_PATH_NAMES: Final = {PATH.encode(): PATH}
_LOCK_NAMES: Final = {LOCKED_UNTIL.encode(): LOCKED_UNTIL}
_EMPTY: Final = CutMap(0, b"", {})
DEFERRED_STATE: Final = 1
SCHEDULED_STATE: Final = 2


class HomeBound(NamedTuple):
    """A received backlog message, read: where it belongs, what to send there, and its place in the backlog queue."""

    path: str
    payload: bytes
    sequence_number: int
    delivery_count: int
    is_home: bool


class Browsed(NamedTuple):
    """What a browsed message in a backlog queue tells. Without a path it is malformed."""

    path: str | None
    sequence_number: int
    delivery_count: int
    is_deferred: bool
    is_scheduled: bool = False


class _Parts:
    """A message taken apart: the sections that are looked into, and the bytes of all that follow them."""

    __slots__ = ("annotations", "application", "delivery", "header", "payload", "properties", "rest")

    def __init__(self, payload: bytes) -> None:
        self.payload: Final = payload
        self.header: Section | None = None
        self.delivery: Section | None = None
        self.annotations: Section | None = None
        self.properties: Section | None = None
        self.application: Section | None = None
        rest: list[bytes] = []
        for section in split_message(payload):
            code = section.code
            if code == HEADER:
                self.header = section
            elif code == MESSAGE_ANNOTATIONS:
                self.annotations = section
            elif code == PROPERTIES:
                self.properties = section
            elif code == APPLICATION_PROPERTIES:
                self.application = section
            elif code == DELIVERY_ANNOTATIONS:
                self.delivery = section
            else:
                rest.append(payload[section.at : section.end])
        self.rest: Final = rest

    def fields(self, section: Section | None) -> list[bytes]:
        return [] if section is None else list_fields(self.payload, section)

    def cut(self, section: Section | None, names: dict[bytes, str]) -> CutMap:
        return _EMPTY if section is None else cut_map(self.payload, section, names)

    def whole(self, section: Section | None) -> bytes:
        return b"" if section is None else self.payload[section.at : section.end]


def to_backlog(payload: bytes, path: str) -> bytes:
    """The message as it can sit in a backlog queue. Raises `ReservedPropertyName`, `ValueError` for a path that cannot
    be an entity's and for what could not come home, `MalformedData`."""
    if (wrong := why_not_a_path(path)) is not None:
        raise ValueError(f"{shown(path)} cannot be sent to: {wrong}")
    parts = _Parts(payload)
    application = parts.cut(parts.application, _RESERVED_NAMES)
    for name in application.taken:
        raise ReservedPropertyName(name)
    header, properties = parts.fields(parts.header), parts.fields(parts.properties)
    annotations = parts.cut(parts.annotations, _SCHEDULE_NAMES)
    time_to_live_ms = _take_time_to_live(header, properties)
    aliases = aliases_to_keep(path, _take_session_id(properties), time_to_live_ms, _schedule_in(annotations))
    added = [encode(name) + encode(value) for name, value in aliases.properties().items()]
    return b"".join(
        (
            b"" if parts.header is None else list_of(HEADER, header),
            parts.whole(parts.delivery),
            map_of(MESSAGE_ANNOTATIONS, annotations.entries, annotations.count),
            b"" if parts.properties is None else list_of(PROPERTIES, properties),
            map_of(
                APPLICATION_PROPERTIES,
                application.entries + b"".join(added),
                application.count + 2 * len(added),
            ),
            *parts.rest,
        )
    )


def from_backlog(payload: bytes) -> HomeBound:
    """Where a received backlog message belongs, and the message to send there. Raises `MalformedBacklogMessage`."""
    try:
        return _from_backlog(payload)
    except MalformedData as error:
        raise MalformedBacklogMessage(MALFORMED_MESSAGE, f"The message cannot be read: {error}.") from error


def browsed(payload: bytes) -> Browsed:
    """Of a message that was only looked at; nothing is checked. Raises `MalformedData`."""
    parts = _Parts(payload)
    annotations = parts.cut(parts.annotations, _BROWSED_NAMES).taken
    path = parts.cut(parts.application, _PATH_NAMES).taken.get(PATH)
    told = annotations.get(MESSAGE_STATE)
    state = told.value if isinstance(told, Typed) else told
    return Browsed(
        path if isinstance(path, str) else None,
        _number_in(annotations, SEQUENCE_NUMBER),
        _number(parts.fields(parts.header), DELIVERY_COUNT) or 0,
        state == DEFERRED_STATE,
        state == SCHEDULED_STATE,
    )


def locked_until(payload: bytes) -> float | None:
    """Until when a received message is locked, as the secondary's clock says. Raises `MalformedData`."""
    parts = _Parts(payload)
    value = parts.cut(parts.annotations, _LOCK_NAMES).taken.get(LOCKED_UNTIL)
    at_ms = value.value if isinstance(value, Typed) else value
    return at_ms / 1000 if isinstance(at_ms, int) else None


def _from_backlog(payload: bytes) -> HomeBound:
    parts = _Parts(payload)
    application = parts.cut(parts.application, _RESERVED_NAMES)
    aliases = read_aliases(application.taken)
    annotations = parts.cut(parts.annotations, _SERVICE_NAMES)
    header = parts.fields(parts.header)
    delivery = parts.cut(parts.delivery, _SERVICE_NAMES)
    had_time_to_live = len(header) > TTL and header[TTL] != NULL
    sections = (
        _header_home(header[: TTL + 1], aliases.time_to_live_ms),
        map_of(DELIVERY_ANNOTATIONS, delivery.entries, delivery.count),
        _annotations_home(annotations, aliases.scheduled_ms),
        _properties_home(parts, aliases, had_time_to_live),
        map_of(APPLICATION_PROPERTIES, application.entries, application.count),
        *parts.rest,
    )
    number = _number_in(annotations.taken, SEQUENCE_NUMBER)
    return HomeBound(aliases.path, b"".join(sections), number, _number(header, DELIVERY_COUNT) or 0, aliases.is_home)


def _header_home(fields: list[bytes], time_to_live_ms: int | None) -> bytes:
    """The header without what the secondary put in: its own time to live, first acquirer, delivery count."""
    if len(fields) > TTL:
        fields[TTL] = NULL
    if time_to_live_ms is not None:
        _set(fields, TTL, encode(uint(min(time_to_live_ms, MAX_HEADER_TTL_MS))))
    return list_of(HEADER, fields) if fields else b""


def _annotations_home(annotations: CutMap, scheduled_ms: int | None) -> bytes:
    if scheduled_ms is None:
        return map_of(MESSAGE_ANNOTATIONS, annotations.entries, annotations.count)
    entry = _SCHEDULED_KEY + encode(timestamp(scheduled_ms))
    return map_of(MESSAGE_ANNOTATIONS, annotations.entries + entry, annotations.count + 2)


def _properties_home(parts: _Parts, aliases: Aliases, had_time_to_live: bool) -> bytes:
    """As the bytes that came, unless there is a session or a time to live to restore."""
    if aliases.session_id is None and aliases.time_to_live_ms is None and not had_time_to_live:
        return parts.whole(parts.properties)
    fields = parts.fields(parts.properties)
    if had_time_to_live and len(fields) > ABSOLUTE_EXPIRY_TIME:
        fields[ABSOLUTE_EXPIRY_TIME] = NULL  # The secondary's own, from its default time to live.
    if aliases.time_to_live_ms is not None:
        _set_expiry(fields, aliases.time_to_live_ms)
    if aliases.session_id is not None:
        _set(fields, GROUP_ID, encode(aliases.session_id))
    return list_of(PROPERTIES, fields)


def _set_expiry(fields: list[bytes], time_to_live_ms: int) -> None:
    """A time to live beyond 49 days does not fit the header: the difference of the two times says what was meant.
    Strangers may have written both: their sum need not be a time."""
    created_at = _number(fields, CREATION_TIME)
    if created_at is not None:
        fields[ABSOLUTE_EXPIRY_TIME] = encode(timestamp(min(created_at + time_to_live_ms, MAX_TIMESTAMP_MS)))


def _take_session_id(properties: list[bytes]) -> str | None:
    if len(properties) <= GROUP_ID or properties[GROUP_ID] == NULL:
        return None
    value, _ = decode(properties[GROUP_ID])
    if not isinstance(value, str):
        raise MalformedData("group-id is not a string")
    properties[GROUP_ID] = NULL
    return value


def _take_time_to_live(header: list[bytes], properties: list[bytes]) -> int | None:
    time_to_live_ms = _number(header, TTL)
    if time_to_live_ms is None:
        return None
    header[TTL] = NULL
    created_at, expires_at = _number(properties, CREATION_TIME), _number(properties, ABSOLUTE_EXPIRY_TIME)
    if created_at is None or expires_at is None:
        return time_to_live_ms
    properties[ABSOLUTE_EXPIRY_TIME] = NULL
    is_longer = time_to_live_ms == MAX_HEADER_TTL_MS and expires_at - created_at > time_to_live_ms
    return expires_at - created_at if is_longer else time_to_live_ms


def _schedule_in(annotations: CutMap) -> int | None:
    value = annotations.taken.get(SCHEDULED)
    if value is None:
        return None
    at_ms = value.value if isinstance(value, Typed) else value
    if not isinstance(at_ms, int):
        raise MalformedData(f"{SCHEDULED} is not a time")
    return at_ms


def _number(fields: list[bytes], index: int) -> int | None:
    if len(fields) <= index or fields[index] == NULL:
        return None
    value, _ = decode(fields[index])
    if not isinstance(value, int):
        raise MalformedData("a field of the message is not a number")
    return value


def _number_in(annotations: dict[str, object], name: str) -> int:
    value = annotations.get(name)
    return value if isinstance(value, int) else 0


def _set(fields: list[bytes], index: int, value: bytes) -> None:
    fields.extend([NULL] * (index + 1 - len(fields)))
    fields[index] = value
