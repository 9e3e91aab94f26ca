"""Forwarding from, to and between partitioned entities whose fragments are in several stores."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tandembus.broker.fragment import Fragment
from tandembus.broker.locks import DEAD_LETTER
from tandembus.broker.operations import CallbackConsumer
from tandembus.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Life, Machine
from tests.unit.namespace.partitioned_use import peek_in_order, receive_all, send

BODIES = [f"m{number:02}" for number in range(40)]
shapes = pytest.mark.parametrize("source", [False, True], ids=["from plain", "from partitioned"])
targets = pytest.mark.parametrize("target", [False, True], ids=["to plain", "to partitioned"])


def queue(name: str, is_partitioned: bool, forward_to: str | None = None) -> QueueDescription:
    return QueueDescription(name, enable_partitioning=is_partitioned, forward_to=forward_to)


async def chain(life: Life, source: bool, target: bool) -> None:
    await life.namespace.create_queue(queue("work", target))
    await life.namespace.create_queue(queue("inbox", source, "work"))


@covers("P17", "M10")
@shapes
@targets
@pytest.mark.parametrize("stores", [1, 3])
async def test_every_message_arrives_once(source: bool, target: bool, stores: int) -> None:
    async with Machine(stores=stores).life() as life:
        await chain(life, source, target)
        await send(life, "inbox", *BODIES)
        await life.forwarded()
        assert await receive_all(life, "work") == BODIES
        assert (await life.namespace.counts("inbox")).active == 0


@covers("P10", "P17")
@shapes
async def test_the_key_of_a_message_decides_its_fragment_and_order_within_a_key_is_kept(source: bool) -> None:
    async with Machine(stores=3).life() as life:
        await chain(life, source, True)
        for key in ("red", "blue"):
            await send(life, "inbox", *[f"{key}{number:02}" for number in range(20)], session_id=key)
        await life.forwarded()
        await life.namespace.entity("work")
        work = life.catalog.get_queue("work")
        fragments = [one for broker in life.brokers for one in broker.fragments() if int(one.key) in work.fragment_keys]
        counts = sorted(int(one.main.live_count) for one in fragments)
        assert counts in ([0] * 14 + [20, 20], [0] * 15 + [40])
        received = await peek_in_order(life, "work")
        for key in ("red", "blue"):
            own = [body for body in received if body.startswith(key)]
            assert own == [f"{key}{number:02}" for number in range(20)]


@covers("P10", "P17")
async def test_a_destination_that_was_created_again_is_known_by_its_keys() -> None:
    async with Machine(stores=3).life() as life:
        seen: set[int] = set()
        for is_partitioned in (False, True, True):
            await life.namespace.create_queue(queue("work", is_partitioned))
            port = life.brokers[0].forwarding.port
            assert port is not None
            work = await port.find("work")
            assert not isinstance(work, Fragment)
            keys = [work.key_of(index) for index in range(work.fragment_count)]
            assert keys == list(life.catalog.get_queue("work").fragment_keys)
            assert seen.isdisjoint(keys)
            seen.update(keys)
            await life.namespace.delete_queue("work")


@covers("P17")
@shapes
@targets
async def test_what_was_on_its_way_when_the_process_ended_arrives_once(source: bool, target: bool) -> None:
    machine = Machine(stores=3)
    async with machine.life() as life:
        await chain(life, source, target)
        work = life.catalog.get_queue("work").description
        await life.namespace.update_queue(replace(work, status=EntityStatus.SEND_DISABLED))
        await send(life, "inbox", *BODIES)
        await life.namespace.update_queue(work)
        for _ in range(3):
            await life.quiet()
    async with machine.life() as life:
        await life.forwarded()
        assert await receive_all(life, "work") == BODIES
        assert (await life.namespace.counts("inbox")).active == 0


async def enabled_and_forwarded(life: Life, description: QueueDescription) -> None:
    await life.namespace.update_queue(description)
    await life.forwarded()


@covers("P17")
@pytest.mark.parametrize("is_last_kept", [False, True])
async def test_whenever_the_power_goes_out_each_message_arrives_once(is_last_kept: bool) -> None:
    bodies = BODIES[:6]
    commits = -1
    is_cut = True
    while is_cut:
        commits += 1
        machine = Machine(stores=2)
        async with machine.life() as life:
            await chain(life, True, True)
            work = life.catalog.get_queue("work").description
            await life.namespace.update_queue(replace(work, status=EntityStatus.SEND_DISABLED))
            await send(life, "inbox", *bodies)
            machine.power.fail_after(commits, is_last_kept)
            out = asyncio.ensure_future(machine.power.went_out.wait())
            moving = asyncio.ensure_future(enabled_and_forwarded(life, work))
            await asyncio.wait((out, moving), return_when=asyncio.FIRST_COMPLETED)
            is_cut = out.done()
            for task in (out, moving):
                task.cancel()
            await asyncio.gather(out, moving, return_exceptions=True)
        async with machine.life() as life:
            await enabled_and_forwarded(life, work)
            assert await receive_all(life, "work") == bodies
            assert (await life.namespace.counts("inbox")).active == 0
    assert commits > 3


@covers("P17", "P3")
@targets
async def test_what_is_for_a_store_that_is_out_waits_and_arrives_when_it_is_back(target: bool) -> None:
    async with Machine(stores=3).life() as life:
        await chain(life, True, target)
        out = life.catalog.get_queue("work").stores[-1]
        await life.take_out(out)
        await send(life, "inbox", *BODIES)
        for _ in range(5):
            await life.quiet()
        await life.bring_back()
        await life.forwarded()
        assert await receive_all(life, "work") == BODIES


@covers("P17", "M10")
async def test_subscriptions_of_a_partitioned_topic_forward_and_dead_letters_do() -> None:
    async with Machine(stores=3).life() as life:
        await life.namespace.create_queue(queue("work", True))
        await life.namespace.create_queue(queue("failed", False))
        await life.namespace.create_topic(TopicDescription("news", enable_partitioning=True))
        await life.namespace.create_subscription(SubscriptionDescription("news", "on", forward_to="work"))
        kept = SubscriptionDescription("news", "kept", forward_dead_lettered_messages_to="failed")
        await life.namespace.create_subscription(kept)
        await send(life, "news", *BODIES)
        await life.forwarded()
        assert await receive_all(life, "work") == BODIES
        entity = await life.namespace.entity("news/subscriptions/kept")
        consumer = CallbackConsumer(False, lambda _message, lock: entity.traffic.settle(lock, DEAD_LETTER, None))
        entity.traffic.attach(consumer, MAIN)
        consumer.credit = 1000
        entity.traffic.feed(consumer, MAIN, False)
        for _ in range(4):
            await life.quiet()
        entity.traffic.detach(consumer, MAIN)
        await life.forwarded()
        assert await receive_all(life, "failed") == BODIES
