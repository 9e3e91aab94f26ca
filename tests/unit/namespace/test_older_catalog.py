"""A catalog from a backup beside a store that has gone on since: nothing of one queue turns up in another."""

from __future__ import annotations

import pytest

from tandembus.broker.housekeeping import thin
from tandembus.broker.locks import COMPLETE
from tandembus.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Life, Machine

SECRETS = QueueDescription("secrets")
PUBLIC = QueueDescription("public")


async def machine_with_an_older_catalog() -> Machine:
    """The store holds a queue's message; the catalog is from before that queue was made."""
    machine = Machine()
    async with machine.life():
        backup = dict(machine.records.documents)
    async with machine.life() as life:
        await life.namespace.create_queue(SECRETS)
        await life.send("secrets", "for secrets only")
    machine.records.documents = backup
    return machine


@covers("M3", "M13")
async def test_a_new_queue_does_not_get_the_messages_of_one_the_catalog_has_forgotten() -> None:
    machine = await machine_with_an_older_catalog()
    async with machine.life() as life:
        await life.namespace.create_queue(PUBLIC)
        assert await life.peek("public") == []


@covers("M3", "M13")
async def test_no_fragment_key_is_given_out_twice_by_a_catalog_older_than_the_store() -> None:
    machine = await machine_with_an_older_catalog()
    taken = set(machine.disk.heads)
    async with machine.life() as life:
        made = [await life.namespace.create_queue(QueueDescription(name)) for name in ("a", "b")]
    assert taken
    assert not taken & {entry.fragment_key for entry in made}


@covers("M13")
async def test_what_the_catalog_has_forgotten_is_kept() -> None:
    machine = await machine_with_an_older_catalog()
    taken, bodies = set(machine.disk.heads), len(machine.disk.bodies)
    async with machine.life():
        assert set(machine.disk.heads) == taken
        assert len(machine.disk.bodies) == bodies == 1


@covers("M13")
async def test_what_the_catalog_has_forgotten_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    machine = await machine_with_an_older_catalog()
    caplog.clear()
    async with machine.life():
        assert "which the catalog does not know" in caplog.text


@covers("M3")
async def test_skipping_keys_is_durable() -> None:
    machine = Machine()
    async with machine.life() as life:
        await life.catalog.skip_fragment_keys(40, machine.clock.now())
    async with machine.life() as life:
        assert (await life.namespace.create_queue(PUBLIC)).fragment_key == 40


@covers("M3")
async def test_skipping_keys_never_goes_back() -> None:
    async with Machine().life() as life:
        await life.catalog.skip_fragment_keys(40, life.clock.now())
        await life.catalog.skip_fragment_keys(7, life.clock.now())
        assert (await life.namespace.create_queue(PUBLIC)).fragment_key == 40


async def complete(life: Life, count: int) -> None:
    for lock in await life.receive("news/subscriptions/known", count):
        await life.settle("news/subscriptions/known", lock, COMPLETE)
    await life.quiet()


@covers("M9", "M13")
async def test_messages_of_a_subscription_that_the_catalog_has_forgotten_are_kept() -> None:
    machine, bodies = Machine(), [f"m{number:03}" for number in range(200)]
    async with machine.life() as life:
        await life.namespace.create_topic(TopicDescription("news"))
        await life.namespace.create_subscription(SubscriptionDescription("news", "known"))
        older = dict(machine.records.documents)
        await life.namespace.create_subscription(SubscriptionDescription("news", "forgotten"))
        await life.send("news", *bodies)
        await complete(life, 150)
        newer = dict(machine.records.documents)
    machine.records.documents = older
    async with machine.life() as life:
        await life.send("news", "while it was forgotten")
        await complete(life, 50)
        while await thin(life.broker):
            await life.quiet()
        assert await life.peek("news/subscriptions/known") == ["while it was forgotten"]
    machine.records.documents = newer
    async with machine.life() as life:
        assert await life.peek("news/subscriptions/forgotten") == bodies


@covers("M9", "M13")
async def test_what_the_catalog_forgot_before_a_topic_was_made_does_not_concern_it() -> None:
    machine = await machine_with_an_older_catalog()
    async with machine.life() as life:
        await life.namespace.create_topic(TopicDescription("news"))
        await life.namespace.create_subscription(SubscriptionDescription("news", "audit"))
        await life.send("news", "a")
        await life.namespace.delete_subscription("news", "audit")
        await life.dropped()
        await life.quiet()
        assert (await life.namespace.counts("news")).size_bytes == 0
