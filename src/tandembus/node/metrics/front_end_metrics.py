"""Connections, links and their credit; and what the meter of this process has counted, pairing among it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from tandembus.front_end.amqp.front_end import AmqpFrontEnd
from tandembus.front_end.listener import Refusal
from tandembus.metering.meter import Meter
from tandembus.metering.slot import COMPLETE, FAILOVER, PING, SEND, SYPHON, Count
from tandembus.node.front_door import FrontDoor
from tandembus.node.metrics import families
from tandembus.prometheus import Exposition

SLICE: Final = 200
"""Connections looked at before others have their turn."""
SENDER: Final = "sender"
RECEIVER: Final = "receiver"
HOME: Final = "home"
OUT: Final = "out"


async def tell_front_end(door: FrontDoor, meter: Meter, out: Exposition) -> None:
    await tell_connections(door.front_end, door.open_count, out)
    for refusal in Refusal:
        out.add(families.REFUSED_CONNECTIONS, door.refusals[refusal], refusal.value)
    for (protocol, reason), count in sorted(door.front_end.refusals.counts.items()):
        out.add(families.REFUSALS, count, protocol, reason)
    tell_pairing(meter, int(door.front_end.pings.refused_count), out)


async def tell_connections(front_end: AmqpFrontEnd, open_count: int, out: Exposition) -> None:
    links: Counter[str] = Counter({SENDER: 0, RECEIVER: 0})
    credit: Counter[str] = Counter({SENDER: 0, RECEIVER: 0})
    syphons: Counter[str] = Counter({HOME: 0, OUT: 0})
    for number, connection in enumerate(front_end.connections(), 1):
        for link in connection.entity_links():
            role = SENDER if link.is_sender else RECEIVER
            links[role] += 1
            credit[role] += link.credit
            if link.reason == SYPHON:
                syphons[HOME if link.is_sender else OUT] += 1
        if number % SLICE == 0:
            await asyncio.sleep(0)
    out.add(families.CONNECTIONS, open_count)
    out.add(families.AMQP_CONNECTIONS, front_end.connection_count)
    for role in (SENDER, RECEIVER):
        out.add(families.LINKS, links[role], role)
        out.add(families.CREDIT, credit[role], role)
    for direction in (HOME, OUT):
        out.add(families.SYPHON_LINKS, syphons[direction], direction)


def tell_meter(meter: Meter, out: Exposition) -> None:
    for (operation, reason), count in sorted(meter.cumulative().items()):
        out.add(families.OPERATIONS, count.operations, operation, reason)
        out.add(families.OPERATION_MESSAGES, count.messages, operation, reason)
        out.add(families.OPERATION_BYTES, count.size_bytes, operation, reason)


def tell_pairing(meter: Meter, refused_pings: int, out: Exposition) -> None:
    """Of a front end: nobody else sees them."""
    counted, none = meter.cumulative(), Count()
    out.add(families.PINGS, counted.get((SEND, PING), none).messages, "accepted")
    out.add(families.PINGS, refused_pings, "refused")
    out.add(families.BACKLOG_IN, counted.get((SEND, FAILOVER), none).messages)
    out.add(families.SYPHONED, counted.get((SEND, SYPHON), none).messages, HOME)
    out.add(families.SYPHONED, counted.get((COMPLETE, SYPHON), none).messages, OUT)
