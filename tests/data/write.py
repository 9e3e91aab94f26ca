"""Writes a data folder that later versions must open: `python -m tests.data.write FILE.tar.xz`, run with that version.

One process, four stores, audit on. `tests/integration/test_older_data.py` knows what the folder holds.
"""

from __future__ import annotations

import asyncio
import sys
import tarfile
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.management import ServiceBusAdministrationClient as Administration
from azure.servicebus.management import SqlRuleAction, SqlRuleFilter

from tandembus.client import connect
from tests.integration.serving import RunningNamespace, serving

FAR_AWAY = datetime(2100, 1, 1, tzinfo=UTC)
WEEK = timedelta(days=7)
LEFT_OUT = ("tls", "lock.mdb", "store.lock")
"""Made again at the next start."""


def create_entities(administration: Administration) -> None:
    for partitioned in (False, True):
        kind = "partitioned" if partitioned else "plain"
        administration.create_queue(kind, enable_partitioning=partitioned, max_delivery_count=5)
        administration.create_queue(f"{kind}-sessions", enable_partitioning=partitioned, requires_session=True)
        administration.create_queue(
            f"{kind}-duplicates",
            enable_partitioning=partitioned,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=WEEK,
        )
        administration.create_queue(f"{kind}-reserved", enable_partitioning=partitioned)
        topic = f"{kind}-topic"
        administration.create_topic(topic, enable_partitioning=partitioned)
        administration.create_subscription(topic, "all")
        administration.create_subscription(topic, "large")
        administration.delete_rule(topic, "large", "$Default")
        administration.create_rule(
            topic, "large", "above-5", filter=SqlRuleFilter("size > 5"), action=SqlRuleAction("SET label = 'large'")
        )


async def fill(client: ServiceBusClient, kind: str) -> None:
    """Thirty messages of which the first five are received: completed, deferred, abandoned, and two dead-lettered."""
    async with client.get_queue_sender(kind) as sender:
        for number in range(30):
            await sender.send_messages(
                ServiceBusMessage(f"{number}", message_id=f"m{number}", partition_key=f"k{number}")
            )
        await sender.schedule_messages(ServiceBusMessage("scheduled", message_id="scheduled"), FAR_AWAY)
    async with client.get_queue_receiver(kind) as receiver:
        done, deferred, abandoned, *dead = await received(receiver, 5)
        await receiver.complete_message(done)
        await receiver.defer_message(deferred)
        await receiver.abandon_message(abandoned)
        for message in dead:
            await receiver.dead_letter_message(message, reason="Refused", error_description="by the writer")
    async with client.get_queue_sender(f"{kind}-sessions") as sender:
        for number in range(12):
            await sender.send_messages(ServiceBusMessage(f"{number}", session_id=f"s{number % 3}"))
    async with client.get_queue_receiver(f"{kind}-sessions", session_id="s0") as receiver:
        await receiver.session.set_state(b"state of s0")
        (first,) = await received(receiver, 1)
        await receiver.complete_message(first)
    async with client.get_queue_sender(f"{kind}-duplicates") as sender:
        for number in range(20):
            await sender.send_messages(
                ServiceBusMessage(f"{number}", message_id=f"m{number}", partition_key=f"k{number}")
            )
    async with client.get_topic_sender(f"{kind}-topic") as sender:
        for number in range(10):
            await sender.send_messages(ServiceBusMessage(f"{number}", application_properties={"size": number}))
    async with client.get_queue_sender(f"{kind}-reserved") as sender:
        for number in range(10):
            await sender.send_messages(ServiceBusMessage(f"{number}", message_id=f"m{number}"))


async def received(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        found += await receiver.receive_messages(max_message_count=count - len(found), max_wait_time=20)
    return found


async def reserve(namespace: RunningNamespace, entity: str) -> None:
    async with await connect(namespace.connection_string) as bus:
        reservations = await bus.reservations(entity)
        epoch = await reservations.open_owner("writer")
        await reservations.reserve("writer", epoch, request=1, max_messages=6, max_bytes=1 << 20)


async def write(namespace: RunningNamespace) -> None:
    for kind in ("plain", "partitioned"):
        async with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
            await fill(client, kind)
        await reserve(namespace, f"{kind}-reserved")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with serving(data, "--stores", "4", "--audit") as namespace:
            ca = str(namespace.ca_path)
            with Administration.from_connection_string(
                namespace.connection_string, connection_verify=ca
            ) as administration:
                create_entities(administration)
            asyncio.run(write(namespace))
        with tarfile.open(sys.argv[1], "w:xz") as archive:
            archive.add(data, ".", filter=lambda member: None if Path(member.name).name in LEFT_OUT else member)


if __name__ == "__main__":
    main()
