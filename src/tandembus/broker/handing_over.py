"""Giving messages to those who have credit: what is in memory first, then on from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandembus.broker.consumers import LaneConsumers
from tandembus.broker.fragment import Fragment
from tandembus.broker.lane import Lane
from tandembus.broker.reading import read_messages
from tandembus.broker.serving import serve_from_memory, wants_reading
from tandembus.message import Message

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker


async def hand_over(broker: MessageBroker, fragment: Fragment) -> None:
    """Deliver what is ready; read on while somebody has credit for more."""
    if not serve_from_memory(fragment):
        await _read_on(broker, fragment)


async def _read_on(broker: MessageBroker, fragment: Fragment) -> None:
    for consumers in fragment.lane_consumers:
        if consumers.sessions is not None:
            broker.session_serving.hand_over(fragment)
        elif not consumers.is_empty():
            await _serve_lane(broker, fragment, consumers)
            consumers.finish_drains()


async def _serve_lane(broker: MessageBroker, fragment: Fragment, consumers: LaneConsumers) -> None:
    fragment.pump()
    while wants_reading(fragment, consumers):
        before = consumers.lane.window_end, len(consumers.lane.returned)
        await _refill(broker, fragment, consumers.lane)
        fragment.pump()
        if before == (consumers.lane.window_end, len(consumers.lane.returned)):
            break


async def _refill(broker: MessageBroker, fragment: Fragment, lane: Lane) -> None:
    settings = fragment.settings
    were_returned = len(lane.returned) > 0
    numbers = lane.plan_refill(max(settings.window_messages - len(lane.ready), 1))
    if not numbers:
        return
    room = max(settings.window_bytes - lane.ready_bytes, 1)
    records = await read_messages(broker, fragment, lane, numbers, int(room))
    lane.unplan(numbers[len(records) :], were_returned)
    lane.refill([record for record in records if isinstance(record, Message)])
