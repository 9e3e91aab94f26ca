"""A topic and its subscriptions in use: opened, changed by several at once, idle, counted."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tandembus.descriptions import (
    QueueDescription,
    SubscriptionDescription,
)
from tandembus.errors import (
    EntityAlreadyExists,
    EntityNotFound,
    InvalidArgument,
)
from tandembus.limits import Limits
from tests.covers import covers
from tests.unit.namespace.entity_fragment import fragment_of
from tests.unit.namespace.namespace_lives import Attached, Machine
from tests.unit.namespace.news_topic import (
    AUDIT,
    AUDIT_PATH,
    MAIL,
    MAIL_PATH,
    NEWS,
    NOTHING,
    assert_empty,
    assert_filled,
    fill,
    make_topic,
)

# Several at the same time.


class SlowDisk:
    """Reads wait until the test lets them go on."""

    def __init__(self, machine: Machine) -> None:
        self.is_reading = asyncio.Event()
        self.go_on = asyncio.Event()
        machine.disk.before_read = self._hold_up

    async def _hold_up(self) -> None:
        self.is_reading.set()
        await self.go_on.wait()


@covers("M9")
async def test_all_who_open_a_topic_or_subscription_at_once_get_the_same() -> None:
    machine = Machine()
    async with machine.life() as life:
        await fill(life)
    async with machine.life() as life:
        paths = ["news", AUDIT_PATH, MAIL_PATH] * 5
        opened = await asyncio.gather(*(life.namespace.entity(path) for path in paths))
        assert len({id(entity) for entity in opened}) == len({id(fragment_of(entity)) for entity in opened}) == 3


@covers("M9")
async def test_a_subscription_that_comes_while_its_topic_is_being_opened_gets_what_is_sent_then() -> None:
    machine = Machine()
    async with machine.life() as life:
        await fill(life)
    async with machine.life() as life:
        disk = SlowDisk(machine)
        opening = asyncio.create_task(life.namespace.entity("news"))
        await disk.is_reading.wait()
        creating = asyncio.create_task(life.namespace.create_subscription(SubscriptionDescription("news", "new")))
        changing = asyncio.create_task(life.namespace.update_subscription(replace(MAIL, lock_duration_s=7.0)))
        ruling = asyncio.create_task(life.namespace.create_rule("news", "audit", NOTHING))
        await asyncio.sleep(0)
        disk.go_on.set()
        await asyncio.gather(opening, creating, changing, ruling)
        await life.send("news", "c")
        assert await life.peek("news/subscriptions/new") == ["c"]
        mail, audit = await life.namespace.entity(MAIL_PATH), await life.namespace.entity(AUDIT_PATH)
        assert fragment_of(mail).settings.lock_duration_s == 7.0
        assert len(fragment_of(audit).rules.rules) == 2


@covers("M9")
async def test_a_topic_that_goes_while_it_is_being_opened_is_gone() -> None:
    machine = Machine()
    async with machine.life() as life:
        await fill(life)
    async with machine.life() as life:
        disk = SlowDisk(machine)
        opening = asyncio.create_task(life.namespace.entity(AUDIT_PATH))
        await disk.is_reading.wait()
        deleting = asyncio.create_task(life.namespace.delete_topic("news"))
        await asyncio.sleep(0)
        disk.go_on.set()
        await asyncio.gather(opening, deleting, return_exceptions=True)
        await life.dropped()
        assert_empty(machine, life)
        with pytest.raises(EntityNotFound):
            await life.namespace.entity(AUDIT_PATH)
        assert life.broker.fragments() == []


@covers("M9")
async def test_of_many_who_create_the_same_subscription_one_succeeds() -> None:
    async with Machine().life() as life:
        await life.namespace.create_topic(NEWS)
        await life.namespace.entity("news")
        outcomes = await asyncio.gather(
            *(life.namespace.create_subscription(AUDIT) for _ in range(10)), return_exceptions=True
        )
        assert sum(isinstance(one, EntityAlreadyExists) for one in outcomes) == 9
        await life.send("news", "a")
        assert await life.peek(AUDIT_PATH) == ["a"]


@covers("M10")
async def test_of_two_who_would_make_a_circle_together_one_is_refused() -> None:
    """Each on its own is fine: they are looked at one after the other."""
    async with Machine().life() as life:
        for name in ("a", "b"):
            await life.namespace.create_queue(QueueDescription(name))
        catalog, limits = life.catalog, life.machine.limits

        async def forward(name: str, target: str) -> None:
            new = QueueDescription(name, forward_to=target).validated(limits)
            async with life.namespace._own_administration._forwarding(new, QueueDescription(name)):
                await catalog.update_queue(new, life.clock.now())

        outcomes = await asyncio.gather(forward("a", "b"), forward("b", "a"), return_exceptions=True)
        assert [type(one) for one in outcomes] == [type(None), InvalidArgument]


# Use and idleness.


@covers("M6", "M9")
async def test_a_topic_is_idle_when_neither_it_nor_its_subscriptions_are_used() -> None:
    async with Machine().life() as life:
        deleted: list[str] = []
        life.namespace.on_deleted = deleted.append
        await life.namespace.create_topic(replace(NEWS, auto_delete_on_idle_s=300.0))
        await life.namespace.create_subscription(AUDIT)
        receiver = Attached(is_sender=False)
        audit = await life.namespace.entity(AUDIT_PATH)
        audit.attach(receiver, life.clock.now())
        life.clock.advance(3600.0)
        await life.namespace.keep_house()
        audit.detach(receiver, life.clock.now())
        life.clock.advance(299.0)
        await life.namespace.keep_house()
        assert life.catalog.find_topic("news") is not None
        life.clock.advance(1.0)
        await life.namespace.keep_house()
        assert life.catalog.find("news") is life.catalog.find(AUDIT_PATH) is None
        assert sorted(deleted) == ["news", AUDIT_PATH]


@covers("M6", "M9")
async def test_an_idle_subscription_goes_alone() -> None:
    async with Machine().life() as life:
        await life.namespace.create_topic(NEWS)
        await life.namespace.create_subscription(replace(AUDIT, auto_delete_on_idle_s=300.0))
        await life.namespace.create_subscription(MAIL)
        (await life.namespace.entity("news")).attach(Attached(is_sender=True), life.clock.now())
        life.clock.advance(299.0)
        await life.namespace.keep_house()
        assert life.catalog.subscription_count("news") == 2
        life.clock.advance(1.0)
        await life.namespace.keep_house()
        assert [entry.description.name for entry in life.catalog.subscriptions("news")] == ["Mail"]
        await life.send("news", "a")
        assert await life.peek(MAIL_PATH) == ["a"]


@covers("M6", "M9")
async def test_changing_an_entity_or_its_rules_is_use() -> None:
    async with Machine().life() as life:
        idle = replace(AUDIT, auto_delete_on_idle_s=300.0)
        await life.namespace.create_topic(NEWS)
        await life.namespace.create_subscription(idle)
        for change in (
            lambda: life.namespace.update_subscription(replace(idle, max_delivery_count=3)),
            lambda: life.namespace.create_rule("news", "audit", NOTHING),
            lambda: life.namespace.delete_rule("news", "audit", "nothing"),
        ):
            life.clock.advance(299.0)
            await change()
            await life.namespace.keep_house()
        life.clock.advance(299.0)
        await life.namespace.keep_house()
        assert life.catalog.find_subscription("news", "audit") is not None
        life.clock.advance(1.0)
        await life.namespace.keep_house()
        assert life.catalog.find_subscription("news", "audit") is None


@covers("M9")
async def test_a_family_leaves_the_memory_together_and_only_when_nobody_uses_any_of_it() -> None:
    async with Machine(Limits(fragment_idle_s=60.0)).life() as life:
        await fill(life)
        audit = await life.namespace.entity(AUDIT_PATH)
        receiver = Attached(is_sender=False)
        audit.attach(receiver, life.clock.now())
        life.clock.advance(61.0)
        await life.namespace.keep_house()
        assert await life.namespace.entity(AUDIT_PATH) is audit
        assert len(life.broker.fragments()) == 3
        audit.detach(receiver, life.clock.now())
        life.clock.advance(61.0)
        await life.namespace.keep_house()
        assert life.broker.fragments() == []
        await assert_filled(life)


@covers("M5", "M9")
async def test_a_scheduled_message_of_a_topic_that_left_the_memory_comes_on_time() -> None:
    async with Machine(Limits(fragment_idle_s=60.0)).life() as life:
        await make_topic(life)
        await life.send("news", "later", scheduled_in_s=100.0)
        life.clock.advance(100.0)
        await life.namespace.keep_house()
        assert life.broker.fragments() == []
        await life.broker._due.work()
        await life.quiet()
        assert await life.peek(AUDIT_PATH) == ["later"]


# Counts.


@covers("M9", "M13")
async def test_counts_of_a_topic_and_of_its_subscriptions() -> None:
    async with Machine().life() as life:
        await fill(life)
        topic, audit, mail = [await life.namespace.counts(path) for path in ("news", AUDIT_PATH, MAIL_PATH)]
        assert (topic.active, topic.scheduled, topic.dead_letter) == (0, 1, 0)
        assert (audit.active, audit.scheduled, audit.dead_letter) == (2, 0, 1)
        assert (mail.active, mail.dead_letter) == (1, 0)
        assert topic.size_bytes > 0
        assert life.catalog.subscription_count("news") == 2
