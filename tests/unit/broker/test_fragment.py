"""Sending, locking and settling in one fragment, and what a crash leaves of it."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding import int_
from tandembus.broker.budget import Budget
from tandembus.broker.fragment import Fragment
from tandembus.broker.locks import ABANDON, COMPLETE, RELEASE
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.clock import ManualClock
from tandembus.errors import InvalidOperation, MessageLockLost, QuotaExceeded
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import DEAD_LETTER
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, Receiver, message, properties_of, small

# Sending.


@covers("M1")
async def test_a_send_is_answered_only_after_its_commit() -> None:
    async with OneQueue() as queue:
        queue.fault_next(Fault.HANG)
        answer = queue.stage(message("a"))
        await queue.disk.is_hanging.wait()
        assert not answer.is_given
        queue.disk.go_on.set()
        assert await answer.wait() is None


@covers("M1")
async def test_nobody_sees_a_message_before_it_is_durable() -> None:
    async with OneQueue() as queue:
        receiver = queue.receiver()
        receiver.consumer.credit = 5
        queue.fault_next(Fault.HANG)
        queue.stage(message("a"))
        await queue.disk.is_hanging.wait()
        assert await queue.peek() == []
        assert receiver.bodies == []
        queue.disk.go_on.set()
        await queue.quiet()
        assert receiver.bodies == ["a"]


@covers("M1")
async def test_an_accepted_message_is_there_after_a_crash() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b", "c")
        async with await queue.after_crash() as again:
            assert await again.receiver().take(5) == ["a", "b", "c"]


@covers("M1")
async def test_sequence_numbers_go_on_after_a_crash() -> None:
    async with OneQueue() as queue:
        assert await queue.send("a", "b") == [1, 2]
        await queue.receiver(is_destructive=True).take(5)
        async with await queue.after_crash() as again:
            assert await again.send("c") == [3]


@covers("M12")
async def test_a_batch_is_stored_whole_with_consecutive_numbers() -> None:
    async with OneQueue() as queue:
        answer = queue.stage(*[message(body) for body in "abc"])
        assert await answer.wait() is None
        assert [one.number for one in answer.messages] == [1, 2, 3]
        assert await queue.receiver().take(5) == ["a", "b", "c"]


@covers("M1")
async def test_many_sends_of_one_turn_share_one_commit() -> None:
    async with OneQueue() as queue:
        before = queue.disk.commit_count
        await queue.send(*[f"m{index}" for index in range(50)])
        assert queue.disk.commit_count == before + 1


@covers("M13")
async def test_a_send_beyond_the_maximum_size_is_over_quota_and_receiving_makes_room() -> None:
    async with OneQueue(small(max_size_bytes=200)) as queue:
        await queue.send("a", padding=100)
        with pytest.raises(QuotaExceeded):
            queue.stage(message("b", padding=100))
        await queue.complete(await queue.receiver().take_one())
        await queue.send("b", padding=100)


@covers("M13")
async def test_dead_letters_count_towards_the_maximum_size() -> None:
    async with OneQueue(small(max_size_bytes=250)) as queue:
        await queue.send("a", padding=100)
        await queue.dead_letter(await queue.receiver().take_one())
        with pytest.raises(QuotaExceeded):
            queue.stage(message("b", padding=150))


@covers("M13")
async def test_what_waits_for_its_commit_counts_towards_the_maximum_size() -> None:
    async with OneQueue(small(max_size_bytes=200)) as queue:
        queue.stage(message("a", padding=100))
        with pytest.raises(QuotaExceeded):
            queue.stage(message("b", padding=100))


# Settling.


@covers("M3")
async def test_a_completed_message_is_gone_also_after_a_crash() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        await queue.complete(await queue.receiver().take_one())
        async with await queue.after_crash() as again:
            assert await again.receiver().take(5) == ["b"]


@covers("M3")
async def test_a_settlement_is_answered_only_after_its_commit() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        queue.fault_next(Fault.HANG)
        answer = queue.settle(lock, COMPLETE)
        await queue.disk.is_hanging.wait()
        assert not answer.is_given
        queue.disk.go_on.set()
        assert await answer.wait() is None


@covers("M3")
async def test_messages_may_be_settled_in_any_order() -> None:
    async with OneQueue() as queue:
        bodies = [f"m{index:02}" for index in range(20)]
        await queue.send(*bodies)
        receiver = queue.receiver()
        await receiver.take(20)
        for index in (19, 3, 0, 11, 7, 1):
            await queue.complete(receiver.locks[index])
        left = [body for index, body in enumerate(bodies) if index not in (19, 3, 0, 11, 7, 1)]
        assert await queue.peek() == left
        async with await queue.after_crash() as again:
            assert await again.receiver().take(100) == left


@covers("M2")
async def test_an_abandoned_message_comes_again_before_the_others_and_is_counted() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        await queue.abandon(await receiver.take_one())
        assert await receiver.take(1) == ["a"]
        assert receiver.messages[-1].delivery_count == 1


@covers("M2")
async def test_the_delivery_count_survives_a_crash() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        await queue.abandon(await queue.receiver().take_one())
        async with await queue.after_crash() as again:
            receiver = again.receiver()
            await receiver.take(1)
            assert receiver.messages[0].delivery_count == 1


@covers("M3")
async def test_a_released_message_comes_again_uncounted() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        receiver = queue.receiver()
        queue.settle(await receiver.take_one(), RELEASE)
        assert await receiver.take(1) == ["a"]
        assert receiver.messages[-1].delivery_count == 0


@covers("M2")
async def test_the_last_failed_delivery_ends_among_the_dead_letters() -> None:
    async with OneQueue(small(max_delivery_count=2)) as queue:
        await queue.send("a")
        receiver = queue.receiver()
        await queue.abandon(await receiver.take_one())
        await queue.abandon(await receiver.take_one())
        assert await queue.peek() == []
        dead = await first_dead(queue)
        assert dead.bodies == ["a"]
        assert dead.messages[0].delivery_count == 2
        assert properties_of(dead.messages[0]) == {
            "DeadLetterReason": "MaxDeliveryCountExceeded",
            "DeadLetterErrorDescription": "Message could not be consumed after 2 delivery attempts.",
        }


async def first_dead(queue: OneQueue) -> Receiver:
    receiver = queue.receiver(DEAD_LETTER)
    await receiver.take(1)
    return receiver


@covers("M3")
async def test_abandoning_may_change_properties_durably() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        lock.changes = {"tries": int_(1)}
        await queue.abandon(lock)
        async with await queue.after_crash() as again:
            receiver = again.receiver()
            assert await receiver.take(1) == ["a"]
            assert properties_of(receiver.messages[0]) == {"tries": 1}


@covers("M3", "M13")
async def test_changes_that_outgrow_the_limit_make_a_dead_letter_of_the_message_as_it_was() -> None:
    settings = small()
    settings.max_properties_bytes = 100
    async with OneQueue(settings) as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        lock.changes = {"large": "x" * 200}
        await queue.abandon(lock)
        dead = await first_dead(queue)
        assert properties_of(dead.messages[0])["DeadLetterReason"] == "HeaderSizeExceeded"
        assert "large" not in properties_of(dead.messages[0])


@covers("M3")
async def test_a_dead_lettered_message_says_why_and_keeps_its_own_properties() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        lock.description, lock.changes = "it is broken", {"own": int_(1)}
        await queue.dead_letter(lock, "Broken")
        dead = await first_dead(queue)
        assert properties_of(dead.messages[0]) == {
            "own": 1,
            "DeadLetterReason": "Broken",
            "DeadLetterErrorDescription": "it is broken",
        }


@covers("M3")
async def test_a_dead_letter_is_there_after_a_crash_and_gone_from_the_queue() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        await queue.dead_letter(await queue.receiver().take_one())
        async with await queue.after_crash() as again:
            assert await again.peek() == []
            assert await again.receiver(DEAD_LETTER).take(5) == ["a"]


@covers("M3")
async def test_a_dead_letter_keeps_the_number_it_was_enqueued_under() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        await receiver.take(2)
        await queue.dead_letter(receiver.locks[1])
        dead = await first_dead(queue)
        assert (dead.messages[0].number, dead.messages[0].original_number) == (1, 2)


@covers("M3")
async def test_a_dead_letter_cannot_be_dead_lettered_again() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        await queue.dead_letter(await queue.receiver().take_one())
        lock = await queue.receiver(DEAD_LETTER).take_one()
        with pytest.raises(InvalidOperation):
            queue.settle(lock, TO_DEAD_LETTERS)
        await queue.complete(lock)


@covers("M2")
async def test_a_dead_letter_may_be_abandoned_any_number_of_times() -> None:
    async with OneQueue(small(max_delivery_count=1)) as queue:
        await queue.send("a")
        await queue.dead_letter(await queue.receiver().take_one())
        receiver = queue.receiver(DEAD_LETTER)
        for _ in range(5):
            await queue.abandon(await receiver.take_one())
        assert await queue.dead_letters() == ["a"]


# Locks.


@covers("M2")
async def test_a_locked_message_is_nobody_elses() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        await queue.receiver().take_one()
        assert await queue.receiver().take(5) == []


@covers("M2")
async def test_a_lapsed_message_comes_again_and_is_counted() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        receiver = queue.receiver()
        await receiver.take(1)
        await queue.pass_time(60.0)
        assert await receiver.take(1) == ["a"]
        assert receiver.messages[-1].delivery_count == 1


@covers("M2")
async def test_after_it_has_lapsed_a_lock_is_lost_even_if_nobody_has_noticed_yet() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        queue.clock.advance(60.0)
        with pytest.raises(MessageLockLost):
            queue.settle(lock, COMPLETE)
        with pytest.raises(MessageLockLost):
            queue.fragment.renew(lock.token)


@covers("M2")
async def test_a_renewed_lock_holds() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        await queue.pass_time(59.0)
        assert queue.fragment.renew(lock.token) == queue.clock.now_ms() + 60_000
        await queue.pass_time(59.0)
        await queue.complete(lock)
        assert await queue.peek() == []


@covers("M2")
async def test_a_lock_and_its_renewals_that_lapse_together_give_the_message_back_once() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        receiver = queue.receiver()
        lock = await receiver.take_one()
        for _ in range(3):
            queue.clock.advance(1.0)
            queue.fragment.renew(lock.token)
        await queue.pass_time(1000.0)
        assert await receiver.take(5) == ["a"]
        assert receiver.messages[-1].delivery_count == 1


@covers("M2")
async def test_setting_the_wall_clock_lapses_no_lock() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        queue.clock.shift_wall(86_400.0)
        await queue.do_due_work()
        await queue.complete(lock)
        assert await queue.peek() == []


@covers("M2")
async def test_a_settled_lock_cannot_be_settled_again() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        queue.settle(lock, COMPLETE)
        with pytest.raises(MessageLockLost):
            queue.settle(lock, ABANDON)
        await queue.quiet()
        assert await queue.peek() == []


@covers("M2")
async def test_a_token_of_an_earlier_life_is_lost() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        async with await queue.after_crash() as again:
            with pytest.raises(MessageLockLost):
                again.fragment.find_lock(lock.token)
            assert await again.receiver().take(5) == ["a"]


@pytest.mark.parametrize("token", [b"", bytes(16), b"x" * 40])
@covers("M2")
def test_a_token_that_was_never_given_is_lost(token: bytes) -> None:
    clock = ManualClock()
    fragment = Fragment(1, 0, small(), clock, 1, Budget(clock), lambda _fragment: None)
    with pytest.raises(MessageLockLost):
        fragment.find_lock(token)
