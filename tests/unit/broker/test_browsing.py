"""What the management node asks of a fragment: peek, receive by number, cancel, delete many."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.broker import browsing
from tandembus.broker.locks import COMPLETE
from tandembus.errors import InvalidArgument, MessageNotFound, StoreUnavailable
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import ACTIVE, DEAD_LETTER, DEFERRED, MAIN, SCHEDULED
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, body_of, message, properties_of, small

BODIES = [f"m{index:02}" for index in range(20)]


async def peek(queue: OneQueue, start: int = 1, count: int = 100, max_bytes: int = 1 << 20) -> list[str]:
    found = await browsing.peek(queue.broker, queue.fragment, MAIN, start, count, max_bytes)
    return [body_of(one.message) for one in found]


async def receive(queue: OneQueue, *numbers: int, is_destructive: bool = False, lane: int = MAIN) -> list[str]:
    taken = await browsing.receive_deferred(queue.broker, queue.fragment, lane, numbers, is_destructive)
    return [body_of(message) for _, message in taken]


async def deferred(queue: OneQueue, *bodies: str) -> list[int]:
    numbers = await queue.send(*bodies)
    receiver = queue.receiver()
    await receiver.take(len(bodies))
    for lock in receiver.locks:
        await queue.defer(lock)
    return numbers


# Peek.


@covers("M4")
async def test_peek_shows_active_locked_deferred_and_scheduled_messages_alike() -> None:
    async with OneQueue() as queue:
        await deferred(queue, "deferred")
        await queue.send("locked", "active")
        await queue.receiver().take_one()
        await queue.schedule("scheduled", in_s=10.0)
        found = await browsing.peek(queue.broker, queue.fragment, MAIN, 1, 100, 1 << 20)
        assert [(body_of(one.message), one.state) for one in found] == [
            ("deferred", DEFERRED),
            ("locked", ACTIVE),
            ("active", ACTIVE),
            ("scheduled", SCHEDULED),
        ]


@covers("M4")
async def test_peek_changes_nothing() -> None:
    async with OneQueue() as queue:
        await queue.send(*BODIES)
        before = queue.disk.commit_count
        await peek(queue)
        assert queue.disk.commit_count == before
        receiver = queue.receiver()
        assert await receiver.take(100) == BODIES
        assert {one.delivery_count for one in receiver.messages} == {0}


@covers("M4")
async def test_peek_begins_at_the_number_asked_for() -> None:
    async with OneQueue() as queue:
        await queue.send(*BODIES)
        assert await peek(queue, start=15, count=3) == BODIES[14:17]
        assert await peek(queue, start=21) == []


@covers("M4")
async def test_peek_passes_over_what_is_gone() -> None:
    async with OneQueue() as queue:
        await queue.send(*BODIES)
        await queue.receiver(is_destructive=True).take(12)
        assert await peek(queue, count=2) == BODIES[12:14]


@covers("M4")
async def test_an_answer_to_a_peek_is_bounded_but_has_at_least_one_message() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b", "c", padding=1000)
        assert await peek(queue, max_bytes=1) == ["a"]
        assert await peek(queue, max_bytes=2500) == ["a", "b"]


@covers("M4")
async def test_peek_shows_delivery_count_and_changed_properties() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        lock.changes = {"tries": "one"}
        await queue.abandon(lock)
        found = await browsing.peek(queue.broker, queue.fragment, MAIN, 1, 1, 1 << 20)
        assert found[0].message.delivery_count == 1
        assert properties_of(found[0].message) == {"tries": "one"}


@covers("M4", "M6")
async def test_a_scheduled_message_says_no_expiry_yet_in_a_peek() -> None:
    async with OneQueue() as queue:
        await queue.schedule("a", in_s=10.0, ttl_ms=1000)
        found = await browsing.peek(queue.broker, queue.fragment, MAIN, 1, 1, 1 << 20)
        assert found[0].message.expires_at == 0


@covers("M4")
async def test_dead_letters_can_be_peeked() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        await queue.dead_letter(await queue.receiver().take_one())
        assert (await queue.peek(), await queue.dead_letters()) == (["b"], ["a"])


# Receiving deferred messages.


@covers("M3")
async def test_a_deferred_message_is_received_by_its_number_only() -> None:
    async with OneQueue() as queue:
        (number,) = await deferred(queue, "a")
        assert await queue.receiver().take(5) == []
        assert await receive(queue, number) == ["a"]


@covers("M3")
async def test_a_deferred_message_is_there_after_a_crash() -> None:
    async with OneQueue() as queue:
        (number,) = await deferred(queue, "a")
        async with await queue.after_crash() as again:
            assert await again.receiver().take(5) == []
            assert await receive(again, number) == ["a"]


@covers("M3")
async def test_a_deferred_message_that_was_received_can_be_completed() -> None:
    async with OneQueue() as queue:
        (number,) = await deferred(queue, "a")
        taken = await browsing.receive_deferred(queue.broker, queue.fragment, MAIN, [number], False)
        await queue.complete(queue.fragment.find_lock(taken[0][0].token))
        assert await queue.peek() == []
        assert queue.fragment.main.deferred_count == 0


@covers("M3", "M14")
async def test_more_deferred_messages_than_one_answer_may_hold_are_not_received_at_all() -> None:
    async with OneQueue() as queue:
        numbers = await deferred(queue, "a", "b")
        broker, fragment = queue.broker, queue.fragment
        with pytest.raises(InvalidArgument, match="ask for fewer"):
            await browsing.receive_deferred(broker, fragment, MAIN, numbers, True, max_bytes=1)
        for number in numbers:
            assert len(await browsing.receive_deferred(broker, fragment, MAIN, [number], True, max_bytes=1)) == 1


@covers("M3")
async def test_a_deferred_message_that_is_abandoned_is_deferred_again_and_counted() -> None:
    async with OneQueue() as queue:
        (number,) = await deferred(queue, "a")
        taken = await browsing.receive_deferred(queue.broker, queue.fragment, MAIN, [number], False)
        await queue.abandon(taken[0][0])
        assert await queue.receiver().take(5) == []
        taken = await browsing.receive_deferred(queue.broker, queue.fragment, MAIN, [number], False)
        assert taken[0][1].delivery_count == 2
        assert queue.fragment.main.deferred_count == 1


@covers("M3")
async def test_a_deferred_message_whose_lock_lapses_stays_deferred() -> None:
    async with OneQueue() as queue:
        (number,) = await deferred(queue, "a")
        await receive(queue, number)
        await queue.pass_time(60.0)
        assert await queue.receiver().take(5) == []
        assert await receive(queue, number) == ["a"]


@covers("M3")
async def test_a_deferred_message_can_be_deferred_again_and_dead_lettered() -> None:
    async with OneQueue() as queue:
        (number,) = await deferred(queue, "a")
        taken = await browsing.receive_deferred(queue.broker, queue.fragment, MAIN, [number], False)
        await queue.defer(taken[0][0])
        assert queue.fragment.main.deferred_count == 1
        taken = await browsing.receive_deferred(queue.broker, queue.fragment, MAIN, [number], False)
        await queue.dead_letter(taken[0][0])
        assert (await queue.peek(), await queue.dead_letters()) == ([], ["a"])
        assert queue.fragment.main.deferred_count == 0


@covers("M2", "M3")
async def test_deferred_messages_received_and_deleted_are_gone_when_that_is_answered() -> None:
    async with OneQueue() as queue:
        numbers = await deferred(queue, "a", "b")
        assert await receive(queue, *numbers, is_destructive=True) == ["a", "b"]
        assert await queue.peek() == []
        assert len(queue.fragment.locks) == 0


@covers("M3")
async def test_deferred_messages_are_received_all_or_none() -> None:
    async with OneQueue() as queue:
        numbers = await deferred(queue, "a", "b")
        with pytest.raises(MessageNotFound):
            await receive(queue, *numbers, 99)
        assert await receive(queue, *numbers) == ["a", "b"]


@pytest.mark.parametrize("which", ["active", "locked", "scheduled", "gone", "never given"])
@covers("M3")
async def test_what_is_not_deferred_is_not_found(which: str) -> None:
    async with OneQueue() as queue:
        (gone,) = await queue.send("gone")
        await queue.receiver(is_destructive=True).take(1)
        (locked,) = await queue.send("locked")
        await queue.receiver().take_one()
        (active,) = await queue.send("active")
        scheduled = await queue.schedule("scheduled", in_s=10.0)
        numbers = {"gone": gone, "locked": locked, "active": active, "scheduled": scheduled, "never given": 1000}
        with pytest.raises(MessageNotFound):
            await receive(queue, numbers[which])


@covers("M3")
async def test_a_number_that_stands_twice_is_refused() -> None:
    async with OneQueue() as queue:
        (number,) = await deferred(queue, "a")
        with pytest.raises(InvalidArgument):
            await receive(queue, number, number)


@covers("M3")
async def test_of_two_who_ask_for_one_deferred_message_one_gets_it() -> None:
    async with OneQueue() as queue:
        (number,) = await deferred(queue, "a")
        results = await asyncio.gather(receive(queue, number), receive(queue, number), return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["MessageNotFound", "list"]


@covers("M6")
async def test_an_expired_deferred_message_is_not_found_and_goes_to_the_dead_letters() -> None:
    async with OneQueue(small(dead_letter_expired=True)) as queue:
        (number,) = await queue.send("a", ttl_ms=10_000)
        await queue.defer(await queue.receiver().take_one())
        queue.clock.advance(20.0)
        with pytest.raises(MessageNotFound):
            await receive(queue, number)
        await queue.quiet()
        assert (await queue.peek(), await queue.dead_letters()) == ([], ["a"])
        assert queue.fragment.main.deferred_count == 0


@covers("M3")
async def test_a_dead_letter_can_be_deferred_and_received_by_number() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        await queue.dead_letter(await queue.receiver().take_one())
        await queue.defer(await queue.receiver(DEAD_LETTER).take_one())
        assert await queue.receiver(DEAD_LETTER).take(5) == []
        assert await receive(queue, 1, lane=DEAD_LETTER) == ["a"]


# Cancelling.


@covers("M5")
async def test_a_cancelled_message_never_comes() -> None:
    async with OneQueue() as queue:
        first, second = await queue.schedule("a", in_s=10.0), await queue.schedule("b", in_s=10.0)
        await browsing.cancel_scheduled(queue.broker, queue.fragment, [first])
        await queue.pass_time(10.0)
        assert await queue.receiver().take(5) == ["b"]
        assert first != second
        assert (queue.disk.schedules, queue.fragment.main.scheduled_count) == (set(), 0)


@covers("M5")
async def test_cancelling_is_all_or_none() -> None:
    async with OneQueue() as queue:
        number = await queue.schedule("a", in_s=10.0)
        with pytest.raises(MessageNotFound):
            await browsing.cancel_scheduled(queue.broker, queue.fragment, [number, 99])
        await queue.pass_time(10.0)
        assert await queue.receiver().take(5) == ["a"]


@covers("M5")
async def test_what_was_enqueued_already_cannot_be_cancelled() -> None:
    async with OneQueue() as queue:
        number = await queue.schedule("a", in_s=10.0)
        await queue.pass_time(10.0)
        with pytest.raises(MessageNotFound):
            await browsing.cancel_scheduled(queue.broker, queue.fragment, [number])
        assert await queue.receiver().take(5) == ["a"]


@covers("M5")
async def test_deferred_and_active_messages_cannot_be_cancelled() -> None:
    async with OneQueue() as queue:
        numbers = [*await deferred(queue, "a"), *await queue.send("b")]
        for number in numbers:
            with pytest.raises(MessageNotFound):
                await browsing.cancel_scheduled(queue.broker, queue.fragment, [number])


@covers("M5")
async def test_a_cancellation_survives_a_crash() -> None:
    async with OneQueue() as queue:
        number = await queue.schedule("a", in_s=10.0)
        await browsing.cancel_scheduled(queue.broker, queue.fragment, [number])
        async with await queue.after_crash() as again:
            await again.pass_time(10.0)
            assert await again.receiver().take(5) == []


@covers("M5", "F3")
async def test_a_cancellation_that_failed_says_so() -> None:
    async with OneQueue() as queue:
        number = await queue.schedule("a", in_s=10.0)
        queue.fault_next(Fault.UNKNOWN_LOST)
        with pytest.raises(StoreUnavailable):
            await browsing.cancel_scheduled(queue.broker, queue.fragment, [number])
        await queue.quiet()
        await queue.pass_time(10.0)
        assert await queue.receiver().take(5) == ["a"]


# Deleting many.


@covers("M3")
async def test_a_batch_delete_takes_the_oldest_first() -> None:
    async with OneQueue() as queue:
        await queue.send(*BODIES)
        now_ms = queue.clock.now_ms()
        assert await browsing.delete_batch(queue.broker, queue.fragment, MAIN, 5, now_ms + 1) == 5
        assert await queue.peek() == BODIES[5:]


@covers("M3")
async def test_a_batch_delete_leaves_what_was_enqueued_later() -> None:
    async with OneQueue() as queue:
        await queue.send("old")
        queue.clock.advance(10.0)
        before_ms = queue.clock.now_ms()
        await queue.send("new")
        assert await browsing.delete_batch(queue.broker, queue.fragment, MAIN, 100, before_ms) == 1
        assert await queue.peek() == ["new"]


@covers("M3")
async def test_a_batch_delete_leaves_locked_deferred_and_scheduled_messages() -> None:
    async with OneQueue() as queue:
        await deferred(queue, "deferred")
        await queue.schedule("scheduled", in_s=10.0)
        await queue.send("locked", "active")
        lock = await queue.receiver().take_one()
        assert await browsing.delete_batch(queue.broker, queue.fragment, MAIN, 100, 1 << 50) == 1
        assert await queue.peek() == ["deferred", "scheduled", "locked"]
        queue.settle(lock, COMPLETE)


@covers("M3")
async def test_deleted_messages_that_were_ready_are_not_handed_over() -> None:
    async with OneQueue(small(window_messages=100)) as queue:
        await queue.send(*BODIES)
        assert len(queue.fragment.main.ready) == 20
        await browsing.delete_batch(queue.broker, queue.fragment, MAIN, 15, 1 << 50)
        assert await queue.receiver().take(100) == BODIES[15:]


@covers("M3")
async def test_a_batch_delete_survives_a_crash() -> None:
    async with OneQueue() as queue:
        await queue.send(*BODIES)
        await browsing.delete_batch(queue.broker, queue.fragment, MAIN, 15, 1 << 50)
        async with await queue.after_crash() as again:
            assert await again.receiver().take(100) == BODIES[15:]


@covers("M3", "M5")
async def test_the_scheduled_time_is_read_from_the_message_itself() -> None:
    assert browsing.scheduled_time(message("a", scheduled_at_ms=12_345)) == 12_345
