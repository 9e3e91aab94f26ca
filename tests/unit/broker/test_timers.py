"""What is due: schedules and expiry on wall time, whatever the clock and the broker's lives do."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.broker.loading import load
from tandembus.broker.timers import DUE_SLICE, DueWork
from tandembus.clock import ManualClock
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, Changes, Due
from tests.covers import covers
from tests.unit.broker.one_queue import KEY, OneQueue, message, properties_of, small

# Schedules.


@covers("M5")
async def test_a_scheduled_message_is_enqueued_on_time_and_not_before() -> None:
    async with OneQueue() as queue:
        await queue.schedule("a", in_s=10.0)
        receiver = queue.receiver()
        receiver.consumer.credit = 5
        await queue.pass_time(9.9)
        assert receiver.bodies == []
        await queue.pass_time(0.1)
        assert receiver.bodies == ["a"]


@covers("M5")
async def test_a_scheduled_message_takes_a_new_number_at_the_tail() -> None:
    async with OneQueue() as queue:
        assert await queue.schedule("later", in_s=10.0) == 1
        await queue.send("a")
        await queue.pass_time(10.0)
        receiver = queue.receiver()
        assert await receiver.take(5) == ["a", "later"]
        assert [one.number for one in receiver.messages] == [2, 3]
        assert receiver.messages[1].original_number == 3
        assert receiver.messages[1].enqueued_at == queue.clock.now_ms()


@covers("M5")
async def test_a_time_that_is_past_already_is_now() -> None:
    async with OneQueue() as queue:
        await queue.schedule("a", in_s=-10.0)
        assert await queue.receiver().take(1) == ["a"]
        assert queue.disk.schedules == set()


@covers("M5")
async def test_scheduled_messages_are_enqueued_in_the_order_of_their_times() -> None:
    async with OneQueue() as queue:
        for body, in_s in (("third", 30.0), ("first", 10.0), ("second", 20.0)):
            await queue.schedule(body, in_s)
        await queue.pass_time(60.0)
        assert await queue.receiver().take(5) == ["first", "second", "third"]


@covers("M5")
async def test_a_schedule_survives_a_crash() -> None:
    async with OneQueue() as queue:
        await queue.schedule("a", in_s=10.0)
        async with await queue.after_crash() as again:
            receiver = again.receiver()
            assert await receiver.take(5) == []
            await again.pass_time(10.0)
            assert receiver.bodies == ["a"]


@covers("M5")
async def test_what_came_due_while_nobody_ran_is_enqueued_at_the_start() -> None:
    async with OneQueue() as queue:
        await queue.schedule("a", in_s=10.0)
        broker_gone = await queue.after_crash()
        queue.clock.advance(3600.0)
        async with broker_gone as again:
            await again.do_due_work()
            assert await again.receiver().take(5) == ["a"]


@covers("M5")
async def test_a_fragment_that_nobody_has_opened_enqueues_on_time() -> None:
    async with OneQueue() as queue:
        await queue.schedule("a", in_s=10.0)
        queue.broker.close_fragment(KEY)
        await queue.pass_time(10.0)
        fragment = await queue.broker.open_fragment(KEY, 0, small())
        assert (fragment.main.scheduled_count, fragment.main.live_count) == (0, 1)


@covers("M5")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_LOST, Fault.UNKNOWN_KEPT])
async def test_a_message_is_enqueued_once_though_its_activation_failed(fault: Fault) -> None:
    async with OneQueue() as queue:
        await queue.schedule("a", in_s=10.0)
        queue.fault_next(fault)
        await queue.pass_time(10.0)
        await queue.do_due_work()
        await queue.do_due_work()
        assert await queue.receiver().take(5) == ["a"]
        assert queue.fragment.main.live_count == 1


@covers("M5")
async def test_more_scheduled_messages_than_one_look_takes_all_come() -> None:
    async with OneQueue(small(window_messages=1000, block_size=1024)) as queue:
        at_ms = queue.clock.now_ms() + 1000
        queue.stage(*[message(f"{index:04}", scheduled_at_ms=at_ms) for index in range(600)])
        await queue.quiet()
        await queue.pass_time(1.0)
        await queue.do_due_work()
        assert await queue.receiver().take(1000) == [f"{index:04}" for index in range(600)]


@covers("M5")
async def test_a_clock_set_forward_enqueues_and_a_clock_set_back_waits() -> None:
    async with OneQueue() as queue:
        await queue.schedule("a", in_s=10.0)
        queue.clock.shift_wall(-3600.0)
        await queue.pass_time(60.0)
        receiver = queue.receiver()
        assert await receiver.take(5) == []
        queue.clock.shift_wall(3600.0)
        await queue.do_due_work()
        assert receiver.bodies == ["a"]


@covers("M1")
async def test_a_clock_set_back_does_not_turn_the_times_of_enqueueing_around() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        queue.clock.shift_wall(-3600.0)
        await queue.send("b")
        receiver = queue.receiver()
        await receiver.take(2)
        assert receiver.messages[0].enqueued_at <= receiver.messages[1].enqueued_at


@covers("M5", "M6")
async def test_the_time_to_live_of_a_scheduled_message_counts_from_its_enqueueing() -> None:
    async with OneQueue() as queue:
        await queue.schedule("a", in_s=100.0, ttl_ms=10_000)
        await queue.pass_time(100.0)
        await queue.pass_time(9.0)
        assert await queue.peek() == ["a"]
        await queue.pass_time(1.0)
        assert await queue.peek() == []


@covers("M5", "M6")
async def test_a_scheduled_message_with_the_shortest_time_to_live_expires_when_it_is_enqueued() -> None:
    async with OneQueue(small(dead_letter_expired=True)) as queue:
        await queue.schedule("a", in_s=100.0, ttl_ms=1)
        await queue.pass_time(100.0)
        await queue.pass_time(1.0)
        assert (await queue.peek(), await queue.dead_letters()) == ([], ["a"])


# Expiry.


@covers("M6")
async def test_an_expired_message_is_dropped() -> None:
    async with OneQueue() as queue:
        await queue.send("a", ttl_ms=10_000)
        await queue.send("b")
        await queue.pass_time(9.9)
        assert await queue.peek() == ["a", "b"]
        await queue.pass_time(0.1)
        assert (await queue.peek(), await queue.dead_letters()) == (["b"], [])


@covers("M6")
async def test_an_expired_message_becomes_a_dead_letter_that_says_so_where_that_is_wanted() -> None:
    async with OneQueue(small(dead_letter_expired=True)) as queue:
        await queue.send("a", ttl_ms=10_000)
        await queue.pass_time(10.0)
        receiver = queue.receiver(DEAD_LETTER)
        assert await receiver.take(5) == ["a"]
        assert properties_of(receiver.messages[0])["DeadLetterReason"] == "TTLExpiredException"
        assert receiver.messages[0].expires_at == 0, "a dead letter lives for ever"


@covers("M6")
@pytest.mark.parametrize(("own_ms", "default_ms"), [(10_000, 60_000), (60_000, 10_000), (None, 10_000)])
async def test_of_the_messages_and_the_queues_time_to_live_the_smaller_wins(
    own_ms: int | None, default_ms: int
) -> None:
    async with OneQueue(small(default_ttl_ms=default_ms)) as queue:
        await queue.send("a", ttl_ms=own_ms)
        receiver = queue.receiver()
        await receiver.take_one()
        message = receiver.messages[0]
        assert message.expires_at - message.enqueued_at == 10_000


@covers("M6")
async def test_an_expired_message_is_not_handed_over_even_before_the_sweep() -> None:
    async with OneQueue() as queue:
        await queue.send("a", ttl_ms=1000)
        await queue.send("b")
        queue.clock.advance(1.0)
        assert await queue.receiver().take(5) == ["b"]
        await queue.quiet()
        assert await queue.peek() == ["b"]


@covers("M6")
async def test_expiry_survives_a_crash() -> None:
    async with OneQueue(small(dead_letter_expired=True)) as queue:
        await queue.send("a", ttl_ms=10_000)
        async with await queue.after_crash() as again:
            await again.pass_time(10.0)
            assert (await again.peek(), await again.dead_letters()) == ([], ["a"])


@covers("M6")
async def test_a_locked_message_outlives_its_time_until_its_lock_ends() -> None:
    async with OneQueue() as queue:
        await queue.send("a", ttl_ms=10_000)
        lock = await queue.receiver().take_one()
        await queue.pass_time(20.0)
        assert await queue.peek() == ["a"]
        await queue.complete(lock)
        assert await queue.peek() == []


@covers("M6")
async def test_an_abandoned_message_whose_time_is_up_does_not_come_again() -> None:
    async with OneQueue(small(dead_letter_expired=True)) as queue:
        await queue.send("a", ttl_ms=10_000)
        receiver = queue.receiver()
        lock = await receiver.take_one()
        await queue.pass_time(20.0)
        await queue.abandon(lock)
        assert await receiver.take(5) == []
        assert await queue.dead_letters() == ["a"]


@covers("M6")
async def test_a_released_message_expires_at_its_time() -> None:
    async with OneQueue() as queue:
        await queue.send("a", ttl_ms=10_000)
        receiver = queue.receiver()
        await queue.abandon(await receiver.take_one())
        await queue.pass_time(10.0)
        assert await queue.peek() == []


@covers("M6")
async def test_a_deferred_message_does_not_expire_while_nobody_asks_for_it() -> None:
    async with OneQueue() as queue:
        await queue.send("a", ttl_ms=10_000)
        await queue.defer(await queue.receiver().take_one())
        await queue.pass_time(20.0)
        assert await queue.peek() == ["a"]


@covers("M6")
async def test_a_whole_block_expires_though_its_messages_have_different_times() -> None:
    async with OneQueue() as queue:
        for seconds in (30, 10, 20):
            await queue.send(f"{seconds}", ttl_ms=seconds * 1000)
        await queue.pass_time(10.0)
        assert await queue.peek() == ["30", "20"]
        await queue.pass_time(10.0)
        assert await queue.peek() == ["30"]
        await queue.pass_time(10.0)
        assert await queue.peek() == []
        await queue.pass_time(1.0)
        assert queue.disk.expiries == set(), "the block is looked at once more, in case the removal was not durable"


@covers("M6")
async def test_messages_expire_over_many_blocks() -> None:
    async with OneQueue() as queue:
        await queue.send(*[f"{index:03}" for index in range(50)], ttl_ms=10_000)
        await queue.send("kept")
        await queue.pass_time(10.0)
        assert await queue.peek() == ["kept"]
        assert queue.fragment.main.live_count == 1


@covers("M6")
async def test_a_clock_set_forward_expires_and_a_clock_set_back_does_not_bring_back() -> None:
    async with OneQueue() as queue:
        await queue.send("a", ttl_ms=10_000)
        queue.clock.shift_wall(3600.0)
        await queue.do_due_work()
        queue.clock.shift_wall(-3600.0)
        assert await queue.peek() == []


@covers("M6")
async def test_the_expiry_of_messages_that_were_received_is_forgotten() -> None:
    async with OneQueue() as queue:
        await queue.send("a", ttl_ms=10_000)
        await queue.complete(await queue.receiver().take_one())
        await queue.pass_time(10.0)
        await queue.do_due_work()
        assert queue.disk.expiries == set()


# Robustness.


@covers("M2", "M5", "M6")
async def test_a_process_that_was_stopped_and_continued_catches_up() -> None:
    async with OneQueue() as queue:
        await queue.send("locked")
        receiver = queue.receiver()
        await receiver.take(1)
        await queue.send("expired", ttl_ms=1000)
        await queue.schedule("scheduled", in_s=100.0)
        await queue.pass_time(86_400.0)
        assert await receiver.take(5) == ["locked", "scheduled"]


async def test_a_due_entry_of_a_fragment_that_the_store_still_has_is_kept() -> None:
    async with OneQueue() as queue:
        await queue.schedule("a", in_s=10.0)

        async def not_known_yet(_key: int) -> None:
            return None

        known = queue.broker.open_by_key
        queue.broker.open_by_key = not_known_yet
        queue.clock.advance(10.0)
        assert not await DueWork(queue.broker, queue.clock).work()
        queue.broker.open_by_key = known
        await queue.do_due_work()
        assert await queue.receiver().take(5) == ["a"]


@covers("F6", "M5")
async def test_a_scheduled_message_that_went_bad_is_set_aside() -> None:
    async with OneQueue() as queue:
        await queue.schedule("a", in_s=10.0)
        await queue.schedule("b", in_s=10.0)
        queue.disk.damaged.add((KEY, MAIN, 1))
        await queue.pass_time(10.0)
        await queue.do_due_work()
        assert await queue.receiver().take(5) == ["b"]
        assert (queue.fragment.main.scheduled_count, queue.fragment.main.live_count) == (0, 1)
        assert queue.disk.schedules == set()


def test_a_manual_clock_moves_both_times_or_one() -> None:
    clock = ManualClock(now=100.0, monotonic=5.0)
    clock.advance(1.0)
    clock.shift_wall(10.0)
    assert (clock.now(), clock.now_ms(), clock.monotonic()) == (111.0, 111_000, 6.0)


@covers("M5")
async def test_due_entries_that_have_to_wait_keep_nobody_elses_waiting() -> None:
    async with OneQueue() as queue:
        await queue.broker.make_fragment(99, 1, 0)
        changes = Changes()
        changes.schedules = [Due(1000 + number, 99, MAIN, number) for number in range(2 * DUE_SLICE)]
        changes.expiries = [Due(1000 + number, 99, MAIN, number) for number in range(2 * DUE_SLICE)]
        await queue.broker.commit_alone(changes)
        await queue.schedule("a", in_s=10.0)
        await queue.send("b", ttl_ms=10_000)
        queue.clock.advance(10.0)
        due = DueWork(queue.broker, queue.clock)
        for _ in range(3):
            await due.work()
        await queue.quiet()
        assert await queue.peek() == ["a"]


@covers("M6")
async def test_a_fragment_read_anew_during_a_sweep_expires_what_was_locked_then() -> None:
    async with OneQueue() as queue:
        await queue.send("locked", ttl_ms=10_000)
        await queue.send("waiting", ttl_ms=1000)
        await queue.receiver().take_one()
        queue.clock.advance(1.0)
        (due,) = await queue.broker.store.expiries_before(queue.clock.now_ms() + 1, 1)
        sweeping, before = asyncio.current_task(), queue.fragment.main

        async def read_anew() -> None:
            if asyncio.current_task() is sweeping:
                queue.disk.before_read = None
                await load(queue.broker, queue.fragment)

        queue.disk.before_read = read_anew
        await DueWork(queue.broker, queue.clock)._sweep(due)
        assert queue.fragment.main is not before
        await queue.quiet()
        assert await queue.peek() == ["locked"]
        await queue.pass_time(9.0)
        assert await queue.peek() == []
