"""Entities that forward to each other by name: as they are created, changed and deleted, and from life to life."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.broker.reading import read_messages
from tandembus.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.errors import InvalidOperation
from tandembus.limits import Limits
from tandembus.message import Message
from tandembus.namespace.entity import EntityCounts
from tandembus.store.messaging_store import DEAD_LETTER, TRANSFER_DEAD_LETTER
from tests.covers import covers
from tests.unit.broker.one_queue import message, properties_of
from tests.unit.broker.several_queues import delivered
from tests.unit.namespace.entity_fragment import fragment_of
from tests.unit.namespace.namespace_lives import Attached, Life, Machine, staged

INBOX = QueueDescription("Inbox", forward_to="work")
WORK = QueueDescription("Work")


async def chained(life: Life) -> None:
    await life.namespace.create_queue(WORK)
    await life.namespace.create_queue(INBOX)


async def only_transfer_dead_letter(life: Life, name: str) -> dict[object, object]:
    fragment = fragment_of(await life.namespace.entity(name))
    (refused,) = await read_messages(life.broker, fragment, fragment.lane(TRANSFER_DEAD_LETTER), [1], 1 << 20)
    assert isinstance(refused, Message)
    return properties_of(refused)


@covers("M10")
async def test_a_queue_forwards_to_another_by_its_name_in_whatever_letters() -> None:
    async with Machine().life() as life:
        await chained(life)
        await life.send("inbox", "a", "b")
        await life.forwarded()
        assert await life.peek("work") == ["a", "b"]
        assert (await life.namespace.counts("inbox")) == EntityCounts()


@covers("M10")
async def test_a_target_disabled_for_sending_gets_what_waited_when_it_is_enabled() -> None:
    async with Machine().life() as life:
        await chained(life)
        await life.namespace.update_queue(replace(WORK, status=EntityStatus.SEND_DISABLED))
        await life.send("inbox", "a")
        await life.forwarded()
        assert await life.peek("inbox") == ["a"]
        await life.namespace.update_queue(WORK)
        await life.forwarded()
        assert await life.peek("work") == ["a"]


@covers("M10")
async def test_a_target_that_is_deleted_leaves_transfer_dead_letters_with_the_reason() -> None:
    async with Machine().life() as life:
        await chained(life)
        await life.namespace.delete_queue("work")
        await life.send("inbox", "a")
        await life.forwarded()
        assert await life.namespace.counts("inbox") == EntityCounts(
            transfer_dead_letter=1, size_bytes=int(fragment_of(await life.namespace.entity("inbox")).live_bytes())
        )
        found = await only_transfer_dead_letter(life, "inbox")
        assert found["DeadLetterReason"] == "TransferDestinationNotFound"
        assert "'sb://bus/work' could not be found" in str(found["DeadLetterErrorDescription"])


@covers("M10")
async def test_what_waited_for_a_target_that_is_deleted_waits_no_longer() -> None:
    async with Machine().life() as life:
        await chained(life)
        await life.namespace.update_queue(replace(WORK, status=EntityStatus.DISABLED))
        await life.send("inbox", "a")
        await life.forwarded()
        await life.namespace.delete_queue("work")
        await life.forwarded()
        assert await life.peek("inbox", TRANSFER_DEAD_LETTER) == ["a"]


@covers("M10")
async def test_forwarding_that_is_asked_for_later_moves_what_is_there_and_ends_receiving() -> None:
    async with Machine().life() as life:
        for name in ("Inbox", "Work"):
            await life.namespace.create_queue(QueueDescription(name))
        await life.send("inbox", "a")
        entity = await life.namespace.entity("inbox")
        receiver, dead_letters = Attached(is_sender=False), Attached(is_sender=False, lane=DEAD_LETTER)
        for link in (receiver, dead_letters):
            entity.attach(link, life.clock.now())
        await life.namespace.update_queue(INBOX)
        await life.forwarded()
        assert await life.peek("work") == ["a"]
        assert [type(error) for error in receiver.errors] == [InvalidOperation]
        assert not dead_letters.errors
        with pytest.raises(InvalidOperation, match="forwards its messages to 'work'"):
            entity.check_can_receive()
        await life.namespace.update_queue(replace(INBOX, forward_to=None))
        entity.check_can_receive()


@covers("M10")
@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED])
async def test_what_must_not_be_received_is_not_forwarded_until_it_may_be_again(status: EntityStatus) -> None:
    machine = Machine()
    async with machine.life() as life:
        await chained(life)
        await life.namespace.create_topic(TopicDescription("News"))
        subscription = SubscriptionDescription("News", "All", forward_to="work")
        await life.namespace.create_subscription(replace(subscription, status=status))
        await life.namespace.update_queue(replace(INBOX, status=EntityStatus.RECEIVE_DISABLED))
        await life.send("inbox", "a")
        await life.send("news", "n")
        await life.namespace.update_queue(replace(INBOX, status=status))
        await life.forwarded()
        assert [await life.peek(path) for path in ("inbox", "news/subscriptions/all", "work")] == [["a"], ["n"], []]
        with pytest.raises(InvalidOperation, match="forwards its messages"):
            (await life.namespace.entity("inbox")).check_can_receive()
    async with machine.life() as life:
        await life.forwarded()
        assert await life.peek("work") == []
        await life.namespace.update_queue(INBOX)
        await life.namespace.update_subscription(subscription)
        await life.forwarded()
        assert sorted(await life.peek("work")) == ["a", "n"]


@covers("M10")
async def test_what_paused_goes_on_also_when_nobody_has_used_its_queue_meanwhile() -> None:
    async with Machine().life() as life:
        await chained(life)
        await life.namespace.create_topic(TopicDescription("News"))
        subscription = SubscriptionDescription("News", "All", forward_to="work", status=EntityStatus.DISABLED)
        await life.namespace.create_subscription(subscription)
        await life.namespace.update_queue(replace(INBOX, status=EntityStatus.RECEIVE_DISABLED))
        await life.send("inbox", "a")
        await life.send("news", "n")
        await life.forwarded()
        life.clock.advance(1000.0)
        await life.namespace.keep_house()
        assert list(life.namespace._open.all()) == []
        await life.namespace.update_queue(INBOX)
        await life.namespace.update_subscription(replace(subscription, status=EntityStatus.ACTIVE))
        await life.forwarded()
        assert sorted(await life.peek("work")) == ["a", "n"]


@covers("M10")
async def test_dead_letters_wait_while_their_queue_is_disabled_for_receiving() -> None:
    orders = QueueDescription("Orders", forward_dead_lettered_messages_to="work")
    async with Machine().life() as life:
        await life.namespace.create_queue(WORK)
        await life.namespace.create_queue(orders)
        await life.send("orders", "a")
        (lock,) = await life.receive("orders", 1)
        await life.namespace.update_queue(replace(orders, status=EntityStatus.RECEIVE_DISABLED))
        await life.settle("orders", lock, TO_DEAD_LETTERS)
        await life.forwarded()
        assert (await life.peek("orders", DEAD_LETTER), await life.peek("work")) == (["a"], [])
        await life.namespace.update_queue(orders)
        await life.forwarded()
        assert (await life.peek("orders", DEAD_LETTER), await life.peek("work")) == ([], ["a"])


@covers("M10")
async def test_a_message_that_is_too_large_for_the_target_is_refused_for_good() -> None:
    limits = Limits(max_message_size_bytes=2 << 20)
    async with Machine(limits).life() as life:
        await life.namespace.create_queue(replace(WORK, max_message_size_in_kilobytes=1024))
        await life.namespace.create_queue(INBOX)
        for size in (100, 1_500_000):
            staged(await life.namespace.entity("inbox"), message(f"m{size}", padding=size))
        await life.forwarded()
        assert await life.peek("work") == ["m100"]
        assert (await only_transfer_dead_letter(life, "inbox"))["DeadLetterReason"] == "MessageSizeExceeded"


@covers("M9", "M10")
async def test_subscriptions_forward_and_topics_are_forwarded_to() -> None:
    async with Machine().life() as life:
        namespace = life.namespace
        await namespace.create_queue(WORK)
        await namespace.create_topic(TopicDescription("News"))
        await namespace.create_queue(QueueDescription("Inbox", forward_to="news"))
        await namespace.create_subscription(SubscriptionDescription("News", "All", forward_to="work"))
        await namespace.create_subscription(SubscriptionDescription("News", "Kept"))
        await life.send("inbox", "a", "b")
        await life.forwarded()
        assert await life.peek("work") == ["a", "b"]
        assert await life.peek("news/subscriptions/kept") == ["a", "b"]
        assert await life.peek("news/subscriptions/all") == []


@covers("M3", "M10")
async def test_dead_letters_name_the_entity_they_come_from() -> None:
    async with Machine().life() as life:
        namespace = life.namespace
        await namespace.create_queue(WORK)
        await namespace.create_topic(TopicDescription("News"))
        subscription = SubscriptionDescription("News", "All", forward_dead_lettered_messages_to="work")
        await namespace.create_subscription(subscription)
        await life.send("news", "a")
        (lock,) = await life.receive("news/subscriptions/all", 1)
        await life.settle("news/subscriptions/all", lock, TO_DEAD_LETTERS)
        await life.forwarded()
        fragment = fragment_of(await namespace.entity("work"))
        (dead,) = await read_messages(life.broker, fragment, fragment.main, [1], 1 << 20)
        assert isinstance(dead, Message)
        assert delivered(dead)["x-opt-deadletter-source"] == "News/Subscriptions/All"


@covers("M10")
async def test_an_update_reaches_an_entity_whose_messages_wait_although_nobody_uses_it() -> None:
    async with Machine().life() as life:
        await chained(life)
        await life.namespace.create_queue(QueueDescription("Other"))
        await life.namespace.update_queue(replace(WORK, status=EntityStatus.DISABLED))
        await life.send("inbox", "a")
        await life.forwarded()
        life.clock.advance(1000.0)
        await life.namespace.keep_house()
        await life.namespace.update_queue(replace(INBOX, forward_to="other"))
        await life.forwarded()
        assert await life.peek("other") == ["a"]


@covers("M10")
async def test_the_next_life_goes_on_with_what_is_left_and_opens_nothing_else() -> None:
    machine = Machine()
    async with machine.life() as life:
        await chained(life)
        await life.namespace.create_queue(replace(WORK, name="Idle", forward_to="work"))
        await life.namespace.create_topic(TopicDescription("News"))
        await life.namespace.create_subscription(SubscriptionDescription("News", "All", forward_to="work"))
        await life.send("idle", "done")
        await life.forwarded()
        await life.namespace.update_queue(replace(WORK, status=EntityStatus.DISABLED))
        await life.send("inbox", *[f"m{number}" for number in range(5)])
        await life.send("news", "n")
        await life.forwarded()
    async with machine.life() as life:
        await life.forwarded()
        open_ones = {fragment.settings.path for fragment in life.broker.fragments()}
        assert open_ones == {"Inbox", "News", "News/Subscriptions/All"}, "not the idle one"
        await life.namespace.update_queue(WORK)
        await life.forwarded()
        assert sorted(await life.peek("work")) == ["done", "m0", "m1", "m2", "m3", "m4", "n"]


@covers("M1", "M10")
@pytest.mark.parametrize("is_last_kept", [False, True])
async def test_whenever_the_power_goes_out_each_message_arrives_once_and_in_order(is_last_kept: bool) -> None:
    bodies = [f"m{number}" for number in range(6)]
    commits = -1
    is_cut = True
    while is_cut:
        commits += 1
        machine = Machine()
        async with machine.life() as life:
            await chained(life)
            await life.namespace.update_queue(replace(WORK, status=EntityStatus.DISABLED))
            await life.send("inbox", *bodies)
            machine.power.fail_after(1 + commits, is_last_kept)  # the first is the catalog's
            await life.namespace.update_queue(WORK)
            out = asyncio.ensure_future(machine.power.went_out.wait())
            moving = asyncio.ensure_future(life.forwarded())
            await asyncio.wait((out, moving), return_when=asyncio.FIRST_COMPLETED)
            is_cut = out.done()
            for task in (out, moving):
                task.cancel()
        async with machine.life() as life:
            await life.forwarded()
            assert await life.peek("work") == bodies
            assert await life.peek("inbox") == []
    assert commits > 0


@covers("F6", "M10")
async def test_a_damaged_topic_does_not_keep_others_from_forwarding_in_the_next_life() -> None:
    machine = Machine()
    async with machine.life() as life:
        await life.namespace.create_queue(replace(WORK, status=EntityStatus.SEND_DISABLED))
        for topic in ("damaged", "whole"):
            await life.namespace.create_topic(TopicDescription(topic))
            for name in ("audit", "gone"):
                await life.namespace.create_subscription(SubscriptionDescription(topic, name, forward_to="work"))
        await life.send("damaged", "kept")
        await life.send("whole", "a")
    record = b"sdamaged/subscriptions/gone"
    machine.records.damaged = [record]
    del machine.records.documents[record]
    async with machine.life() as life:
        await asyncio.wait_for(asyncio.gather(*life.namespace.resuming), 10.0)
        await life.namespace.update_queue(WORK)
        await life.forwarded()
        assert await life.peek("work") == ["a", "a"]
