"""Messages sent via an entity: they wait in its transfer lane, each with its destination, and leave from there.

The destination is kept in an annotation that only the broker may set: it is durable with the message, a message that
ends among the transfer dead letters still shows where it was meant to go, and reading the message anew drops it.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tandembus.amqp.encoding.codec import decode, encode
from tandembus.amqp.encoding.values import symbol
from tandembus.broker.changes import IS_SCHEDULED
from tandembus.message import TRANSFER_DESTINATION, Message, parse_message, replace_section

_KEY: Final = TRANSFER_DESTINATION.decode()


def set_destination(message: Message, path: str) -> None:
    """Say in the message itself where it is to go."""
    annotations = _annotations(message, True)
    annotations[symbol(_KEY)] = path
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
    sent.hops = message.hops
    sent.original_number = message.original_number
    if message.expires_at > 0:
        is_scheduled = message.flags & IS_SCHEDULED != 0
        sent.ttl_ms = message.expires_at if is_scheduled else message.expires_at - message.enqueued_at
    return sent
