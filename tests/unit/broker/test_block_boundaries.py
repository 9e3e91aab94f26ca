"""Commits that go wrong where one block of numbers ends and the next begins."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.broker.dropping import drop_fragments
from tandembus.broker.housekeeping import thin
from tandembus.broker.locks import COMPLETE
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.errors import StoreFull
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import KEY, OneQueue, message, small

BLOCK = 8
"""Numbers in a block; the first block has one less to give, since 0 is nobody's."""


def numbered(first: int, last: int) -> list[str]:
    """One body for each number that these messages get in a queue whose first message has number 1."""
    return [str(number) for number in range(first, last + 1)]


async def refuse(queue: OneQueue, count: int) -> None:
    """Stage so many sends at once, which the store has no room for."""
    queue.fault_next(Fault.FULL)
    refused = [queue.stage(message(f"refused {at}")) for at in range(count)]
    await queue.quiet()
    assert all(isinstance(answer.error, StoreFull) for answer in refused)
    queue.broker.check_room()


REFUSED_COUNTS = [1, 3, 4, 12, 20]
"""With five sent: within the block, to its very end, across one boundary, across two, across three."""


@pytest.mark.parametrize("count", REFUSED_COUNTS)
@covers("M1", "F4", "P26")
async def test_sends_refused_across_a_block_boundary_damage_nothing(count: int) -> None:
    async with OneQueue() as queue:
        await queue.send(*numbered(1, 5))
        await refuse(queue, count)
        async with await queue.after_crash() as again:
            assert await again.receiver().take(100) == numbered(1, 5)
            assert again.broker.damage_count == 0


@pytest.mark.parametrize("count", REFUSED_COUNTS)
@covers("M1", "F4")
async def test_after_sends_refused_across_a_block_boundary_counts_are_what_is_there(count: int) -> None:
    async with OneQueue() as queue:
        await queue.send(*numbered(1, 5))
        await refuse(queue, count)
        assert queue.fragment.main.live_count == 5
        async with await queue.after_crash() as again:
            assert again.fragment.main.live_count == 5


@pytest.mark.parametrize("count", REFUSED_COUNTS)
@covers("M1", "P26")
async def test_numbers_go_on_behind_the_last_accepted_one(count: int) -> None:
    async with OneQueue() as queue:
        await queue.send(*numbered(1, 5))
        await refuse(queue, count)
        async with await queue.after_crash() as again:
            assert await again.send(*numbered(6, 20)) == list(range(6, 21))
            assert await again.receiver().take(100) == numbered(1, 20)


@covers("M1", "F4")
async def test_what_was_accepted_before_a_refusal_is_receivable_until_it_is_settled() -> None:
    async with OneQueue() as queue:
        await queue.send(*numbered(1, 5))
        await refuse(queue, 4)
        async with await queue.after_crash() as second:
            receiver = second.receiver()
            for _ in range(3):
                await second.complete(await receiver.take_one())
            async with await second.after_crash() as third:
                assert await third.receiver().take(100) == ["4", "5"]


@pytest.mark.parametrize("count", [1, BLOCK, BLOCK + 1])
@covers("M1", "P26")
async def test_numbers_go_on_when_the_block_before_was_dropped_by_the_refused_commit(count: int) -> None:
    async with OneQueue() as queue:
        await queue.send(*numbered(1, 7))
        receiver = queue.receiver()
        await receiver.take(7)
        settled = [queue.settle(lock, COMPLETE) for lock in receiver.locks]
        await refuse(queue, count)
        assert all(answer.is_accepted for answer in settled)
        async with await queue.after_crash() as again:
            assert again.fragment.main.live_count == 0
            assert await again.send("8", "9") == [8, 9]
            assert await again.receiver().take(100) == ["8", "9"]
            assert again.broker.damage_count == 0


@covers("M1", "M6")
async def test_sends_refused_across_a_block_boundary_leave_no_expiry_behind() -> None:
    async with OneQueue() as queue:
        await queue.send(*numbered(1, 5))
        queue.fault_next(Fault.FULL)
        for at in range(4):
            queue.stage(message(f"refused {at}", ttl_ms=1000))
        await queue.quiet()
        assert not [key for key in queue.disk.expiries if key[3] == 1]
        await queue.pass_time(2.0)
        assert await queue.peek() == numbered(1, 5)


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
