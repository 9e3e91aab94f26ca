"""How reservations end: an owner that is given up while it reserves, and ranges in great numbers."""

from __future__ import annotations

import asyncio
import random

import pytest

from tandembus.broker.candidates import SLICE
from tandembus.broker.ledger import Ledger
from tandembus.broker.reservations import RANGES_IN_A_ROW
from tandembus.broker.reserving import MAX_RANGES
from tandembus.errors import StaleEpoch
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, message, small
from tests.unit.broker.reserving_queue import OwnerAt

BLOCK = 64


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@covers("D1")
@pytest.mark.parametrize("count", [5, 2 * SLICE])
async def test_what_is_reserved_while_the_owner_is_given_up_is_handed_back(count: int) -> None:
    async with OneQueue(small(block_size=1024)) as queue:
        await queue.stage(*[message(str(number)) for number in range(count)]).wait()
        owner = await OwnerAt(queue).open()
        queue.fault_next(Fault.HANG)
        busy = queue.stage(message("keeps the store busy"))
        await queue.disk.is_hanging.wait()
        reserving = asyncio.create_task(owner.reserve(count))
        await turns()
        giving_up = asyncio.create_task(owner.ledger.release(MAIN, owner.name, None, None))
        await turns()
        assert len(queue.fragment.staged.ledger) == 2, "both wait for the same commit"
        queue.disk.go_on.set()
        await busy.wait()
        assert await giving_up == min(count, SLICE)
        answers = await asyncio.gather(reserving, return_exceptions=True)
        assert count < SLICE or isinstance(answers[0], StaleEpoch), "its next slice is refused"
        with pytest.raises(StaleEpoch):
            await owner.reserve(count)
        assert list(await owner.ledger.owners(MAIN)) == []
        assert queue.disk.reserved == {}
        assert queue.disk.owners == {}


@covers("D1")
async def test_who_opens_an_owner_while_it_is_given_up_is_refused_or_keeps_all() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b", "c")
        owner = await OwnerAt(queue).open()
        await owner.reserve(2)
        queue.fault_next(Fault.HANG)
        giving_up = asyncio.create_task(owner.ledger.release(MAIN, owner.name, None, None))
        await queue.disk.is_hanging.wait()
        newer = OwnerAt(queue)
        opening = asyncio.create_task(newer.open())
        await turns()
        queue.disk.go_on.set()
        assert await giving_up == 2
        await opening
        with pytest.raises(StaleEpoch):
            await newer.reserve()
        assert await queue.receiver().take(9) == ["a", "b", "c"]


@covers("D1")
@pytest.mark.parametrize("seed", range(20))
def test_the_numbers_of_a_range_are_found_however_long_it_is(seed: int) -> None:
    rng = random.Random(seed)
    ledger = Ledger(0, MAIN, BLOCK)
    owner = ledger.open("query", 1)
    numbers = sorted(rng.sample(range(40 * BLOCK), rng.randrange(1, 200)))
    for number in numbers:
        ledger.add(owner, number)
    for _ in range(100):
        first = rng.randrange(45 * BLOCK)
        last = first + rng.choice([0, 1, BLOCK, 7 * BLOCK, 100 * BLOCK, 1 << 47])
        limit = rng.choice([1, 10, 1000])
        assert ledger.numbers(owner, first, last, limit) == [n for n in numbers if first <= n <= last][:limit]


@covers("D1")
@pytest.mark.parametrize("ending", ["complete", "release"])
async def test_others_get_their_turn_while_many_ranges_are_looked_up(ending: str) -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        owner = await OwnerAt(queue).open()
        await owner.reserve()
        end = owner.complete if ending == "complete" else owner.release
        asked = asyncio.create_task(end(range(10, 10 + 2 * MAX_RANGES, 2)))
        count = 0
        while not asked.done():
            count += 1
            await asyncio.sleep(0)
        assert await asked == 0
        assert count > MAX_RANGES // RANGES_IN_A_ROW
        assert await owner.reserved() == [1, 2]
