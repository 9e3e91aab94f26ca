"""F10: receivers that take all they can get, settle nothing, or do not even read. The process does not grow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tandembus.client import OutgoingMessage, ServiceBus, connect
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tests.chaos.processes import anonymous_memory_bytes
from tests.covers import covers
from tests.integration.raw_amqp import RawAmqp
from tests.integration.serving import RunningNamespace, start_namespace
from tests.scale import scaled

GREEDY = "greedy"
HEALTHY = "healthy"
ALL_CREDIT = 0xFFFFFFFF
MESSAGES = 600
BODY_BYTES = 100_000
UNSENT_BYTES = 128 * 1024
GROWTH_BYTES_EACH = 1024 * 1024
"""Far below the 60 MB that each of the greedy ones asks for: what may be unsent, one more turn of deliveries, and room
for what the allocator does with that. However slow the machine is, and however often locks lapse meanwhile."""
PATIENCE_S = 60.0


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[RunningNamespace]:
    config = tmp_path / "config.toml"
    config.write_text(f"[limits]\nmin_lock_duration_s = 0.5\nunsent_bytes_per_connection = {UNSENT_BYTES}\n")
    started = start_namespace(tmp_path / "data", "--config", str(config))
    yield started
    assert started.stop() == 0, "".join(started.log)


async def _fill(client: ServiceBus) -> None:
    sender = await client.sender(GREEDY)
    body = bytes(BODY_BYTES)
    await sender.send_many(OutgoingMessage(body, message_id=str(number)) for number in range(MESSAGES))


async def _healthy_round_trip(client: ServiceBus) -> None:
    """Somebody else's queue, as if nothing happened."""
    sender, receiver = await client.sender(HEALTHY), await client.receiver(HEALTHY)
    for number in range(20):
        await sender.send(OutgoingMessage(str(number)))
        (message,) = await receiver.receive(1, PATIENCE_S)
        assert message.body == str(number).encode()
        await receiver.complete(message)


def _attach_greedy(namespace: RunningNamespace, stack: ExitStack) -> None:
    """All the credit there is, and then not one more read."""
    client = stack.enter_context(RawAmqp(namespace.port))
    client.log_in()
    client.attach_receiver(1, GREEDY)
    client.flow(1, ALL_CREDIT)


@pytest.mark.chaos
@covers("F10", "M2")
async def test_receivers_that_never_read_or_settle_do_not_grow_the_process(namespace: RunningNamespace) -> None:
    async with Administration(namespace.connection_string) as administration:
        await administration.create_queue(GREEDY, QueueSettings(lock_duration_s=0.5, max_delivery_count=2_000_000))
        await administration.create_queue(HEALTHY)
    pid = namespace.process.pid
    async with await connect(namespace.connection_string, timeout_s=PATIENCE_S) as client:
        await _fill(client)
        before = anonymous_memory_bytes(pid)
        greedy_count = scaled(100, 1000, 1000)
        with ExitStack() as stack:
            for _ in range(greedy_count):
                await asyncio.to_thread(_attach_greedy, namespace, stack)
            await _healthy_round_trip(client)
            assert anonymous_memory_bytes(pid) - before < greedy_count * GROWTH_BYTES_EACH
        # The greedy ones are gone without a word: what they held lapses, and all of it is delivered again.
        async with Administration(namespace.connection_string) as administration:
            await administration.update_queue(GREEDY, QueueSettings(lock_duration_s=PATIENCE_S))
        receiver = await client.receiver(GREEDY)
        seen: set[str] = set()
        while len(seen) < MESSAGES:
            messages = await receiver.receive(50, PATIENCE_S)
            await receiver.complete(*messages)
            seen.update(message.message_id or "" for message in messages)
        await _healthy_round_trip(client)
        assert anonymous_memory_bytes(pid) - before < greedy_count * GROWTH_BYTES_EACH


@pytest.mark.chaos
@covers("F10")
async def test_a_receiver_that_dribbles_one_credit_at_a_time_gets_everything_in_order(
    namespace: RunningNamespace,
) -> None:
    async with Administration(namespace.connection_string) as administration:
        await administration.create_queue(HEALTHY)
    async with await connect(namespace.connection_string, timeout_s=PATIENCE_S) as client:
        sender, receiver = await client.sender(HEALTHY), await client.receiver(HEALTHY)
        count = scaled(200, 5000, 5000)
        await sender.send_many(OutgoingMessage(str(number)) for number in range(count))
        for number in range(count):
            (message,) = await receiver.receive(1, PATIENCE_S)
            assert message.body == str(number).encode()
            await receiver.complete(message)
