"""The fragments of one store with their owner: opened by their key, let go of, compared with the catalog."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tandembus.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.errors import EntityNotFound, StoreDamaged, StoreUnavailable
from tandembus.limits import Limits
from tandembus.namespace.catalog_change import EntityCreated
from tandembus.store.memory import MemoryDisk
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Machine, assert_disks_hold_just_the_entities
from tests.unit.namespace.partitioned_use import peek, send

ORDERS = QueueDescription("orders", enable_partitioning=True)
NEWS = TopicDescription("news", enable_partitioning=True)
AUDIT = SubscriptionDescription("news", "audit")


@covers("P26")
async def test_a_fragment_is_opened_by_its_key_where_it_is_and_nowhere_else() -> None:
    async with Machine(stores=3).life() as life:
        queue = await life.namespace.create_queue(ORDERS)
        await life.namespace.create_topic(NEWS)
        subscription = await life.namespace.create_subscription(AUDIT)
        for entry in (queue, subscription):
            for index, key in enumerate(entry.fragment_keys):
                for host in life.namespace.hosts:
                    fragment = await host.open_by_key(key)
                    if entry.stores[index] == host.store:
                        assert fragment is not None
                        assert (int(fragment.key), int(fragment.index)) == (key, index)
                        assert host.find(key) is fragment
                    else:
                        assert fragment is None
        assert await life.namespace.hosts[0].open_by_key(9999) is None


@covers("P7")
async def test_a_topics_fragment_is_opened_with_those_of_its_subscriptions() -> None:
    async with Machine(stores=2).life() as life:
        topic = await life.namespace.create_topic(NEWS)
        subscription = await life.namespace.create_subscription(AUDIT)
        host = life.namespace.hosts[topic.stores[3]]
        fragment = await host.open_by_key(subscription.fragment_key + 3)
        assert fragment is not None
        assert fragment.topic is life.brokers[host.store].by_key[topic.fragment_key + 3]
        assert len(life.brokers[host.store].by_key) == 2
        assert len(fragment.rules.rules) == 1


async def test_a_deleted_entity_is_opened_no_more() -> None:
    async with Machine(stores=2).life() as life:
        entry = await life.namespace.create_queue(ORDERS)
        await life.namespace.delete_queue("orders")
        for host in life.namespace.hosts:
            assert await host.open_by_key(entry.fragment_key) is None
        with pytest.raises(EntityNotFound):
            await life.namespace.hosts[entry.stores[0]].open(entry, 0)
        assert [broker.fragments() for broker in life.brokers] == [[], []]


async def test_a_subscription_that_is_there_already_is_not_added_twice() -> None:
    async with Machine(stores=2).life() as life:
        await life.namespace.create_topic(NEWS)
        await life.namespace.entity("news")
        entry = await life.namespace.create_subscription(AUDIT)
        before = [broker.by_key.copy() for broker in life.brokers]
        for host in life.namespace.hosts:
            await host.apply([EntityCreated(entry)])
        assert [broker.by_key for broker in life.brokers] == before
        await send(life, "news", "a", "b")
        assert await peek(life, "news/subscriptions/audit") == ["a", "b"]


@covers("M13")
async def test_what_nobody_uses_leaves_the_memory_of_every_store() -> None:
    async with Machine(Limits(fragment_idle_s=60.0), stores=3).life() as life:
        await life.namespace.create_queue(ORDERS)
        await life.namespace.create_topic(NEWS)
        await life.namespace.create_subscription(AUDIT)
        await send(life, "orders", "a")
        await send(life, "news", "b")
        assert sum(len(broker.fragments()) for broker in life.brokers) == 48
        life.clock.advance(61.0)
        await life.namespace.keep_house()
        assert [broker.fragments() for broker in life.brokers] == [[], [], []]
        assert await peek(life, "orders") == ["a"]
        assert await peek(life, "news/subscriptions/audit") == ["b"]


@covers("M13")
async def test_what_is_used_by_its_key_or_held_by_somebody_stays_in_memory() -> None:
    async with Machine(Limits(fragment_idle_s=60.0)).life() as life:
        entry = await life.namespace.create_queue(ORDERS)
        host = life.namespace.hosts[0]
        keys = list(entry.fragment_keys)[:3]
        for key in keys:
            await host.open_by_key(key)
        let_go = host.pin(keys[0])
        life.clock.advance(61.0)
        assert host.find(keys[1]) is not None
        host.let_go_of_unused(life.clock.now())
        assert set(life.broker.by_key) == set(keys[:2])
        let_go()
        host.let_go_of_unused(life.clock.now())
        assert set(life.broker.by_key) == {keys[1]}


@covers("P1")
async def test_a_store_that_was_lost_begins_anew_and_the_others_keep_what_they_have(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine(stores=4)
    bodies = [f"m{number:02}" for number in range(32)]
    async with machine.life() as life:
        await life.namespace.create_queue(ORDERS)
        await send(life, "orders", *bodies)
    machine.disks[1] = MemoryDisk()
    async with machine.life() as life:
        assert "store 1 has lost 4 fragments" in caplog.text
        assert_disks_hold_just_the_entities(life)
        assert len(await peek(life, "orders")) == 24
        await send(life, "orders", *bodies)
        assert len(await peek(life, "orders")) == 56


@covers("M13")
async def test_an_older_catalog_erases_nothing_and_gives_out_no_key_of_any_store_again() -> None:
    machine = Machine(stores=3)
    async with machine.life():
        backup = dict(machine.records.documents)
    async with machine.life() as life:
        await life.namespace.create_queue(ORDERS)
        await send(life, "orders", "kept")
        newer = dict(machine.records.documents)
    taken = {key for disk in machine.disks for key in disk.heads}
    machine.records.documents = backup
    async with machine.life() as life:
        again = await life.namespace.create_queue(ORDERS)
        assert not taken & set(again.fragment_keys)
        assert await peek(life, "orders") == []
        assert taken <= {key for disk in machine.disks for key in disk.heads}
    machine.records.documents = newer
    async with machine.life() as life:
        assert await peek(life, "orders") == ["kept"]


@covers("P18")
async def test_making_an_entitys_fragments_again_changes_nothing() -> None:
    async with Machine(stores=2).life() as life:
        entry = await life.namespace.create_queue(ORDERS)
        await send(life, "orders", "a")
        for host in life.namespace.hosts:
            await host.make(entry)
        assert_disks_hold_just_the_entities(life)
        assert await peek(life, "orders") == ["a"]


@covers("P18")
async def test_nothing_can_be_made_in_a_store_that_is_out() -> None:
    async with Machine(stores=2).life() as life:
        entry = await life.namespace.create_queue(ORDERS)
        await life.take_out(1)
        with pytest.raises(StoreUnavailable, match="store 1 is out"):
            await life.namespace.hosts[1].make(entry)


@covers("P3", "P7")
async def test_a_subscription_made_before_its_store_went_out_is_added_when_the_topic_is_read_again() -> None:
    """The catalog's word may come to a store that has failed meanwhile."""
    async with Machine(stores=2).life() as life:
        await life.namespace.create_topic(NEWS)
        await send(life, "news", "before")
        entry = await life.namespace.create_subscription(AUDIT)
        for broker in life.brokers:
            for key in entry.fragment_keys:
                fragment = broker.by_key.pop(key, None)
                if fragment is not None and fragment.topic is not None and fragment.topic.fan_out is not None:
                    del fragment.topic.fan_out.subscriptions[key]
        await life.take_out(0)
        for host in life.namespace.hosts:
            await host.apply([EntityCreated(entry)])
        await life.bring_back()
        await send(life, "news", *[f"m{number:02}" for number in range(16)])
        assert await peek(life, "news/subscriptions/audit") == [f"m{number:02}" for number in range(16)]


@covers("P7")
async def test_a_change_that_comes_while_a_topic_is_being_read_holds_in_all_its_fragments() -> None:
    machine = Machine(stores=2)
    async with machine.life() as life:
        await life.namespace.create_topic(NEWS)
        await life.namespace.create_subscription(AUDIT)
    async with machine.life() as life:
        reading, go_on = asyncio.Event(), asyncio.Event()

        async def hold_up() -> None:
            reading.set()
            await go_on.wait()

        for disk in machine.disks:
            disk.before_read = hold_up
        opening = asyncio.create_task(life.namespace.entity("news"))
        await reading.wait()
        updating = asyncio.create_task(life.namespace.update_subscription(replace(AUDIT, lock_duration_s=7.0)))
        for _ in range(20):
            await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(opening, updating)
        fragments = [one for broker in life.brokers for one in broker.fragments() if one.topic is not None]
        assert [one.settings.lock_duration_s for one in fragments] == [7.0] * 16


@covers("P7")
async def test_an_entity_of_which_a_fragment_cannot_be_opened_leaves_none_in_memory() -> None:
    machine = Machine(Limits(fragment_idle_s=60.0), stores=2)
    async with machine.life() as life:
        await life.namespace.create_queue(ORDERS)
    async with machine.life() as life:
        await asyncio.gather(*life.namespace.resuming)
        count = 0

        async def fail_once() -> None:
            nonlocal count
            count += 1
            if count == 10:
                raise StoreDamaged("a page is gone")

        for disk in machine.disks:
            disk.before_read = fail_once
        with pytest.raises(StoreDamaged):
            await life.namespace.entity("orders")
        life.clock.advance(61.0)
        await life.namespace.keep_house()
        assert [broker.fragments() for broker in life.brokers] == [[], []]
        assert (await life.namespace.condition("orders")).is_limited is False


@covers("P7")
async def test_what_is_open_becomes_what_the_catalog_says_when_nobody_was_told() -> None:
    async with Machine(stores=2).life() as life:
        topic = await life.namespace.create_topic(NEWS)
        audit = await life.namespace.create_subscription(AUDIT)
        await life.namespace.entity("news")
        host = life.namespace.hosts[topic.stores[3]]
        fragment = await host.open_by_key(audit.fragment_key + 3)
        assert fragment is not None
        listeners = life.catalog.listeners
        told = listeners.copy()
        listeners.clear()
        late = await life.namespace.create_subscription(SubscriptionDescription("news", "late"))
        await life.namespace.update_subscription(replace(AUDIT, max_delivery_count=3))
        await life.namespace.delete_rule("news", "audit", "$Default")
        listeners.extend(told)
        await host.catch_up()
        family = life.brokers[host.store].by_key[topic.fragment_key + 3].fan_out
        assert family is not None
        assert set(family.subscriptions) == {audit.fragment_key + 3, late.fragment_key + 3}
        assert int(fragment.settings.max_delivery_count) == 3
        assert list(fragment.rules.rules) == []
