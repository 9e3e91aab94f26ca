"""Whose messages a request is about: its parameters `path` and `sub_queue`."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web

from tandembus.errors import EntityNotFound, InvalidArgument, InvalidOperation
from tandembus.front_end.http.api.routes import asked
from tandembus.front_end.http.values import parse_integer
from tandembus.namespace.entity import Entity
from tandembus.namespace.paths import EntityAddress, SubQueue, parse_address
from tandembus.store.messaging_store import MAIN

SUB_QUEUES: Final = {
    "main": SubQueue.MAIN,
    "dead-letter": SubQueue.DEAD_LETTER,
    "transfer-dead-letter": SubQueue.TRANSFER_DEAD_LETTER,
}
LARGEST_NUMBER: Final = 2**63 - 1
_SEQUENCE_NUMBER: Final = re.compile(r"\d{1,19}", re.ASCII)


def place_of(request: web.Request) -> EntityAddress:
    name = request.query.get("sub_queue", "main")
    sub_queue = SUB_QUEUES.get(name)
    if sub_queue is None:
        raise InvalidArgument(f"sub_queue: '{name[:64]}' is none of {', '.join(SUB_QUEUES)}.")
    return address_of(asked(request, "path") + sub_queue.value)


def address_of(path: str) -> EntityAddress:
    address = parse_address("/" + path)
    if address.is_management:
        raise EntityNotFound("There are no messages at a management node.")
    return address


def has_sessions(entity: Entity, lane: int) -> bool:
    """Whether messages there belong to whoever holds their session."""
    return entity.requires_session and lane == MAIN


def check_can_take_out(entity: Entity, lane: int) -> None:
    """Raises InvalidOperation where messages cannot be taken out one by one, to be put elsewhere."""
    entity.check_can_receive(lane)
    if has_sessions(entity, lane):
        raise InvalidOperation(f"'{entity.name}' requires sessions: whoever holds a session moves its messages.")


def integer_in(request: web.Request, name: str, default: int, least: int, most: int) -> int:
    text = request.query.get(name)
    number = default if text is None else parse_integer(text, name)
    if not least <= number <= most:
        raise InvalidArgument(f"{name} is {number}; it must be from {least} to {most}.")
    return number


def sequence_number(text: object, name: str) -> int:
    """A text, as all of them are in JSON here; a number is taken as well."""
    number = text if isinstance(text, int) and not isinstance(text, bool) else -1
    if isinstance(text, str) and _SEQUENCE_NUMBER.fullmatch(text):
        number = int(text)
    if not 0 <= number <= LARGEST_NUMBER:
        raise InvalidArgument(f"{name}: '{str(text)[:64]}' is no sequence number.")
    return number
