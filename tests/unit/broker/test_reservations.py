"""Reservations: an owner's until it says otherwise, whatever becomes of broker and store."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.broker.dropping import drop_fragments
from tandembus.broker.reserving import MAX_RANGES
from tandembus.errors import (
    InvalidArgument,
    InvalidOperation,
    MessageNotFound,
    QuotaExceeded,
    SessionCannotBeLocked,
    StaleEpoch,
    StoreUnavailable,
)
from tandembus.interconnect.local_requests import LocalRequests
from tandembus.store.memory import Fault, MemoryDisk
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, BlockRecord
from tests.covers import covers
from tests.unit.broker.audited import Comparison, KeepingSink
from tests.unit.broker.one_queue import KEY, OneQueue, small
from tests.unit.broker.reserving_queue import MANY, MOST_BYTES, OWNERS, OwnerAt, spread
from tests.unit.broker.session_queue import session_queue


async def take_step(owner: OwnerAt, step: str, numbers: list[int]) -> None:
    if step == "open":
        await owner.open()
    elif step == "reserve":
        await owner.reserve(9)
    elif step == "complete":
        await owner.complete(numbers)
    else:
        await owner.release(numbers)


TWENTY = [str(number) for number in range(20)]


@covers("D1")
async def test_reserved_messages_are_passed_by_and_released_ones_come_in_their_old_order() -> None:
    async with OneQueue() as queue:
        await queue.send(*TWENTY)
        receiver = queue.receiver()
        lock = await receiver.take_one()
        owner = await OwnerAt(queue).open()
        numbers = await owner.reserve(15)
        assert numbers == list(range(2, 17)), "what a receiver holds is its own"
        assert await receiver.take(1) == ["16"]
        assert await owner.release(numbers[5:]) == 10
        assert await owner.release(numbers[5:]) == 0
        assert await receiver.take(3) == ["6", "7", "8"]
        await queue.abandon(lock)
        assert await receiver.take(20) == ["0", *TWENTY[9:16], *TWENTY[17:]]
        assert await owner.reserved() == numbers[:5]
        assert {one.delivery_count for one in receiver.messages if one.number != 1} == {0}


@covers("D1")
async def test_what_is_reserved_is_so_in_the_next_life() -> None:
    async with OneQueue() as queue:
        await queue.send(*TWENTY)
        owner = await OwnerAt(queue).open()
        numbers = await owner.reserve(9)
        owner.queue = await queue.after_crash()
        async with owner.queue as again:
            assert await owner.reserved() == numbers
            assert await owner.reserve_again(MANY) == numbers
            assert await again.receiver().take(20) == TWENTY[9:]
            assert await owner.complete(numbers) == 9
            assert (await LocalRequests(again.broker, again.fragment).counts()).active == 11


@covers("D1")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_KEPT, Fault.UNKNOWN_LOST])
@pytest.mark.parametrize("step", ["open", "reserve", "complete", "release"])
async def test_a_step_whose_outcome_nobody_knows_is_repeated(step: str, fault: Fault) -> None:
    async with OneQueue() as queue:
        await queue.send(*TWENTY)
        owner = await OwnerAt(queue).open()
        numbers = await owner.reserve(9) if step != "reserve" else []
        queue.fault_next(fault)
        with pytest.raises(StoreUnavailable):
            await take_step(owner, step, numbers)
        await queue.failed()
        while queue.fragment.failure is not None:
            queue.broker.reopen_soon()
            await asyncio.sleep(0)
        is_kept = fault is Fault.UNKNOWN_KEPT
        if step == "open":
            if is_kept:
                with pytest.raises(StaleEpoch):
                    await owner.reserved()
            await owner.open()
            assert await owner.reserved() == numbers
        elif step == "reserve":
            assert await owner.reserve_again(MANY if is_kept else 9) == list(range(1, 10))
        elif step == "complete":
            assert await owner.complete(numbers) == (0 if is_kept else 9)
            assert await queue.receiver().take(20) == TWENTY[9:]
        else:
            assert await owner.release(numbers) == (0 if is_kept else 9)
            assert await queue.receiver().take(20) == TWENTY


@covers("D1")
async def test_no_answer_comes_before_the_commit() -> None:
    async with OneQueue() as queue:
        await queue.send(*TWENTY)
        owner = await OwnerAt(queue).open()
        queue.fault_next(Fault.HANG)
        first = asyncio.ensure_future(owner.reserve(5))
        await queue.disk.is_hanging.wait()
        second = asyncio.ensure_future(owner.reserve_again(9))
        looking = asyncio.ensure_future(owner.reserved())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not first.done()
        assert not second.done()
        assert not looking.done()
        queue.disk.go_on.set()
        assert await first == await second == await looking == [1, 2, 3, 4, 5]


@covers("D1")
async def test_requests_grow_and_only_the_last_one_may_be_repeated() -> None:
    async with OneQueue() as queue:
        await queue.send(*TWENTY)
        owner = await OwnerAt(queue).open()
        assert await owner.reserve(3) == [1, 2, 3]
        assert await owner.complete([1, 2, 3]) == 3
        assert await owner.reserve_again(9) == [1, 2, 3], "the answer, not what is left of it"
        assert await owner.reserve(3) == [4, 5, 6]
        owner.request = 1
        with pytest.raises(InvalidArgument, match="numbers grow"):
            await owner.reserve_again(3)
        await owner.open()
        assert await owner.reserve_again(2) == [7, 8], "a new epoch begins anew"


@covers("D1")
async def test_an_older_epoch_and_an_owner_given_up_are_refused() -> None:
    async with OneQueue() as queue:
        await queue.send(*TWENTY)
        owner, newer = OwnerAt(queue), OwnerAt(queue)
        with pytest.raises(StaleEpoch, match="Open it first"):
            await owner.reserve()
        await owner.open()
        numbers = await owner.reserve(4)
        await newer.open()
        for call in (owner.reserve(), owner.reserved(), owner.complete(numbers), owner.release(numbers)):
            with pytest.raises(StaleEpoch, match="must stop"):
                await call
        assert await newer.reserved() == numbers
        assert await newer.ledger.release(MAIN, "query", None, [(1, 2)]) == 2
        assert await newer.reserved() == numbers[2:], "an operator may hand back a part, and the owner goes on"
        assert await newer.ledger.release(MAIN, "query", None, None) == 2
        with pytest.raises(StaleEpoch):
            await newer.reserve()
        assert list(await newer.ledger.owners(MAIN)) == []
        assert queue.disk.owners == {}
        assert queue.disk.reserved == {}
        queue.clock.advance(1.0)
        assert (await owner.open()).epoch > newer.epoch
        assert await queue.receiver().take(20) == TWENTY


@covers("D1")
async def test_owners_are_limited_and_do_not_see_each_other() -> None:
    async with OneQueue() as queue:
        await queue.send(*TWENTY)
        owners = [await OwnerAt(queue, f"q{index}").open() for index in range(OWNERS)]
        with pytest.raises(QuotaExceeded, match="release one"):
            await OwnerAt(queue, "one too many").open()
        parts = [await one.reserve(3) for one in owners]
        assert parts == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]
        assert await owners[0].complete(range(1, 20)) == 3
        assert await owners[1].release(range(1, 20)) == 3
        assert await owners[2].reserved() == parts[2]
        assert await owners[0].ledger.release(MAIN, "q0", None, None) == 0
        assert await (await OwnerAt(queue, "one more").open()).reserve(4) == [4, 5, 6, 13]


@covers("D1")
async def test_bounds_of_bytes_and_numbers() -> None:
    async with OneQueue() as queue:
        await queue.send(*TWENTY, padding=100)
        size = len((await LocalRequests(queue.broker, queue.fragment).peek(MAIN, 1, 1, 1))[0].message.sections)
        owner = await OwnerAt(queue).open()
        assert await owner.reserve(MANY, 3 * size) == [1, 2, 3]
        assert await owner.reserve(MANY, 1) == [4], "one at least"
        assert await owner.reserve(MANY, MOST_BYTES, up_to=7) == [5, 6, 7]
        assert await owner.reserve(MANY, MOST_BYTES, up_to=7) == []


@covers("D1")
async def test_ranges_go_over_what_is_gone_and_not_over_what_is_anothers() -> None:
    async with OneQueue() as queue:
        await queue.send(*TWENTY)
        receiver = queue.receiver()
        await receiver.take(10)
        for lock in receiver.locks[:5]:
            await queue.complete(lock)
        for lock in (receiver.locks[6], receiver.locks[8]):
            await queue.abandon(lock)
        owner = await OwnerAt(queue).open()
        ranges = await owner.ledger.reserve(MAIN, owner.name, owner.epoch, 1, MANY, MOST_BYTES, None)
        assert ranges == [(7, 7), (9, 9), (11, 20)]
        await queue.complete(receiver.locks[7])
        assert await owner.ledger.reserved(MAIN, owner.name, None) == [(7, 9), (11, 20)]
        assert MAX_RANGES > 3


@covers("D1")
async def test_expiry_waits_for_the_owner_and_comes_with_the_release() -> None:
    async with OneQueue(small(dead_letter_expired=True)) as queue:
        await queue.send("short", ttl_ms=1000)
        await queue.send("long", ttl_ms=100_000)
        owner = await OwnerAt(queue).open()
        numbers = await owner.reserve()
        await queue.pass_time(10.0)
        assert await queue.peek() == ["short", "long"]
        assert await queue.dead_letters() == []
        assert await owner.release(numbers) == 2
        await queue.pass_time(0.1)
        assert await queue.dead_letters() == ["short"]
        assert await queue.receiver().take(5) == ["long"]


@covers("D1")
async def test_delivery_counts_stay_and_go_with_their_messages() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        for lock in [await receiver.take_one(), await receiver.take_one()]:
            await queue.abandon(lock)
        owner = await OwnerAt(queue).open()
        assert await owner.reserve() == [1, 2]
        await owner.release([2])
        assert await owner.complete([1]) == 1
        assert [key[2] for key in queue.disk.overlays] == [2]
        assert await receiver.take(1) == ["b"]
        assert receiver.messages[-1].delivery_count == 1


@covers("D1")
async def test_others_cannot_have_reserved_messages_by_their_numbers() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        await queue.defer(await receiver.take_one())
        owner = await OwnerAt(queue).open()
        assert await owner.reserve() == [2], "a deferred one waits for whoever deferred it"
        requests = LocalRequests(queue.broker, queue.fragment)
        with pytest.raises(MessageNotFound):
            await requests.receive_deferred(MAIN, [2], False)
        with pytest.raises(InvalidOperation, match="reserved"):
            await requests.delete_one(MAIN, 2)
        assert await requests.delete_batch(MAIN, 10, 1 << 60) == 0
        assert await owner.complete([1, 2]) == 1
        assert len(await requests.receive_deferred(MAIN, [1], False)) == 1


@covers("D1")
async def test_dead_letters_have_a_ledger_of_their_own() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        await queue.dead_letter(await queue.receiver().take_one())
        main, dead = await OwnerAt(queue).open(), await OwnerAt(queue, lane=DEAD_LETTER).open()
        assert await dead.reserve() == [1]
        assert await main.reserve() == [2]
        assert await dead.complete([1, 2]) == 1
        assert await main.reserved() == [2]
        assert await queue.dead_letters() == []


@covers("D1")
async def test_a_damaged_message_and_a_damaged_owner() -> None:
    async with OneQueue() as queue:
        await queue.send(*TWENTY)
        owner = await OwnerAt(queue).open()
        assert await owner.reserve(5) == [1, 2, 3, 4, 5]
        queue.disk.damaged.add((KEY, MAIN, 3))
        found = await owner.ledger.browse(MAIN, 1, 5, MANY, 1 << 20)
        assert found.count == 4
        await queue.quiet()
        assert spread(await owner.ledger.reserved(MAIN, "query", None)) == [1, 2, 3, 4, 5], "the gap is gone for good"
        queue.disk.owners.clear()
        owner.queue = await queue.after_crash()
        async with owner.queue as again:
            ((name, _, count),) = await owner.ledger.owners(MAIN)
            assert (name, count) == ("$lost-0", 4)
            assert await owner.ledger.release(MAIN, name, None, None) == 4
            assert await again.receiver().take(30) == ["0", "1", *TWENTY[3:]]


@covers("D1")
async def test_what_is_deleted_leaves_nothing_behind() -> None:
    async with OneQueue() as queue:
        await queue.send(*TWENTY)
        await (await OwnerAt(queue).open()).reserve()
        await drop_fragments(queue.broker, [KEY])
        assert queue.disk.owners == {}
        assert queue.disk.reserved == {}


@covers("D1")
async def test_settling_goes_on_in_a_full_store_and_its_bytes_are_right() -> None:
    async with OneQueue() as queue:
        await queue.send(*TWENTY, padding=50)
        owner = await OwnerAt(queue).open()
        numbers = await owner.reserve()
        queue.fault_next(Fault.FULL)
        answer = queue.stage()
        completing = asyncio.ensure_future(owner.complete(numbers[:10]))
        assert await completing == 10
        assert answer.is_given
        sizes = [len(one.sections) for key, one in queue.disk.bodies.items() if key[2] > 10]
        assert queue.fragment.live_bytes() == sum(sizes)
        assert await owner.complete(numbers) == 10
        assert queue.fragment.live_bytes() == 0


@covers("D1")
async def test_sessions_that_somebody_holds_are_passed_over_and_reserved_ones_cannot_be_accepted() -> None:
    async with session_queue() as queue:
        for round_of in range(3):
            for session in ("a", "b", "c"):
                await queue.send_to(session, f"{session}{round_of}")
        held = await queue.accept("b")
        owner = await OwnerAt(queue).open()
        assert await owner.reserve(4) == [1, 3, 4, 6]
        waiting = queue.accepting()
        await queue.quiet()
        assert not waiting.done()
        for session in ("a", "c"):
            with pytest.raises(SessionCannotBeLocked, match="reserved messages"):
                await queue.accept(session)
        assert await owner.complete([1, 3, 4]) == 3
        await queue.quiet()
        assert waiting.result().session.name == "a"
        with pytest.raises(SessionCannotBeLocked, match="reserved messages"):
            await queue.accept("c")
        assert await owner.release([6]) == 1
        receiver = await queue.accept("c")
        assert await receiver.take(10) == ["c1", "c2"]
        assert await held.take(10) == ["b0", "b1", "b2"]


@covers("D1")
async def test_sessions_stay_closed_in_the_next_life() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", *[f"a{number}" for number in range(12)])
        await queue.send_to("b", "b0")
        owner = await OwnerAt(queue).open()
        numbers = await owner.reserve(10)
        async with await queue.again() as again:
            owner.queue = again
            with pytest.raises(SessionCannotBeLocked, match="reserved messages"):
                await again.accept("a")
            assert (await again.accept()).session_id == "b"
            assert await owner.release(numbers) == 10
            receiver = await again.accept()
            assert await receiver.take(20) == [f"a{number}" for number in range(12)]


@covers("D1", "D5")
async def test_what_is_settled_in_ranges_stands_in_the_audit() -> None:
    sink = KeepingSink()
    disk = MemoryDisk()
    comparison = Comparison(disk)
    async with OneQueue(disk=disk, audit_sink=sink) as queue:
        await queue.send(*TWENTY)
        owner = await OwnerAt(queue).open()
        numbers = await owner.reserve(15)
        await owner.complete(numbers[:10])
        await owner.complete(numbers[:10])
        await owner.release(numbers)
    assert comparison.disagreement is None
    assert sink.kinds(disk).count("completed") == 10


@covers("D1")
async def test_behind_many_messages_of_a_held_session_others_are_found() -> None:
    async with session_queue() as queue:
        await queue.send_to("held", *[str(number) for number in range(100)])
        await queue.send_to("free", "x", "y")
        await queue.accept("held")
        owner = await OwnerAt(queue).open()
        assert await owner.reserve(1) == [101]
        assert await owner.reserve(1) == [102]
        assert await owner.reserve(1) == []


@covers("D1")
async def test_a_block_that_was_rebuilt_from_its_bodies_learns_what_is_reserved() -> None:
    async with OneQueue() as queue:
        await queue.send(*TWENTY)
        owner = await OwnerAt(queue).open()
        numbers = await owner.reserve(10)
        await owner.complete(numbers[:2])
        following = await queue.after_crash()
    for key, block in queue.disk.blocks.items():
        if block.lane == MAIN and block.block == 0:
            # Nothing is parked, and what was settled is back: rather twice than never.
            bits, live = bytes([1, *bytes(len(block.settled) - 1)]), block.given - 1
            queue.disk.blocks[key] = BlockRecord(
                block.fragment, block.lane, block.block, block.given, bits, bytes(len(bits)), live, 0, 0, 1000, 0
            )
    owner.queue = following
    async with following:
        assert await owner.reserved() == numbers[2:]
        assert await following.receiver().take(30) == [*TWENTY[:2], *TWENTY[10:]]
        assert await owner.complete(numbers) == 8
