"""Pings take a send's whole path, and leave nothing behind."""

from __future__ import annotations

import pytest

from tandembus.broker.budget import Budget
from tandembus.errors import QuotaExceeded, ServerBusy, StoreFull
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, message, ping, small


@covers("N10")
async def test_a_ping_is_answered_only_after_a_commit() -> None:
    async with OneQueue() as queue:
        before = queue.disk.commit_count
        queue.fault_next(Fault.HANG)
        answer = queue.stage(ping())
        await queue.disk.is_hanging.wait()
        assert not answer.is_given
        queue.disk.go_on.set()
        assert await answer.wait() is None
        assert queue.disk.commit_count == before + 1


@covers("N10")
async def test_a_ping_is_never_numbered_counted_peeked_or_delivered() -> None:
    async with OneQueue() as queue:
        receiver = queue.receiver()
        receiver.consumer.credit = 10
        await queue.send("a")
        assert await queue.stage(ping()).wait() is None
        assert await queue.send("b") == [2]
        assert queue.fragment.main.live_count == 2
        assert await queue.peek() == ["a", "b"]
        assert receiver.bodies == ["a", "b"]
        assert {key[2] for key in queue.disk.bodies} == {1, 2}


@covers("N10")
async def test_a_ping_leaves_no_dead_letter_when_its_time_is_up() -> None:
    async with OneQueue(small(dead_letter_expired=True)) as queue:
        assert await queue.stage(ping()).wait() is None
        await queue.pass_time(10.0)
        assert await queue.dead_letters() == []
        assert queue.disk.expiries == set()


@covers("N10")
async def test_a_ping_is_refused_over_quota_and_without_room() -> None:
    async with OneQueue(small(max_size_bytes=150)) as queue:
        await queue.send("a", padding=100)
        with pytest.raises(QuotaExceeded):
            queue.stage(ping())
        queue.disk.free_bytes, queue.disk.reserve_bytes = 10, 100
        queue.broker.check_room()
        with pytest.raises(StoreFull):
            queue.stage(ping())


@covers("N10")
async def test_a_ping_is_refused_when_its_commit_fails() -> None:
    async with OneQueue() as queue:
        queue.fault_next(Fault.UNKNOWN_KEPT)
        answer = queue.stage(ping())
        assert await answer.wait() is not None
        queue.broker.check_room()


@covers("N10")
async def test_a_ping_is_refused_by_a_full_store() -> None:
    async with OneQueue() as queue:
        queue.fault_next(Fault.FULL)
        assert isinstance(await queue.stage(ping()).wait(), StoreFull)


@covers("N10", "M14")
async def test_a_ping_is_throttled_like_a_send() -> None:
    async with OneQueue(budget=lambda clock: Budget(clock, operations_per_second=1.0)) as queue:
        queue.stage(message("a"))
        with pytest.raises(ServerBusy):
            queue.stage(ping())


@covers("N10")
async def test_a_ping_beside_a_message_in_a_batch_leaves_the_message() -> None:
    async with OneQueue() as queue:
        answer = queue.stage(ping(), message("a"), ping(), message("b"))
        assert await answer.wait() is None
        assert await queue.receiver().take(5) == ["a", "b"]


@covers("N10")
async def test_a_refused_batch_with_pings_takes_back_the_numbers_of_its_messages_only() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        queue.fault_next(Fault.FULL)
        assert isinstance(await queue.stage(ping(), message("b"), ping()).wait(), StoreFull)
        queue.broker.check_room()
        assert await queue.send("c") == [2]


@covers("N10")
async def test_nothing_of_a_ping_is_in_the_store() -> None:
    async with OneQueue() as queue:
        await queue.stage(ping()).wait()
        assert (queue.disk.bodies, queue.disk.overlays, queue.disk.expiries) == ({}, {}, set())
        assert (queue.fragment.uncommitted_bytes, queue.budget.uncommitted_bytes) == (0, 0)
