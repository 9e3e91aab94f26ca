"""Queues come, change and go, whenever the process may die; and nothing of one life turns up in another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tandembus.broker.locks import ABANDON, COMPLETE, DEFER
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.descriptions import EntityStatus, QueueDescription
from tandembus.errors import (
    BusError,
    EntityAlreadyExists,
    EntityDisabled,
    EntityNotFound,
    MessageLockLost,
    QuotaExceeded,
    StoreUnavailable,
)
from tandembus.limits import Limits
from tandembus.namespace.entity import EntityCounts
from tandembus.namespace.paths import SubQueue
from tandembus.store.messaging_store import DEAD_LETTER
from tests.covers import covers
from tests.unit.broker.one_queue import message
from tests.unit.namespace.entity_fragment import fragment_of
from tests.unit.namespace.namespace_lives import Attached, Life, Machine, staged

ORDERS = QueueDescription("Orders")
BODIES = [f"m{index:02}" for index in range(12)]


# Creating, updating, deleting.


@covers("M1")
async def test_a_created_queue_takes_messages_and_is_there_in_the_next_life() -> None:
    machine = Machine()
    async with machine.life() as life:
        await life.namespace.create_queue(ORDERS)
        await life.send("orders", "a")
    async with machine.life() as life:
        assert await life.peek("ORDERS") == ["a"]


@covers("M1")
async def test_a_name_is_taken_in_whatever_letters() -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(ORDERS)
        with pytest.raises(EntityAlreadyExists):
            await life.namespace.create_queue(QueueDescription("ORDERS"))


async def test_what_is_not_there_is_not_found_by_name() -> None:
    async with Machine().life() as life:
        namespace = life.namespace
        with pytest.raises(EntityNotFound, match="'sb://bus/nowhere' could not be found"):
            await namespace.entity("nowhere")
        with pytest.raises(EntityNotFound):
            await namespace.delete_queue("nowhere")
        with pytest.raises(EntityNotFound):
            await namespace.update_queue(QueueDescription("nowhere"))


@covers("M13")
async def test_no_more_queues_are_made_than_the_limit_allows() -> None:
    async with Machine(Limits(max_entities=2)).life() as life:
        for name in ("one", "two"):
            await life.namespace.create_queue(QueueDescription(name))
        with pytest.raises(QuotaExceeded):
            await life.namespace.create_queue(QueueDescription("three"))


@covers("M2")
async def test_an_update_holds_for_the_fragment_at_once() -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(ORDERS)
        await life.send("orders", "a")
        await life.namespace.update_queue(replace(ORDERS, lock_duration_s=10.0, max_delivery_count=1))
        (lock,) = await life.receive("orders", 1)
        assert lock.locked_until == life.clock.monotonic() + 10.0
        await life.settle("orders", lock, ABANDON)
        assert await life.peek("orders", DEAD_LETTER) == ["a"]


async def test_links_are_told_of_an_update() -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(ORDERS)
        link = Attached(is_sender=True)
        (await life.namespace.entity("orders")).attach(link, life.clock.now())
        await life.namespace.update_queue(replace(ORDERS, max_delivery_count=5))
        assert (link.change_count, link.errors) == (1, [])


@covers("N10")
@pytest.mark.parametrize(
    ("status", "cut"),
    [
        (EntityStatus.DISABLED, ["sender", "receiver"]),
        (EntityStatus.SEND_DISABLED, ["sender"]),
        (EntityStatus.RECEIVE_DISABLED, ["receiver"]),
        (EntityStatus.ACTIVE, []),
    ],
)
async def test_disabling_cuts_the_links_that_it_does_not_allow(status: EntityStatus, cut: list[str]) -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(ORDERS)
        entity = await life.namespace.entity("orders")
        links = {"sender": Attached(is_sender=True), "receiver": Attached(is_sender=False)}
        for link in links.values():
            entity.attach(link, life.clock.now())
        await life.namespace.update_queue(replace(ORDERS, status=status))
        assert [name for name, link in links.items() if link.errors] == cut
        assert all(isinstance(error, EntityDisabled) for link in links.values() for error in link.errors)


@covers("N10")
async def test_a_disabled_queue_takes_neither_message_nor_ping() -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(replace(ORDERS, status=EntityStatus.SEND_DISABLED))
        entity = await life.namespace.entity("orders")
        with pytest.raises(EntityDisabled):
            entity.check_can_send()
        entity.check_can_receive()


async def test_deleting_cuts_all_links() -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(ORDERS)
        link = Attached(is_sender=False)
        (await life.namespace.entity("orders")).attach(link, life.clock.now())
        await life.namespace.delete_queue("orders")
        assert isinstance(link.errors[0], EntityNotFound)


@covers("M1")
async def test_a_deleted_queue_leaves_nothing_in_the_store() -> None:
    machine = Machine()
    async with machine.life() as life:
        await fill(life)
        await life.namespace.delete_queue("orders")
        await life.dropped()
        assert_empty(machine, life)


@covers("M1")
async def test_a_queue_made_again_shows_nothing_of_its_earlier_life() -> None:
    machine = Machine()
    async with machine.life() as life:
        await fill(life)
        (lock,) = await life.receive("orders", 1)
        await life.namespace.delete_queue("orders")
        await life.namespace.create_queue(ORDERS)
        assert await life.namespace.counts("orders") == EntityCounts()
        assert (await life.peek("orders"), await life.peek("orders", DEAD_LETTER)) == ([], [])
        assert await life.send("orders", "new") == [1]
        with pytest.raises(MessageLockLost):
            fragment_of(await life.namespace.entity("orders")).find_lock(lock.token)
        await life.dropped()
        assert await life.peek("orders") == ["new"]


@covers("M5", "M6")
async def test_what_was_due_in_an_earlier_life_does_not_come_up_in_a_later_one() -> None:
    machine = Machine()
    async with machine.life() as life:
        await life.namespace.create_queue(ORDERS)
        await life.send("orders", "later", scheduled_in_s=10.0)
        await life.namespace.delete_queue("orders")
        await life.dropped()
        await life.namespace.create_queue(ORDERS)
    machine.clock.advance(60.0)
    async with machine.life() as life:
        await life.quiet()
        assert await life.peek("orders") == []


@covers("M1")
async def test_a_send_on_a_deleted_queue_is_refused() -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(ORDERS)
        entity = await life.namespace.entity("orders")
        await life.namespace.delete_queue("orders")
        await life.dropped()
        with pytest.raises(EntityNotFound):
            staged(entity, message("a"))


# A crash between any two steps.


async def fill(life: Life) -> None:
    """A queue with everything in it that a queue can hold: 12 messages in the queue and a dead letter."""
    await life.namespace.create_queue(ORDERS)
    await life.send("orders", *BODIES[:-1], "dead")
    locks = await life.receive("orders", 12)
    await life.settle("orders", locks[0], ABANDON)
    await life.settle("orders", locks[1], DEFER)
    await life.settle("orders", locks[-1], TO_DEAD_LETTERS)
    await life.send("orders", BODIES[-1], scheduled_in_s=1000.0)
    for lock in locks[2:-1]:
        await life.settle("orders", lock, ABANDON)


def assert_empty(machine: Machine, life: Life) -> None:
    disk = machine.disk
    assert (disk.bodies, disk.blocks, disk.overlays, disk.heads) == ({}, {}, {}, {})
    assert life.catalog.tombstones() == []


@pytest.mark.parametrize("is_last_kept", [False, True], ids=["lost", "kept"])
@covers("M1")
async def test_a_crash_during_creation_leaves_a_whole_queue_or_none(is_last_kept: bool) -> None:
    commits = 0
    is_through = False
    while not is_through:
        machine = Machine()
        async with machine.life() as life:
            machine.power.fail_after(commits, is_last_kept)
            try:
                await life.namespace.create_queue(ORDERS)
                is_through = True
            except StoreUnavailable:
                commits += 1
        async with machine.life() as life:
            await life.dropped()
            if life.catalog.find_queue("orders") is None:
                assert not is_through
                assert_empty(machine, life)
                await life.namespace.create_queue(ORDERS)
            assert await life.send("orders", "a") == [1]
            assert await life.peek("orders") == ["a"]
            assert len(machine.disk.heads) == 1
    assert commits == 3, "begun, made and finished"


@pytest.mark.parametrize("is_last_kept", [False, True], ids=["lost", "kept"])
@covers("M1")
async def test_a_crash_during_an_update_leaves_the_old_or_the_new_description(is_last_kept: bool) -> None:
    machine = Machine()
    async with machine.life() as life:
        await fill(life)
        machine.power.fail_after(0, is_last_kept)
        with pytest.raises(StoreUnavailable):
            await life.namespace.update_queue(replace(ORDERS, max_delivery_count=5))
    async with machine.life() as life:
        assert life.catalog.get_queue("orders").description.max_delivery_count == (5 if is_last_kept else 10)
        assert await life.peek("orders") == BODIES


@pytest.mark.parametrize("is_last_kept", [False, True], ids=["lost", "kept"])
@covers("M1")
async def test_a_crash_during_deletion_leaves_all_of_a_queue_or_nothing(is_last_kept: bool) -> None:
    commits = 0
    is_through = False
    while not is_through:
        machine = Machine()
        async with machine.life() as life:
            await fill(life)
            machine.power.fail_after(commits, is_last_kept)
            is_through = await is_deleted(life)
            commits += 1
        async with machine.life() as life:
            await life.dropped()
            if life.catalog.find_queue("orders") is not None:
                assert (commits, is_last_kept) == (1, False), "once deleted, deleted"
                assert await life.peek("orders") == BODIES
                assert await life.peek("orders", DEAD_LETTER) == ["dead"]
            else:
                assert_empty(machine, life)
    assert commits > 5


async def is_deleted(life: Life) -> bool:
    """Delete until all of it is gone, or the power is."""
    try:
        await life.namespace.delete_queue("orders")
        await life.dropped_or_out_of_power()
    except BusError:
        return False
    return not life.machine.power.is_out


# Use and idleness.


@covers("M6")
async def test_a_queue_that_nobody_uses_for_its_idle_time_is_deleted() -> None:
    async with Machine().life() as life:
        deleted: list[str] = []
        life.namespace.on_deleted = deleted.append
        await life.namespace.create_queue(replace(ORDERS, auto_delete_on_idle_s=300.0))
        await life.namespace.create_queue(QueueDescription("kept"))
        life.clock.advance(299.0)
        await life.namespace.keep_house()
        assert life.catalog.find_queue("orders") is not None
        life.clock.advance(1.0)
        await life.namespace.keep_house()
        assert [entry.key for entry in life.catalog.queues()] == ["kept"]
        assert deleted == ["orders"]


@covers("M6")
async def test_an_attached_link_is_use() -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(replace(ORDERS, auto_delete_on_idle_s=300.0))
        entity = await life.namespace.entity("orders")
        link = Attached(is_sender=False)
        entity.attach(link, life.clock.now())
        life.clock.advance(3600.0)
        await life.namespace.keep_house()
        entity.detach(link, life.clock.now())
        life.clock.advance(299.0)
        await life.namespace.keep_house()
        assert life.catalog.find_queue("orders") is not None
        life.clock.advance(1.0)
        await life.namespace.keep_house()
        assert life.catalog.find_queue("orders") is None


@covers("M6")
async def test_the_last_use_is_remembered_in_the_next_life() -> None:
    machine = Machine()
    async with machine.life() as life:
        await life.namespace.create_queue(replace(ORDERS, auto_delete_on_idle_s=300.0))
        entity = await life.namespace.entity("orders")
        machine.clock.advance(200.0)
        entity.attach(Attached(is_sender=True), machine.clock.now())
        await life.namespace.keep_house()
    machine.clock.advance(200.0)
    async with machine.life() as life:
        await life.namespace.keep_house()
        assert life.catalog.find_queue("orders") is not None
        machine.clock.advance(100.0)
        await life.namespace.keep_house()
        assert life.catalog.find_queue("orders") is None


@covers("M6")
async def test_messages_alone_do_not_keep_an_idle_queue() -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(replace(ORDERS, auto_delete_on_idle_s=300.0))
        await life.send("orders", "a")
        life.clock.advance(300.0)
        await life.namespace.keep_house()
        await life.dropped()
        assert_empty(life.machine, life)


async def test_an_unused_fragment_leaves_the_memory_and_comes_back_with_its_messages() -> None:
    async with Machine(Limits(fragment_idle_s=60.0)).life() as life:
        await life.namespace.create_queue(ORDERS)
        await life.send("orders", "a", "b")
        life.clock.advance(60.0)
        await life.namespace.keep_house()
        assert life.broker.fragments() == []
        assert await life.peek("orders") == ["a", "b"]
        assert await life.send("orders", "c") == [3]


@pytest.mark.parametrize("use", ["a link", "a lock"])
async def test_a_fragment_in_use_stays_in_memory(use: str) -> None:
    async with Machine(Limits(fragment_idle_s=60.0)).life() as life:
        await life.namespace.create_queue(ORDERS)
        await life.send("orders", "a")
        entity = await life.namespace.entity("orders")
        if use == "a link":
            entity.attach(Attached(is_sender=True), life.clock.now())
        else:
            await life.receive("orders", 1)
        life.clock.advance(61.0)
        await life.namespace.keep_house()
        assert fragment_of(await life.namespace.entity("orders")) is fragment_of(entity)


@covers("M5")
async def test_a_scheduled_message_of_a_fragment_that_left_the_memory_comes_on_time() -> None:
    machine = Machine(Limits(fragment_idle_s=60.0))
    async with machine.life() as life:
        await life.namespace.create_queue(ORDERS)
        await life.send("orders", "later", scheduled_in_s=100.0)
        life.clock.advance(100.0)
        await life.namespace.keep_house()
        await life.broker._due.work()
        await life.quiet()
        assert (await life.namespace.counts("orders")).active == 1


# Counts and purging.


@covers("M13")
async def test_counts_tell_active_scheduled_and_dead_lettered_messages_apart() -> None:
    async with Machine().life() as life:
        await fill(life)
        (locked,) = await life.receive("orders", 1)
        counts = await life.namespace.counts("orders")
        assert (counts.active, counts.scheduled, counts.dead_letter) == (11, 1, 1)
        assert counts.size_bytes > 0
        await life.settle("orders", locked, COMPLETE)
        assert (await life.namespace.counts("orders")).active == 10


@covers("M13")
async def test_counts_are_the_same_in_the_next_life() -> None:
    machine = Machine()
    async with machine.life() as life:
        await fill(life)
        before = await life.namespace.counts("orders")
    async with machine.life() as life:
        assert await life.namespace.counts("orders") == before


@covers("M13")
async def test_an_emptied_queue_counts_nothing() -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(ORDERS)
        await life.send("orders", *BODIES)
        for lock in await life.receive("orders", 100):
            await life.settle("orders", lock, COMPLETE)
        assert await life.namespace.counts("orders") == EntityCounts()


async def test_purging_takes_what_waits_and_leaves_locked_deferred_and_scheduled_messages() -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(ORDERS)
        await life.send("orders", "locked", "deferred", *BODIES)
        locks = await life.receive("orders", 2)
        await life.settle("orders", locks[1], DEFER)
        await life.send("orders", "scheduled", scheduled_in_s=100.0)
        assert await life.namespace.purge("orders", SubQueue.MAIN) == len(BODIES)
        assert await life.peek("orders") == ["locked", "deferred", "scheduled"]
        await life.settle("orders", locks[0], COMPLETE)


async def test_purging_the_dead_letters_leaves_the_queue_alone() -> None:
    async with Machine().life() as life:
        await fill(life)
        assert await life.namespace.purge("orders", SubQueue.DEAD_LETTER) == 1
        assert await life.peek("orders", DEAD_LETTER) == []
        assert await life.peek("orders") == BODIES
