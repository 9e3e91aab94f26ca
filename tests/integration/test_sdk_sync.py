"""What only threads do with the Python SDK: one client for many of them, and streams that feed each other."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.python_sdk import ARRIVES_WITHIN_S, body_of
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

THREADS, EACH = 5, 20


@pytest.fixture
def client(bus: Bus) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(bus.connection_string) as client:
        yield client


def send_one_by_one(client: ServiceBusClient, queue: str, name: str, key: str | None) -> None:
    with client.get_queue_sender(queue) as sender:
        for number in range(EACH):
            sender.send_messages(ServiceBusMessage(f"{name}-{number}", partition_key=key))


@covers("M1", "B1")
def test_threads_share_a_client_and_each_keeps_its_order(client: ServiceBusClient, bus: Bus, queue: str) -> None:
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda at: send_one_by_one(client, queue, f"thread {at}", bus.shape.key), range(THREADS)))
    with client.get_queue_receiver(queue, max_wait_time=ARRIVES_WITHIN_S, prefetch_count=50) as receiver:
        found: list[str] = []
        for message in receiver:
            receiver.complete_message(message)
            found.append(body_of(message).decode())
            if len(found) == THREADS * EACH:
                break
    for at in range(THREADS):
        mine = [body for body in found if body.startswith(f"thread {at}-")]
        assert mine == [f"thread {at}-{number}" for number in range(EACH)]
    assert bus.counts(queue) == Counts(0)


@covers("M1")
def test_a_stream_goes_on_as_long_as_somebody_sends(client: ServiceBusClient, queue: str) -> None:
    """Each message is sent when the one before it has been completed."""
    with (
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, max_wait_time=ARRIVES_WITHIN_S) as receiver,
    ):
        sender.send_messages(ServiceBusMessage("0"))
        for number, message in enumerate(receiver):
            assert body_of(message) == str(number).encode()
            receiver.complete_message(message)
            if number == 30:
                break
            sender.send_messages(ServiceBusMessage(str(number + 1)))
