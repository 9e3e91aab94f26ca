"""How evenly one sender's messages lie in the fragments of a partitioned queue."""

import asyncio
from collections import Counter

from benchmarks.load_client import LoadClient
from benchmarks.tandembus_node import Tandembus
from tandembus.client import connect

FRAGMENTS = 16
NUMBER_BITS = 48
PAGE = 250
QUEUE = "evenness"


def spread_of(client: LoadClient, node: Tandembus, count: int) -> int:
    """Most minus least, after one sender has sent so many without a key."""
    node.create("queue", QUEUE, "--enable-partitioning")
    client.run(node.target(QUEUE), mode="send", count=count)
    held = asyncio.run(_held(node.connection_string))
    assert held.total() == count, f"{held.total()} of {count} messages are there"
    return max(held.values()) - min(held[index] for index in range(FRAGMENTS))


async def _held(connection_string: str) -> Counter[int]:
    held: Counter[int] = Counter()
    async with await connect(connection_string) as bus:
        management = await bus.management(QUEUE)
        after = 0
        while messages := await management.peek(after + 1, PAGE):
            held.update(message.sequence_number >> NUMBER_BITS for message in messages)
            after = messages[-1].sequence_number
    return held
