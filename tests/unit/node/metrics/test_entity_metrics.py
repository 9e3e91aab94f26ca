"""What is told of entities: exact, of those that were used, and bounded."""

from __future__ import annotations

import asyncio
import time

from tandembus.broker.locks import ABANDON, COMPLETE, DEAD_LETTER, DEFER
from tandembus.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.limits import Limits
from tandembus.node.metrics import families
from tandembus.node.metrics.naming import OTHER
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Life, Machine
from tests.unit.node.metrics.scraped import Scraped, entity_metrics, scrape


async def make_queues(life: Life, *names: str, **settings: object) -> None:
    for name in names:
        await life.namespace.create_queue(QueueDescription(name, **settings))  # type: ignore[arg-type]


def states(scraped: Scraped, entity: str) -> dict[str, int]:
    found = scraped.all(families.MESSAGES, entity=entity)
    return {dict(labels)["state"]: int(value) for labels, value in found.items() if value}


@covers("B5")
async def test_every_state_and_every_way_out_of_a_queue_is_counted() -> None:
    async with Machine().life() as life:
        metrics = entity_metrics(life)
        await make_queues(life, "Orders")
        await life.send("orders", *"abcdef")
        await life.send("orders", "later", scheduled_in_s=60.0)
        locks = await life.receive("orders", 5)
        for lock, settlement in zip(locks, (COMPLETE, ABANDON, DEFER, DEAD_LETTER), strict=False):
            await life.settle("orders", lock, settlement)
        told = await scrape(metrics)
        assert states(told, "Orders") == {"active": 3, "deferred": 1, "scheduled": 1, "dead_letter": 1}
        assert told.of(families.LOCKED, entity="Orders") == 1
        assert told.of(families.ARRIVED) == 7
        assert told.of(families.GONE) == 2
        assert told.of(families.DEAD_LETTERED) == 1
        assert told.of(families.REDELIVERED) == 1
        assert told.of(families.SIZE) > 0


@covers("B5")
async def test_a_scheduled_message_that_becomes_active_has_come_once() -> None:
    async with Machine().life() as life:
        metrics = entity_metrics(life)
        await make_queues(life, "orders")
        await life.send("orders", "later", scheduled_in_s=60.0)
        life.clock.advance(61.0)
        await life.broker.catch_up()
        told = await scrape(metrics)
        assert states(told, "orders") == {"active": 1}
        assert (told.of(families.ARRIVED), told.of(families.GONE)) == (1, 0)


@covers("B5")
async def test_locks_that_lapse_and_messages_that_expire_are_counted() -> None:
    async with Machine().life() as life:
        metrics = entity_metrics(life)
        await make_queues(life, "orders", default_message_time_to_live_s=3600.0, lock_duration_s=60.0)
        await life.send("orders", "a", "b")
        await life.receive("orders", 1)
        life.clock.advance(61.0)
        await life.broker.catch_up()
        assert (await scrape(metrics)).of(families.REDELIVERED) == 1
        life.clock.advance(3600.0)
        await life.broker.catch_up()
        told = await scrape(metrics)
        assert (told.of(families.EXPIRED), told.of(families.GONE)) == (2, 2)


@covers("B5")
async def test_the_oldest_message_has_an_age_also_when_it_is_locked_or_not_in_memory() -> None:
    async with Machine().life() as life:
        metrics = entity_metrics(life)
        await make_queues(life, "orders")
        await life.send("orders", "old")
        life.clock.advance(30.0)
        await life.send("orders", "new")
        (lock,) = await life.receive("orders", 1)
        life.clock.advance(10.0)
        assert (await scrape(metrics)).of(families.OLDEST) == 40.0
        await life.settle("orders", lock, COMPLETE)
        life.broker.by_key[lock_fragment(life)].main.evict()
        assert (await scrape(metrics)).of(families.OLDEST) == 10.0
        (lock,) = await life.receive("orders", 1)
        await life.settle("orders", lock, COMPLETE)
        assert (await scrape(metrics)).all(families.OLDEST) == {}


def lock_fragment(life: Life) -> int:
    return life.catalog.get_queue("orders").fragment_key


@covers("B5")
async def test_a_subscription_tells_what_it_got_and_its_topic_what_anybody_got() -> None:
    async with Machine().life() as life:
        metrics = entity_metrics(life)
        await life.namespace.create_topic(TopicDescription("news"))
        for name in ("a", "b"):
            await life.namespace.create_subscription(SubscriptionDescription("news", name))
        await life.send("news", "x", "y", "z")
        told = await scrape(metrics)
        for path in ("news/Subscriptions/a", "news/Subscriptions/b"):
            assert states(told, path) == {"active": 3}
            assert told.of(families.ARRIVED, entity=path) == 3
        assert states(told, "news") == {}
        assert told.of(families.ARRIVED, entity="news") == 3


@covers("B5")
async def test_what_has_left_the_memory_is_told_as_it_was() -> None:
    async with Machine().life() as life:
        metrics = entity_metrics(life)
        await make_queues(life, "orders")
        await life.send("orders", "a", "b")
        await scrape(metrics)
        idle_s = await let_go(life)
        told = await scrape(metrics)
        assert states(told, "orders") == {"active": 2}
        assert told.of(families.ARRIVED) == 2
        assert told.of(families.OLDEST) == idle_s
        assert told.of(families.FRAGMENTS, state="closed") == 1
        assert life.broker.fragments() == []
        await life.send("orders", "c")
        told = await scrape(metrics)
        assert states(told, "orders") == {"active": 3}
        assert told.of(families.ARRIVED) == 3


@covers("B5")
async def test_the_oldest_message_is_told_also_if_nobody_looked_before_the_fragment_left_the_memory() -> None:
    async with Machine().life() as life:
        metrics = entity_metrics(life)
        await make_queues(life, "orders")
        await life.send("orders", "a")
        idle_s = await let_go(life)
        assert (await scrape(metrics)).of(families.OLDEST) == idle_s
        (lock,) = await life.receive("orders", 1)
        await life.settle("orders", lock, COMPLETE)
        await life.send("orders", "b")
        await let_go(life)
        assert (await scrape(metrics)).of(families.OLDEST) == idle_s, "of the one that is there now"


async def let_go(life: Life) -> float:
    """Returns how long that took."""
    idle_s = life.machine.limits.fragment_idle_s + 1
    life.clock.advance(idle_s)
    await life.namespace.keep_house()
    assert life.broker.fragments() == []
    return idle_s


@covers("B5")
async def test_fragments_of_a_partitioned_entity_are_told_one_by_one_as_far_as_there_is_room() -> None:
    async with Machine(Limits(max_metrics_fragments=20), 2).life() as life:
        metrics = entity_metrics(life)
        await make_queues(life, "first", "second", enable_partitioning=True)
        for name in ("first", "second"):
            await life.namespace.entity(name)
        told = await scrape(metrics)
        assert told.entities(families.FRAGMENT_MESSAGES) == {"first"}
        found = [dict(labels) for labels in told.all(families.FRAGMENT_MESSAGES)]
        assert sorted(int(one["fragment"]) for one in found) == list(range(16))
        assert {one["store"] for one in found} == {"0", "1"}


@covers("B5")
async def test_entities_beyond_the_limit_are_one_sum_that_never_falls() -> None:
    async with Machine(Limits(max_metrics_entities=1)).life() as life:
        metrics = entity_metrics(life)
        await make_queues(life, "first", "second", "third")
        await life.send("first", "a")
        await life.send("second", "b", "c")
        await life.send("third", "d")
        told = await scrape(metrics)
        assert told.entities(families.ARRIVED) == {"first", OTHER}
        assert (told.of(families.ARRIVED, entity=OTHER), told.of(families.SIZE, entity=OTHER) > 0) == (3, True)
        await life.namespace.delete_queue("first")
        await life.namespace.delete_queue("second")
        await life.dropped()
        told = await scrape(metrics)
        assert told.entities(families.ARRIVED) == {OTHER}, "one of the others does not begin anew under its name"
        assert told.of(families.ARRIVED, entity=OTHER) == 3
        assert states(told, OTHER) == {"active": 1}
        await make_queues(life, "fourth")
        await life.send("fourth", "e")
        assert (await scrape(metrics)).entities(families.ARRIVED) == {"fourth", OTHER}, "there is a place free"


@covers("B5")
async def test_messages_in_backlog_queues_are_told_together() -> None:
    async with Machine().life() as life:
        metrics = entity_metrics(life)
        await make_queues(life, "contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1", "orders")
        await life.send("contoso/x-servicebus-transfer/0", "a", "b")
        await life.send("contoso/x-servicebus-transfer/1", "c")
        await life.send("orders", "d")
        assert (await scrape(metrics)).of(families.BACKLOG) == 3


@covers("B5")
async def test_thousands_of_entities_in_use_are_few_series_and_hold_up_nobody() -> None:
    count, told_apart = 2_000, 100
    limits = Limits(max_metrics_entities=told_apart, fragment_idle_s=1e9)
    async with Machine(limits).life() as life:
        metrics = entity_metrics(life)
        for number in range(count):
            await life.namespace.create_queue(QueueDescription(f"queue{number}"))
            await life.namespace.entity(f"queue{number}")
        scraping = asyncio.create_task(scrape(metrics))
        longest_s = 0.0
        while not scraping.done():
            began_at = time.perf_counter()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.perf_counter() - began_at)
        told = await scraping
        assert len(told.series) < (told_apart + 1) * 15
        assert told.of(families.FRAGMENTS, state="open") == count
        assert longest_s < 0.25, "somebody else waited for the scrape"
