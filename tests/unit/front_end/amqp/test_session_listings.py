"""Listings of sessions that a client is in the middle of."""

from __future__ import annotations

from tandembus.amqp.encoding import int_, timestamp
from tandembus.amqp.encoding.sections import data_section, properties_section
from tandembus.descriptions import QueueDescription
from tandembus.front_end.amqp.session_requests import EVERY_SESSION_MS, MOST_LISTINGS
from tests.covers import covers
from tests.unit.front_end.amqp.transacting import Server, TransactionClient

CHANNELS = range(2, 2 + MOST_LISTINGS + 2)


async def listed(client: TransactionClient, node: int, channel: int, skip: int) -> int:
    body = {"last-updated-time": timestamp(EVERY_SESSION_MS), "skip": int_(skip), "top": int_(1)}
    return (await client.ask(node, "com.microsoft:get-message-sessions", body, channel=channel))[0]


@covers("M7", "M14")
async def test_a_connection_remembers_a_few_and_none_that_is_complete(
    server: Server, client: TransactionClient
) -> None:
    await server.life.namespace.create_queue(QueueDescription("baskets", requires_session=True))
    sender = await client.sender("baskets")
    for name in ("one", "two"):
        await client.answer_to(client.transfer(sender, properties_section(name, group_id=name) + data_section(b"a")))
    nodes: dict[int, int] = {}
    for channel in CHANNELS:
        await client.begin(channel)
        nodes[channel] = await client.node("baskets", channel)
        assert await listed(client, nodes[channel], channel, skip=0) == 200
    assert len(client.connection._listings) == MOST_LISTINGS
    for channel in CHANNELS:
        assert await listed(client, nodes[channel], channel, skip=1) == 200
        assert await listed(client, nodes[channel], channel, skip=2) == 204
    assert len(client.connection._listings) == 0
