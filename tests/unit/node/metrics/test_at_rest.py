"""What is told of entities that nobody has used since the process began."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tandembus.broker.locks import COMPLETE, DEAD_LETTER, DEFER
from tandembus.descriptions import SubscriptionDescription, TopicDescription
from tandembus.node.metrics import families
from tandembus.node.metrics.at_rest import EntitiesAtRest
from tandembus.store.memory import MemoryStore
from tandembus.store.messaging_store import BlockRecord, MessagingStore, Place
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Life, Machine, PoweredStore
from tests.unit.node.metrics.scraped import entity_metrics, scrape
from tests.unit.node.metrics.test_entity_metrics import make_queues, states


class OddStore(PoweredStore):
    """One that hangs, or cannot read some fragment, for a while."""

    is_hanging = False
    unreadable = -1

    async def blocks(self, fragment: int, lane: int) -> Sequence[BlockRecord]:
        if fragment == self.unreadable:
            raise ValueError("nobody thought of this")
        return await super().blocks(fragment, lane)

    async def enqueued_times(self, places: Sequence[Place]) -> Sequence[int]:
        if self.is_hanging:
            await asyncio.Event().wait()
        return await super().enqueued_times(places)


class OddMachine(Machine):
    async def open_store(self, number: int = 0) -> MessagingStore:
        return OddStore(MemoryStore(self.disks[number]), self.power, number, self.out)


async def use(life: Life) -> None:
    await make_queues(life, "orders", "empty")
    await life.send("orders", *"abcdef")
    await life.send("orders", "later", scheduled_in_s=3600.0)
    locks = await life.receive("orders", 4)
    for lock, settlement in zip(locks, (COMPLETE, DEFER, DEAD_LETTER), strict=False):
        await life.settle("orders", lock, settlement)


@covers("B5")
async def test_a_queue_that_nobody_opens_is_told_as_the_store_has_it() -> None:
    machine = Machine()
    async with machine.life() as life:
        await use(life)
        before = await scrape(entity_metrics(life))
    async with machine.life() as life:
        life.clock.advance(30.0)
        told = await scrape(entity_metrics(life))
        assert life.broker.fragments() == [], "a scrape opens nothing"
        assert states(told, "orders") == {"active": 3, "deferred": 1, "scheduled": 1, "dead_letter": 1}
        assert states(told, "orders") == states(before, "orders")
        assert told.of(families.SIZE, entity="orders") == before.of(families.SIZE, entity="orders") > 0
        assert told.of(families.OLDEST, entity="orders") == before.of(families.OLDEST, entity="orders") + 30.0
        assert told.of(families.LOCKED, entity="orders") == 0, "locks do not outlive the process"
        assert told.entities(families.MESSAGES) == {"orders", "empty"}
        assert told.of(families.FRAGMENTS, state="closed") == 2
        assert told.of(families.FRAGMENTS, state="unknown") == 0


@covers("B5")
async def test_a_topic_and_its_subscriptions_are_told_apart() -> None:
    machine = Machine()
    async with machine.life() as life:
        await life.namespace.create_topic(TopicDescription("news"))
        for name in ("a", "b"):
            await life.namespace.create_subscription(SubscriptionDescription("news", name))
        await life.send("news", "x", "y")
        (lock,) = await life.receive("news/subscriptions/a", 1)
        await life.settle("news/subscriptions/a", lock, COMPLETE)
    async with machine.life() as life:
        life.clock.advance(5.0)
        told = await scrape(entity_metrics(life))
        found = [states(told, path) for path in ("news", "news/Subscriptions/a", "news/Subscriptions/b")]
        assert found == [{}, {"active": 1}, {"active": 2}]
        assert told.of(families.OLDEST, entity="news/Subscriptions/a") >= 5.0
        assert told.of(families.OLDEST, entity="news") == 0


@covers("B5")
async def test_whoever_opens_it_later_goes_on_from_there() -> None:
    machine = Machine()
    async with machine.life() as life:
        await use(life)
    async with machine.life() as life:
        metrics = entity_metrics(life)
        await scrape(metrics)
        await life.send("orders", "g")
        told = await scrape(metrics)
        assert states(told, "orders")["active"] == 4
        assert told.of(families.ARRIVED, entity="orders") == 1
        await make_queues(life, "new")
        assert "new" in (await scrape(metrics)).entities(families.MESSAGES)


@covers("B5")
async def test_messages_of_a_backlog_are_told_before_anybody_fetches_them() -> None:
    machine = Machine()
    async with machine.life() as life:
        await make_queues(life, "contoso/x-servicebus-transfer/0")
        await life.send("contoso/x-servicebus-transfer/0", "a", "b")
    async with machine.life() as life:
        assert (await scrape(entity_metrics(life))).of(families.BACKLOG) == 2


@covers("B5", "P19")
async def test_a_backlog_of_which_a_part_is_out_of_reach_is_missing_and_not_0() -> None:
    machine = Machine()
    queue = "contoso/x-servicebus-transfer/0"
    async with machine.life() as life:
        await make_queues(life, queue)
        await life.send(queue, "a", "b")
    async with machine.life() as life:
        metrics = entity_metrics(life)
        for state in ("at rest", "in use"):
            await life.take_out(0)
            told = await scrape(metrics)
            assert told.all(families.BACKLOG) == {}
            assert told.entities(families.MESSAGES) == set()
            await life.bring_back()
            await life.namespace.entity(queue)
            assert (await scrape(metrics)).of(families.BACKLOG) == 2, state


@covers("B5")
async def test_a_store_that_is_out_of_reach_is_asked_again() -> None:
    machine = Machine()
    async with machine.life() as life:
        await use(life)
    async with machine.life() as life:
        metrics = entity_metrics(life)
        await life.take_out(0)
        assert (await scrape(metrics)).entities(families.MESSAGES) == set()
        await life.bring_back()
        assert (await scrape(metrics)).entities(families.MESSAGES) == {"orders", "empty"}


@covers("B5")
async def test_no_more_are_kept_in_mind_than_there_is_room_for() -> None:
    machine = Machine()
    async with machine.life() as life:
        await make_queues(life, *"abcde")
    async with machine.life() as life:
        metrics = entity_metrics(life)
        await EntitiesAtRest(life.catalog, lambda: {0: life.broker}, machine.limits, max_known=3).look()
        oldest = sorted(life.catalog.get_queue(name).fragment_key for name in "abc")
        assert sorted(life.broker.figures.by_key) == oldest
        told = await scrape(metrics)
        assert told.of(families.FRAGMENTS, state="unknown") == 0, "this one has room"


@covers("B5")
async def test_a_store_that_hangs_keeps_nobody_from_the_rest() -> None:
    async with OddMachine().life() as life:
        metrics, store = entity_metrics(life), life.broker.store
        assert isinstance(store, OddStore)
        await use(life)
        life.broker.by_key[life.catalog.get_queue("orders").fragment_key].main.evict()
        store.is_hanging = True
        told = await scrape(metrics)
        assert states(told, "orders")["active"] == 3
        assert told.all(families.OLDEST) == {}
        store.is_hanging = False
        assert (await scrape(metrics)).all(families.OLDEST) != {}, "the next scrape does not wait for what hangs still"


@covers("B5")
async def test_an_entity_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    machine = OddMachine()
    async with machine.life() as life:
        await make_queues(life, *"abc")
    async with machine.life() as life:
        metrics, store = entity_metrics(life), life.broker.store
        assert isinstance(store, OddStore)
        store.unreadable = life.catalog.get_queue("b").fragment_key
        told = await scrape(metrics)
        assert told.entities(families.MESSAGES) == {"a", "c"}
        assert told.of(families.FRAGMENTS, state="unknown") == 1
        assert "looking at what 'b' holds" in caplog.text
        store.unreadable = -1
        assert (await scrape(metrics)).entities(families.MESSAGES) == {"a", "b", "c"}
