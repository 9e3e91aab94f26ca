"""Numbers that are told before their messages are there: scheduled messages of transactions."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.broker.browsing import cancel_scheduled, find_scheduled
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.session_reading import promise_numbers
from tandembus.broker.transactions import (
    CallbackTransactionReply,
    TransactionCancel,
    TransactionOperation,
    TransactionState,
)
from tandembus.errors import BusError, InvalidOperation, MessageNotFound, SessionLockLost, StoreFull, StoreUnavailable
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.unit.broker.one_queue import Answer, OneQueue, message, small

OUTCOMES = {
    Fault.FULL: (StoreFull, False),
    Fault.UNKNOWN_LOST: (StoreUnavailable, False),
    Fault.UNKNOWN_KEPT: (StoreUnavailable, True),
}
BLOCK = 8


def discharge(
    queue: OneQueue, body: str, number: int, in_s: float = 60.0, cancel: TransactionCancel | None = None
) -> Answer:
    """A transaction of one scheduled message, whose number was promised."""
    answer = Answer()
    scheduled = message(body, None, queue.clock.now_ms() + int(in_s * 1000))
    operation = SendOperation([scheduled], len(scheduled.sections), CallbackSendReply(lambda *_: None), -1)
    operation.promised = [number]
    transaction = TransactionOperation(
        [operation], [], CallbackTransactionReply(lambda _operation, error: answer.give(error))
    )
    if cancel is not None:
        transaction.cancels.append(cancel)
    queue.fragment.discharge(transaction)
    return answer


async def promised(queue: OneQueue, count: int = 1) -> list[int]:
    return await promise_numbers(queue.fragment, [None] * count)


@covers("M11", "P26")
async def test_promised_numbers_are_nobody_elses_in_any_life() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        assert await promised(queue, 2) == [2, 3]
        assert await queue.send("b") == [4]
        assert await queue.peek() == ["a", "b"]
        assert (queue.fragment.main.live_count, queue.fragment.main.next_number) == (2, 5)
        async with await queue.after_crash() as again:
            assert await again.send("c") == [5]
            assert await again.receiver().take(9) == ["a", "b", "c"]
            assert again.broker.damage_count == 0


@covers("M11", "M8", "P26")
@pytest.mark.parametrize("others", [0, BLOCK - 3, BLOCK, 3 * BLOCK], ids=str)
async def test_a_message_takes_its_promised_number_whatever_became_of_its_neighbours(others: int) -> None:
    """They fill its block, and are gone: so is the block, where it is not the newest."""
    async with OneQueue() as queue:
        (number,) = await promised(queue)
        bodies = [str(place) for place in range(others)]
        await queue.send(*bodies)
        receiver = queue.receiver()
        assert await receiver.take(others) == bodies
        for lock in receiver.locks:
            await queue.complete(lock)
        await queue.quiet()
        receiver.leave()
        answer = discharge(queue, "late", number)
        await queue.quiet()
        assert answer.is_accepted
        main = queue.fragment.main
        assert (main.live_count, main.scheduled_count) == (1, 1)
        async with await queue.after_crash() as again:
            main = again.fragment.main
            assert (main.live_count, main.scheduled_count, await again.peek()) == (1, 1, ["late"])
            await again.send("new")
            await again.pass_time(61)
            assert await again.receiver().take(9) == ["new", "late"]
            assert again.broker.damage_count == 0


@covers("M11", "M8", "F2", "F3")
@pytest.mark.parametrize("fault", OUTCOMES, ids=lambda fault: fault.name)
async def test_what_was_scheduled_and_cancelled_together_is_so_after_any_failure_or_is_not(fault: Fault) -> None:
    kind, is_kept = OUTCOMES[fault]
    async with OneQueue() as queue:
        old = await queue.schedule("old", 60)
        (number,) = await promised(queue)
        (cancel,) = await find_scheduled(queue.broker, queue.fragment, [old])
        queue.fault_next(fault)
        answer = discharge(queue, "new", number, cancel=cancel)
        assert type(await answer.wait()) is kind
        async with await queue.after_crash() as again:
            assert await again.peek() == (["new"] if is_kept else ["old"])
            await again.pass_time(61)
            assert await again.receiver().take(9) == (["new"] if is_kept else ["old"])
            assert again.fragment.main.live_count == 1


@covers("M11", "M8")
async def test_until_the_commit_is_over_nobody_sees_it_and_it_is_not_forgotten_after_it() -> None:
    async with OneQueue() as queue:
        (number,) = await promised(queue)
        queue.fault_next(Fault.HANG)
        answer = discharge(queue, "due", number, in_s=-5.0)
        await queue.disk.is_hanging.wait()
        assert await queue.peek() == []
        with pytest.raises(MessageNotFound):
            await cancel_scheduled(queue.broker, queue.fragment, [number])
        assert not queue.fragment.main.is_free(number)
        queue.disk.go_on.set()
        assert await answer.wait() is None
        await queue.do_due_work()
        assert await queue.receiver().take(9) == ["due"]


@covers("M11")
async def test_a_number_that_was_not_promised_is_refused() -> None:
    async with OneQueue() as queue:
        (taken,) = await queue.send("a")
        for number in (taken, 0, -1, int(queue.fragment.main.next_number)):
            with pytest.raises(InvalidOperation):
                discharge(queue, "b", number)
        await queue.quiet()
        assert await queue.peek() == ["a"]


@covers("M11", "M8")
async def test_a_duplicate_leaves_its_promised_number_unused() -> None:
    async with OneQueue(small(duplicate_window_ms=60_000)) as queue:
        await queue.send("a")
        (number,) = await promised(queue)
        answer = discharge(queue, "a", number)
        await queue.quiet()
        assert answer.is_accepted
        assert (await queue.peek(), queue.fragment.main.live_count) == (["a"], 1)


@covers("M11", "M8")
async def test_what_is_due_or_cancelled_meanwhile_rolls_back() -> None:
    async with OneQueue() as queue:
        old = await queue.schedule("old", 60)
        (number,) = await promised(queue)
        (cancel,) = await find_scheduled(queue.broker, queue.fragment, [old])
        await cancel_scheduled(queue.broker, queue.fragment, [old])
        with pytest.raises(MessageNotFound):
            discharge(queue, "new", number, cancel=cancel)
        assert await queue.peek() == []


@covers("M11")
async def test_a_store_that_fails_promises_nothing() -> None:
    async with OneQueue() as queue:
        queue.fault_next(Fault.UNKNOWN_LOST)
        with pytest.raises(BusError):
            await promised(queue)


@covers("M11", "M7")
async def test_a_state_needs_a_live_session_lock() -> None:
    async with OneQueue(small(requires_session=True)) as queue:
        answer = Answer()
        reply = CallbackTransactionReply(lambda _operation, error: answer.give(error))
        operation = TransactionOperation([], [], reply)
        operation.states.append(TransactionState("s", b"x", None, 0))
        with pytest.raises(SessionLockLost):
            queue.fragment.discharge(operation)
        await asyncio.sleep(0)
        assert await queue.broker.store.session_state(int(queue.fragment.key), "s") is None
