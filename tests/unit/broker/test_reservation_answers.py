"""Answers about reservations are given when they are durable, also those that only repeat another."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.errors import StoreUnavailable
from tandembus.interconnect.local_ledger import LocalLedger
from tandembus.namespace.entity_ledger import EntityLedger
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import KEY, OneQueue, small

MOST = 1 << 40


def ledger_of(queue: OneQueue) -> LocalLedger:
    return LocalLedger(queue.broker, queue.fragment)


async def rounds() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@covers("D1")
async def test_a_repeated_request_is_answered_when_the_first_is_durable() -> None:
    async with OneQueue() as first, OneQueue() as second:
        entity = EntityLedger([ledger_of(first), ledger_of(second)], MAIN)
        await first.send("a", "b")
        await second.send("c", "d")
        epoch = await entity.open_owner("query", 4)
        second.fault_next(Fault.HANG)
        asked = asyncio.create_task(entity.reserve("query", epoch, 1, 10, MOST, {}))
        await second.disk.is_hanging.wait()
        again = asyncio.create_task(entity.reserve("query", epoch, 1, 10, MOST, {}))
        await rounds()
        assert not again.done()
        second.disk.go_on.set()
        assert await asked == await again
        assert (await again).ranges == {0: [(1, 2)], 1: [(1, 2)]}


@covers("D1")
async def test_an_owner_is_opened_behind_every_epoch_that_a_fragment_knows() -> None:
    async with OneQueue() as first, OneQueue() as second:
        entity = EntityLedger([ledger_of(first), ledger_of(second)], MAIN)
        second.clock.advance(3600.0)  # and then the clock was put back
        newer = await ledger_of(second).open_owner(MAIN, "query", None, 4)
        epoch = await entity.open_owner("query", 4)
        assert epoch > newer
        assert await entity.reserved("query", epoch) == {}


@covers("D1")
@pytest.mark.parametrize("request_number", [1, 2])
async def test_where_those_whose_turn_it_is_have_nothing_others_give(request_number: int) -> None:
    async with OneQueue() as first, OneQueue() as second:
        entity = EntityLedger([ledger_of(first), ledger_of(second)], MAIN)
        await first.send("a", "later")
        await first.complete(await first.receiver().take_one())
        await second.send("b")
        epoch = await entity.open_owner("query", 4)
        found = await entity.reserve("query", epoch, request_number, 1, MOST, {0: 1, 1: 1})
        assert found.ranges == {1: [(1, 1)]}
        assert await entity.reserve("query", epoch, request_number, 1, MOST, {0: 1, 1: 1}) == found
        assert (await entity.reserve("query", epoch, 3, 1, MOST, {0: 1, 1: 1})).ranges == {}


@covers("D1")
@pytest.mark.parametrize("ending", ["complete", "release", "give up"])
async def test_nothing_left_to_do_is_answered_when_what_was_done_is_durable(ending: str) -> None:
    async with OneQueue() as queue:
        ledger = ledger_of(queue)
        await queue.send("a", "b")
        epoch = await ledger.open_owner(MAIN, "query", None, 4)
        ranges = await ledger.reserve(MAIN, "query", epoch, 1, 10, MOST, None)

        async def end() -> int:
            if ending == "complete":
                return await ledger.complete(MAIN, "query", epoch, ranges)
            if ending == "release":
                return await ledger.release(MAIN, "query", epoch, ranges)
            return await ledger.release(MAIN, "query", None, None)

        queue.fault_next(Fault.HANG)
        asked = asyncio.create_task(end())
        await queue.disk.is_hanging.wait()
        again = asyncio.create_task(end())
        await rounds()
        assert not again.done()
        queue.disk.go_on.set()
        assert await asked == 2
        assert await again == 0


@covers("D1")
async def test_while_the_store_is_out_nothing_is_said_from_memory() -> None:
    queue = OneQueue()
    async with queue:
        ledger = ledger_of(queue)
        await queue.send("a")
        old = await ledger.open_owner(MAIN, "query", None, 4)
        queue.open_faults = [StoreUnavailable("out")] * 1000
        queue.fault_next(Fault.UNKNOWN_LOST)
        with pytest.raises(StoreUnavailable):
            await ledger.open_owner(MAIN, "query", None, 4)
        for call in (
            ledger.prospect(MAIN, "query", old, 1, 10, None),
            ledger.reserve(MAIN, "query", old, 1, 10, MOST, None),
            ledger.reserved(MAIN, "query", old),
            ledger.complete(MAIN, "query", old, [(1, 1)]),
            ledger.release(MAIN, "query", old, None),
            ledger.release(MAIN, "nobody", None, None),
            ledger.owners(MAIN),
            ledger.end(MAIN),
        ):
            with pytest.raises(StoreUnavailable):
                await call


@covers("D1")
async def test_what_is_found_damaged_is_taken_out_once() -> None:
    settings = small()
    settings.commit_operations = 1
    async with OneQueue(settings) as queue:
        ledger = ledger_of(queue)
        await queue.send("a", "b", "c")
        epoch = await ledger.open_owner(MAIN, "query", None, 4)
        ranges = await ledger.reserve(MAIN, "query", epoch, 1, 10, MOST, None)
        queue.disk.damaged |= {(KEY, MAIN, 1), (KEY, MAIN, 2)}
        await ledger.browse(MAIN, 1, 2, 10, MOST)
        completed = await ledger.complete(MAIN, "query", epoch, ranges)
        await queue.quiet()
        assert completed == 1
        assert sorted(number for _, _, number in queue.disk.quarantine) == [1, 2]
        assert await ledger.reserved(MAIN, "query", epoch) == []
        assert int(queue.fragment.main.live_count) == int(queue.fragment.main.deferred_count) == 0
