"""What is not reserved: messages whose time is over, and those of sessions that somebody else has begun."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tandembus.broker import candidates
from tandembus.broker.candidates import SLICE
from tandembus.broker.session_locks import leave_session
from tandembus.broker.session_reading import read_columns
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, message, small
from tests.unit.broker.reserving_queue import OwnerAt
from tests.unit.broker.session_queue import SessionQueue, session_queue


async def until(is_so: Callable[[], bool]) -> None:
    """Within so many turns of the loop."""
    for _ in range(10_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it has not come to that")


@covers("D1")
@pytest.mark.parametrize("to_dead_letters", [True, False])
async def test_what_has_expired_is_not_reserved_though_no_sweep_has_come_by(to_dead_letters: bool) -> None:
    async with OneQueue(small(dead_letter_expired=to_dead_letters)) as queue:
        await queue.send("a", "b", ttl_ms=1000)
        await queue.send("c", ttl_ms=100_000)
        await queue.send("d")
        await queue.send("e", ttl_ms=1000)
        owner = await OwnerAt(queue).open()
        queue.clock.advance(1.0)
        assert await owner.reserve() == [3, 4]
        await queue.quiet()
        assert await queue.peek() == ["c", "d"]
        assert await queue.dead_letters() == (["a", "b", "e"] if to_dead_letters else [])
        await queue.pass_time(1000.0)
        assert await owner.reserved() == [3, 4]
        assert await owner.complete([3, 4]) == 2


@covers("D1")
async def test_a_session_goes_on_behind_its_expired_messages() -> None:
    async with session_queue(small(requires_session=True, dead_letter_expired=True)) as queue:
        await queue.send_to("a", "a0", ttl_ms=1000)
        await queue.send_to("a", "a1", "a2")
        owner = await OwnerAt(queue).open()
        queue.clock.advance(1.0)
        assert await owner.reserve() == [2, 3]
        await queue.quiet()
        assert await queue.dead_letters() == ["a0"]
        assert await owner.release([2, 3]) == 2
        assert await (await queue.accept("a")).take(9) == ["a1", "a2"]


@covers("D1")
async def test_a_session_is_one_owners_as_long_as_it_has_messages_of_it() -> None:
    async with session_queue() as queue:
        for round_of in range(3):
            for session in ("a", "b"):
                await queue.send_to(session, f"{session}{round_of}")
        one, other = await OwnerAt(queue, "one").open(), await OwnerAt(queue, "other").open()
        assert await one.reserve(1) == [1]
        assert await other.reserve(2) == [2, 4], "session b"
        assert await one.reserve(1) == [3]
        async with await queue.again() as again:
            one.queue = other.queue = again
            assert await other.reserve() == [6]
            assert await other.reserve() == []
            assert await one.complete([1]) == 1
            assert await other.reserve() == []
            assert await one.release([3]) == 1
            assert await other.reserve() == [3, 5]


@covers("D1")
async def test_a_session_that_becomes_free_meanwhile_is_left_for_the_next_request() -> None:
    async with SessionQueue(small(requires_session=True, block_size=1024)) as queue:
        ids = ["held", *["free"] * SLICE, "held"]
        await queue.stage(*[message(str(at), session_id=one) for at, one in enumerate(ids)]).wait()
        receiver = await queue.accept("held")
        owner = await OwnerAt(queue).open()
        queue.fault_next(Fault.HANG)
        reserving = asyncio.create_task(owner.reserve(2 * SLICE))
        await queue.disk.is_hanging.wait()
        leave_session(queue.fragment, receiver.lock)
        queue.disk.go_on.set()
        assert await reserving == list(range(2, SLICE + 2))
        assert await owner.reserve(9) == [1, SLICE + 2], "in its order"


@covers("D1")
async def test_a_session_that_somebody_had_for_a_moment_is_left_for_the_next_request() -> None:
    async with SessionQueue(small(requires_session=True, block_size=1024)) as queue:
        ids = ["wanted", *["free"] * SLICE, "wanted"]
        await queue.stage(*[message(str(at), session_id=one) for at, one in enumerate(ids)]).wait()
        owner = await OwnerAt(queue).open()
        queue.fault_next(Fault.HANG)
        queue.stage_to("other", "keeps the store busy")
        await queue.disk.is_hanging.wait()
        reserving = asyncio.create_task(owner.reserve(2 * SLICE))
        await until(lambda: len(queue.fragment.staged.ledger) > 0)
        receiver = await queue.accept("wanted")
        queue.disk.go_on.set()
        await until(lambda: int(queue.fragment.main.deferred_count) > 0)
        leave_session(queue.fragment, receiver.lock)
        assert (await reserving)[:SLICE] == list(range(2, SLICE + 2))
        assert SLICE + 2 not in await owner.reserved()
        assert (await owner.reserve(9))[:2] == [1, SLICE + 2], "in its order"


@covers("D1")
async def test_delivery_counts_go_with_messages_that_lie_far_apart() -> None:
    async with OneQueue(small(block_size=64)) as queue:
        await queue.send(*[str(number) for number in range(100)])
        receiver = queue.receiver()
        await receiver.take(100)
        for lock in receiver.locks:
            if int(lock.number) in {1, 50, 100}:
                await queue.abandon(lock)
        owner = await OwnerAt(queue).open()
        assert await owner.reserve() == [1, 50, 100]
        assert len(queue.disk.overlays) == 3
        assert await owner.complete([1, 50, 100]) == 3
        assert queue.disk.overlays == {}


@covers("D1")
async def test_a_browse_goes_on_where_it_stopped_whatever_the_sizes() -> None:
    async with OneQueue(small(block_size=64)) as queue:
        for number in range(60):
            await queue.send(str(number), padding=5000 if number % 7 == 0 else 10)
        receiver = queue.receiver()
        await receiver.take(60)
        for lock in receiver.locks[20:40]:
            await queue.complete(lock)
        ledger = (await OwnerAt(queue).open()).ledger
        for max_bytes in (1, 300, 6000, 1 << 20):
            count, pages = 0, 0
            at: int | None = 1
            while at is not None and pages < 100:
                page = await ledger.browse(0, at, 55, 1000, max_bytes)
                count, pages, at = count + page.count, pages + 1, page.next_number
            assert count == 35


@covers("D1")
async def test_behind_any_number_of_messages_of_held_sessions_others_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "MOST_SLICES", 1)
    async with SessionQueue(small(requires_session=True, block_size=1024)) as queue:
        ids = [*["gone", "held"] * SLICE, "free", "held", "free"]
        await queue.stage(*[message(str(at), session_id=one) for at, one in enumerate(ids)]).wait()
        owner = await OwnerAt(queue).open()
        held = await queue.accept("held")
        while gone := await owner.reserve(SLICE):
            if len(ids) in gone:
                break
            await owner.complete(gone)
        assert gone[-2:] == [2 * SLICE + 1, 2 * SLICE + 3]
        await held.leave()
        assert await owner.reserve(2) == [2, 3, 4], "over what is gone"


@covers("D1")
async def test_what_comes_while_columns_are_read_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SessionQueue(small(requires_session=True, block_size=64)) as queue:
        await queue.send_to("a", *map(str, range(10)))
        owner = await OwnerAt(queue).open()
        reads: list[int] = []

        async def read(*wanted: Any) -> list[bytes]:
            columns = await read_columns(*wanted)
            reads.append(len(columns))
            if len(reads) == 1:
                await queue.send_to("a", *map(str, range(10, 100)))
            return columns

        monkeypatch.setattr(candidates, "read_columns", read)
        assert await owner.reserve(80) == list(range(1, 81))
