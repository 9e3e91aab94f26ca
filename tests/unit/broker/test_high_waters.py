"""What comes from another store: taken once, however often it is sent."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.broker.dropping import drop_fragments
from tandembus.broker.high_waters import KEPT_MS
from tandembus.broker.locks import COMPLETE
from tandembus.broker.operations import CallbackSendReply, SendOperation, TransferSource
from tandembus.errors import QuotaExceeded, StoreFull
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import DEAD_LETTER, MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import KEY, Answer, OneQueue, message, small
from tests.unit.broker.one_topic import ALL, OneTopic

SOURCE = 77


def arrive(queue: OneQueue, numbers: list[int], lane: int = MAIN, source: int = SOURCE, padding: int = 0) -> Answer:
    """Messages with these numbers at their source, each with its number as its body, as one operation."""
    answer = Answer()
    answer.messages = [message(str(number), padding=padding) for number in numbers]
    size = sum(len(one.sections) for one in answer.messages)
    reply = CallbackSendReply(lambda _operation, error: answer.give(error))
    origin = TransferSource(source, lane, numbers)
    queue.fragment.send(SendOperation(answer.messages, size, reply, 0, source=origin))
    return answer


async def high_water(queue: OneQueue) -> dict[tuple[int, int], int]:
    return {(one.source, one.lane): one.number for one in await queue.broker.store.high_waters(KEY)}


@covers("P17")
async def test_what_was_taken_before_is_answered_as_done_and_not_stored_again() -> None:
    async with OneQueue() as queue:
        arrive(queue, [1, 2, 5])
        await queue.quiet()
        again = arrive(queue, [1, 2, 5])
        more = arrive(queue, [5, 6, 9])
        await queue.quiet()
        assert again.is_accepted
        assert more.is_accepted
        assert await queue.peek() == ["1", "2", "5", "6", "9"]
        assert await high_water(queue) == {(SOURCE, MAIN): 9}


@covers("P17")
async def test_the_same_operation_twice_in_one_commit_is_taken_once() -> None:
    async with OneQueue() as queue:
        answers = [arrive(queue, [1, 2]), arrive(queue, [1, 2])]
        await queue.quiet()
        assert all(answer.is_accepted for answer in answers)
        assert await queue.peek() == ["1", "2"]


@covers("P17")
async def test_sources_and_their_lanes_are_told_apart() -> None:
    async with OneQueue() as queue:
        arrive(queue, [3])
        arrive(queue, [2], lane=DEAD_LETTER)
        arrive(queue, [1], source=SOURCE + 1)
        await queue.quiet()
        assert await queue.peek() == ["3", "2", "1"]
        assert await high_water(queue) == {(SOURCE, MAIN): 3, (SOURCE, DEAD_LETTER): 2, (SOURCE + 1, MAIN): 1}


@covers("P17", "M1")
async def test_it_is_remembered_after_a_crash_also_of_what_was_received_since() -> None:
    async with OneQueue() as queue:
        arrive(queue, [1, 2])
        await queue.quiet()
        lock = await queue.receiver().take_one()
        await queue.complete(lock)
        async with await queue.after_crash() as again:
            answer = arrive(again, [1, 2, 3])
            await again.quiet()
            assert answer.is_accepted
            assert await again.peek() == ["2", "3"]


@covers("P17", "M1")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_KEPT, Fault.UNKNOWN_LOST])
async def test_after_an_unknown_outcome_the_same_again_makes_it_once(fault: Fault) -> None:
    async with OneQueue() as queue:
        queue.fault_next(fault)
        is_open = asyncio.Event()
        queue.broker.on_reopened.append(is_open.set)
        arrive(queue, [1, 2])
        await is_open.wait()
        arrive(queue, [1, 2])
        await queue.quiet()
        assert await queue.peek() == ["1", "2"]


@covers("P17", "M13")
async def test_what_a_full_store_refuses_was_not_taken() -> None:
    async with OneQueue() as queue:
        arrive(queue, [1])
        await queue.quiet()
        await queue.send("own")
        receiver = queue.receiver()
        await receiver.take(1)
        queue.fault_next(Fault.FULL)
        refused = arrive(queue, [2])
        queue.settle(receiver.locks[0], COMPLETE)
        await queue.quiet()
        assert isinstance(refused.error, StoreFull)
        assert await high_water(queue) == {(SOURCE, MAIN): 1}
        queue.broker.check_room()
        answer = arrive(queue, [2])
        await queue.quiet()
        assert answer.is_accepted
        assert await queue.peek() == ["own", "2"]


@covers("P17", "M13")
async def test_what_was_taken_needs_no_room_to_be_answered_again() -> None:
    async with OneQueue(small(max_size_bytes=1000)) as queue:
        arrive(queue, [1], padding=800)
        await queue.quiet()
        again = arrive(queue, [1], padding=800)
        with pytest.raises(QuotaExceeded):
            arrive(queue, [1, 2], padding=800)
        await queue.quiet()
        assert again.is_accepted
        assert await queue.peek() == ["1"]


@covers("P17", "M9")
async def test_a_topic_gives_it_to_its_subscriptions_once() -> None:
    async with OneTopic({KEY + 1: (small(), ALL), KEY + 2: (small(), ALL)}) as topic:
        arrive(topic, [1, 2])
        arrive(topic, [2, 3])
        await topic.quiet()
        for key in (KEY + 1, KEY + 2):
            assert await topic.subscription(key).peek() == ["1", "2", "3"]
        async with await topic.after_crash() as again:
            arrive(again, [1, 2, 3])
            await again.quiet()
            assert await again.subscription(KEY + 1).peek() == ["1", "2", "3"]


@covers("P17", "M8")
async def test_the_detection_of_duplicates_sees_it_as_an_ordinary_send() -> None:
    async with OneQueue(small(duplicate_window_ms=60_000)) as queue:
        await queue.send("2")
        answer = arrive(queue, [1, 2, 3])
        await queue.quiet()
        assert answer.is_accepted
        assert await queue.peek() == ["2", "1", "3"]
        assert await high_water(queue) == {(SOURCE, MAIN): 3}


@covers("P17")
async def test_the_record_of_a_source_that_is_gone_is_removed_but_not_at_once() -> None:
    async with OneQueue() as queue:
        known = {SOURCE, SOURCE + 1}
        queue.broker.is_known_fragment = known.__contains__
        arrive(queue, [1])
        arrive(queue, [1], source=SOURCE + 1)
        await queue.quiet()
        known.remove(SOURCE)
        await queue.pass_time(KEPT_MS / 1000)
        assert set(await high_water(queue)) == {(SOURCE, MAIN), (SOURCE + 1, MAIN)}, "a late one may still come"
        await queue.pass_time(61.0)
        assert set(await high_water(queue)) == {(SOURCE + 1, MAIN)}
        arrive(queue, [1], source=SOURCE + 1)
        await queue.quiet()
        assert await queue.peek() == ["1", "1"]


@covers("P17")
async def test_with_the_fragment_all_its_records_go() -> None:
    async with OneQueue() as queue:
        arrive(queue, [1])
        await queue.quiet()
        await drop_fragments(queue.broker, [KEY])
        assert queue.disk.high_waters == {}
