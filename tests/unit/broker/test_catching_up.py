"""After a jump of the clock: everything that is due by then is done, without a second of waiting."""

from __future__ import annotations

import asyncio

from tandembus.broker.timers import DUE_SLICE
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, message, small

WITHIN_S = 5.0


async def jump(queue: OneQueue, seconds: float) -> None:
    await queue.broker.between_commits(lambda: queue.clock.advance(seconds))
    await asyncio.wait_for(queue.broker.catch_up(), WITHIN_S)


@covers("B6", "M2")
async def test_lapsed_locks_are_taken_back_at_once() -> None:
    async with OneQueue(small(lock_duration_s=30.0)) as queue:
        await queue.send("a")
        first, second = queue.receiver(), queue.receiver()
        assert await first.take(1) == ["a"]
        await jump(queue, 29.0)
        assert await second.take(1) == []
        await jump(queue, 1.0)
        assert [one.number for one in second.messages] == [1]


@covers("B6", "M5")
async def test_everything_scheduled_until_then_is_active_however_much_that_is() -> None:
    async with OneQueue() as queue:
        at_ms = queue.clock.now_ms() + 60_000
        answer = queue.stage(*[message(str(number), scheduled_at_ms=at_ms + number) for number in range(3 * DUE_SLICE)])
        assert await answer.wait() is None
        await jump(queue, 60.0 + (2 * DUE_SLICE - 1) / 1000)
        assert int(queue.fragment.main.scheduled_count) == DUE_SLICE
        assert len(await queue.receiver().take(3 * DUE_SLICE)) == 2 * DUE_SLICE


@covers("B6", "M6")
async def test_expired_messages_are_dead_letters_at_once() -> None:
    async with OneQueue(small(dead_letter_expired=True)) as queue:
        await queue.send("short", ttl_ms=60_000)
        await queue.send("long", ttl_ms=120_000)
        await jump(queue, 61.0)
        assert (await queue.peek(), await queue.dead_letters()) == (["long"], ["short"])


@covers("B6")
async def test_a_jump_does_not_count_as_the_time_of_a_commit() -> None:
    async with OneQueue() as queue:
        queue.fault_next(Fault.HANG)
        sending = asyncio.ensure_future(queue.send("a"))
        await queue.disk.is_hanging.wait()
        jumping = asyncio.ensure_future(jump(queue, 3600.0))
        await asyncio.sleep(0)
        queue.broker.check_commit()
        assert queue.fragment.failure is None
        queue.disk.go_on.set()
        await asyncio.wait_for(asyncio.gather(sending, jumping), WITHIN_S)
        assert await queue.peek() == ["a"]


@covers("B6")
async def test_what_cannot_be_done_now_is_not_waited_for() -> None:
    async with OneQueue() as queue:
        await queue.schedule("a", in_s=10.0)
        queue.disk.free_bytes, queue.disk.reserve_bytes = 0, 1
        queue.broker.room.is_full = True
        await jump(queue, 20.0)
        assert int(queue.fragment.main.scheduled_count) == 1
