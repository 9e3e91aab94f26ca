"""Due work that has to wait, or meets a fragment that was read again meanwhile."""

from __future__ import annotations

import asyncio

from tandembus.broker.loading import load
from tandembus.broker.timers import DUE_SLICE, DueWork
from tandembus.store.messaging_store import MAIN, Changes, Due
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue


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
