"""Requests to an entity of many fragments: peek, counts, deferred and scheduled messages, deleting, listing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import cast

import pytest

from tandembus.broker.locks import COMPLETE, DEFER, MessageLock
from tandembus.broker.operations import CallbackConsumer
from tandembus.errors import (
    InvalidArgument,
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    OperationTimeout,
    StoreUnavailable,
)
from tandembus.interconnect.local_requests import LocalRequests
from tandembus.interconnect.requests import Browsed, Counts, Listing, Requests
from tandembus.namespace.partitioned_requests import PartitionedRequests
from tandembus.namespace.partitioning import fragment_of_key
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import DEFERRED, MAIN, SCHEDULED
from tests.covers import covers
from tests.unit.broker.one_queue import body_of, small
from tests.unit.namespace.partitioned_queue import PartitionedQueue, Wish, keyed

BEYOND = [16 << 48 | 1, 17 << 48 | 1, (1 << 63) - 1, 0, -1, -(1 << 62)]


def bodies(found: Sequence[Browsed]) -> list[str]:
    return [body_of(one.message) for one in found]


# Peeking.


@covers("P22", "M4")
@pytest.mark.parametrize("step", [1, 3, 16, 100])
async def test_repeated_peeks_walk_everything_in_the_order_of_sequence_numbers(step: int) -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*[str(number) for number in range(50)])
        seen: list[Browsed] = []
        at = 0
        while part := await queue.requests.peek(MAIN, at, step, 1 << 20):
            assert len(part) <= step
            seen += part
            at = part[-1].sequence_number + 1
        numbers = [one.sequence_number for one in seen]
        assert numbers == sorted(numbers)
        assert sorted(bodies(seen), key=int) == [str(number) for number in range(50)]


@covers("P22", "P26")
async def test_the_fragment_stands_in_the_sequence_number() -> None:
    async with PartitionedQueue() as queue:
        await queue.send_to(9, "a", "b")
        found = await queue.requests.peek(MAIN, 0, 10, 1 << 20)
        assert [one.sequence_number for one in found] == [9 << 48 | 1, 9 << 48 | 2]


@covers("P22")
async def test_a_peek_passes_over_empty_fragments_within_the_same_call() -> None:
    async with PartitionedQueue() as queue:
        await queue.send_to(2, "two")
        await queue.send_to(15, "last")
        found = await queue.requests.peek(MAIN, 0, 1, 1 << 20)
        assert bodies(found) == ["two"]
        found = await queue.requests.peek(MAIN, found[-1].sequence_number + 1, 1, 1 << 20)
        assert bodies(found) == ["last"]
        assert await queue.requests.peek(MAIN, found[-1].sequence_number + 1, 1, 1 << 20) == []


@covers("P22")
async def test_a_peek_with_holes_finds_what_is_left() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*[str(number) for number in range(64)])
        receiver = queue.receiver()
        await receiver.take(64)
        for position, lock in enumerate(receiver.locks):
            if position % 3:
                queue.settle(lock, COMPLETE)
        await queue.quiet()
        left = [body for position, body in enumerate(receiver.bodies) if position % 3 == 0]
        assert sorted(await queue.peek(), key=int) == sorted(left, key=int)


@covers("P22")
async def test_an_answer_holds_at_most_the_bytes_that_are_allowed_but_at_least_one_message() -> None:
    async with PartitionedQueue() as queue:
        for index in range(16):
            await queue.send_to(index, keyed(f"{index}", padding=1000))
        await queue.send_to(3, keyed("large", padding=5000))
        seen: list[str] = []
        at = 0
        while part := await queue.requests.peek(MAIN, at, 100, 2500):
            sizes = [len(one.message.sections) for one in part]
            assert sum(sizes) <= 2500 or len(part) == 1
            seen += bodies(part)
            at = part[-1].sequence_number + 1
        assert len(seen) == 17
        assert "large" in seen


@covers("P22")
async def test_a_fragment_whose_next_message_does_not_fit_is_not_left_for_the_next_one() -> None:
    async with PartitionedQueue() as queue:
        await queue.send_to(0, *[keyed(f"0-{number}", padding=1000) for number in range(3)])
        await queue.send_to(1, keyed("1-0", padding=10))
        found = await queue.requests.peek(MAIN, 0, 100, 2500)
        assert bodies(found) == ["0-0", "0-1"]
        found = await queue.requests.peek(MAIN, found[-1].sequence_number + 1, 100, 2500)
        assert bodies(found) == ["0-2", "1-0"]


@covers("P22")
@pytest.mark.parametrize("asks_all", [False, True])
@pytest.mark.parametrize("seed", range(5))
async def test_repeated_peeks_find_everything_whatever_the_sizes(seed: int, asks_all: bool) -> None:
    chance = random.Random(seed)
    async with PartitionedQueue() as queue:
        requests = PartitionedRequests(locals_of(queue), queue.traffic, ask_all_s=0.0 if asks_all else 60.0)
        sent = [str(number) for number in range(60)]
        for body in sent:
            await queue.send_to(chance.randrange(16), keyed(body, padding=chance.choice([1, 100, 900, 3000])))
        found: list[Browsed] = []
        at = 0
        while part := await requests.peek(MAIN, at, chance.randrange(1, 20), 2500):
            assert len(part) == 1 or sum(len(one.message.sections) for one in part) <= 2500
            found += part
            at = part[-1].sequence_number + 1
        numbers = [one.sequence_number for one in found]
        assert numbers == sorted(numbers)
        assert sorted(bodies(found), key=int) == sent


def locals_of(queue: PartitionedQueue) -> list[Requests]:
    return [LocalRequests(queue.broker_of(index), one) for index, one in enumerate(queue.fragments)]


class Together:
    """A fragment so slow that it answers only when all have been asked as often as it."""

    def __init__(self, inner: Requests, index: int, asked: list[int], all_asked: asyncio.Condition) -> None:
        self._inner = inner
        self._index = index
        self._asked = asked
        self._all_asked = all_asked

    async def _slowly(self) -> None:
        async with self._all_asked:
            self._asked[self._index] += 1
            self._all_asked.notify_all()
            times = self._asked[self._index]
            await self._all_asked.wait_for(lambda: min(self._asked) >= times)

    async def peek(
        self, lane: int, from_number: int, count: int, max_bytes: int, session_id: str | None = None
    ) -> Sequence[Browsed]:
        await self._slowly()
        return await self._inner.peek(lane, from_number, count, max_bytes, session_id)

    async def delete_batch(self, lane: int, count: int, before_ms: int, session_id: str | None = None) -> int:
        await self._slowly()
        return await self._inner.delete_batch(lane, count, before_ms, session_id)


def together(queue: PartitionedQueue, asked: list[int], walk_s: float = 5.0) -> PartitionedRequests:
    all_asked = asyncio.Condition()
    requests = [cast("Requests", Together(one, index, asked, all_asked)) for index, one in enumerate(locals_of(queue))]
    return PartitionedRequests(requests, queue.traffic, walk_s)


@covers("P22", "B3")
@pytest.mark.parametrize("count", [0, 16, 64])
async def test_slow_fragments_are_peeked_at_the_same_time(count: int) -> None:
    async with PartitionedQueue() as queue:
        for number in range(count):
            await queue.send_to(number % 16, f"{number % 16}-{number // 16}")
        asked = [0] * 16
        found = await together(queue, asked).peek(MAIN, 0, 100, 1 << 20)
        assert bodies(found) == [f"{index}-{number}" for index in range(16) for number in range(count // 16)]
        assert asked == [1 if count == 0 else 2] * 16


@covers("P22")
async def test_no_more_fragments_are_asked_than_a_peek_needs_while_they_are_quick() -> None:
    async with PartitionedQueue() as queue:
        for index in range(16):
            await queue.send_to(index, *[f"{index}-{number}" for number in range(4)])
        asked = [0] * 16
        requests = locals_of(queue)
        for index in range(16):
            requests[index] = cast("Requests", Counting(requests[index], index, asked))
        peeking = PartitionedRequests(requests, queue.traffic, ask_all_s=60.0)
        assert len(await peeking.peek(MAIN, 0, 6, 1 << 20)) == 6
        assert asked == [2, 1] + [0] * 14


class Counting:
    def __init__(self, inner: Requests, index: int, asked: list[int]) -> None:
        self._inner = inner
        self._index = index
        self._asked = asked

    async def peek(
        self, lane: int, from_number: int, count: int, max_bytes: int, session_id: str | None = None
    ) -> Sequence[Browsed]:
        self._asked[self._index] += 1
        return await self._inner.peek(lane, from_number, count, max_bytes, session_id)


class Silent:
    """A fragment that does not answer, or only so often; nobody can tell why."""

    def __init__(self, inner: LocalRequests, answers: int, hangs: bool) -> None:
        self._inner = inner
        self._answers = answers
        self._hangs = hangs

    async def peek(
        self, lane: int, from_number: int, count: int, max_bytes: int, session_id: str | None = None
    ) -> Sequence[Browsed]:
        if self._answers > 0:
            self._answers -= 1
            return await self._inner.peek(lane, from_number, min(count, 1), max_bytes, session_id)
        if self._hangs:
            await asyncio.Event().wait()
        raise OperationTimeout("No answer in time.")

    async def counts(self) -> Counts:
        raise OperationTimeout("No answer in time.")

    async def list_sessions(self, after_ms: int | None, skip: int, top: int, listing: Listing) -> Sequence[str]:
        raise OperationTimeout("No answer in time.")


def with_silent(queue: PartitionedQueue, *silent: int, answers: int = 0, hangs: bool = False) -> PartitionedRequests:
    requests: list[Requests] = []
    for index, fragment in enumerate(queue.fragments):
        one = LocalRequests(queue.broker_of(index), fragment)
        requests.append(cast("Requests", Silent(one, answers, hangs)) if index in silent else one)
    return PartitionedRequests(requests, queue.traffic, walk_s=0.05)


@covers("P22")
@pytest.mark.parametrize("hangs", [False, True])
async def test_a_peek_that_no_fragment_answers_is_not_an_empty_queue(hangs: bool) -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*[str(number) for number in range(16)])
        requests = with_silent(queue, *range(16), hangs=hangs)
        with pytest.raises(OperationTimeout):
            await requests.peek(MAIN, 0, 100, 1 << 20)


@covers("P22")
async def test_a_peek_whose_time_is_up_before_anything_was_found_is_not_an_empty_queue() -> None:
    async with PartitionedQueue() as queue:
        await queue.send_to(5, "a")
        requests = with_silent(queue, 3, hangs=True)
        with pytest.raises(OperationTimeout):
            await requests.peek(MAIN, 0, 100, 1 << 20)


@covers("P22", "P3")
async def test_a_peek_passes_over_a_silent_fragment_but_not_before_what_it_has_found_there() -> None:
    async with PartitionedQueue() as queue:
        await queue.send_to(3, "3-0", "3-1")
        await queue.send_to(5, "5-0")
        requests = with_silent(queue, 3, answers=1)
        found = await requests.peek(MAIN, 0, 100, 1 << 20)
        assert bodies(found) == ["3-0"], "it may answer again when the walk goes on"
        assert bodies(await requests.peek(MAIN, found[-1].sequence_number + 1, 100, 1 << 20)) == ["5-0"]


@covers("P19")
async def test_counts_say_how_many_fragments_did_not_answer() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*[str(number) for number in range(32)])
        counts = await with_silent(queue, 3, 7).counts()
        assert (counts.active, counts.missing_fragments) == (28, 2)
        assert (await queue.requests.counts()).missing_fragments == 0


@covers("P22", "P3")
async def test_a_peek_passes_over_fragments_that_are_out() -> None:
    async with PartitionedQueue(broker_count=4) as queue:
        await queue.send(*[str(number) for number in range(16)])
        await queue.fail(0)
        seen = await queue.peek()
        assert len(seen) == 12
        await queue.heal(0)
        assert len(await queue.peek()) == 16


@covers("P22")
@pytest.mark.parametrize("number", [16 << 48, (1 << 63) - 1])
async def test_behind_the_last_fragment_there_is_nothing(number: int) -> None:
    async with PartitionedQueue() as queue:
        await queue.send("a")
        assert await queue.requests.peek(MAIN, number, 10, 1 << 20) == []


@covers("P22", "M7")
async def test_the_messages_of_a_session_are_looked_for_in_its_fragment() -> None:
    async with PartitionedQueue(small(requires_session=True, window_messages=100, block_size=64)) as queue:
        await queue.send(*[keyed(f"{name}{number}", session_id=name) for number in range(3) for name in "abcdef"])
        found = await queue.requests.peek(MAIN, 0, 2, 1 << 20, "c")
        assert bodies(found) == ["c0", "c1"]
        found = await queue.requests.peek(MAIN, found[-1].sequence_number + 1, 2, 1 << 20, "c")
        assert bodies(found) == ["c2"]
        assert await queue.requests.peek(MAIN, found[-1].sequence_number + 1, 2, 1 << 20, "c") == []


# Counts.


@covers("P19", "F22")
async def test_counts_are_summed_over_the_fragments_that_can_be_reached() -> None:
    async with PartitionedQueue(broker_count=4) as queue:
        await queue.send(*[str(number) for number in range(32)])
        assert (await queue.requests.counts()).active == 32
        size = (await queue.requests.counts()).size_bytes
        assert size > 0
        await queue.fail(2)
        assert (await queue.requests.counts()).active == 24
        for index in (0, 1, 3):
            await queue.fail(index)
        with pytest.raises(StoreUnavailable):
            await queue.requests.counts()


# Locks.


@covers("P24", "M2")
async def test_locks_of_several_fragments_are_found_and_renewed_in_the_order_asked() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*[str(number) for number in range(16)])
        receiver = queue.receiver()
        await receiver.take(16)
        tokens = [lock.token for lock in reversed(receiver.locks)]
        found = await queue.requests.find_locks(tokens, MAIN)
        assert [lock.token for lock in found] == tokens
        queue.clock.advance(30.0)
        until = await queue.requests.renew(tokens)
        assert list(until) == [queue.clock.now_ms() + 60_000] * 16
        queue.clock.advance(45.0)
        assert len(await queue.requests.find_locks(tokens, MAIN)) == 16


@covers("P24", "M2")
@pytest.mark.parametrize("token", [b"\xff" * 16, b"\x00\x10" + bytes(14), bytes(16), b"short"])
async def test_a_token_that_no_fragment_gave_is_a_lost_lock(token: bytes) -> None:
    async with PartitionedQueue() as queue:
        with pytest.raises(MessageLockLost):
            await queue.requests.find_locks([token], MAIN)
        with pytest.raises(MessageLockLost):
            await queue.requests.renew([token])


# Deferred messages.


async def deferred(queue: PartitionedQueue, count: int) -> list[int]:
    """Defer this many messages, in as many fragments; returns their sequence numbers."""
    await queue.send(*[str(number) for number in range(count)])
    receiver = queue.receiver()
    await receiver.take(count)
    numbers = [int(lock.index) << 48 | int(lock.number) for lock in receiver.locks]
    for lock in receiver.locks:
        queue.settle(lock, DEFER)
    await queue.quiet()
    return numbers


@covers("P4", "P24", "P26", "M3")
@pytest.mark.parametrize("is_destructive", [False, True])
async def test_deferred_messages_of_several_fragments_come_in_the_order_asked(is_destructive: bool) -> None:
    async with PartitionedQueue() as queue:
        numbers = await deferred(queue, 10)
        asked = [numbers[7], numbers[2], numbers[9]]
        got = await queue.requests.receive_deferred(MAIN, asked, is_destructive)
        assert [int(lock.index) << 48 | int(message.number) for lock, message in got] == asked
        assert sum(queue.counts()) == (7 if is_destructive else 10)
        if not is_destructive:
            for lock, _ in got:
                queue.settle(lock, COMPLETE)
            await queue.quiet()
            assert sum(queue.counts()) == 7


@covers("P26", "M3")
@pytest.mark.parametrize("number", BEYOND)
async def test_a_number_that_names_no_fragment_is_one_of_no_message(number: int) -> None:
    async with PartitionedQueue() as queue:
        numbers = await deferred(queue, 2)
        with pytest.raises(MessageNotFound):
            await queue.requests.receive_deferred(MAIN, [numbers[0], number], False)
        with pytest.raises(MessageNotFound):
            await queue.requests.cancel_scheduled([number])
        with pytest.raises(MessageNotFound):
            await queue.requests.delete_one(MAIN, number)
        assert queue.locked_count() == 0


@covers("P22", "M3", "M5")
async def test_whoever_names_a_message_that_is_not_there_is_told_the_same_number() -> None:
    async with PartitionedQueue() as queue:
        (number,) = await queue.requests.schedule([keyed("later", scheduled_at_ms=queue.clock.now_ms() + 60_000)], 100)
        await queue.requests.cancel_scheduled([number])
        await queue.send_to(9, "taken")
        receiver = queue.receiver()
        await receiver.take(1)
        gone = 9 << 48 | 8
        for missing in (number, gone):
            with pytest.raises(MessageNotFound, match=f"number {missing}[.]"):
                await queue.requests.cancel_scheduled([missing])
            with pytest.raises(MessageNotFound, match=f"number {missing}[.]"):
                await queue.requests.receive_deferred(MAIN, [missing], False)
            with pytest.raises(MessageNotFound, match=f"number {missing}[.]"):
                await queue.requests.delete_one(MAIN, missing)
        with pytest.raises(InvalidOperation, match=f"message {9 << 48 | 1} is locked"):
            await queue.requests.delete_one(MAIN, 9 << 48 | 1)


@covers("M3")
async def test_of_deferred_messages_all_come_or_none() -> None:
    async with PartitionedQueue() as queue:
        numbers = await deferred(queue, 6)
        missing = (numbers[5] >> 48 << 48) | 999
        for is_destructive in (False, True):
            with pytest.raises(MessageNotFound):
                await queue.requests.receive_deferred(MAIN, [*numbers[:3], missing], is_destructive)
            assert queue.locked_count() == 0, "whoever is refused finds the messages as they were, at once"
        with pytest.raises(InvalidArgument):
            await queue.requests.receive_deferred(MAIN, [numbers[0], numbers[0]], False)
        got = await queue.requests.receive_deferred(MAIN, numbers, False)
        assert {int(lock.delivery_count) for lock, _ in got} == {1}, "each was deferred once; requests count nothing"


@covers("P6", "M3")
async def test_what_was_removed_is_handed_over_although_another_fragment_fails_meanwhile() -> None:
    async with PartitionedQueue() as queue:
        numbers = sorted(await deferred(queue, 2))
        disk = queue.disks[1]
        disk.faults[disk.commit_count + 1] = Fault.UNKNOWN_LOST
        got = await queue.requests.receive_deferred(MAIN, numbers, True)
        assert [int(lock.index) for lock, _ in got] == [0]
        await queue.heal(1)
        found = await queue.requests.peek(MAIN, 0, 10, 1 << 20)
        assert [(one.sequence_number, one.state) for one in found] == [(numbers[1], DEFERRED)]


# Scheduled messages.


@covers("P4", "P5", "P24", "M5")
async def test_scheduled_messages_are_spread_and_appear_in_time() -> None:
    async with PartitionedQueue() as queue:
        at_ms = queue.clock.now_ms() + 60_000
        numbers: list[int] = []
        for number in range(32):
            numbers += await queue.requests.schedule([keyed(str(number), scheduled_at_ms=at_ms)], 100)
        assert sorted({number >> 48 for number in numbers}) == list(range(16))
        assert queue.counts() == [2] * 16
        found = await queue.requests.peek(MAIN, 0, 100, 1 << 20)
        assert sorted(one.sequence_number for one in found) == sorted(numbers)
        assert {one.state for one in found} == {SCHEDULED}
        await queue.pass_time(61.0)
        receiver = queue.receiver()
        assert len(await receiver.take(32)) == 32


@covers("P5", "P10", "P27", "M5")
async def test_scheduled_messages_with_a_key_go_to_its_fragment() -> None:
    async with PartitionedQueue() as queue:
        at_ms = queue.clock.now_ms() + 60_000
        batch = [keyed(str(number), "a", scheduled_at_ms=at_ms) for number in range(3)]
        numbers = await queue.requests.schedule(batch, 300)
        assert {number >> 48 for number in numbers} == {int(fragment_of_key("a"))}
        with pytest.raises(InvalidOperation):
            await queue.requests.schedule([keyed("x", "a"), keyed("y", "b")], 100)


@covers("P10", "P27", "M5", "M8")
async def test_a_scheduled_batch_is_split_by_message_id_and_its_numbers_stand_in_its_order() -> None:
    async with PartitionedQueue(small(duplicate_window_ms=60_000, window_messages=100, block_size=64)) as queue:
        at_ms = queue.clock.now_ms() + 60_000
        numbers = await queue.requests.schedule(
            [keyed(f"m{number}", scheduled_at_ms=at_ms) for number in range(20)], 2000
        )
        by_number = {one.sequence_number: one for one in await queue.requests.peek(MAIN, 0, 100, 1 << 20)}
        assert [body_of(by_number[number].message) for number in numbers] == [f"m{number}" for number in range(20)]


@covers("P13", "M5")
async def test_a_scheduled_message_without_a_key_goes_around_what_is_out() -> None:
    async with PartitionedQueue() as queue:
        at_ms = queue.clock.now_ms() + 60_000
        disk = queue.disks[0]
        disk.faults[disk.commit_count + 1] = Fault.UNKNOWN_LOST
        queue.is_down[0] = True
        numbers: list[int] = []
        for number in range(8):
            numbers += await queue.requests.schedule([keyed(str(number), scheduled_at_ms=at_ms)], 100)
        assert {(number >> 48) % 2 for number in numbers} == {1}


@covers("P24", "M5")
async def test_cancelled_are_all_scheduled_messages_or_none() -> None:
    async with PartitionedQueue() as queue:
        at_ms = queue.clock.now_ms() + 60_000
        numbers: list[int] = []
        for number in range(6):
            numbers += await queue.requests.schedule([keyed(str(number), scheduled_at_ms=at_ms)], 100)
        with pytest.raises(MessageNotFound):
            await queue.requests.cancel_scheduled([*numbers[:3], 12 << 48 | 1])
        assert sum(queue.counts()) == 6
        await queue.requests.cancel_scheduled([numbers[5], numbers[0], numbers[3]])
        left = {one.sequence_number for one in await queue.requests.peek(MAIN, 0, 100, 1 << 20)}
        assert left == {numbers[1], numbers[2], numbers[4]}


# Deleting.


@covers("P6")
async def test_a_batch_is_deleted_over_all_fragments_also_what_is_kept_ready() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*[str(number) for number in range(64)])
        receiver = queue.receiver()
        await receiver.take(1)
        before_ms = queue.clock.now_ms() + 1
        assert await queue.requests.delete_batch(MAIN, 10, before_ms) == 10
        assert await queue.requests.delete_batch(MAIN, 1000, before_ms) == 53
        assert await queue.requests.delete_batch(MAIN, 1000, before_ms) == 0
        assert sum(queue.counts()) == 1


@covers("P3")
async def test_deleting_passes_over_what_is_out_and_fails_when_all_is() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*[str(number) for number in range(32)])
        await queue.fail(0)
        before_ms = queue.clock.now_ms() + 1
        assert await queue.requests.delete_batch(MAIN, 1000, before_ms) == 16
        await queue.fail(1)
        with pytest.raises(StoreUnavailable):
            await queue.requests.delete_batch(MAIN, 1000, before_ms)


@covers("M12", "B3")
async def test_slow_fragments_delete_their_parts_of_a_batch_at_the_same_time() -> None:
    async with PartitionedQueue() as queue:
        for index in range(16):
            await queue.send_to(index, *[f"{index}-{number}" for number in range(3)])
        deleting = together(queue, [0] * 16).delete_batch(MAIN, 40, queue.clock.now_ms() + 1)
        assert await asyncio.wait_for(deleting, 10.0) == 40
        assert queue.counts() == [0] * 8 + [1] * 8
        left = await queue.peek()
        assert left == [f"{index}-2" for index in range(8, 16)], "in each the oldest first"


@covers("M12")
@pytest.mark.parametrize("count", [1, 5, 30, 100])
async def test_a_batch_is_deleted_wherever_its_messages_are(count: int) -> None:
    async with PartitionedQueue() as queue:
        await queue.send_to(3, *[f"3-{number}" for number in range(2)])
        await queue.send_to(15, *[f"15-{number}" for number in range(28)])
        before_ms = queue.clock.now_ms() + 1
        assert await queue.requests.delete_batch(MAIN, count, before_ms) == min(count, 30)
        assert sum(queue.counts()) == max(30 - count, 0)


@covers("M12", "B3")
async def test_a_batch_is_not_gone_on_with_when_its_time_is_up() -> None:
    async with PartitionedQueue() as queue:
        await queue.send_to(3, "a")
        requests = PartitionedRequests(locals_of(queue), queue.traffic, walk_s=0.0)
        with pytest.raises(OperationTimeout):
            await requests.delete_batch(MAIN, 10, queue.clock.now_ms() + 1)
        assert sum(queue.counts()) == 1


async def test_one_message_is_deleted_by_its_number() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*[str(number) for number in range(16)])
        receiver = queue.receiver()
        await receiver.take(1)
        found = await queue.requests.peek(MAIN, 0, 100, 1 << 20)
        (taken,) = receiver.bodies
        for one in found:
            if body_of(one.message) != taken:
                await queue.requests.delete_one(MAIN, one.sequence_number)
        assert await queue.peek() == [taken]


async def test_what_waits_is_taken_fragment_by_fragment_to_be_moved() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*[str(number) for number in range(32)])
        ends = await queue.requests.ends(MAIN)
        assert [end >> 48 for end in ends] == list(range(16))
        for end in ends:
            taken = await queue.requests.take_waiting(MAIN, (end >> 48 << 48) + 1, end, 10, 1 << 20)
            assert len(taken.messages) == 2
            assert taken.next_number == end


# Sessions.


@covers("P4", "P10", "P24", "M7")
async def test_the_state_of_a_session_lives_in_its_fragment() -> None:
    async with PartitionedQueue(small(requires_session=True)) as queue:
        for name in ("a", "b", "c"):
            wish = Wish(queue, name)
            assert wish.hold is not None
            await queue.requests.set_session_state(wish.hold, name.encode())
            assert await queue.requests.session_state(wish.hold) == name.encode()
            queue.clock.advance(1.0)
            assert await queue.requests.renew_session(wish.hold) == queue.clock.now_ms() + 60_000
        places = {key[0] - 100: key[1] for disk in queue.disks for key in disk.session_states}
        assert places == {int(fragment_of_key(name)): name for name in ("a", "b", "c")}


@covers("P24", "M7")
@pytest.mark.parametrize("step", [1, 7, 100])
async def test_sessions_are_listed_over_all_fragments_page_by_page(step: int) -> None:
    async with PartitionedQueue(small(requires_session=True, window_messages=100, block_size=64)) as queue:
        names = [f"s{number}" for number in range(60)]
        await queue.send(*[keyed(f"m{name}", session_id=name) for name in names])
        listing = Listing()
        seen: list[str] = []
        while page := await queue.requests.list_sessions(None, len(seen), step, listing):
            assert len(page) <= step
            seen += page
        assert sorted(seen) == sorted(names)
        assert list(await queue.requests.list_sessions(None, 10, 5, Listing())) == seen[10:15]


@covers("P3", "M7")
async def test_sessions_of_fragments_that_are_out_are_not_listed() -> None:
    async with PartitionedQueue(small(requires_session=True, window_messages=100, block_size=64)) as queue:
        names = [f"s{number}" for number in range(60)]
        await queue.send(*[keyed(f"m{name}", session_id=name) for name in names])
        await queue.fail(1)
        seen = await queue.requests.list_sessions(None, 0, 100, Listing())
        assert sorted(seen) == sorted(name for name in names if fragment_of_key(name) % 2 == 0)
        with pytest.raises(OperationTimeout):
            await with_silent(queue, *range(16)).list_sessions(None, 0, 100, Listing())


@covers("P10", "P4")
async def test_the_holder_of_a_session_in_another_fragment_has_nothing_to_say_here() -> None:
    async with PartitionedQueue(small(requires_session=True)) as queue:
        await queue.send(keyed("one", session_id="a"), keyed("two", session_id="b"))
        assert fragment_of_key("a") != fragment_of_key("b")
        mine, other = Wish(queue, "a"), Wish(queue, "b")
        await queue.quiet()
        assert mine.hold is not None
        assert other.hold is not None
        other.hold.number = mine.hold.number  # each channel counts for itself
        locks: list[MessageLock] = []
        consumer = CallbackConsumer(False, lambda _message, lock: locks.append(lock))
        queue.traffic.hold_session(mine.hold, consumer)
        consumer.credit = 1
        queue.traffic.feed(consumer, MAIN, False)
        await queue.quiet()
        (lock,) = locks
        with pytest.raises(MessageLockLost):
            await queue.requests.find_locks([lock.token], MAIN, other.hold)
        assert await queue.requests.find_locks([lock.token], MAIN, mine.hold) == [lock]
        number = int(fragment_of_key("a")) << 48 | 1
        assert (await queue.settle(lock, DEFER).wait()) is None
        with pytest.raises(MessageNotFound):
            await queue.requests.receive_deferred(MAIN, [number], False, other.hold)
        assert len(await queue.requests.receive_deferred(MAIN, [number], False, mine.hold)) == 1
