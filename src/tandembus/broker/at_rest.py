"""What a fragment holds that nobody has opened: out of the records of its blocks, for whoever watches."""

from __future__ import annotations

from tandembus.broker.figures import holding_of
from tandembus.broker.lane_blocks import LaneBlocks
from tandembus.broker.message_broker import MessageBroker
from tandembus.store.messaging_store import LANES, MAIN, Place


async def look_at_rest(broker: MessageBroker, key: int, block_size: int, topic_key: int | None) -> None:
    """`topic_key`: of the fragment of the topic, which is its own for a topic and another one for a subscription; None
    for a queue. Raises StoreUnavailable."""
    store, lanes = broker.store, []
    for code in LANES:
        lane = LaneBlocks(key, code, block_size)
        lane.load_blocks(list(await store.blocks(key, code)))
        lanes.append(lane)
    is_topic = topic_key == key
    oldest = Place(topic_key or key, MAIN, 0 if is_topic else int(lanes[MAIN].oldest()))
    (oldest_at,) = await store.enqueued_times([oldest]) if oldest.number > 0 else (0,)
    broker.figures.found(key, holding_of(lanes, is_topic), oldest, oldest_at)
