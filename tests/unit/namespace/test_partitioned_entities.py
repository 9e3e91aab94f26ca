"""Partitioned queues and topics in a namespace over several stores: made, used, changed, deleted, and made again."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from tandembus.descriptions import (
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.errors import BusError, EntityNotFound, InvalidArgument, QuotaExceeded
from tandembus.limits import Limits
from tandembus.namespace.administration import Administration
from tandembus.namespace.catalog import Entry
from tandembus.namespace.entity import EntityCounts
from tandembus.namespace.local_source import LocalStorePort
from tandembus.namespace.partitioning import fragment_of_number
from tandembus.namespace.store_port import StorePort
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Machine, assert_disks_hold_just_the_entities
from tests.unit.namespace.partitioned_use import peek, receive_all, send

ORDERS = QueueDescription("Orders", enable_partitioning=True)
NEWS = TopicDescription("News", enable_partitioning=True)
BODIES = [f"m{number:02}" for number in range(32)]


@covers("P1", "P2", "P7")
@pytest.mark.parametrize("stores", [1, 2, 3, 5, 16, 20])
async def test_a_partitioned_queue_has_sixteen_fragments_spread_evenly_over_the_stores(stores: int) -> None:
    machine = Machine(stores=stores)
    async with machine.life() as life:
        entry = await life.namespace.create_queue(ORDERS)
        assert (len(entry.stores), entry.is_partitioned) == (16, True)
        counts = Counter(entry.stores)
        assert len(counts) == min(stores, 16)
        assert max(counts.values()) - min(counts.values()) <= 1
        for store, disk in enumerate(machine.disks):
            assert set(disk.heads) == {entry.fragment_key + index for index in entry.indexes_in(store)}


@covers("P2")
@pytest.mark.parametrize("stores", [1, 2])
async def test_partitioning_that_spreads_nothing_is_logged(stores: int, caplog: pytest.LogCaptureFixture) -> None:
    async with Machine(stores=stores).life() as life:
        await life.namespace.create_queue(ORDERS)
        await life.namespace.create_queue(QueueDescription("plain"))
        await life.namespace.create_topic(NEWS)
        await life.namespace.create_subscription(SubscriptionDescription("news", "all"))
    told = [record.getMessage() for record in caplog.records if "all fragments of" in record.getMessage()]
    assert [line.split("'")[1] for line in told] == (["Orders", "News"] if stores == 1 else [])
    assert all("--brokers and --stores" in line for line in told)


@covers("P1")
async def test_plain_entities_are_spread_evenly_over_the_stores() -> None:
    async with Machine(stores=4).life() as life:
        entries = [await life.namespace.create_queue(QueueDescription(f"q{number}")) for number in range(10)]
        counts = Counter(entry.stores[0] for entry in entries)
        assert sorted(counts.values()) == [2, 2, 3, 3]
        for entry in entries:
            if entry.stores == (1,):
                await life.namespace.delete_queue(entry.description.name)
        assert (await life.namespace.create_queue(QueueDescription("next"))).stores == (1,)


@covers("P5", "P6", "P19")
@pytest.mark.parametrize("stores", [1, 3, 16])
async def test_what_is_sent_to_a_partitioned_queue_is_counted_browsed_and_received_once(stores: int) -> None:
    machine = Machine(stores=stores)
    async with machine.life() as life:
        await life.namespace.create_queue(ORDERS)
        await send(life, "orders", *BODIES)
        assert (await life.namespace.counts("orders")).active == len(BODIES)
        assert await peek(life, "orders") == BODIES
        per_fragment = Counter(key for disk in machine.disks for key, _, _ in disk.bodies)
        assert sorted(per_fragment.values()) == [2] * 16
    async with machine.life() as life:
        assert await receive_all(life, "ORDERS") == BODIES
        assert await life.namespace.counts("orders") == EntityCounts()


@covers("P4", "P7", "P23")
@pytest.mark.parametrize("stores", [1, 4])
async def test_a_partitioned_topic_and_its_subscriptions_share_fragments_and_stores(stores: int) -> None:
    machine = Machine(stores=stores)
    async with machine.life() as life:
        topic = await life.namespace.create_topic(NEWS)
        first = await life.namespace.create_subscription(SubscriptionDescription("News", "all"))
        assert first.stores == topic.stores
        await send(life, "news", "before")
        second = await life.namespace.create_subscription(SubscriptionDescription("News", "some"))
        assert second.stores == topic.stores
        assert not set(second.fragment_keys) & {*first.fragment_keys, *topic.fragment_keys}
        await send(life, "news", *BODIES)
        assert await peek(life, "news/subscriptions/all") == sorted(["before", *BODIES])
        assert await peek(life, "news/subscriptions/some") == BODIES
        assert sum(len(disk.bodies) for disk in machine.disks) == len(BODIES) + 1
        await life.namespace.create_rule("news", "some", RuleDescription("none", SqlFilter("1 = 0")))
        await life.namespace.delete_rule("news", "some", "$Default")
        await send(life, "news", "after")
        assert await peek(life, "news/subscriptions/some") == BODIES
    async with machine.life() as life:
        assert await receive_all(life, "news/subscriptions/all") == sorted(["before", "after", *BODIES])
        assert await receive_all(life, "news/subscriptions/some") == BODIES
        for path in ("news", "news/subscriptions/all", "news/subscriptions/some"):
            assert await life.namespace.counts(path) == EntityCounts()


@covers("P18")
@pytest.mark.parametrize("stores", [1, 4])
async def test_a_deleted_partitioned_entity_leaves_nothing_and_nothing_of_it_comes_back(stores: int) -> None:
    machine = Machine(stores=stores)
    async with machine.life() as life:
        for _ in range(3):
            old = await life.namespace.create_queue(ORDERS)
            await send(life, "orders", *BODIES)
            await life.namespace.delete_queue("orders")
            new = await life.namespace.create_queue(ORDERS)
            assert not set(old.fragment_keys) & set(new.fragment_keys)
            assert await receive_all(life, "orders") == []
            await life.namespace.delete_queue("orders")
        await life.namespace.create_topic(NEWS)
        for name in ("a", "b"):
            await life.namespace.create_subscription(SubscriptionDescription("News", name))
        await send(life, "news", *BODIES)
        await life.namespace.delete_subscription("news", "a")
        await life.namespace.delete_topic("news")
        await life.dropped()
        assert life.catalog.tombstones() == []
        for disk in machine.disks:
            assert (disk.bodies, disk.blocks, disk.overlays, disk.heads) == ({}, {}, {}, {})
        with pytest.raises(EntityNotFound):
            await life.namespace.entity("orders")


@covers("P18", "M13")
async def test_nothing_of_a_large_queue_comes_up_in_the_next_of_its_name_while_it_is_still_being_dropped() -> None:
    async with Machine(stores=3).life() as life:
        await life.namespace.create_queue(ORDERS)
        await send(life, "orders", *[f"old{number}" for number in range(5_000)])
        for turn in range(5):
            await life.namespace.delete_queue("orders")
            await life.namespace.create_queue(ORDERS)
            await send(life, "orders", f"new{turn}")
            assert await peek(life, "orders") == [f"new{turn}"]
            assert (await life.namespace.counts("orders")).active == 1
        assert await receive_all(life, "orders") == ["new4"]
        await life.dropped()
        assert_disks_hold_just_the_entities(life)


@covers("P7")
async def test_partitioning_can_never_be_changed() -> None:
    async with Machine(stores=2).life() as life:
        await life.namespace.create_queue(ORDERS)
        await life.namespace.create_topic(TopicDescription("plain"))
        with pytest.raises(InvalidArgument, match="EnablePartitioning of 'Orders' cannot be changed"):
            await life.namespace.update_queue(replace(ORDERS, enable_partitioning=False))
        with pytest.raises(InvalidArgument, match="EnablePartitioning of 'plain' cannot be changed"):
            await life.namespace.update_topic(TopicDescription("plain", enable_partitioning=True))


class SlowOnce:
    """Implements `StorePort`: the first check takes until it is let go on."""

    def __init__(self, inner: StorePort) -> None:
        self._inner = inner
        self.is_asked = asyncio.Event()
        self.go_on = asyncio.Event()

    @property
    def index(self) -> int:
        return self._inner.index

    @property
    def newest_key(self) -> int:
        return self._inner.newest_key

    def failure(self) -> BusError | None:
        return self._inner.failure()

    async def make(self, entry: Entry) -> None:
        await self._inner.make(entry)

    async def check(self, entry: Entry) -> None:
        if not self.is_asked.is_set():
            self.is_asked.set()
            await self.go_on.wait()
        await self._inner.check(entry)


@covers("P9")
@pytest.mark.parametrize("is_update", [True, False])
async def test_a_change_that_waits_never_meets_the_next_queue_of_that_name(is_update: bool) -> None:
    async with Machine().life() as life:
        port = SlowOnce(LocalStorePort(life.namespace.hosts[0]))
        followers = life.namespace.followers
        owner = Administration("bus", life.catalog, {0: port}, range(1), followers, life.machine.limits, life.clock)
        first = await owner.create_queue(QueueDescription("orders", requires_session=True))
        change: asyncio.Task[object]
        if is_update:
            change = asyncio.create_task(owner.update_queue(replace(first.description, max_delivery_count=7)))
        else:
            change = asyncio.create_task(owner.delete_queue("orders"))
        await port.is_asked.wait()

        async def replaced() -> None:
            await owner.delete_queue("orders")
            await owner.create_queue(QueueDescription("orders"))

        replacing = asyncio.create_task(replaced())
        for _ in range(200):  # it gets as far as it can
            await asyncio.sleep(0)
        port.go_on.set()
        outcomes = await asyncio.gather(change, replacing, return_exceptions=True)
        left = life.catalog.find_queue("orders")
        if is_update:
            assert left is not None
            assert (left.description.requires_session, left.description.max_delivery_count) == (False, 10)
        else:
            assert isinstance(outcomes[1], EntityNotFound), "it was gone when its turn came"


@covers("P5")
async def test_what_comes_one_by_one_in_many_lives_does_not_always_go_to_the_same_fragment() -> None:
    async with Machine().life() as life:
        used = set()
        for number in range(20):
            name = f"orders-{number}"
            await life.namespace.create_queue(replace(ORDERS, name=name))
            await send(life, name, "only")
            (found,) = await (await life.namespace.entity(name)).requests.peek(MAIN, 0, 10, 1 << 20)
            used.add(fragment_of_number(found.sequence_number))
        assert len(used) > 1


@covers("P8")
async def test_each_fragment_holds_as_much_as_was_asked_for_and_the_shown_size_can_be_sent_back() -> None:
    async with Machine(stores=2).life() as life:
        await life.namespace.create_queue(replace(ORDERS, max_size_in_megabytes=2048))
        entry = await life.namespace.update_queue(replace(ORDERS, max_size_in_megabytes=16 * 2048))
        assert entry.description.max_size_in_megabytes == 2048
        await life.namespace.entity("orders")
        fragments = [one for broker in life.brokers for one in broker.fragments()]
        assert {int(one.settings.max_size_bytes) for one in fragments} == {2048 << 20}
        entry = await life.namespace.update_queue(replace(ORDERS, max_size_in_megabytes=5120))
        assert {int(one.settings.max_size_bytes) for one in fragments} == {5120 << 20}
        for wrong in (16 * 1024, 512, 5121):
            with pytest.raises(InvalidArgument, match="MaxSizeInMegabytes"):
                await life.namespace.update_queue(replace(ORDERS, max_size_in_megabytes=wrong))


@covers("P25")
async def test_so_many_partitioned_entities_may_be_there_and_each_counts_as_one() -> None:
    async with Machine(Limits(max_partitioned_entities=2, max_entities=4)).life() as life:
        await life.namespace.create_queue(ORDERS)
        await life.namespace.create_topic(NEWS)
        for refused in (replace(ORDERS, name="third"), replace(ORDERS, name="fourth")):
            with pytest.raises(QuotaExceeded, match="max_partitioned_entities"):
                await life.namespace.create_queue(refused)
        await life.namespace.create_subscription(SubscriptionDescription("News", "all"))
        await life.namespace.create_queue(QueueDescription("plain"))
        await life.namespace.delete_queue("orders")
        await life.namespace.create_topic(replace(NEWS, name="third"))
        await life.namespace.create_queue(QueueDescription("fourth"))
        with pytest.raises(QuotaExceeded, match="max_entities"):
            await life.namespace.create_queue(QueueDescription("fifth"))


@covers("P25")
async def test_the_hundred_and_first_partitioned_entity_is_refused() -> None:
    async with Machine().life() as life:
        for number in range(100):
            await life.namespace.create_queue(replace(ORDERS, name=f"q{number}"))
        with pytest.raises(QuotaExceeded, match="100 partitioned entities; at most 100 are allowed"):
            await life.namespace.create_queue(replace(ORDERS, name="one-more"))
