"""What messages of a backlog queue say, sorted by what is to be done with them. Pure: every syphon reads them so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tandembus.errors import MalformedData
from tandembus.pairing.aliases import MalformedBacklogMessage
from tandembus.pairing.payloads import browsed, from_backlog
from tandembus.pairing.syphon_messages import Delivery, Held
from tandembus.pairing.syphon_rules import destination_of


class WhatWasRead(NamedTuple):
    held: list[Held]
    """In their order."""
    malformed: dict[tuple[str, str], list[Delivery]]
    """No syphon can bring these home: by reason and description of their dead letters."""


def read_deliveries(deliveries: Sequence[Delivery], given_back: Mapping[int, int]) -> WhatWasRead:
    """`given_back`: the delivery counts of messages that the reader gave back, by sequence number. Who counts one more
    was in somebody else's hands."""
    held: list[Held] = []
    malformed: dict[tuple[str, str], list[Delivery]] = {}
    for delivery in deliveries:
        try:
            path, payload, number, delivery_count, is_home = from_backlog(delivery.payload)
        except MalformedBacklogMessage as error:
            malformed.setdefault((error.reason, error.description), []).append(delivery)
            continue
        was_here_before = is_home or delivery_count > given_back.get(number, 0)
        held.append(Held(delivery, path, payload, number, was_here_before, is_home, delivery_count))
    return WhatWasRead(held, malformed)


def number_of(delivery: Delivery) -> int | None:
    """Of a message that may be unreadable altogether."""
    try:
        return browsed(delivery.payload).sequence_number
    except MalformedData:
        return None


def by_destination(held: Iterable[Held]) -> dict[str, list[Held]]:
    groups: dict[str, list[Held]] = {}
    group: list[Held] = []
    path: str | None = None
    for each in held:
        if each.path != path:
            path = each.path
            group = groups.setdefault(destination_of(path), [])
        group.append(each)
    return groups


def refused_alike(refused: Iterable[tuple[Held, str, str]]) -> dict[tuple[str, str], list[Held]]:
    """By reason and description, so that they become dead letters together: others wait for their turn meanwhile."""
    alike: dict[tuple[str, str], list[Held]] = {}
    for each, reason, description in refused:
        alike.setdefault((reason, description), []).append(each)
    return alike
