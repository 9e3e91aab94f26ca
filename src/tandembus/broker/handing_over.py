"""Giving messages to those who have credit: what is in memory first, then on from the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tandembus.broker.consumers import LaneConsumers
from tandembus.broker.fragment import Fragment
from tandembus.broker.reading import next_to_read, read_messages
from tandembus.broker.serving import serve_from_memory, wants_reading
from tandembus.large_messages import LARGE_BYTES
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
        await _refill(broker, fragment, consumers)
        fragment.pump()
        if before == (consumers.lane.window_end, len(consumers.lane.returned)):
            break
    lane = consumers.lane
    if lane.ready and len(lane.ready[-1].sections) > LARGE_BYTES:
        lane.evict()  # whoever it was read for does not want it any more


async def _refill(broker: MessageBroker, fragment: Fragment, consumers: LaneConsumers) -> None:
    settings, lane = fragment.settings, consumers.lane
    were_returned = len(lane.returned) > 0
    numbers = lane.plan_refill(max(settings.window_messages - len(lane.ready), 1))
    if not numbers:
        return
    room = max(settings.window_bytes - lane.ready_bytes, 1)
    to_read: Sequence[int] = numbers
    if settings.may_have_large:
        to_read = await next_to_read(
            broker, lane, numbers, lambda _, size_bytes: not lane.ready and consumers.has_room_for(size_bytes)
        )
    records = await read_messages(broker, fragment, lane, to_read, int(room)) if to_read else []
    lane.unplan(numbers[len(records) :], were_returned)
    lane.refill([record for record in records if isinstance(record, Message)])
