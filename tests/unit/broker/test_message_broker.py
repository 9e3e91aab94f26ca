"""The commit loop: group commits, throttling, outages, and opening the store again."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tandembus.broker.budget import Budget
from tandembus.broker.dropping import drop_fragments
from tandembus.broker.housekeeping import thin
from tandembus.broker.locks import COMPLETE, DEFER
from tandembus.clock import ManualClock
from tandembus.errors import (
    EntityNotFound,
    FragmentUnavailable,
    MessageLockLost,
    OperationTimeout,
    ServerBusy,
    StoreUnavailable,
)
from tandembus.store.memory import Fault, MemoryDisk
from tandembus.store.messaging_store import BLOCK_SIZE, DEAD_LETTER, MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import KEY, OneQueue, body_of, message, ping, small


def throttled_at(size_bytes: int) -> OneQueue:
    return OneQueue(budget=lambda clock: Budget(clock, max_uncommitted_bytes=size_bytes))


# Throttling and outage.


@covers("M14")
async def test_over_the_limit_of_uncommitted_bytes_a_send_is_told_to_come_again() -> None:
    async with throttled_at(300) as queue:
        queue.stage(message("a", padding=200))
        with pytest.raises(ServerBusy):
            queue.stage(message("b", padding=200))


@covers("M14")
async def test_once_it_is_committed_there_is_room_for_the_next() -> None:
    async with throttled_at(300) as queue:
        await queue.send("a", padding=200)
        await queue.send("b", padding=200)
        assert queue.budget.uncommitted_bytes == 0


@covers("M14")
async def test_over_the_limit_of_operations_a_send_is_told_to_come_again() -> None:
    async with OneQueue(budget=lambda clock: Budget(clock, operations_per_second=2.0)) as queue:
        queue.stage(message("a"))
        queue.stage(message("b"))
        with pytest.raises(ServerBusy):
            queue.stage(message("c"))
        queue.clock.advance(0.5)
        queue.stage(message("c"))
        await queue.quiet()
        assert await queue.peek() == ["a", "b", "c"]


@covers("M14")
async def test_throttling_leaves_receiving_and_settling_alone() -> None:
    async with throttled_at(1) as queue:
        await queue.send("a")
        queue.stage(message("b"))
        with pytest.raises(ServerBusy):
            queue.stage(message("c"))
        lock = await queue.receiver().take_one()
        await queue.complete(lock)
        assert await queue.peek() == ["b"]


@covers("M14")
async def test_while_a_commit_is_merely_slow_the_answer_is_server_busy() -> None:
    async with throttled_at(300) as queue:
        queue.fault_next(Fault.HANG)
        queue.stage(message("a", padding=200))
        await queue.disk.is_hanging.wait()
        queue.clock.advance(4.9)
        queue.broker.check_commit()
        with pytest.raises(ServerBusy):
            queue.stage(message("b", padding=200))


@covers("M14")
async def test_a_commit_that_hangs_is_an_outage_and_never_server_busy() -> None:
    async with throttled_at(300) as queue:
        queue.fault_next(Fault.HANG)
        queue.stage(message("a", padding=200))
        await queue.disk.is_hanging.wait()
        queue.clock.advance(5.1)
        queue.broker.check_commit()
        for refused in (message("b", padding=200), message("c"), ping()):
            with pytest.raises(OperationTimeout):
                queue.stage(refused)


@covers("M14")
async def test_setting_the_wall_clock_is_no_outage() -> None:
    async with OneQueue() as queue:
        queue.fault_next(Fault.HANG)
        queue.stage(message("a"))
        await queue.disk.is_hanging.wait()
        queue.clock.shift_wall(3600)
        queue.broker.check_commit()
        queue.stage(message("b"))


@covers("M14")
async def test_the_outage_is_over_when_the_commit_comes_through() -> None:
    async with OneQueue() as queue:
        queue.fault_next(Fault.HANG)
        answer = queue.stage(message("a"))
        await queue.disk.is_hanging.wait()
        queue.clock.advance(5.1)
        queue.broker.check_commit()
        queue.disk.go_on.set()
        assert await answer.wait() is None
        queue.broker.check_commit()
        await queue.send("b")
        assert await queue.peek() == ["a", "b"]


@covers("M14")
async def test_a_commit_of_the_brokers_own_that_hangs_is_an_outage_too() -> None:
    async with OneQueue() as queue:
        queue.fault_next(Fault.HANG)
        making = asyncio.ensure_future(queue.broker.make_fragment(99, 1, 0))
        await queue.disk.is_hanging.wait()
        queue.clock.advance(5.1)
        queue.broker.check_commit()
        with pytest.raises(OperationTimeout):
            queue.stage(message("a"))
        queue.disk.go_on.set()
        await making
        queue.broker.check_commit()
        await queue.send("a")


# A commit whose outcome is unknown.


@pytest.mark.parametrize(("fault", "left"), [(Fault.UNKNOWN_LOST, ["a"]), (Fault.UNKNOWN_KEPT, ["a", "b"])])
@covers("M1", "F3")
async def test_after_a_failed_commit_the_send_is_refused_and_the_store_says_what_is_true(
    fault: Fault, left: list[str]
) -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        queue.fault_next(fault)
        answer = queue.stage(message("b"))
        assert isinstance(await answer.wait(), StoreUnavailable)
        await queue.quiet()
        assert await queue.peek() == left
        assert await queue.receiver().take(5) == left


@pytest.mark.parametrize(("fault", "left"), [(Fault.UNKNOWN_LOST, ["a"]), (Fault.UNKNOWN_KEPT, [])])
@covers("M3", "F3")
async def test_after_a_failed_commit_a_settlement_is_refused_and_may_have_happened(
    fault: Fault, left: list[str]
) -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        queue.fault_next(fault)
        answer = queue.settle(lock, COMPLETE)
        assert isinstance(await answer.wait(), StoreUnavailable)
        await queue.quiet()
        assert await queue.peek() == left


@covers("M2", "F3")
async def test_every_lock_is_lost_when_the_store_is_opened_again() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        await receiver.take(1)
        queue.fault_next(Fault.UNKNOWN_LOST)
        await queue.stage(message("c")).wait()
        await queue.quiet()
        with pytest.raises(MessageLockLost):
            queue.settle(receiver.locks[0], COMPLETE)
        assert await receiver.take(2) == ["a", "b"]


@covers("F3")
async def test_a_failed_store_refuses_sends_until_it_is_open_again() -> None:
    async with OneQueue() as queue:
        queue.fault_next(Fault.UNKNOWN_LOST)
        answer = queue.stage(message("a"))
        await answer.wait()
        with pytest.raises(StoreUnavailable):
            queue.stage(message("b"))
        await queue.quiet()
        await queue.send("b")
        assert await queue.peek() == ["b"]


@covers("F3")
async def test_a_store_that_cannot_be_opened_yet_is_tried_again() -> None:
    async with OneQueue() as queue:
        queue.open_faults = [StoreUnavailable("not yet"), StoreUnavailable("not yet")]
        queue.fault_next(Fault.UNKNOWN_LOST)
        await queue.stage(message("a")).wait()
        await queue.quiet()
        assert queue.broker.failure is None
        await queue.send("b")


@covers("M12", "F3")
async def test_credit_given_before_a_failure_is_used_after_it() -> None:
    async with OneQueue() as queue:
        receiver = queue.receiver()
        receiver.consumer.credit = 5
        queue.fault_next(Fault.UNKNOWN_KEPT)
        await queue.stage(message("a")).wait()
        await queue.quiet()
        assert receiver.bodies == ["a"]


@covers("M14", "F3")
async def test_what_failed_waits_for_no_commit_any_more() -> None:
    async with OneQueue() as queue:
        queue.fault_next(Fault.UNKNOWN_LOST)
        await queue.stage(message("a")).wait()
        await queue.quiet()
        assert (queue.budget.uncommitted_bytes, queue.fragment.uncommitted_bytes) == (0, 0)


@covers("F3")
async def test_a_failure_found_beside_the_commit_loop_opens_the_store_again() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        queue.fault_next(Fault.UNKNOWN_LOST)
        with pytest.raises(StoreUnavailable):
            await queue.broker.make_fragment(99, 1, 0)
        await queue.quiet()
        assert await queue.receiver().take(5) == ["a"]
        assert queue.disk.epoch == 2


# Stopping.


@covers("M1")
async def test_stopping_commits_what_was_staged() -> None:
    async with OneQueue() as queue:
        answers = [queue.stage(message(body)) for body in ("a", "b")]
        await queue.broker.stop()
        assert [answer.is_accepted for answer in answers] == [True, True]
        async with OneQueue(disk=queue.disk) as again:
            assert await again.peek() == ["a", "b"]


@covers("M1")
async def test_stopping_waits_for_a_slow_commit() -> None:
    queue = OneQueue()
    async with queue:
        queue.fault_next(Fault.HANG)
        answer = queue.stage(message("a"))
        await queue.disk.is_hanging.wait()
        stopping = asyncio.ensure_future(queue.broker.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        queue.disk.go_on.set()
        await stopping
        assert answer.is_accepted


# Fragments.


@covers("M1")
async def test_a_fragment_opened_by_many_at_once_is_one() -> None:
    async with OneQueue() as queue:
        queue.broker.close_fragment(KEY)
        opened = await asyncio.gather(*[queue.broker.open_fragment(KEY, 0, small()) for _ in range(5)])
        assert len({id(fragment) for fragment in opened}) == 1


@covers("M1")
async def test_a_closed_fragment_comes_back_with_all_it_had() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        await queue.defer(await receiver.take_one())
        queue.broker.close_fragment(KEY)
        again = await queue.broker.open_fragment(KEY, 0, small())
        assert again is not queue.fragment
        assert (again.main.live_count, again.main.deferred_count) == (2, 1)


@covers("M2")
async def test_a_fragment_with_locks_is_not_closed() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        queue.broker.close_fragment(KEY)
        assert await queue.broker.open_fragment(KEY, 0, small()) is queue.fragment
        await queue.complete(lock)


@covers("M1")
async def test_a_dropped_fragment_leaves_nothing_in_the_store() -> None:
    async with OneQueue() as queue:
        await queue.send(*[f"m{index}" for index in range(20)], ttl_ms=1000)
        await queue.schedule("later", in_s=10.0)
        receiver = queue.receiver()
        await receiver.take(3)
        await queue.defer(receiver.locks[0])
        await queue.abandon(receiver.locks[1])
        await queue.dead_letter(receiver.locks[2])
        await drop_fragments(queue.broker, [KEY])
        await queue.pass_time(20.0)
        disk = queue.disk
        assert (disk.bodies, disk.blocks, disk.overlays, disk.heads) == ({}, {}, {}, {})


@covers("M5", "M6")
async def test_what_was_due_in_a_dropped_fragment_is_forgotten_when_it_comes_up() -> None:
    async with OneQueue() as queue:
        await queue.send("a", ttl_ms=1000)
        await queue.schedule("later", in_s=10.0)
        await drop_fragments(queue.broker, [KEY])
        queue.broker.open_by_key = nobody
        await queue.pass_time(20.0)
        assert (queue.disk.schedules, queue.disk.expiries) == (set(), set())


async def nobody(_key: int) -> None:
    return None


@covers("M1")
async def test_operations_on_a_dropped_fragment_find_no_entity() -> None:
    async with OneQueue() as queue:
        queue.fault_next(Fault.HANG)
        staged = queue.stage(message("a"))
        await queue.disk.is_hanging.wait()
        dropping = asyncio.ensure_future(drop_fragments(queue.broker, [KEY]))
        queue.disk.go_on.set()
        await dropping
        assert staged.is_given
        with pytest.raises(EntityNotFound):
            queue.stage(message("b"))


# Memory.


@covers("M12")
async def test_only_a_window_of_a_long_queue_is_in_memory() -> None:
    async with OneQueue(small(window_messages=4)) as queue:
        await queue.send(*[f"m{index:03}" for index in range(100)])
        assert len(queue.fragment.main.ready) == 4
        receiver = queue.receiver()
        await receiver.take(10)
        assert len(queue.fragment.main.ready) <= 4
        assert receiver.bodies == [f"m{index:03}" for index in range(10)]


async def test_quiet_queues_give_up_their_windows_when_memory_is_short() -> None:
    async with OneQueue(window_bytes=10) as queue:
        await queue.send("a", "b")
        queue.broker.check_windows()
        assert queue.fragment.main.ready_bytes == 0
        assert await queue.receiver().take(5) == ["a", "b"]


async def test_a_queue_whose_receivers_wait_for_more_keeps_its_window() -> None:
    async with OneQueue(small(max_locks=1), window_bytes=10) as queue:
        receiver = queue.receiver()
        receiver.consumer.credit = 5
        await queue.send("a", "b", "c")
        queue.broker.check_windows()
        assert receiver.bodies == ["a"]
        assert len(queue.fragment.main.ready) == 2


# Damage.


@covers("F6")
@pytest.mark.parametrize("lane", [MAIN, DEAD_LETTER])
async def test_a_damaged_message_is_set_aside_and_the_rest_goes_on(lane: int) -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b", "c")
        if lane == DEAD_LETTER:
            receiver = queue.receiver()
            await receiver.take(3)
            for lock in receiver.locks:
                await queue.dead_letter(lock)
        async with await queue.after_crash() as again:
            again.disk.damaged.add((KEY, lane, 2))
            assert await again.receiver(lane).take(5) == ["a", "c"]
            await again.quiet()
            assert list(again.disk.quarantine) == [(KEY, lane, 2)]
            assert again.broker.damage_count == 1
            assert again.fragment.lane(lane).live_count == 2


@covers("F6")
async def test_a_message_whose_record_is_missing_does_not_stop_the_queue() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b", "c")
        async with await queue.after_crash() as again:
            del again.disk.bodies[KEY, MAIN, 2]
            assert await again.receiver().take(5) == ["a", "c"]
            assert again.broker.damage_count == 1


@covers("F6", "M3")
async def test_dead_lettering_a_message_that_went_bad_ends_it_and_is_answered() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        queue.disk.damaged.add((KEY, MAIN, 1))
        await queue.dead_letter(lock)
        assert (await queue.peek(), await queue.dead_letters()) == ([], [])
        assert list(queue.disk.quarantine) == [(KEY, MAIN, 1)]


@covers("F6")
async def test_a_damaged_deferred_message_leaves_the_counts_right() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        await queue.defer(await queue.receiver().take_one())
        queue.disk.damaged.add((KEY, MAIN, 1))
        assert await queue.peek() == ["b"]
        await queue.quiet()
        assert (queue.fragment.main.live_count, queue.fragment.main.deferred_count) == (1, 0)


# Thinning.


async def test_settled_bodies_between_stragglers_are_freed_while_nothing_else_goes_on() -> None:
    async with OneQueue(small(window_messages=1000, block_size=1024)) as queue:
        await queue.send(*[f"m{index:03}" for index in range(200)])
        receiver = queue.receiver()
        await receiver.take(200)
        for lock in receiver.locks[1:150]:
            queue.settle(lock, COMPLETE)
        await queue.quiet()
        assert len(queue.disk.bodies) == 200
        while await thin(queue.broker):
            pass
        assert len(queue.disk.bodies) == 51
        async with await queue.after_crash() as again:
            assert len(await again.receiver().take(1000)) == 51


@covers("M1")
async def test_two_brokers_never_hold_one_store() -> None:
    disk = MemoryDisk()
    async with OneQueue(disk=disk, clock=ManualClock()):
        other = OneQueue(disk=disk)
        with pytest.raises(StoreUnavailable):
            await other.broker.start()


@covers("M1")
async def test_a_queue_of_many_deferred_messages_is_dropped_in_slices() -> None:
    settings = small(block_size=BLOCK_SIZE, max_locks=10_000, window_messages=4000)
    async with OneQueue(settings) as queue:
        queue.stage(*(message(f"m{number}") for number in range(3000)))
        await queue.quiet()
        receiver = queue.receiver()
        await receiver.take(3000)
        for lock in receiver.locks:
            queue.settle(lock, DEFER)
        await queue.quiet()
        assert len(queue.disk.overlays) == 3000
        left: list[int] = []

        async def note() -> None:
            left.append(len(queue.disk.overlays))

        queue.disk.before_read = note
        await drop_fragments(queue.broker, [KEY])
        assert queue.disk.overlays == {}
        assert all(before - after <= BLOCK_SIZE for before, after in itertools.pairwise(left))


# Somebody else has the store.


@covers("F7", "M1")
async def test_a_broker_that_lost_its_store_to_another_accepts_nothing_and_settles_nothing() -> None:
    async with OneQueue() as queue:
        await queue.send("before")
        lock = await queue.receiver().take_one()
        queue.disk.epoch += 1  # as after a long pause: another has taken over meanwhile
        sent, settled = queue.stage(message("late")), queue.settle(lock, COMPLETE)
        assert isinstance(await sent.wait(), StoreUnavailable)
        assert isinstance(await settled.wait(), StoreUnavailable)
        assert [body_of(one) for one in queue.disk.bodies.values()] == ["before"]


@covers("F7", "M1")
async def test_what_a_paused_broker_was_about_to_commit_is_refused_when_it_goes_on() -> None:
    async with OneQueue() as queue:
        await queue.send("before")
        queue.fault_next(Fault.HANG)
        sent = queue.stage(message("late"))
        await queue.disk.is_hanging.wait()
        queue.disk.epoch += 1
        queue.disk.go_on.set()
        assert isinstance(await sent.wait(), StoreUnavailable)
        assert [body_of(one) for one in queue.disk.bodies.values()] == ["before"]


@covers("M1")
async def test_whoever_still_knows_a_fragment_that_was_let_go_of_is_told_to_open_it_anew() -> None:
    async with OneQueue() as queue:
        assert queue.broker.close_fragment(KEY)
        with pytest.raises(FragmentUnavailable):
            queue.stage(message("a"))
        queue.fragment = await queue.broker.open_fragment(KEY, 0, queue.settings)
        await queue.send("a")
        assert await queue.peek() == ["a"]
