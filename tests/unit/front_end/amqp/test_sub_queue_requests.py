"""Requests to the management node of a dead-letter queue: they reach no further than it."""

from __future__ import annotations

from tandembus.amqp.encoding import timestamp
from tandembus.amqp.encoding.sections import data_section, message_annotations_section
from tandembus.amqp.encoding.values import Array
from tests.covers import covers
from tests.unit.front_end.amqp.transacting import NOT_ALLOWED, Server, TransactionClient

LONG = 0x81


@covers("M3", "M15")
async def test_what_is_scheduled_in_a_queue_is_not_cancelled_by_way_of_its_dead_letters(
    server: Server, client: TransactionClient
) -> None:
    later_ms = server.life.clock.now_ms() + 60_000
    message = message_annotations_section({"x-opt-scheduled-enqueue-time": timestamp(later_ms)}) + data_section(b"a")
    node = await client.node("orders")
    assert (await client.ask(node, "com.microsoft:schedule-message", {"messages": [{"message": message}]}))[0] == 200
    dead_letters = await client.node("orders/$DeadLetterQueue")
    numbers = {"sequence-numbers": Array(LONG, [1])}
    assert await client.ask(dead_letters, "com.microsoft:cancel-scheduled-message", numbers) == (400, NOT_ALLOWED)
    assert (await server.life.namespace.counts("orders")).scheduled == 1
