"""The commit loop: group commits, throttling, outages, and opening the store again."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tandembus.broker.dropping import drop_fragments
from tandembus.broker.housekeeping import thin
from tandembus.broker.locks import COMPLETE, DEFER
from tandembus.clock import ManualClock
from tandembus.errors import (
    FragmentUnavailable,
    StoreUnavailable,
)
from tandembus.store.memory import Fault, MemoryDisk
from tandembus.store.messaging_store import BLOCK_SIZE
from tests.covers import covers
from tests.unit.broker.one_queue import KEY, OneQueue, message, small


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


# Memory.


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


@covers("M1")
async def test_whoever_still_knows_a_fragment_that_was_let_go_of_is_told_to_open_it_anew() -> None:
    async with OneQueue() as queue:
        assert queue.broker.close_fragment(KEY)
        with pytest.raises(FragmentUnavailable):
            queue.stage(message("a"))
        queue.fragment = await queue.broker.open_fragment(KEY, 0, queue.settings)
        await queue.send("a")
        assert await queue.peek() == ["a"]
