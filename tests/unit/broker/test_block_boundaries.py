"""Commits that go wrong while the bodies of a block are being dropped."""

from __future__ import annotations

import asyncio

from tandembus.broker.dropping import drop_fragments
from tandembus.broker.housekeeping import thin
from tandembus.broker.locks import COMPLETE
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.errors import StoreFull
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import KEY, OneQueue, message, small


def numbered(first: int, last: int) -> list[str]:
    """One body for each number that these messages get in a queue whose first message has number 1."""
    return [str(number) for number in range(first, last + 1)]


@covers("M1")
async def test_thinning_keeps_the_bodies_of_a_fragment_whose_commit_failed() -> None:
    async with OneQueue(small(block_size=1024, window_messages=200)) as queue:
        await queue.send(*numbered(1, 101))
        receiver = queue.receiver()
        await receiver.take(101)
        for lock in receiver.locks[:100]:
            queue.settle(lock, COMPLETE)
        await queue.quiet()
        taking_up, go_on = asyncio.Event(), asyncio.Event()

        async def hold_up_the_new_start() -> None:
            if queue.fragment.is_void:
                taking_up.set()
                await go_on.wait()

        queue.disk.before_read = hold_up_the_new_start
        first = queue.disk.commit_count + 1
        queue.disk.faults.update({first: Fault.FULL, first + 1: Fault.FULL})
        answer = queue.settle(receiver.locks[100], TO_DEAD_LETTERS)
        await taking_up.wait()
        await thin(queue.broker)
        go_on.set()
        assert isinstance(await answer.wait(), StoreFull)
        await queue.quiet()
        assert (KEY, MAIN, 101) in queue.disk.bodies
        assert (await queue.peek(), await queue.dead_letters()) == (["101"], [])


@covers("M3")
async def test_a_fragment_dropped_while_its_commit_is_under_way_leaves_nothing_in_the_store() -> None:
    async with OneQueue() as queue:
        queue.fault_next(Fault.HANG)
        queue.stage(message("a", ttl_ms=60_000))
        await queue.disk.is_hanging.wait()
        dropping = asyncio.create_task(drop_fragments(queue.broker, [KEY]))
        queue.disk.go_on.set()
        await dropping
        await queue.broker.finish_staged()
        assert not queue.disk.heads
        assert not queue.disk.bodies
        assert not queue.disk.blocks
