"""The SDK's messages on their way into the backlog: pure, and always on a copy (N8).

The caller's message is never changed. Whatever the rules in `aliases.py` do not name goes along as it is: every other
property, annotation, body and footer. The way home is that of encoded messages only (`payloads.py`): the SDK forgets
types when it decodes.
"""

from __future__ import annotations

import calendar
import copy
import datetime
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from tandembus.amqp.encoding.values import Typed
from tandembus.pairing.aliases import (
    ALIASES,
    RESERVED,
    TIME_TO_LIVE,
    MalformedBacklogMessage,
    aliases_to_keep,
    backlog_path,
    shown,
    why_not_a_path,
)
from tandembus.pairing.errors import ReservedPropertyName

__all__ = [
    "ALIASES",
    "AnyMessage",
    "MalformedBacklogMessage",
    "backlog_path",
    "encoded_size",
    "to_backlog",
    "why_not_a_path",
]

AnyMessage: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]
"""What the SDK's senders take for a message."""

SCHEDULED: Final = b"x-opt-scheduled-enqueue-time"
MEASURING_LIMIT: Final = 1 << 40


def to_backlog(message: AnyMessage, path: str) -> ServiceBusMessage:
    """A copy that can sit in a backlog queue, and knows that it was sent to the entity at `path`.

    Raises `ReservedPropertyName` for a property of the caller's with one of our names, `ValueError` for a path that
    cannot be an entity's and for what could not come home.
    """
    if (wrong := why_not_a_path(path)) is not None:
        raise ValueError(f"{shown(path)} cannot be sent to: {wrong}")
    raw = _copy_of(message)
    properties = dict(raw.application_properties or {})
    for name in properties:
        if _text(name) in RESERVED:
            raise ReservedPropertyName(_text(name))
    aliases = aliases_to_keep(path, _take_session_id(raw), _take_time_to_live(raw), _take_schedule(raw))
    for alias, value in aliases.properties().items():
        properties[alias] = _for_sdk(alias, value)
    raw.application_properties = properties
    return _message_of(raw)


def encoded_size(message: ServiceBusMessage) -> int:
    """Bytes of the message as the SDK sends it, with the few that stand around it in a batch."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=MEASURING_LIMIT)
    batch.add_message(message)
    return batch.size_in_bytes


def _copy_of(message: AnyMessage) -> AmqpAnnotatedMessage:
    """Everything we may change is copied; bodies and values are shared, since nobody changes them."""
    if isinstance(message, Mapping):
        return ServiceBusMessage(**message).raw_amqp_message
    given = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
    raw = copy.copy(given)
    if raw.header is not None:
        raw.header = copy.copy(raw.header)
    if raw.properties is not None:
        raw.properties = copy.copy(raw.properties)
    if raw.annotations is not None:
        raw.annotations = dict(raw.annotations)
    if raw.application_properties is not None:
        raw.application_properties = dict(raw.application_properties)
    return raw


def _message_of(raw: AmqpAnnotatedMessage) -> ServiceBusMessage:
    # The SDK's own way to make a message of an annotated one; it encodes when the message is sent.
    return ServiceBusMessage(None, message=None, raw_amqp_message=raw)


def _take_session_id(raw: AmqpAnnotatedMessage) -> str | None:
    if raw.properties is None or raw.properties.group_id is None:
        return None
    session_id = _text(raw.properties.group_id)
    raw.properties.group_id = None
    return session_id


def _take_time_to_live(raw: AmqpAnnotatedMessage) -> int | None:
    if raw.header is None or raw.header.time_to_live is None:
        return None
    time_to_live_ms = int(raw.header.time_to_live)
    raw.header.time_to_live = None
    if raw.properties is not None:
        # The SDK derives it from the time to live, and a service may take it for one.
        raw.properties.absolute_expiry_time = None
    return time_to_live_ms


def _take_schedule(raw: AmqpAnnotatedMessage) -> int | None:
    scheduled: object = None
    for name in (SCHEDULED, SCHEDULED.decode()):
        if raw.annotations is not None and name in raw.annotations:
            scheduled = raw.annotations.pop(name)
    return None if scheduled is None else _milliseconds(scheduled)


def _milliseconds(value: object) -> int:
    """A time in any of the ways in which the SDK takes one; one without a zone is in UTC, as it is there."""
    if isinstance(value, dict):
        value = value.get("VALUE")
    if isinstance(value, datetime.datetime):
        return calendar.timegm(value.utctimetuple()) * 1000 + value.microsecond // 1000
    if isinstance(value, int):
        return value
    raise ValueError(f"{shown(value)} is not a time to enqueue a message at")


def _for_sdk(alias: str, value: object) -> object:
    """An alias with its type: left alone, the SDK would make a long an int."""
    if alias == TIME_TO_LIVE:
        return _typed("LONG", value)
    return _typed("TIMESTAMP", value.value) if isinstance(value, Typed) else value


def _typed(kind: str, value: object) -> dict[str, object]:
    """A value with an AMQP type of its own, in the form that the SDK's encoder knows."""
    return {"TYPE": kind, "VALUE": value}


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
