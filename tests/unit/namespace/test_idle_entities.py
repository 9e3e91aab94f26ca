"""What was idle for long leaves the memory, but not while something is being done with it."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.descriptions import QueueDescription
from tandembus.errors import EntityNotFound
from tandembus.faults.fault import read_fault
from tandembus.interconnect.traffic import SessionWish
from tandembus.namespace.paths import SubQueue
from tests.covers import covers
from tests.unit.namespace.entity_fragment import fragment_of
from tests.unit.namespace.namespace_lives import Life, Machine

BODIES = [f"m{index:03}" for index in range(300)]


async def purge_while_keeping_house(life: Life) -> int:
    """Housekeeping comes by in the middle of the purge, at a queue nobody has used since long ago."""
    reading, go_on = asyncio.Event(), asyncio.Event()

    async def hold_up() -> None:
        reading.set()
        await go_on.wait()

    await life.send("orders", *BODIES)
    life.machine.disk.before_read = hold_up
    purge = asyncio.create_task(life.namespace.purge("orders", SubQueue.MAIN))
    await reading.wait()
    life.clock.advance(life.machine.limits.fragment_idle_s + 1)
    await life.namespace.keep_house()
    go_on.set()
    return await asyncio.wait_for(purge, 10.0)


@covers("M3", "M13")
async def test_purging_a_queue_that_was_idle_for_long_deletes_everything() -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(QueueDescription("orders"))
        assert await purge_while_keeping_house(life) == len(BODIES)
        assert (await life.namespace.counts("orders")).active == 0


@covers("M13")
async def test_an_idle_queue_leaves_the_memory_after_its_purge() -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(QueueDescription("orders"))
        await purge_while_keeping_house(life)
        assert len(life.broker.fragments()) == 1
        life.clock.advance(life.machine.limits.fragment_idle_s + 1)
        await life.namespace.keep_house()
        assert len(life.broker.fragments()) == 0


@covers("M3", "M13")
async def test_an_entity_that_somebody_has_just_asked_for_stays_in_memory_however_long_it_was_idle() -> None:
    machine = Machine()
    async with machine.life() as life:
        await life.namespace.create_queue(QueueDescription("orders"))
    machine.clock.advance(86_400.0)
    async with machine.life() as life:
        entity = await life.namespace.entity("orders")
        await life.namespace.keep_house()
        assert await life.namespace.entity("orders") is entity
        assert fragment_of(entity) in life.broker.fragments()


@covers("M13")
async def test_asking_for_an_entity_is_not_using_it() -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(QueueDescription("orders", auto_delete_on_idle_s=300.0))
        life.clock.advance(299.0)
        await life.namespace.counts("orders")
        life.clock.advance(1.0)
        await life.namespace.keep_house()
        assert life.catalog.find_queue("orders") is None


@covers("M13")
async def test_a_queue_that_goes_while_it_is_being_opened_leaves_nothing_in_memory() -> None:
    machine = Machine()
    async with machine.life() as life:
        await life.namespace.create_queue(QueueDescription("orders"))
        reading, go_on = asyncio.Event(), asyncio.Event()

        async def hold_up() -> None:
            machine.disk.before_read = None  # only this one waits
            reading.set()
            await go_on.wait()

        machine.disk.before_read = hold_up
        opening = asyncio.create_task(life.namespace.entity("orders"))
        await reading.wait()
        await life.namespace.delete_queue("orders")
        await life.dropped()
        go_on.set()
        with pytest.raises(EntityNotFound):
            await opening
        assert life.broker.fragments() == []


@covers("B3", "M13")
async def test_faults_know_nothing_more_of_an_entity_that_has_left_the_memory() -> None:
    async with Machine(None, 2).life() as life:
        await life.namespace.create_queue(QueueDescription("orders", enable_partitioning=True, requires_session=True))
        listeners = life.namespace.faults.state.listeners
        traffic = (await life.namespace.entity("orders")).traffic
        life.namespace.faults.put(read_fault("f1", {"target": "broker/1", "kind": "unavailable"}))
        wish = SessionWish(None, True, lambda _: None, lambda _: None)
        traffic.wish_session(wish)
        traffic.give_up_session(wish)
        assert len(listeners) > 0, "free sessions of what is out are looked out for when it is back"
        life.clock.advance(life.machine.limits.fragment_idle_s + 1)
        await life.namespace.keep_house()
        assert len(listeners) == 0
