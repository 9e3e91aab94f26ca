"""The form in which a message leaves for another entity.

Messages sent via an entity wait in its transfer lane, each with its destination. That is kept in an annotation that
only the broker may set: it is durable with the message, a message that ends among the transfer dead letters still shows
where it was meant to go, and reading the message anew drops it.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tandembus.amqp.encoding.codec import decode, encode
from tandembus.amqp.encoding.values import symbol
from tandembus.message import (
    HEADER_FLAGS,
    IS_SCHEDULED,
    TRANSFER_DESTINATION,
    Message,
    parse_message,
    replace_section,
)
from tandembus.message_encoding import with_application_properties

_KEY: Final = TRANSFER_DESTINATION.decode()
_DEAD_LETTER_SOURCE: Final = "x-opt-deadletter-source"
_LONGEST_KEY: Final = 65_535
"""Ids and keys were checked when the message came; limits that have changed since do not make it a wrong one."""


def set_destination(message: Message, path: str) -> None:
    """Say in the message itself where it is to go."""
    _annotate(message, _KEY, path)


def as_forwarded(message: Message, dead_letter_source: str) -> Message:
    """A message of any lane as the next entity takes it. `dead_letter_source` names the entity whose dead letter it
    is; one that was a dead letter earlier on its way keeps saying so."""
    changed = message.application_properties
    sent = as_sent(with_application_properties(message, changed) if changed else message, _LONGEST_KEY)
    sent.hops = message.hops + 1
    source = dead_letter_source or _annotations(message, False).get(_DEAD_LETTER_SOURCE)
    if isinstance(source, str) and source:
        _annotate(sent, _DEAD_LETTER_SOURCE, source)
    return sent


def _annotate(message: Message, key: str, value: str) -> None:
    annotations = _annotations(message, True)
    annotations[symbol(key)] = value
    section = b"\x00\x53\x72" + encode(annotations)
    moved: i64 = i64(len(section)) - message.annotations_end
    replace_section(message, 0, message.annotations_end, section)
    message.annotations_end += moved
    message.properties_end += moved
    message.application_end += moved


def destination_of(message: Message) -> str:
    """Where a message of a transfer lane is to go; empty where none was set."""
    path = _annotations(message, False).get(_KEY)
    return path if isinstance(path, str) else ""


def _annotations(message: Message, is_typed: bool) -> dict[object, object]:
    if message.annotations_end == 0:
        return {}
    annotations, _ = decode(message.sections, 3, is_typed)
    assert isinstance(annotations, dict)
    return annotations


def as_sent(message: Message, max_key_characters: i64) -> Message:
    """A message of a transfer lane as its destination takes it: as its sender sent it, with its time to live and its
    schedule, which count from its arrival there."""
    sent = parse_message(message.sections, max_key_characters)
    sent.priority = message.priority
    sent.flags |= message.flags & HEADER_FLAGS
    sent.hops = message.hops
    sent.original_number = message.original_number
    if message.expires_at > 0:
        is_scheduled = message.flags & IS_SCHEDULED != 0
        sent.ttl_ms = message.expires_at if is_scheduled else message.expires_at - message.enqueued_at
    return sent
