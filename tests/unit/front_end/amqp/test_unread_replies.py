"""Answers to requests that the client gives no credit for."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tandembus.amqp.encoding.sections import amqp_value_section, application_properties_section, properties_section
from tandembus.front_end.amqp.reply_link import MAX_WAITING_BYTES
from tandembus.limits import Limits
from tests.covers import covers
from tests.unit.amqp.engine.peers import DETACH, DISPOSITION
from tests.unit.front_end.amqp.transacting import Server
from tests.unit.namespace.namespace_lives import Machine

SESSIONS = (2, 3, 4)
REQUESTS = 10


@covers("M14")
async def test_all_nodes_of_a_connection_together_keep_only_so_much_of_them(tmp_path: Path) -> None:
    async with Machine(Limits()).life() as life:
        client = await Server(life, tmp_path).client("root", "orders")
        sender = await client.sender("orders")
        for name in "abcd":
            await client.send(sender, name, padding=60_000)
        body = amqp_value_section({"from-sequence-number": 1, "message-count": 4})
        peek = application_properties_section({"operation": "com.microsoft:peek-message"})
        receivers: list[int] = []
        for channel in SESSIONS:
            await client.begin(channel)
            receivers.append(await client.receiver("orders/$management", channel=channel))
            node = await client.sender("orders/$management", channel=channel)
            for number in range(REQUESTS):
                client.transfer(node, properties_section(f"{number}") + peek + body, channel=channel)
                await client.expect(DISPOSITION)
                await asyncio.gather(*client.connection._tasks)
        host = client.connection.host
        assert 240_000 * REQUESTS < host.waiting_reply_bytes <= MAX_WAITING_BYTES
        client.detach(receivers[0], SESSIONS[0])
        await client.expect(DETACH)
        for channel in SESSIONS[1:]:
            client.end(channel)
        assert host.waiting_reply_bytes == 0
