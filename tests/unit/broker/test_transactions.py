"""A transaction at its discharge: all of its parts in one commit, or none of them."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding import int_
from tandembus.broker.dropping import drop_fragments
from tandembus.broker.locks import (
    ABANDON,
    COMPLETE,
    DEFER,
    OPEN,
    RELEASE,
    CallbackSettleReply,
    MessageLock,
)
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.broker.transactions import TransactionSettlement
from tandembus.errors import (
    EntityNotFound,
    InvalidOperation,
    MessageLockLost,
    QuotaExceeded,
    ServerBusy,
    StoreFull,
    StoreUnavailable,
)
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, TRANSFER
from tests.covers import covers
from tests.unit.broker.one_queue import KEY, OneQueue, message, properties_of, small


def complete(lock: MessageLock) -> TransactionSettlement:
    return TransactionSettlement(lock, COMPLETE)


async def locked(queue: OneQueue, *bodies: str) -> list[MessageLock]:
    """Send these, and lock them."""
    await queue.send(*bodies)
    receiver = queue.receiver()
    assert await receiver.take(len(bodies)) == list(bodies)
    return receiver.locks


@covers("M11")
async def test_sends_and_settlements_are_carried_out_in_one_commit() -> None:
    async with OneQueue() as queue:
        first, second = await locked(queue, "a", "b")
        before = queue.disk.commit_count
        answer = queue.discharge([message("c"), message("d")], complete(first), complete(second))
        await answer.wait()
        assert answer.is_accepted
        assert queue.disk.commit_count == before + 1
        assert await queue.peek() == ["c", "d"]
        assert len(queue.fragment.locks) == 0


@covers("M11")
async def test_every_kind_of_settlement_works_in_a_transaction() -> None:
    async with OneQueue(small(window_messages=10)) as queue:
        locks = await locked(queue, "done", "again", "later", "dead", "back")
        done, again, later, dead, back = locks
        answer = queue.discharge(
            [],
            complete(done),
            TransactionSettlement(again, ABANDON, changes={"tries": int_(1)}),
            TransactionSettlement(later, DEFER),
            TransactionSettlement(dead, TO_DEAD_LETTERS, reason="why", description="because"),
            TransactionSettlement(back, RELEASE),
        )
        await queue.quiet()
        assert answer.is_accepted
        receiver = queue.receiver()
        assert await receiver.take(10) == ["again", "back"]
        assert [int(one.delivery_count) for one in receiver.messages] == [1, 0]
        assert properties_of(receiver.messages[0]) == {"tries": 1}
        assert (queue.fragment.main.deferred_count, queue.fragment.main.live_count) == (1, 3)
        corpses = queue.receiver(DEAD_LETTER)
        assert await corpses.take(10) == ["dead"]
        reasons = {"DeadLetterReason": "why", "DeadLetterErrorDescription": "because"}
        assert properties_of(corpses.messages[0]) == reasons


@covers("M11")
async def test_replies_of_the_parts_come_before_the_answer_to_the_whole() -> None:
    async with OneQueue() as queue:
        (lock,) = await locked(queue, "a")
        told: list[str] = []
        reply = CallbackSettleReply(lambda _lock, error: told.append(f"settled {error}"))
        answer = queue.discharge([], TransactionSettlement(lock, COMPLETE, reply))
        await answer.wait()
        assert told == ["settled None"]


@covers("M11")
async def test_one_lost_lock_and_nothing_is_done() -> None:
    async with OneQueue() as queue:
        first, second = await locked(queue, "a", "b")
        await queue.complete(second)
        with pytest.raises(MessageLockLost):
            queue.discharge([message("c")], complete(first), complete(second))
        assert first.settlement == OPEN
        await queue.quiet()
        assert await queue.peek() == ["a"]
        await queue.complete(first)


@covers("M11")
async def test_a_lapsed_lock_is_lost_even_before_anybody_has_looked_at_it() -> None:
    async with OneQueue(small(lock_duration_s=60.0)) as queue:
        (lock,) = await locked(queue, "a")
        queue.clock.advance(60.0)
        with pytest.raises(MessageLockLost):
            queue.discharge([message("c")], complete(lock))
        await queue.quiet()
        assert await queue.peek() == ["a"]


@covers("M11")
async def test_a_message_can_be_settled_once_in_a_transaction() -> None:
    async with OneQueue() as queue:
        (lock,) = await locked(queue, "a")
        with pytest.raises(InvalidOperation):
            queue.discharge([], complete(lock), TransactionSettlement(lock, DEFER))
        assert lock.settlement == OPEN


@covers("M11")
async def test_a_discharged_lock_is_taken_before_the_commit() -> None:
    async with OneQueue() as queue:
        (lock,) = await locked(queue, "a")
        answer = queue.discharge([], complete(lock))
        with pytest.raises(MessageLockLost):
            queue.settle(lock, ABANDON)
        await queue.quiet()
        assert answer.is_accepted


@covers("M11", "M13")
async def test_a_transaction_that_does_not_fit_the_entity_is_refused_whole() -> None:
    async with OneQueue(small(max_size_bytes=1000)) as queue:
        (lock,) = await locked(queue, "a")
        with pytest.raises(QuotaExceeded):
            queue.discharge([message("b", padding=500), message("c", padding=500)], complete(lock))
        assert lock.settlement == OPEN
        assert queue.fragment.uncommitted_bytes == queue.budget.uncommitted_bytes == 0


@covers("M11")
async def test_a_dead_letter_cannot_be_dead_lettered_in_a_transaction_either() -> None:
    async with OneQueue() as queue:
        (lock,) = await locked(queue, "a")
        await queue.dead_letter(lock)
        corpse = await queue.receiver(DEAD_LETTER).take_one()
        with pytest.raises(InvalidOperation):
            queue.discharge([message("b")], TransactionSettlement(corpse, TO_DEAD_LETTERS))
        assert await queue.peek() == []


@covers("M11")
async def test_short_of_room_only_transactions_that_send_nothing_are_taken() -> None:
    async with OneQueue() as queue:
        first, second = await locked(queue, "a", "b")
        queue.disk.free_bytes, queue.disk.reserve_bytes = 10, 100
        queue.broker.check_room()
        with pytest.raises(StoreFull):
            queue.discharge([message("c")], complete(first))
        answer = queue.discharge([], complete(first), complete(second))
        await queue.quiet()
        assert answer.is_accepted
        assert await queue.peek() == []


@covers("M11")
async def test_the_commit_of_a_transaction_is_never_split_by_a_commits_bounds() -> None:
    settings = small(window_messages=20)
    settings.commit_operations, settings.commit_bytes = 2, 100
    async with OneQueue(settings) as queue:
        locks = await locked(queue, "a", "b", "c")
        queue.stage(message("before"))
        before = queue.disk.commit_count
        queue.fault_next(Fault.HANG)
        queue.disk.faults[before + 2] = Fault.UNKNOWN_LOST
        answer = queue.discharge(
            [message(str(number), padding=90) for number in range(5)],
            *[TransactionSettlement(lock, TO_DEAD_LETTERS) for lock in locks],
        )
        queue.disk.go_on.set()
        assert isinstance(await answer.wait(), StoreUnavailable)
        async with await queue.after_crash() as again:
            assert await again.peek() == ["a", "b", "c", "before"]
            assert await again.dead_letters() == []


@covers("M11")
async def test_more_transactions_than_a_commit_takes_go_with_the_next_ones() -> None:
    settings = small(window_messages=20)
    settings.commit_operations = 3
    async with OneQueue(settings) as queue:
        before = queue.disk.commit_count
        answers = [queue.discharge([message(f"{n}a"), message(f"{n}b")]) for n in range(3)]
        await queue.quiet()
        assert all(answer.is_accepted for answer in answers)
        assert queue.disk.commit_count == before + 3
        assert await queue.peek() == ["0a", "0b", "1a", "1b", "2a", "2b"]


OUTCOMES = {
    Fault.FULL: (StoreFull, False),
    Fault.UNKNOWN_LOST: (StoreUnavailable, False),
    Fault.UNKNOWN_KEPT: (StoreUnavailable, True),
}


@covers("M11", "F2", "F3")
@pytest.mark.parametrize("fault", OUTCOMES, ids=lambda fault: fault.name)
async def test_whatever_happens_to_its_commit_a_transaction_is_done_whole_or_not_at_all(fault: Fault) -> None:
    kind, is_kept = OUTCOMES[fault]
    async with OneQueue(small(window_messages=10)) as queue:
        done, later, dead, _open = await locked(queue, "done", "later", "dead", "open")
        await queue.schedule("scheduled", in_s=60.0)
        queue.fault_next(fault)
        answer = queue.discharge(
            [message("new"), message("soon", scheduled_at_ms=queue.clock.now_ms() + 1000)],
            complete(done),
            TransactionSettlement(later, DEFER),
            TransactionSettlement(dead, TO_DEAD_LETTERS),
        )
        assert type(await answer.wait()) is kind
        async with await queue.after_crash() as again:
            main = ["later", "open", "scheduled", "new", "soon"] if is_kept else ["done", "later", "dead", "open"]
            assert await again.peek() == (main if is_kept else [*main, "scheduled"])
            assert await again.dead_letters() == (["dead"] if is_kept else [])
            lane = again.fragment.main
            assert (lane.deferred_count, lane.scheduled_count) == ((1, 2) if is_kept else (0, 1))


@covers("M11", "M13")
async def test_after_a_full_store_the_entity_goes_on_from_what_is_stored() -> None:
    async with OneQueue(small(window_messages=10)) as queue:
        first, second = await locked(queue, "a", "b")
        queue.fault_next(Fault.FULL)
        answer = queue.discharge([message("c")], complete(first))
        assert isinstance(await answer.wait(), StoreFull)
        await queue.quiet()
        queue.broker.check_room()
        with pytest.raises(MessageLockLost):
            queue.settle(second, COMPLETE)
        assert queue.fragment.uncommitted_bytes == queue.budget.uncommitted_bytes == 0
        receiver = queue.receiver()
        assert await receiver.take(10) == ["a", "b"]
        again = queue.discharge([message("c")], *map(complete, receiver.locks))
        await queue.quiet()
        assert again.is_accepted
        assert await queue.peek() == ["c"]


@covers("M11")
async def test_ordinary_work_of_the_same_turn_is_not_touched_by_a_transaction_that_does_not_fit() -> None:
    async with OneQueue(small(window_messages=10)) as queue:
        first, second = await locked(queue, "a", "b")
        sent = queue.stage(message("c"))
        settled = queue.settle(second, COMPLETE)
        queue.disk.faults[queue.disk.commit_count + 2] = Fault.FULL
        answer = queue.discharge([message("d")], complete(first))
        assert isinstance(await answer.wait(), StoreFull)
        assert sent.is_accepted
        assert settled.is_accepted
        await queue.quiet()
        assert await queue.peek() == ["a", "c"]


@covers("M11")
async def test_a_transaction_staged_when_its_entity_is_deleted_is_answered() -> None:
    async with OneQueue() as queue:
        (lock,) = await locked(queue, "a")
        answer = queue.discharge([message("b")], complete(lock))
        await drop_fragments(queue.broker, [KEY])
        assert isinstance(await answer.wait(), EntityNotFound)
        with pytest.raises(EntityNotFound):
            queue.discharge([message("c")])


@covers("M11")
async def test_a_damaged_message_does_not_hold_up_the_transaction_that_moves_it() -> None:
    async with OneQueue() as queue:
        first, second = await locked(queue, "a", "b")
        queue.disk.damaged.add((KEY, MAIN, 1))
        answer = queue.discharge(
            [message("c")],
            TransactionSettlement(first, TO_DEAD_LETTERS),
            TransactionSettlement(second, TO_DEAD_LETTERS),
        )
        await queue.quiet()
        assert answer.is_accepted
        assert await queue.dead_letters() == ["b"]
        assert await queue.peek() == ["c"]
        assert queue.fragment.main.live_count == 1


@covers("M11", "M14")
async def test_a_throttled_transaction_leaves_its_locks_alone() -> None:
    async with OneQueue() as queue:
        (lock,) = await locked(queue, "a")
        queue.budget.operations_per_second = 0.5
        with pytest.raises(ServerBusy):
            queue.discharge([message("b")], complete(lock))
        await queue.complete(lock)


@covers("M11")
async def test_messages_for_another_entity_wait_in_the_transfer_lane() -> None:
    async with OneQueue() as queue:
        (lock,) = await locked(queue, "a")
        answer = queue.discharge([message("b"), message("c")], complete(lock), is_via=True)
        await queue.quiet()
        assert answer.is_accepted
        assert await queue.peek() == []
        assert await queue.peek(TRANSFER) == ["b", "c"]
        async with await queue.after_crash() as again:
            assert await again.peek(TRANSFER) == ["b", "c"]


@covers("M11", "M13")
async def test_what_a_full_store_refuses_of_a_transfer_lane_gives_its_numbers_back() -> None:
    async with OneQueue() as queue:
        first = queue.discharge([message("a")], is_via=True)
        await queue.quiet()
        assert first.is_accepted
        queue.fault_next(Fault.FULL)
        refused = queue.stage_via(message("b"))
        await queue.quiet()
        assert isinstance(refused.error, StoreFull)
        queue.broker.check_room()
        taken = queue.stage_via(message("c"))
        await queue.quiet()
        assert taken.is_accepted
        assert int(taken.messages[0].number) == 2
        async with await queue.after_crash() as again:
            assert await again.peek(TRANSFER) == ["a", "c"]


@covers("M11", "M13")
async def test_a_transaction_moves_only_as_much_as_fits_into_memory() -> None:
    async with OneQueue() as queue:
        first, second, third = await locked(queue, "a", "b", "c")
        first.size_bytes = second.size_bytes = third.size_bytes = 40 << 20
        dead = [TransactionSettlement(lock, TO_DEAD_LETTERS) for lock in (first, second)]
        with pytest.raises(QuotaExceeded):
            queue.discharge([], *dead)
        changed = [TransactionSettlement(lock, ABANDON, changes={"n": int_(1)}) for lock in (second, third)]
        with pytest.raises(QuotaExceeded):
            queue.discharge([], *changed)
        assert [lock.settlement for lock in (first, second, third)] == [OPEN] * 3
        first.size_bytes = second.size_bytes = third.size_bytes = 50
        answer = queue.discharge([], dead[0], complete(second), complete(third))
        await queue.quiet()
        assert answer.is_accepted


@covers("M11", "M6")
async def test_a_refused_transaction_leaves_no_reason_behind() -> None:
    async with OneQueue(small(max_delivery_count=1)) as queue:
        first, second = await locked(queue, "a", "b")
        await queue.complete(second)
        with pytest.raises(MessageLockLost):
            queue.discharge([], TransactionSettlement(first, ABANDON), complete(second))
        await queue.dead_letter(first)
        corpses = queue.receiver(DEAD_LETTER)
        await corpses.take(1)
        assert properties_of(corpses.messages[0]) == {}
