"""A request to reserve is carried out in slices, and has one answer however often, and however soon, it is asked."""

from __future__ import annotations

import asyncio

from tandembus.broker.candidates import SLICE
from tandembus.interconnect.local_ledger import LocalLedger
from tandembus.namespace.entity_ledger import EntityLedger
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, message, small
from tests.unit.broker.reserving_queue import OwnerAt

COUNT = 2 * SLICE + 10
MOST = 1 << 40


def roomy() -> OneQueue:
    return OneQueue(small(block_size=1024))


async def with_messages(queue: OneQueue, count: int = COUNT) -> OwnerAt:
    answer = queue.stage(*[message(str(number)) for number in range(count)])
    await answer.wait()
    return await OwnerAt(queue).open()


async def first_slice_of(queue: OneQueue) -> None:
    while int(queue.fragment.main.deferred_count) < SLICE:
        await queue.broker.next_turn()


@covers("D1")
async def test_many_messages_are_reserved_in_slices_and_one_answer() -> None:
    async with roomy() as queue:
        owner = await with_messages(queue)
        before = queue.disk.commit_count
        ranges = await owner.ledger.reserve(MAIN, owner.name, owner.epoch, 1, COUNT - 1, MOST, None)
        assert ranges == [(1, COUNT - 1)]
        assert queue.disk.commit_count - before == 3
        owner.queue = await queue.after_crash()
        async with owner.queue:
            again = await owner.ledger.reserve(MAIN, owner.name, owner.epoch, 1, COUNT, MOST, None)
            assert list(again) == ranges


@covers("D1")
async def test_who_asks_while_the_first_try_goes_on_gets_the_same_answer() -> None:
    async with roomy() as queue:
        owner = await with_messages(queue)
        owner.request = 1
        first = asyncio.create_task(owner.reserve_again(COUNT))
        await first_slice_of(queue)
        queue.fault_next(Fault.HANG)
        second = asyncio.create_task(owner.reserve_again(COUNT))
        await queue.disk.is_hanging.wait()
        queue.disk.go_on.set()
        answers = await asyncio.gather(first, second)
        assert answers[0] == answers[1] == await owner.reserved()
        assert len(answers[0]) < COUNT, "the second try has closed it"
        assert await owner.reserve_again(COUNT) == answers[0]
        assert await owner.reserve(COUNT) == list(range(len(answers[0]) + 1, COUNT + 1))


@covers("D1")
async def test_a_crash_between_slices_leaves_nothing_that_the_next_try_is_not_told_of() -> None:
    async with roomy() as queue:
        owner = await with_messages(queue)
        owner.request = 1
        first = asyncio.create_task(owner.reserve_again(COUNT))
        await first_slice_of(queue)
        queue.fault_next(Fault.HANG)
        await queue.disk.is_hanging.wait()
        following = await queue.after_crash()
        first.cancel()
        owner.queue = following
        async with following:
            answer = await owner.reserve_again(COUNT)
            assert SLICE <= len(answer) < COUNT
            assert answer == await owner.reserved()


@covers("D1")
async def test_a_fragment_that_was_missing_adds_nothing_to_an_answer() -> None:
    async with OneQueue() as one, OneQueue() as other:
        ledgers = [LocalLedger(one.broker, one.fragment), LocalLedger(other.broker, other.fragment)]
        whole, part = EntityLedger(ledgers, MAIN), EntityLedger([ledgers[0], None], MAIN)
        await one.send("a", "b", padding=100)
        await other.send("c", "d", padding=100)
        epoch = await whole.open_owner("query", 4)
        first = await part.reserve("query", epoch, 1, 10, 400, {})
        assert first.ranges == {0: [(1, 2)]}
        again = await whole.reserve("query", epoch, 1, 10, 400, {})
        assert again.ranges == first.ranges
        assert await ledgers[1].reserve(MAIN, "query", epoch, 1, 10, MOST, None) == [], "a try that is late"
        assert (await whole.reserve("query", epoch, 2, 10, 400, {})).ranges == {1: [(1, 2)]}


@covers("D1")
async def test_two_tries_over_all_fragments_have_one_answer() -> None:
    async with OneQueue() as one, OneQueue() as other:
        ledgers = [LocalLedger(one.broker, one.fragment), LocalLedger(other.broker, other.fragment)]
        entity = EntityLedger(ledgers, MAIN)
        await one.send("a")
        epoch = await entity.open_owner("query", 4)
        one.fault_next(Fault.HANG)
        first = asyncio.create_task(entity.reserve("query", epoch, 1, 10, MOST, {}))
        await one.disk.is_hanging.wait()
        await other.send("b")  # the second try sees more than the first did
        second = asyncio.create_task(entity.reserve("query", epoch, 1, 10, MOST, {}))
        for _ in range(50):
            await asyncio.sleep(0)
        one.disk.go_on.set()
        assert await first == await second
        assert await entity.reserved("query", epoch) == (await first).ranges


@covers("D1")
async def test_a_request_that_got_nothing_may_be_asked_again_for_what_comes_then() -> None:
    async with OneQueue() as one, OneQueue() as other:
        entity = EntityLedger([LocalLedger(queue.broker, queue.fragment) for queue in (one, other)], MAIN)
        epoch = await entity.open_owner("query", 4)
        assert (await entity.reserve("query", epoch, 1, 10, MOST, {})).ranges == {}
        await other.send("a")
        assert (await entity.reserve("query", epoch, 1, 10, MOST, {})).ranges == {1: [(1, 1)]}
