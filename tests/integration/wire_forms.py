"""Encoded messages compared as bytes: what came home from a backlog with what was sent directly."""

from __future__ import annotations

from tandembus.amqp.encoding.codec import decode, skip
from tandembus.amqp.encoding.descriptors import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from tandembus.amqp.encoding.message_parts import Section, cut_map, list_fields, split_message
from tandembus.client import ReceivedMessage, ServiceBus
from tandembus.client.messages import GIVEN_BY_THE_SERVICE

NULL = b"\x40"
SENDERS_HEADER_FIELDS = 3
"""Durable, priority and time to live; what follows is the service's."""
PAGE = 200
_SERVICE_NAMES = {name.encode(): name for name in GIVEN_BY_THE_SERVICE}

EXPIRES_AT, CREATED_AT = 8, 9
"""Of the properties: the service writes them anew, from the moment when it took the message."""

WireForm = list[tuple[int, list[bytes]]]


async def lying_in(bus: ServiceBus, path: str) -> list[ReceivedMessage]:
    """Everything in an entity, sessions and schedules included, as the bytes in which the service shows it."""
    management = await bus.management(path)
    found: list[ReceivedMessage] = []
    while some := await management.peek(found[-1].sequence_number + 1 if found else 0, PAGE):
        found += some
    await management.close()
    return found


def without_id(form: WireForm) -> WireForm:
    """For messages that were sent without one: the service gave them theirs."""
    return [(code, [NULL, *parts[1:]] if code == PROPERTIES else parts) for code, parts in form]


def wire_form(message: ReceivedMessage) -> WireForm:
    """Section by section: each field of a list, each entry of a map, the whole of a body. What is left out is the
    service's own, the widths of the lists and maps around it all, and the order of a map, which has none."""
    sections = split_message(message.payload)
    return [(one.code, parts) for one in sections if (parts := _parts(message.payload, one))]


def _parts(payload: bytes, section: Section) -> list[bytes]:
    if section.code == HEADER:
        return _said(list_fields(payload, section)[:SENDERS_HEADER_FIELDS])
    if section.code == PROPERTIES:
        return _said(_without_times(list_fields(payload, section)))
    if section.code in (MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES):
        return sorted(_entries(payload, section))
    return [] if section.code == DELIVERY_ANNOTATIONS else [payload[section.at : section.end]]


def _entries(payload: bytes, section: Section) -> list[bytes]:
    """Of a map, as the bytes that came."""
    names = _SERVICE_NAMES if section.code == MESSAGE_ANNOTATIONS else {}
    entries, at, found = cut_map(payload, section, names).entries, 0, list[bytes]()
    while at < len(entries):
        behind = skip(entries, skip(entries, at, len(entries)), len(entries))
        found.append(entries[at:behind])
        at = behind
    return found


def _without_times(fields: list[bytes]) -> list[bytes]:
    """In place of the two stands what lies between them: the time to live."""
    if len(fields) > CREATED_AT and NULL not in (fields[EXPIRES_AT], fields[CREATED_AT]):
        expires_at, created_at = (decode(fields[at])[0] for at in (EXPIRES_AT, CREATED_AT))
        assert isinstance(expires_at, int)
        assert isinstance(created_at, int)
        fields[EXPIRES_AT], fields[CREATED_AT] = b"%d ms later" % (expires_at - created_at), NULL
    return fields


def _said(fields: list[bytes]) -> list[bytes]:
    """Nulls at the end of a list go without saying."""
    while fields and fields[-1] == NULL:
        fields = fields[:-1]
    return fields
