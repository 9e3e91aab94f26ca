"""Faults in a namespace: what they do to administration, and to what entities forward to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace

import pytest

from tandembus.descriptions import QueueDescription, TopicDescription
from tandembus.errors import StoreUnavailable
from tandembus.faults.fault import read_fault
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Life, Machine
from tests.unit.namespace.partitioned_use import peek, send

BODIES = [f"m{number:02}" for number in range(32)]
shapes = pytest.mark.parametrize("is_partitioned", [False, True], ids=["plain", "partitioned"])


def inject(life: Life, target: str, kind: str = "unavailable", **more: object) -> None:
    life.namespace.faults.put(read_fault("f1", {"target": target, "kind": kind, **more}))


async def chain(life: Life, is_partitioned: bool) -> None:
    await life.namespace.create_queue(QueueDescription("work", enable_partitioning=is_partitioned))
    await life.namespace.create_queue(QueueDescription("inbox", enable_partitioning=is_partitioned, forward_to="work"))


@covers("B3", "P17")
@shapes
@pytest.mark.parametrize("stores", [1, 2])
@pytest.mark.parametrize("kind", ["unavailable", "throttled", "disk-full"])
async def test_what_would_be_forwarded_to_what_takes_nothing_waits_until_it_does(
    is_partitioned: bool, stores: int, kind: str
) -> None:
    async with Machine(stores=stores).life() as life:
        await chain(life, is_partitioned)
        inject(life, "entity/work", kind)
        await send(life, "inbox", *BODIES)
        await life.forwarded()
        assert (await life.namespace.counts("inbox")).active == len(BODIES)
        life.namespace.faults.clear()
        await life.forwarded()
        assert await peek(life, "work") == BODIES
        assert (await life.namespace.counts("inbox")).active == 0


@covers("B3", "P17")
async def test_only_what_is_for_the_fragment_that_is_out_waits() -> None:
    async with Machine(stores=2).life() as life:
        await chain(life, True)
        inject(life, "fragment/work/2")
        await send(life, "inbox", *BODIES)
        await life.forwarded()
        waiting = (await life.namespace.counts("inbox")).active
        assert 0 < waiting < len(BODIES)
        life.namespace.faults.clear()
        await life.forwarded()
        assert await peek(life, "work") == BODIES


@covers("B3", "P17")
@pytest.mark.parametrize(
    ("kind", "more"),
    [("slow", {"latency_ms": 600_000}), ("unavailable", {"probability": 0.999})],
    ids=["slow", "chance"],
)
async def test_forwarding_to_what_takes_something_goes_on(kind: str, more: dict[str, object]) -> None:
    async with Machine(stores=2).life() as life:
        await chain(life, False)
        inject(life, "entity/work", kind, **more)
        await send(life, "inbox", *BODIES)
        await life.forwarded()
        life.namespace.faults.clear()
        assert await peek(life, "work") == BODIES


@covers("B3", "P17")
async def test_an_entity_that_clients_cannot_reach_forwards_what_it_has() -> None:
    async with Machine(stores=2).life() as life:
        await chain(life, False)
        inject(life, "entity/work")
        await send(life, "inbox", *BODIES)
        life.namespace.faults.clear()
        inject(life, "entity/inbox")
        await life.forwarded()
        assert await peek(life, "work") == BODIES


@covers("B3", "P17")
async def test_a_broker_that_is_out_forwards_nothing() -> None:
    async with Machine(stores=2).life() as life:
        await chain(life, False)
        inject(life, "entity/work")
        await send(life, "inbox", *BODIES)
        (store,) = life.catalog.get_queue("inbox").stores
        assert life.catalog.get_queue("work").stores != (store,)
        inject(life, f"broker/{store}")  # in the place of the other
        await life.forwarded()
        assert await peek(life, "work") == []
        life.namespace.faults.clear()
        await life.forwarded()
        assert await peek(life, "work") == BODIES


@covers("B3", "P18")
@pytest.mark.parametrize("name", ["orders", "news"])
async def test_whoever_changes_a_slow_entity_waits_no_longer_than_for_any_answer(name: str) -> None:
    async with Machine(stores=2).life() as life:
        orders, news = QueueDescription("orders"), TopicDescription("news")
        await life.namespace.create_queue(orders)
        await life.namespace.create_topic(news)
        inject(life, f"entity/{name}", "slow", latency_ms=600_000)
        changes: dict[str, Callable[[], Coroutine[object, object, object]]] = {
            "orders": lambda: life.namespace.update_queue(replace(orders, max_delivery_count=3)),
            "news": lambda: life.namespace.update_topic(replace(news, user_metadata="x")),
        }
        change = asyncio.create_task(changes[name]())
        for _ in range(10):
            await asyncio.sleep(0)
        life.clock.advance(life.machine.limits.operation_timeout_s)
        inject(life, f"entity/{name}", "slow", latency_ms=600_000)  # whatever wakes it
        with pytest.raises(StoreUnavailable, match="Nothing was changed"):
            await asyncio.wait_for(change, 5.0)
        life.namespace.faults.clear()
        assert life.catalog.get_queue("orders").description == orders
        await changes[name]()


@covers("B3", "P18")
async def test_whoever_changes_an_entity_that_is_out_is_told_of_all_its_fragments() -> None:
    async with Machine(stores=4).life() as life:
        orders = QueueDescription("orders", enable_partitioning=True)
        await life.namespace.create_queue(orders)
        inject(life, "entity/orders")
        with pytest.raises(StoreUnavailable) as refused:
            await life.namespace.update_queue(replace(orders, max_delivery_count=3))
        assert f"fragments {', '.join(map(str, range(16)))} cannot be reached" in str(refused.value)
