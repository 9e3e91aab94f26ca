"""The power goes out while a partitioned entity comes, changes or goes: after any commit of any store or the catalog.
The next life finds all of it or none of it, and nothing that belongs to nobody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tandembus.descriptions import (
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.errors import StoreUnavailable
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Life, Machine, assert_disks_hold_just_the_entities
from tests.unit.namespace.partitioned_use import peek, receive_all, send

ORDERS = QueueDescription("Orders", enable_partitioning=True)
NEWS = TopicDescription("News", enable_partitioning=True)
ALL, SOME = SubscriptionDescription("News", "all"), SubscriptionDescription("News", "some")
BODIES = [f"m{number:02}" for number in range(20)]
Step = Callable[[Life], Awaitable[object]]
STORES = 3


async def nothing(_life: Life) -> None:
    return


async def with_queue(life: Life) -> None:
    await life.namespace.create_queue(ORDERS)
    await send(life, "orders", *BODIES)


async def with_topic(life: Life) -> None:
    await life.namespace.create_topic(NEWS)
    await life.namespace.create_subscription(ALL)
    await send(life, "news", *BODIES)


async def with_subscriptions(life: Life) -> None:
    await with_topic(life)
    await life.namespace.create_subscription(SOME)
    await send(life, "news", "last")


async def outcomes_of(
    before: Step, act: Step, is_last_kept: bool, check: Callable[[Life, bool], Awaitable[None]]
) -> int:
    """The power goes out after each commit in turn, until it lasts. `check` is told whether the step was answered as
    done. Returns how often it was cut."""
    commits = 0
    while True:
        machine = Machine(stores=STORES)
        async with machine.life() as life:
            await before(life)
            machine.power.fail_after(commits, is_last_kept)
            is_done = True
            try:
                await act(life)
            except StoreUnavailable:
                is_done = False
            await life.dropped_or_out_of_power()
            is_cut = machine.power.is_out
        async with machine.life() as life:
            await life.dropped()
            assert_disks_hold_just_the_entities(life)
            await check(life, is_done)
            assert is_done or is_cut
        if not is_cut:
            return commits
        commits += 1


both = pytest.mark.parametrize("is_last_kept", [False, True], ids=["before", "after"])


@covers("P18", "F22")
@both
async def test_a_queue_that_was_being_created_is_whole_or_not_there(is_last_kept: bool) -> None:
    async def check(life: Life, is_done: bool) -> None:
        assert not is_done or life.catalog.find_queue("orders") is not None
        if life.catalog.find_queue("orders") is None:
            await life.namespace.create_queue(ORDERS)
        await send(life, "orders", *BODIES)
        assert await receive_all(life, "orders") == BODIES

    cuts = await outcomes_of(nothing, lambda life: life.namespace.create_queue(ORDERS), is_last_kept, check)
    assert cuts >= STORES + 2  # begun, made in each store, there


@covers("P18", "F22")
@both
async def test_a_queue_that_was_being_deleted_is_all_there_or_all_gone(is_last_kept: bool) -> None:
    async def check(life: Life, is_done: bool) -> None:
        if life.catalog.find_queue("orders") is not None:
            assert not is_done
            assert await receive_all(life, "orders") == BODIES
            return
        await life.namespace.create_queue(ORDERS)
        assert await peek(life, "orders") == []
        await send(life, "orders", "new")
        assert await receive_all(life, "orders") == ["new"]

    cuts = await outcomes_of(with_queue, lambda life: life.namespace.delete_queue("orders"), is_last_kept, check)
    assert cuts > 2 * STORES


@covers("P18", "F22")
@both
async def test_a_queue_that_was_being_updated_is_the_old_one_or_the_new_one(is_last_kept: bool) -> None:
    async def check(life: Life, is_done: bool) -> None:
        counts = {life.catalog.get_queue("orders").description.max_delivery_count}
        await life.namespace.entity("orders")
        counts |= {int(one.settings.max_delivery_count) for broker in life.brokers for one in broker.fragments()}
        assert counts == {3} or (counts == {10} and not is_done)
        assert await receive_all(life, "orders") == BODIES

    changed = replace(ORDERS, max_delivery_count=3)
    assert await outcomes_of(with_queue, lambda life: life.namespace.update_queue(changed), is_last_kept, check) >= 1


@covers("P7", "P18", "F22")
@both
async def test_a_subscription_that_was_being_created_gets_everything_or_is_not_there(is_last_kept: bool) -> None:
    async def check(life: Life, is_done: bool) -> None:
        entry = life.catalog.find_subscription("news", "some")
        assert not is_done or entry is not None
        if entry is None:
            await life.namespace.create_subscription(SOME)
        await send(life, "news", "new")
        assert await peek(life, "news/subscriptions/some") == ["new"]
        assert await peek(life, "news/subscriptions/all") == [*BODIES, "new"]

    cuts = await outcomes_of(with_topic, lambda life: life.namespace.create_subscription(SOME), is_last_kept, check)
    assert cuts >= STORES + 2


@covers("P18", "F22")
@both
async def test_a_subscription_that_was_being_deleted_leaves_the_others_what_is_theirs(is_last_kept: bool) -> None:
    async def check(life: Life, is_done: bool) -> None:
        if life.catalog.find_subscription("news", "all") is not None:
            assert not is_done
            assert await receive_all(life, "news/subscriptions/all") == sorted([*BODIES, "last"])
        assert await receive_all(life, "news/subscriptions/some") == ["last"]
        assert (await life.namespace.counts("news")).size_bytes == 0

    async def delete(life: Life) -> None:
        await life.namespace.delete_subscription("news", "all")

    assert await outcomes_of(with_subscriptions, delete, is_last_kept, check) > STORES


@covers("P18", "F22")
@both
async def test_a_topic_that_was_being_deleted_is_all_there_or_all_gone(is_last_kept: bool) -> None:
    async def check(life: Life, is_done: bool) -> None:
        if life.catalog.find_topic("news") is not None:
            assert not is_done
            assert await receive_all(life, "news/subscriptions/all") == BODIES
            return
        assert list(life.catalog.entries()) == []
        await with_topic(life)
        assert await receive_all(life, "news/subscriptions/all") == BODIES

    cuts = await outcomes_of(with_topic, lambda life: life.namespace.delete_topic("news"), is_last_kept, check)
    assert cuts > STORES


@covers("P23", "F22")
@both
async def test_a_rule_that_was_being_added_holds_in_all_fragments_or_in_none(is_last_kept: bool) -> None:
    rule = RuleDescription("more", SqlFilter("1 = 0"))

    async def check(life: Life, is_done: bool) -> None:
        known = {len(life.catalog.rules("news", "all"))}
        await life.namespace.entity("news/subscriptions/all")
        fragments = [one for broker in life.brokers for one in broker.fragments() if one.topic is not None]
        known |= {len(one.rules.rules) for one in fragments}
        assert len(fragments) == 16
        assert known == {2} or (known == {1} and not is_done)

    cuts = await outcomes_of(
        with_topic, lambda life: life.namespace.create_rule("news", "all", rule), is_last_kept, check
    )
    assert cuts >= 1
