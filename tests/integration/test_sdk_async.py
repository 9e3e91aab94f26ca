"""What only an event loop does with the Python SDK: many links at once, cancellation, renewal in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.python_sdk import ARRIVES_WITHIN_S, body_of
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

SENDERS, RECEIVERS, EACH = 6, 4, 25


@pytest.fixture
async def client(bus: Bus) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(bus.connection_string) as client:
        yield client


async def send_one_by_one(sender: ServiceBusSender, name: str) -> None:
    async with sender:
        for number in range(EACH):
            await sender.send_messages(ServiceBusMessage(f"{name}-{number}"))


async def complete_until(receiver: ServiceBusReceiver, found: list[str], is_done: asyncio.Event) -> None:
    async with receiver:
        while not is_done.is_set():
            for message in await receiver.receive_messages(max_message_count=10, max_wait_time=1):
                await receiver.complete_message(message)
                found.append(body_of(message).decode())
                if len(found) >= SENDERS * EACH:
                    is_done.set()


@covers("M1", "B1")
async def test_many_senders_and_receivers_share_a_loop_and_every_message_comes_once(
    client: ServiceBusClient, bus: Bus, queue: str
) -> None:
    found: list[str] = []
    is_done = asyncio.Event()
    work = [send_one_by_one(client.get_queue_sender(queue), f"sender {number}") for number in range(SENDERS)]
    work += [complete_until(client.get_queue_receiver(queue), found, is_done) for _ in range(RECEIVERS)]
    await asyncio.wait_for(asyncio.gather(*work), 60)
    assert sorted(found) == sorted(f"sender {at}-{number}" for at in range(SENDERS) for number in range(EACH))
    assert bus.counts(queue) == Counts(0)


@covers("M2")
async def test_a_cancelled_receive_keeps_no_message_from_others(client: ServiceBusClient, queue: str) -> None:
    async with (
        client.get_queue_receiver(queue) as waiting,
        client.get_queue_receiver(queue, max_wait_time=ARRIVES_WITHIN_S) as other,
        client.get_queue_sender(queue) as sender,
    ):
        receive = asyncio.create_task(waiting.receive_messages(max_wait_time=ARRIVES_WITHIN_S))
        await asyncio.sleep(0)
        receive.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receive
        await waiting.close()
        await sender.send_messages(ServiceBusMessage("for the other"))
        (message,) = await other.receive_messages()
        assert (body_of(message), message.delivery_count) == (b"for the other", 0)


@covers("M2")
async def test_a_lock_is_renewed_in_the_background_as_long_as_the_work_takes(small_bus: Bus) -> None:
    queue = small_bus.make_queue(lock_duration=timedelta(seconds=3), max_delivery_count=1)
    async with (
        ServiceBusClient.from_connection_string(small_bus.connection_string) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, max_wait_time=ARRIVES_WITHIN_S) as receiver,
        AutoLockRenewer(max_lock_renewal_duration=60) as renewer,
    ):
        await sender.send_messages(ServiceBusMessage("slow"))
        (message,) = await receiver.receive_messages()
        until = message.locked_until_utc
        assert until is not None
        renewer.register(receiver, message)
        assert await receiver.receive_messages(max_wait_time=4) == []  # longer than the first lock
        assert message.locked_until_utc is not None
        assert message.locked_until_utc > until
        await receiver.complete_message(message)
    assert small_bus.counts(queue) == Counts(0)
