"""Administration of partitioned entities while some of their stores are out: done everywhere, or a clear refusal and
nothing changed. Get tells what it can reach."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

import pytest

from tandembus.descriptions import (
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.errors import EntityNotFound, OperationTimeout, OutcomeUnknown, StoreFull, StoreUnavailable
from tandembus.interconnect.requests import Requests
from tandembus.namespace.administration import unhealthy
from tandembus.namespace.entity import EntityCounts
from tandembus.namespace.local_source import LocalStorePort
from tandembus.namespace.namespace import EntityCondition
from tandembus.namespace.partitioned_requests import PartitionedRequests
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Life, Machine, assert_disks_hold_just_the_entities
from tests.unit.namespace.partitioned_use import peek, receive_all, send

ORDERS = QueueDescription("Orders", enable_partitioning=True)
NEWS = TopicDescription("News", enable_partitioning=True)
BODIES = [f"m{number:02}" for number in range(32)]

CHANGES: dict[str, Callable[[Life], Awaitable[object]]] = {
    "create": lambda life: life.namespace.create_queue(replace(ORDERS, name="new")),
    "create topic": lambda life: life.namespace.create_topic(replace(NEWS, name="new")),
    "subscribe": lambda life: life.namespace.create_subscription(SubscriptionDescription("News", "new")),
    "update": lambda life: life.namespace.update_queue(replace(ORDERS, max_delivery_count=3)),
    "update topic": lambda life: life.namespace.update_topic(replace(NEWS, user_metadata="x")),
    "delete": lambda life: life.namespace.delete_queue("orders"),
    "delete topic": lambda life: life.namespace.delete_topic("news"),
    "unsubscribe": lambda life: life.namespace.delete_subscription("news", "all"),
    "add rule": lambda life: life.namespace.create_rule("news", "all", RuleDescription("r", SqlFilter("1 = 0"))),
    "remove rule": lambda life: life.namespace.delete_rule("news", "all", "$Default"),
}
every_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


async def fill(life: Life) -> None:
    await life.namespace.create_queue(ORDERS)
    await life.namespace.create_topic(NEWS)
    await life.namespace.create_subscription(SubscriptionDescription("News", "all"))
    await send(life, "orders", *BODIES)
    await send(life, "news", *BODIES)


def known(life: Life) -> object:
    catalog = life.catalog
    rules = catalog.rules("news", "all") if catalog.find_subscription("news", "all") is not None else None
    return [list(catalog.entries()), rules, dict(catalog._directory.creating)]


@covers("P18", "F22")
@every_change
@pytest.mark.parametrize("is_noticed", [True, False], ids=["known", "unnoticed"])
async def test_a_change_while_a_store_is_out_is_refused_whole_or_done_whole(
    change: Callable[[Life], Awaitable[object]], is_noticed: bool
) -> None:
    async with Machine(stores=4).life() as life:
        await fill(life)
        before = known(life)
        if is_noticed:
            await life.take_out(1)
        else:
            life.machine.out.add(1)
        try:
            await change(life)
            is_done = True
        except StoreUnavailable:
            is_done = False
            assert known(life) == before
        assert is_done is False or not is_noticed
        await life.bring_back()
        await life.dropped()
        assert_disks_hold_just_the_entities(life)
        if not is_done:
            await change(life)  # nothing stands in its way any more
            await life.dropped()
        assert known(life) != before
        assert_disks_hold_just_the_entities(life)


@covers("P18", "F22")
@pytest.mark.parametrize("count", range(1, 16))
async def test_with_any_number_of_fragments_out_nothing_is_half_done(count: int) -> None:
    out = [(7 * number + count) % 16 for number in range(count)]
    async with Machine(stores=16).life() as life:
        await fill(life)
        before = known(life)
        await life.take_out(*out)
        for name in ("create", "update", "delete", "subscribe"):
            with pytest.raises(StoreUnavailable, match=r"fragments \d+(, \d+)* cannot be reached") as refused:
                await CHANGES[name](life)
            assert len(re.findall(r"\d+", str(refused.value).partition("cannot")[0])) == count
            assert known(life) == before
        condition = await life.namespace.condition("orders")
        assert (condition.is_limited, active_in(condition)) == (True, 2 * (16 - count))
        condition = await life.namespace.condition("news/subscriptions/all")
        assert (condition.is_limited, active_in(condition)) == (True, 2 * (16 - count))
        await life.bring_back()
        await life.dropped()
        assert_disks_hold_just_the_entities(life)
        condition = await life.namespace.condition("orders")
        assert (condition.is_limited, active_in(condition)) == (False, len(BODIES))
        assert await receive_all(life, "orders") == BODIES


@covers("P18")
@pytest.mark.parametrize("is_partitioned", [True, False])
async def test_a_step_without_an_answer_is_a_refusal_of_the_change_and_no_unknown_outcome(is_partitioned: bool) -> None:
    """A broker dies while it makes its fragments: what there is of them goes again."""
    async with Machine(stores=1).life() as life:
        entry = await life.namespace.create_queue(QueueDescription("q", enable_partitioning=is_partitioned))
        port = LocalStorePort(life.namespace.hosts[0])
        told = unhealthy(entry, [port], OutcomeUnknown("The connection broke before the answer came."))
        assert type(told) is StoreUnavailable
        assert "Nothing was changed" in str(told)
        assert "The connection broke" in str(told)
        assert type(unhealthy(entry, [port], StoreFull("full"))) is StoreFull


@covers("P19")
async def test_get_tells_of_an_entity_that_is_out_as_a_whole() -> None:
    async with Machine(stores=2).life() as life:
        await fill(life)
        plain = await life.namespace.create_queue(QueueDescription("plain"))
        await life.send("plain", "a")
        await life.take_out(0, 1)
        for path in ("orders", "news", "news/subscriptions/all", "plain"):
            condition = await life.namespace.condition(path)
            assert (condition.counts, condition.is_limited) == (None, True), "unknown, and not 0"
            assert isinstance(condition.outage, StoreUnavailable)
        await life.bring_back()
        for path, count in (("orders", 32), ("plain", 1)):
            condition = await life.namespace.condition(path)
            assert (active_in(condition), condition.is_limited) == (count, False)
        assert plain.stores in ((0,), (1,))


@covers("P3", "P19")
async def test_an_entity_nobody_has_used_yet_is_opened_while_a_store_is_out_and_serves_from_the_others() -> None:
    machine = Machine(stores=4)
    async with machine.life() as life:
        await fill(life)
    async with machine.life() as life:
        await life.take_out(2)
        condition = await life.namespace.condition("orders")
        assert (condition.is_limited, active_in(condition)) == (True, 24)
        assert len(await peek(life, "orders")) == 24
        await send(life, "orders", *[f"n{number:02}" for number in range(16)])
        assert active_in(await life.namespace.condition("orders")) == 40
        await life.bring_back()
        assert (await life.namespace.condition("orders")).is_limited is False
        assert await receive_all(life, "orders") == sorted([*BODIES, *[f"n{number:02}" for number in range(16)]])


@covers("P3", "P4")
async def test_a_topic_opened_while_a_store_is_out_reaches_its_subscriptions_when_it_is_back() -> None:
    machine = Machine(stores=4)
    async with machine.life() as life:
        await fill(life)
    async with machine.life() as life:
        await life.take_out(2)
        await send(life, "news", "meanwhile")
        assert len(await peek(life, "news/subscriptions/all")) == 25
        await life.bring_back()
        await send(life, "news", *[f"n{number:02}" for number in range(16)])
        received = await receive_all(life, "news/subscriptions/all")
        assert received == sorted([*BODIES, "meanwhile", *[f"n{number:02}" for number in range(16)]])


@covers("P1")
async def test_new_plain_entities_go_to_stores_that_can_be_reached() -> None:
    async with Machine(stores=3).life() as life:
        await life.take_out(0, 2)
        entries = [await life.namespace.create_queue(QueueDescription(f"q{number}")) for number in range(3)]
        assert {entry.stores for entry in entries} == {(1,)}
        await life.take_out(1)
        with pytest.raises(StoreUnavailable, match="No messaging store can be reached"):
            await life.namespace.create_queue(QueueDescription("none"))
        await life.bring_back()
        assert (await life.namespace.create_queue(QueueDescription("next"))).stores == (0,)


@covers("P3", "P18")
async def test_a_plain_entity_is_administered_while_only_another_store_is_out() -> None:
    async with Machine(stores=2).life() as life:
        entry = await life.namespace.create_queue(QueueDescription("plain"))
        await life.take_out(1 - entry.stores[0])
        await life.namespace.update_queue(QueueDescription("plain", max_delivery_count=3))
        await life.namespace.delete_queue("plain")
        with pytest.raises(EntityNotFound):
            await life.namespace.entity("plain")
        await life.dropped()
        assert_disks_hold_just_the_entities(life)


def active_in(condition: EntityCondition) -> int:
    assert condition.counts is not None
    return condition.counts.active


class Silent:
    async def counts(self) -> EntityCounts:
        raise OperationTimeout("No answer in time.")


@covers("P19")
async def test_an_entity_of_which_a_fragment_does_not_answer_is_limited_though_nobody_knows_it_to_be_out() -> None:
    async with Machine(stores=2).life() as life:
        await fill(life)
        entity = await life.namespace.entity("orders")
        assert isinstance(entity.requests, PartitionedRequests)
        entity.requests._requests[3] = cast("Requests", Silent())
        assert entity.is_limited() is False
        condition = await life.namespace.condition("orders")
        assert (active_in(condition), condition.is_limited) == (30, True)


@covers("P18")
async def test_what_a_failed_creation_left_in_a_store_goes_when_the_store_is_back() -> None:
    async with Machine(stores=4).life() as life:
        life.machine.out.add(3)
        with pytest.raises(StoreUnavailable):
            await life.namespace.create_queue(ORDERS)
        for number in range(3):
            await life.namespace.hosts[number].dropper.finished()
        assert {one.store for one in life.catalog.tombstones()} == {3}
        await life.bring_back()
        await life.dropped()
        assert life.catalog.tombstones() == []
        assert_disks_hold_just_the_entities(life)
        entry = await life.namespace.create_queue(ORDERS)
        assert_disks_hold_just_the_entities(life)
        assert entry.fragment_key > 16


@covers("P18")
async def test_a_creation_that_can_be_neither_finished_nor_undone_is_undone_later() -> None:
    async with Machine(stores=2).life() as life:
        life.machine.power.fail_after(2, False)
        with pytest.raises(StoreUnavailable):
            await life.namespace.create_queue(ORDERS)
        assert "orders" in life.catalog._directory.creating
        life.machine.power.restore()
        await life.bring_back()
        await life.namespace.keep_house()
        await life.dropped()
        assert life.catalog._directory.creating == {}
        assert_disks_hold_just_the_entities(life)
        await life.namespace.create_queue(ORDERS)
