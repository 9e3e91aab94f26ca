"""Messages that somebody keeps ready for others: locked, but not delivered, so never counted."""

from __future__ import annotations

from tandembus.broker.locks import RELEASE
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, Receiver, small
from tests.unit.broker.session_queue import session_queue


async def cache_of(queue: OneQueue, count: int) -> Receiver:
    """A consumer that keeps ready what it is given."""
    cache = queue.receiver()
    cache.consumer.keeps_ready = True
    await cache.take(count)
    assert len(cache.locks) == count
    return cache


async def counts_of_all(queue: OneQueue, count: int) -> list[tuple[str, int]]:
    receiver = queue.receiver()
    await receiver.take(count)
    return [(body, int(lock.delivery_count)) for body, lock in zip(receiver.bodies, receiver.locks, strict=True)]


@covers("P6", "M2")
async def test_what_is_given_back_was_never_delivered_and_comes_in_its_place() -> None:
    async with OneQueue(small(max_delivery_count=1)) as queue:
        await queue.send("a", "b", "c")
        cache = await cache_of(queue, 3)
        for lock in reversed(cache.locks):
            queue.settle(lock, RELEASE)
        await queue.quiet()
        assert await counts_of_all(queue, 3) == [("a", 0), ("b", 0), ("c", 0)]


@covers("P6", "M2")
async def test_when_its_keeper_is_gone_it_is_back_at_once() -> None:
    async with OneQueue(small(max_delivery_count=1)) as queue:
        await queue.send("a", "b", "c")
        cache = await cache_of(queue, 2)
        cache.locks[1].is_kept_ready = False  # handed over to a client
        cache.leave()
        await queue.quiet()
        assert await counts_of_all(queue, 3) == [("a", 0), ("c", 0)]
        assert await queue.dead_letters() == []
        await queue.pass_time(61.0)
        assert "b" in await queue.dead_letters(), "a delivery that was in vain"


@covers("P6", "M2")
async def test_a_lock_that_lapses_while_the_message_is_kept_ready_counts_nothing() -> None:
    async with OneQueue(small(max_delivery_count=1)) as queue:
        await queue.send("a")
        await cache_of(queue, 1)
        await queue.pass_time(61.0)
        assert await counts_of_all(queue, 1) == [("a", 0)]


@covers("P6", "M7")
async def test_a_session_that_lapses_counts_only_what_was_handed_over() -> None:
    async with session_queue() as queue:
        await queue.send_to("s", "a", "b")
        receiver = await queue.accept("s")
        receiver.consumer.keeps_ready = True
        await receiver.take(2)
        receiver.locks[0].is_kept_ready = False
        await queue.pass_time(61.0)
        again = await queue.accept("s")
        await again.take(2)
        assert again.bodies == ["a", "b"]
        assert [int(lock.delivery_count) for lock in again.locks] == [1, 0]


@covers("M2")
async def test_the_end_of_a_receiver_leaves_the_locks_of_all_others_alone() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b", "c", "d")
        first, second = queue.receiver(), queue.receiver()
        await first.take(2)
        await second.take(2)
        await queue.complete(first.locks[0])
        first.leave()
        await queue.quiet()
        for lock in second.locks:
            queue.fragment.check_lock(lock)
        assert await counts_of_all(queue, 4) == []
