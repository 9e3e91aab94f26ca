"""Several clients create the same entity at the same time, as the processes of an application do at their start."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from azure.core.exceptions import ResourceExistsError
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.shapes import EVERY, Shape, Topology, on_shapes

FRONT_ENDS = Topology("front-ends", ("--brokers", "2", "--front-ends", "3"))

PARTITIONED_ON_FRONT_ENDS = Shape("partitioned-on-front-ends", FRONT_ENDS, is_partitioned=True)

pytestmark = on_shapes(*EVERY, PARTITIONED_ON_FRONT_ENDS)

CLIENTS = 3
ROUNDS = 8

Act = Callable[[ServiceBusAdministrationClient, str], object]


def all_at_once(bus: Bus, name: str, create: Act, get: Act) -> list[bool]:
    """Each client creates the entity and then reads it, whatever came of that. Returns who was told that it exists."""
    start = threading.Barrier(CLIENTS)

    def run() -> bool:
        with ServiceBusAdministrationClient.from_connection_string(
            bus.connection_string, connection_verify=str(bus.running.ca_path)
        ) as admin:
            admin.get_namespace_properties()  # connected, before it matters
            start.wait()
            try:
                create(admin, name)
                existed = False
            except ResourceExistsError:
                existed = True
            get(admin, name)
            return existed

    with ThreadPoolExecutor(CLIENTS) as threads:
        running = [threads.submit(run) for _ in range(CLIENTS)]
        return [one.result() for one in running]


@covers("B1", "P18")
def test_who_is_told_that_a_queue_exists_can_read_it(bus: Bus) -> None:
    for _ in range(ROUNDS):
        told = all_at_once(
            bus,
            f"queue-{uuid.uuid4().hex}",
            lambda admin, name: admin.create_queue(name, **bus.shape.settings),
            lambda admin, name: admin.get_queue(name),
        )
        assert sorted(told) == [False] + [True] * (CLIENTS - 1)


@covers("B1", "P18")
def test_who_is_told_that_a_topic_exists_can_read_it(bus: Bus) -> None:
    for _ in range(ROUNDS):
        told = all_at_once(
            bus,
            f"topic-{uuid.uuid4().hex}",
            lambda admin, name: admin.create_topic(name, **bus.shape.settings),
            lambda admin, name: admin.get_topic(name),
        )
        assert sorted(told) == [False] + [True] * (CLIENTS - 1)


@covers("B1", "P18")
def test_who_is_told_that_a_subscription_exists_can_read_it_and_its_rule(bus: Bus) -> None:
    topic = bus.make_topic()

    def read(admin: ServiceBusAdministrationClient, name: str) -> None:
        admin.get_subscription(topic, name)
        admin.get_rule(topic, name, "$Default")

    for number in range(ROUNDS):
        told = all_at_once(bus, f"s{number}", lambda admin, name: admin.create_subscription(topic, name), read)
        assert sorted(told) == [False] + [True] * (CLIENTS - 1)


@covers("B1", "P18")
def test_the_asynchronous_client_can_read_what_it_was_told_exists(bus: Bus) -> None:
    async def create_and_read(admin: AsyncAdministrationClient, name: str) -> bool:
        try:
            await admin.create_queue(name, **bus.shape.settings)
            return False
        except ResourceExistsError:
            return (await admin.get_queue(name)).name == name

    async def run() -> list[bool]:
        async with AsyncAdministrationClient.from_connection_string(
            bus.connection_string, connection_verify=str(bus.running.ca_path)
        ) as admin:
            told: list[bool] = []
            for _ in range(ROUNDS):
                name = f"queue-{uuid.uuid4().hex}"
                told += await asyncio.gather(*[create_and_read(admin, name) for _ in range(CLIENTS)])
            return told

    assert sorted(asyncio.run(run())) == [False] * ROUNDS + [True] * (CLIENTS - 1) * ROUNDS
