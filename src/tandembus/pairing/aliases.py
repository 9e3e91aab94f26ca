"""What a message must give up to sit in a backlog queue, and under which names it takes that along.

A backlog queue holds messages for many entities: sessions, times to live and schedules are those entities' business
and would only do harm there. So they become application properties, together with the path of the entity. Here stand
the names, their AMQP types and the checks, over plain values; `transfer.py` applies them to the SDK's messages,
`payloads.py` to encoded ones. What is read back is hostile: who may send to the secondary can write these properties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from uuid import UUID

from tandembus.amqp.encoding import values
from tandembus.amqp.encoding.values import TIMESTAMP, Typed, timestamp

PATH: Final = "x-ms-path"
SESSION_ID: Final = "x-ms-sessionid"
TIME_TO_LIVE: Final = "x-ms-timetolive"
SCHEDULED_ENQUEUE_TIME: Final = "x-ms-scheduledenqueuetimeutc"
ALIASES: Final = frozenset((PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED_ENQUEUE_TIME))
IS_HOME: Final = "x-tandembus-is-home"
"""Not an alias: a syphon that is stopped tells the next one by it that the primary has the message already, which is
only there because of deferred ones behind it."""
RESERVED: Final = ALIASES | {IS_HOME}

BACKLOG_PATH: Final = "{primary}/x-servicebus-transfer/{index}"
MAX_BACKLOG_QUEUES: Final = 1000
MAX_PATH_LENGTH: Final = 260
MAX_SESSION_ID_LENGTH: Final = 128
MAX_TTL_MS: Final = 922_337_203_685_477
"""The longest time span that the service knows."""
MAX_TIMESTAMP_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, behind which no date goes."""

NO_PATH: Final = "NoPath"
MALFORMED_PATH: Final = "MalformedPath"
MALFORMED_PROPERTY: Final = "MalformedProperty"
MALFORMED_MESSAGE: Final = "MalformedMessage"

_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~-]+", re.ASCII)
_SHOWN_LENGTH: Final = 100


class MalformedBacklogMessage(Exception):
    """A message that no syphon can bring home. Reason and description are for its dead letter."""

    def __init__(self, reason: str, description: str) -> None:
        super().__init__(f"{reason}: {description}")
        self.reason: Final = reason
        self.description: Final = description


@dataclass(frozen=True, slots=True)
class Aliases:
    """What a message takes along: where it was sent to, and what it had to give up."""

    path: str
    session_id: str | None = None
    time_to_live_ms: int | None = None
    scheduled_ms: int | None = None
    is_home: bool = False
    """Nothing that a message takes along: a syphon may have found that out since."""

    def properties(self) -> dict[str, object]:
        """The application properties with their AMQP types: str is a string, int a long."""
        found: dict[str, object] = {PATH: self.path}
        if self.session_id is not None:
            found[SESSION_ID] = self.session_id
        if self.time_to_live_ms is not None:
            found[TIME_TO_LIVE] = self.time_to_live_ms
        if self.scheduled_ms is not None:
            found[SCHEDULED_ENQUEUE_TIME] = timestamp(self.scheduled_ms)
        return found


def aliases_to_keep(
    path: str, session_id: str | None, time_to_live_ms: int | None, scheduled_ms: int | None
) -> Aliases:
    """Those of a message on its way into the backlog. What `read_aliases` would refuse is refused here (`ValueError`),
    where the sender hears of it: what the backlog has accepted must never end as a dead letter for its form. A
    schedule that is over is over, however long ago it was."""
    if session_id is not None and len(session_id) > MAX_SESSION_ID_LENGTH:
        raise ValueError(f"a session id has at most {MAX_SESSION_ID_LENGTH} characters, not {len(session_id)}")
    if time_to_live_ms is not None and not 0 <= time_to_live_ms <= MAX_TTL_MS:
        raise ValueError(f"a time to live is 0 to {MAX_TTL_MS} milliseconds, not {time_to_live_ms}")
    if scheduled_ms is not None and scheduled_ms > MAX_TIMESTAMP_MS:
        raise ValueError("a message is scheduled for the year 9999 at the latest")
    return Aliases(path, session_id, time_to_live_ms, None if scheduled_ms is None else max(scheduled_ms, 0))


def read_aliases(properties: Mapping[str, object]) -> Aliases:
    """The reverse of `Aliases.properties`. Raises `MalformedBacklogMessage`: a wrong type is not guessed at."""
    if len(properties) == 1 and isinstance(path := properties.get(PATH), str):
        return _only_path(path)
    return Aliases(
        _path_in(properties),
        _session_id_in(properties),
        _time_to_live_in(properties),
        _scheduled_in(properties),
        _is_home_in(properties),
    )


@lru_cache(maxsize=1024)
def _only_path(path: str) -> Aliases:
    """Of most messages, and the same for many of them."""
    return Aliases(_path_in({PATH: path}))


def backlog_path(primary_name: str, index: int) -> str:
    """The path of a backlog queue on the secondary."""
    return BACKLOG_PATH.format(primary=primary_name, index=index)


_TYPE_NAMES: Final[Mapping[int, str]] = {
    values.UBYTE: "ubyte",
    values.USHORT: "ushort",
    values.UINT: "uint",
    values.ULONG: "ulong",
    values.BYTE: "byte",
    values.SHORT: "short",
    values.INT: "int",
    values.LONG: "long",
    values.FLOAT: "float",
    values.CHAR: "char",
    values.TIMESTAMP: "timestamp",
    values.SYMBOL: "symbol",
    values.SHORT_SYMBOL: "symbol",
    values.ARRAY: "array",
}
_PYTHON_TYPE_NAMES: Final[Mapping[type, str]] = {
    str: "string",
    int: "long",
    bool: "boolean",
    float: "double",
    bytes: "binary",
    UUID: "uuid",
    list: "list",
    dict: "map",
}


@lru_cache(maxsize=1024)
def why_not_a_path(path: str) -> str | None:
    """What is wrong with the path of an entity to send to, relative to its namespace; None if nothing is.

    What passes can only name a queue or topic: no other host, no sub-queue, no node of the protocol, no subscription.
    """
    if not path:
        return "it is empty"
    if len(path) > MAX_PATH_LENGTH:
        return f"it has {len(path)} characters, more than {MAX_PATH_LENGTH}"
    for segment in path.split("/"):
        if not _SEGMENT.fullmatch(segment) or segment in (".", ".."):
            return f"{shown(segment)} is not a segment of an entity's path"
    if "subscriptions" in path.lower().split("/")[1:]:
        return "nothing can be sent to a subscription"
    return None


def shown(value: object) -> str:
    """For descriptions: strangers decide how long it is, and what is in it."""
    text = ascii(value)
    return text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "..."


def _typed(value: object) -> str:
    """With the name of its type, for descriptions of what is of the wrong one."""
    if isinstance(value, Typed):
        return f"the {_TYPE_NAMES.get(value.code, 'value')} {shown(value.value)}"
    return f"the {_PYTHON_TYPE_NAMES.get(type(value), 'value')} {shown(value)}"


def _path_in(properties: Mapping[str, object]) -> str:
    if PATH not in properties:
        raise MalformedBacklogMessage(NO_PATH, f"The message has no property {PATH}: nobody knows where it belongs.")
    path = properties[PATH]
    if not isinstance(path, str):
        raise MalformedBacklogMessage(MALFORMED_PATH, f"{PATH} must be a string, and is {_typed(path)}.")
    if (wrong := why_not_a_path(path)) is not None:
        raise MalformedBacklogMessage(MALFORMED_PATH, f"{PATH} is {shown(path)}: {wrong}.")
    return path


def _session_id_in(properties: Mapping[str, object]) -> str | None:
    if SESSION_ID not in properties:
        return None
    value = properties[SESSION_ID]
    if not isinstance(value, str) or len(value) > MAX_SESSION_ID_LENGTH:
        raise _wrong(SESSION_ID, f"a string of at most {MAX_SESSION_ID_LENGTH} characters", value)
    return value


def _time_to_live_in(properties: Mapping[str, object]) -> int | None:
    if TIME_TO_LIVE not in properties:
        return None
    value = properties[TIME_TO_LIVE]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TTL_MS:
        raise _wrong(TIME_TO_LIVE, f"a long of 0 to {MAX_TTL_MS} milliseconds", value)
    return value


def _scheduled_in(properties: Mapping[str, object]) -> int | None:
    if SCHEDULED_ENQUEUE_TIME not in properties:
        return None
    value = properties[SCHEDULED_ENQUEUE_TIME]
    if isinstance(value, Typed) and value.code == TIMESTAMP:
        at_ms = value.value
        if isinstance(at_ms, int) and 0 <= at_ms <= MAX_TIMESTAMP_MS:
            return at_ms
    raise _wrong(SCHEDULED_ENQUEUE_TIME, "a timestamp up to the year 9999", value)


def _is_home_in(properties: Mapping[str, object]) -> bool:
    value = properties.get(IS_HOME, False)
    if not isinstance(value, bool):
        raise _wrong(IS_HOME, "a boolean", value)
    return value


def _wrong(name: str, expected: str, value: object) -> MalformedBacklogMessage:
    return MalformedBacklogMessage(MALFORMED_PROPERTY, f"{name} must be {expected}, and is {_typed(value)}.")
