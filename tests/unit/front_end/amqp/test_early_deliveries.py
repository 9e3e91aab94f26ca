"""What clients send before their attach is answered."""

from __future__ import annotations

from pathlib import Path

from tandembus.amqp.encoding import Described, ubyte, uint
from tandembus.amqp.encoding.sections import data_section
from tandembus.limits import Limits
from tests.covers import covers
from tests.unit.amqp.engine.peers import ATTACH
from tests.unit.front_end.amqp.transacting import Server
from tests.unit.namespace.namespace_lives import Machine


@covers("M14")
async def test_a_client_far_ahead_of_the_answer_to_its_attach_is_not_read_for_a_while(tmp_path: Path) -> None:
    async with Machine(Limits(unacknowledged_bytes_per_connection=200_000)).life() as life:
        client = await Server(life, tmp_path).client("root", "orders")
        client.say(
            ATTACH, ["early", uint(1), False, ubyte(0), ubyte(1), Described(0x28, ["me"]), Described(0x29, ["orders"])]
        )
        for _ in range(5):
            assert client.wire.is_read
            client.transfer(1, data_section(bytes(49_000)), settled=True)
        assert not client.wire.is_read
        await client.expect(ATTACH)
        await life.quiet()
        assert client.wire.is_read
        assert (await life.namespace.counts("orders")).active == 5
