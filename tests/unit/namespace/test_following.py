"""Everybody who has a copy of the catalog hears of its changes in order; who does not keep up is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tandembus.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.errors import BusError, OperationTimeout, StoreUnavailable
from tandembus.limits import Limits
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.catalog_change import CatalogChange, CatalogEvent, EntityCreated
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.following import Followers
from tandembus.namespace.hosting import FragmentHost
from tandembus.store.memory_records import MemoryRecords
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Machine
from tests.unit.namespace.partitioned_use import peek, send

NOW = 1_700_000_000.0


class Follower:
    """Another process: what it is told takes a while, for as long as the test says."""

    def __init__(self, name: str = "another process") -> None:
        self.name = name
        self.view = CatalogView.empty()
        self.cut_off_for: list[BusError] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.error: BusError | None = None
        self.under_way = 0

    async def take(self, change: CatalogChange) -> None:
        self.under_way += 1
        assert self.under_way == 1
        try:
            await self.go_on.wait()
            if self.error is not None:
                raise self.error
            self.view.apply(change)
        finally:
            self.under_way -= 1

    def cut_off(self, reason: BusError) -> None:
        self.cut_off_for.append(reason)


class Followed:
    def __init__(self) -> None:
        self.catalog = Catalog(MemoryRecords(), NOW)
        self.followers = Followers(self.catalog)
        self.catalog.listeners.append(lambda change, _events: self.followers.publish(change))

    async def create(self, name: str) -> None:
        entry = await self.catalog.begin_create(QueueDescription(name), Limits(), NOW)
        await self.catalog.finish_create(entry, NOW)

    async def join(self, follower: Follower) -> None:
        known = (follower.view.namespace_id, follower.view.version)
        for change in await self.followers.follow(follower, *known):
            follower.view.apply(change)


@pytest.fixture
async def followed() -> Followed:
    return Followed()


@covers("P18")
async def test_an_answer_waits_until_everybody_has_confirmed(followed: Followed) -> None:
    quick, slow = Follower(), Follower()
    for one in (quick, slow):
        await followed.join(one)
    slow.go_on.clear()
    await followed.create("orders")
    confirmed = asyncio.ensure_future(followed.followers.confirmed())
    for _ in range(10):
        await asyncio.sleep(0)
    assert quick.view.version == followed.catalog.version
    assert not confirmed.done()
    slow.go_on.set()
    await asyncio.wait_for(confirmed, 10)
    for one in (quick, slow):
        assert one.view.find_queue("orders") is not None
        assert one.cut_off_for == []


@covers("P18")
async def test_who_does_not_confirm_in_time_is_cut_off_and_nobody_waits_for_it(followed: Followed) -> None:
    follower = Follower()
    follower.view.apply(await followed.catalog.snapshot())
    followed.followers.add(follower, 0.05)
    follower.go_on.clear()
    await followed.create("orders")
    await asyncio.wait_for(followed.followers.confirmed(), 10)
    assert [type(one) for one in follower.cut_off_for] == [OperationTimeout]
    assert follower not in followed.followers
    await followed.create("more")
    await asyncio.wait_for(followed.followers.confirmed(), 10)
    assert follower.view.find_queue("more") is None
    follower.go_on.set()
    await followed.join(follower)
    assert follower.view.version == followed.catalog.version
    assert follower.view.find_queue("more") is not None


@covers("P18")
async def test_who_cannot_take_a_change_is_cut_off(followed: Followed) -> None:
    broken, sound = Follower(), Follower()
    for one in (broken, sound):
        await followed.join(one)
    broken.error = StoreUnavailable("the disk is gone")
    await followed.create("orders")
    await followed.followers.confirmed()
    assert broken.cut_off_for == [broken.error]
    assert sound.view.find_queue("orders") is not None


async def test_changes_come_one_after_the_other_and_in_their_order(followed: Followed) -> None:
    follower = Follower()
    await followed.join(follower)
    follower.go_on.clear()
    for number in range(10):
        await followed.create(f"q{number}")
    follower.go_on.set()
    await followed.followers.confirmed()
    assert follower.view.version == followed.catalog.version
    assert follower.cut_off_for == []


async def test_nothing_is_missed_between_catching_up_and_following(followed: Followed) -> None:
    followers = [Follower(str(number)) for number in range(20)]

    async def join(one: Follower) -> None:
        one.go_on.clear()
        missed = await followed.followers.follow(one, one.view.namespace_id, one.view.version)
        await asyncio.sleep(0)
        for change in missed:
            one.view.apply(change)
        one.go_on.set()

    await asyncio.gather(*(join(one) for one in followers), *(followed.create(f"q{number}") for number in range(20)))
    await followed.followers.confirmed()
    for one in followers:
        assert one.cut_off_for == []
        assert one.view.version == followed.catalog.version


async def test_who_has_left_is_told_nothing_more(followed: Followed) -> None:
    follower = Follower()
    await followed.join(follower)
    followed.followers.leave(follower)
    await followed.create("orders")
    await followed.followers.confirmed()
    assert follower.view.find_queue("orders") is None
    assert follower.cut_off_for == []


@covers("P7", "P18")
async def test_a_store_of_this_process_that_failed_to_follow_a_change_is_compared_with_the_catalog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Machine(stores=2).life() as life:
        namespace = life.namespace
        await namespace.create_topic(TopicDescription("news", enable_partitioning=True))
        await send(life, "news", "before")
        apply, failures = FragmentHost.apply, [RuntimeError("a fault of ours")]

        async def failing(host: FragmentHost, events: Sequence[CatalogEvent]) -> None:
            if failures and any(isinstance(event, EntityCreated) for event in events):
                raise failures.pop()
            await apply(host, events)

        monkeypatch.setattr(FragmentHost, "apply", failing)
        for name in ("first", "second"):
            await namespace.create_subscription(SubscriptionDescription("news", name))
        assert failures == []
        bodies = [f"m{number:02}" for number in range(32)]
        await send(life, "news", *bodies)
        for name in ("first", "second"):
            assert sorted(await peek(life, f"news/subscriptions/{name}")) == bodies


@covers("P18")
async def test_a_process_whose_stores_cannot_follow_the_catalog_serves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(_host: FragmentHost, *_: object) -> None:
        raise RuntimeError("a fault of ours")

    async with Machine(stores=2).life() as life:
        broken: list[BaseException] = []
        life.namespace.when_broken = broken.append
        monkeypatch.setattr(FragmentHost, "apply", failing)
        monkeypatch.setattr(FragmentHost, "catch_up", failing)
        await life.namespace.create_queue(QueueDescription("orders"))
        assert [type(error) for error in broken] == [StoreUnavailable]
