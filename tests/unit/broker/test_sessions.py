"""Sessions: one receiver at a time, its messages in order, whatever becomes of the receiver."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.broker.locks import ABANDON, COMPLETE
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.broker.session_locks import accept_session, leave_session, renew_session
from tandembus.errors import (
    InvalidOperation,
    MessageLockLost,
    OperationTimeout,
    SessionCannotBeLocked,
    SessionLockLapsed,
    SessionLockLost,
)
from tandembus.store.messaging_store import DEAD_LETTER
from tests.covers import covers
from tests.unit.broker.one_queue import message
from tests.unit.broker.session_queue import SessionReceiver, session_queue, sessions

# Accepting.


@covers("M7")
async def test_a_named_session_gives_its_own_messages_in_order() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1", "a2")
        await queue.send_to("b", "b1")
        await queue.send_to("a", "a3")
        receiver = await queue.accept("a")
        assert await receiver.take(10) == ["a1", "a2", "a3"]


@covers("M7")
async def test_a_session_without_messages_can_be_accepted_and_gets_what_comes() -> None:
    async with session_queue() as queue:
        receiver = await queue.accept("new")
        assert await receiver.take(10) == []
        await queue.send_to("other", "not for it")
        await queue.send_to("new", "for it")
        assert receiver.bodies == ["for it"]


@covers("M7")
async def test_an_empty_string_is_a_session_id() -> None:
    async with session_queue() as queue:
        await queue.send_to("", "x")
        receiver = await queue.accept(None)
        assert receiver.session_id == ""
        assert await receiver.take(1) == ["x"]


@covers("M7")
async def test_a_held_session_cannot_be_accepted_by_another() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1")
        receiver = await queue.accept("a")
        with pytest.raises(SessionCannotBeLocked, match="'a'"):
            await queue.accept("a")
        await receiver.leave()
        assert (await queue.accept("a")).session_id == "a"


@covers("M7")
async def test_the_next_session_is_the_one_with_the_oldest_message_that_nobody_holds() -> None:
    async with session_queue() as queue:
        await queue.send_to("first", "1")
        await queue.send_to("second", "2")
        await queue.send_to("third", "3")
        held = await queue.accept("first")
        assert (await queue.accept()).session_id == "second"
        assert (await queue.accept()).session_id == "third"
        await held.leave()
        assert (await queue.accept()).session_id == "first"


@covers("M7")
async def test_waiting_accepts_get_sessions_in_the_order_they_came() -> None:
    async with session_queue() as queue:
        waiting = [queue.accepting() for _ in range(3)]
        await queue.quiet()
        assert not any(one.done() for one in waiting)
        for session_id in ("x", "y", "z"):
            await queue.send_to(session_id, "message")
        assert [one.result().session.name for one in waiting] == ["x", "y", "z"]


@covers("M7")
async def test_an_accept_that_gave_up_is_passed_over() -> None:
    async with session_queue() as queue:
        gone, there = queue.accepting(), queue.accepting()
        await queue.quiet()
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await queue.send_to("a", "a1")
        assert there.result().session.name == "a"


@covers("M7")
async def test_an_accept_times_out_when_no_session_comes() -> None:
    async with session_queue() as queue:
        with pytest.raises(OperationTimeout):
            await queue.accepting(timeout_s=0.01)
        await queue.send_to("a", "a1")
        assert (await queue.accept()).session_id == "a", "nobody took it in vain"


@covers("M7")
async def test_many_given_up_accepts_leave_nothing_behind() -> None:
    async with session_queue() as queue:
        index = queue.fragment.sessions
        assert index is not None
        patient = queue.accepting()
        for _ in range(500):
            impatient = queue.accepting()
            await asyncio.sleep(0)
            impatient.cancel()
            await asyncio.gather(impatient, return_exceptions=True)
        assert len(index.waiting) < 200
        await queue.send_to("a", "a1")
        assert patient.result().session.name == "a"


@covers("M7")
async def test_a_waiting_accept_gets_a_session_that_is_let_go_with_messages_left() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1", "a2")
        receiver = await queue.accept("a")
        await queue.complete(await receiver.take_one())
        waiting = queue.accepting()
        await queue.quiet()
        assert not waiting.done()
        await receiver.leave()
        assert await SessionReceiver(queue, waiting.result()).take(10) == ["a2"]


@covers("M7")
async def test_a_session_that_was_emptied_is_not_offered_again() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1")
        receiver = await queue.accept()
        await queue.complete(await receiver.take_one())
        await receiver.leave()
        assert len(queue.fragment.sessions or []) == 0, "and takes no memory"
        waiting = queue.accepting()
        await queue.quiet()
        assert not waiting.done()
        waiting.cancel()


@covers("M7")
async def test_a_session_of_which_everything_is_deferred_or_scheduled_is_not_available() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1")
        receiver = await queue.accept()
        await queue.defer(await receiver.take_one())
        await receiver.leave()
        at_ms = queue.clock.now_ms() + 60_000
        queue.stage(message("later", scheduled_at_ms=at_ms, session_id="b"))
        waiting = queue.accepting()
        await queue.quiet()
        assert not waiting.done()
        await queue.pass_time(61)
        assert waiting.result().session.name == "b"


@covers("M7")
async def test_messages_without_a_session_are_refused() -> None:
    async with session_queue() as queue:
        with pytest.raises(InvalidOperation, match="SessionId"):
            queue.stage(message("a", session_id="a"), message("b"))
        assert queue.active_count == 0


@covers("M7")
async def test_plain_entities_have_no_sessions() -> None:
    async with session_queue() as queue:
        queue.fragment.sessions = None
        with pytest.raises(InvalidOperation):
            await queue.accept("a")
        with pytest.raises(InvalidOperation):
            await queue.accept()


# Order and exclusivity.


@covers("M7")
async def test_an_abandoned_message_is_next_again() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1", "a2", "a3")
        receiver = await queue.accept("a")
        await receiver.take(2)
        await queue.abandon(receiver.locks[0])
        assert await receiver.take(2) == ["a1", "a3"]
        assert [one.delivery_count for one in receiver.messages] == [0, 0, 1, 0]


@covers("M7")
async def test_nothing_overtakes_a_message_that_is_on_its_way_back() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1", "a2")
        receiver = await queue.accept("a")
        lock = await receiver.take_one()
        receiver.consumer.credit = 2
        queue.settle(lock, ABANDON)
        receiver.stir()
        queue.fragment.pump()
        assert receiver.bodies == ["a1"], "the abandon is not durable yet"
        await queue.quiet()
        assert receiver.bodies == ["a1", "a1", "a2"]


@covers("M7")
async def test_a_deferred_message_is_skipped_and_stays_with_its_session() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1", "a2")
        receiver = await queue.accept("a")
        await queue.defer(await receiver.take_one())
        assert await receiver.take(5) == ["a2"]


@covers("M7")
async def test_after_loss_the_next_holder_begins_where_the_order_begins() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1", "a2", "a3")
        first = await queue.accept("a")
        await first.take(2)
        await first.leave()
        second = await queue.accept("a")
        assert await second.take(5) == ["a1", "a2", "a3"]
        assert [one.delivery_count for one in second.messages] == [0, 0, 0]
        await queue.pass_time(61)
        third = await queue.accept("a")
        assert await third.take(5) == ["a1", "a2", "a3"]
        assert [one.delivery_count for one in third.messages] == [1, 1, 1], "its lock has lapsed"


@covers("M7")
async def test_the_next_holder_waits_for_what_the_last_one_had_even_without_a_commit_in_between() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1", "a2", "a3")
        first = await queue.accept("a")
        await first.take(2)
        leave_session(queue.fragment, first.lock)
        second = SessionReceiver(queue, accept_session(queue.fragment, "a"))
        second.consumer.credit = 5
        queue.fragment.pump()
        assert second.bodies == []
        await queue.quiet()
        assert second.bodies == ["a1", "a2", "a3"]


@covers("M7")
async def test_competing_receivers_get_all_sessions_each_whole_and_in_order() -> None:
    async with session_queue() as queue:
        for number in range(10):
            for session_id in "abcdefgh":
                await queue.send_to(session_id, f"{session_id}{number}")
        received = await queue.drain()
        assert received == {one: [f"{one}{number}" for number in range(10)] for one in "abcdefgh"}
        assert queue.active_count == 0


# The lock.


@covers("M7")
async def test_a_session_lock_lapses_and_the_receiver_is_told() -> None:
    async with session_queue(sessions(lock_duration_s=30.0)) as queue:
        await queue.send_to("a", "a1")
        receiver = await queue.accept("a")
        lock = await receiver.take_one()
        waiting = queue.accepting()
        await queue.pass_time(31)
        assert isinstance(receiver.loss, SessionLockLost)
        with pytest.raises(SessionLockLost):
            queue.settle(lock, COMPLETE)
        next_one = SessionReceiver(queue, waiting.result())
        assert await next_one.take(1) == ["a1"]
        assert next_one.messages[0].delivery_count == 1


@covers("M7")
async def test_a_lapsed_session_is_free_before_anybody_looked_at_the_clock() -> None:
    async with session_queue(sessions(lock_duration_s=30.0)) as queue:
        await queue.send_to("a", "a1")
        receiver = await queue.accept("a")
        lock = await receiver.take_one()
        queue.clock.advance(31)
        with pytest.raises(SessionLockLost):
            queue.settle(lock, COMPLETE)
        with pytest.raises(SessionLockLost):
            queue.fragment.find_lock(lock.token)
        assert (await queue.accept("a")).session_id == "a"
        assert receiver.loss is not None


@covers("M7")
async def test_renewing_keeps_a_session_and_all_messages_in_it() -> None:
    async with session_queue(sessions(lock_duration_s=30.0)) as queue:
        await queue.send_to("a", "a1", "a2")
        receiver = await queue.accept("a")
        await receiver.take(2)
        for _ in range(5):
            await queue.pass_time(20)
            until_ms = renew_session(queue.fragment, receiver.lock)
            assert until_ms == queue.clock.now_ms() + 30_000
        assert receiver.loss is None
        await queue.complete(receiver.locks[1])
        await queue.complete(receiver.locks[0])
        assert queue.active_count == 0


@covers("M2", "M7")
async def test_a_delivery_renews_the_lock_of_its_session_and_all_messages_in_it() -> None:
    async with session_queue() as queue:
        receiver = await queue.accept("a")
        await receiver.take(10)
        for body in ("a1", "a2", "a3"):
            await queue.pass_time(40.0)
            await queue.send_to("a", body)
            assert receiver.locks[-1].locked_until_ms == queue.clock.now_ms() + 60_000
        assert receiver.bodies == ["a1", "a2", "a3"]
        await queue.pass_time(59.9)
        assert receiver.loss is None
        assert await queue.settle(receiver.locks[0], COMPLETE).wait() is None
        await queue.pass_time(0.1)
        assert isinstance(receiver.loss, SessionLockLapsed)


@covers("M2", "M7")
async def test_a_message_that_comes_when_the_lock_has_lapsed_does_not_revive_it() -> None:
    async with session_queue() as queue:
        receiver = await queue.accept("a")
        await receiver.take(10)
        queue.clock.advance(60.0)
        await queue.send_to("a", "late")
        assert receiver.bodies == []
        with pytest.raises(SessionLockLost):
            renew_session(queue.fragment, receiver.lock)
        assert await (await queue.accept("a")).take(1) == ["late"]


@covers("M7")
async def test_a_renewal_for_a_shorter_time_ends_the_lock_earlier() -> None:
    async with session_queue() as queue:
        receiver = await queue.accept("a")
        queue.fragment.settings = sessions(lock_duration_s=10.0)
        renew_session(queue.fragment, receiver.lock)
        await queue.pass_time(10.0)
        assert isinstance(receiver.loss, SessionLockLapsed)


@covers("M7")
async def test_a_lost_session_cannot_be_renewed() -> None:
    async with session_queue(sessions(lock_duration_s=30.0)) as queue:
        receiver = await queue.accept("a")
        await queue.pass_time(31)
        with pytest.raises(SessionLockLost):
            renew_session(queue.fragment, receiver.lock)


@covers("M7")
async def test_messages_in_a_session_cannot_be_renewed_one_by_one() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1")
        receiver = await queue.accept("a")
        lock = await receiver.take_one()
        with pytest.raises(InvalidOperation):
            queue.fragment.renew(lock.token)


@covers("M7")
async def test_a_settled_message_is_lost_not_its_session() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1")
        receiver = await queue.accept("a")
        lock = await receiver.take_one()
        await queue.complete(lock)
        with pytest.raises(MessageLockLost):
            queue.settle(lock, COMPLETE)


@covers("M7")
async def test_losing_a_session_again_and_again_ends_among_the_dead_letters() -> None:
    async with session_queue(sessions(max_delivery_count=2)) as queue:
        await queue.send_to("a", "a1", "a2")
        for _ in range(2):
            receiver = await queue.accept("a")
            await receiver.take_one()
            await queue.pass_time(61)
        assert await queue.dead_letters() == ["a1"]
        assert await (await queue.accept("a")).take(5) == ["a2"]


@covers("M7")
async def test_the_dead_letters_of_a_session_queue_have_no_sessions() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1")
        await queue.send_to("b", "b1")
        for session_id in ("a", "b"):
            receiver = await queue.accept(session_id)
            lock = await receiver.take_one()
            answer = queue.settle(lock, TO_DEAD_LETTERS)
            await queue.quiet()
            assert answer.is_accepted
            await receiver.leave()
        plain = queue.receiver(DEAD_LETTER)
        assert await plain.take(2) == ["a1", "b1"]
        await queue.complete(plain.locks[0])
        await queue.abandon(plain.locks[1])
        assert await plain.take(5) == ["b1"]
        assert len(queue.fragment.sessions or []) == 0


@covers("M7")
async def test_receive_and_delete_in_a_session_removes_before_it_delivers() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", *(f"a{i}" for i in range(20)))
        await queue.send_to("b", "b1")
        receiver = await queue.accept("a", is_destructive=True)
        assert await receiver.take(7) == [f"a{i}" for i in range(7)]
        assert queue.active_count == 14
        await receiver.leave()
        assert await (await queue.accept("a")).take(1) == ["a7"]


@covers("M7")
async def test_a_drain_ends_when_the_session_has_nothing_more() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1")
        receiver = await queue.accept("a")
        queue.fragment.consumers(0).drain(receiver.consumer)
        assert await receiver.take(5) == ["a1"]
        assert receiver.is_drained


# Expiry.


@covers("M7", "M6")
async def test_an_expired_message_of_a_session_is_never_handed_over() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "short", ttl_ms=1000)
        await queue.send_to("a", "long")
        queue.clock.advance(2)
        receiver = await queue.accept("a")
        assert await receiver.take(5) == ["long"]


@covers("M7", "M6")
async def test_a_message_that_expires_while_locked_in_a_session_is_judged_when_the_session_ends() -> None:
    async with session_queue(sessions(lock_duration_s=30.0)) as queue:
        await queue.send_to("a", "short", ttl_ms=1000)
        receiver = await queue.accept("a")
        await receiver.take_one()
        await queue.pass_time(5)
        assert queue.active_count == 1
        await receiver.leave()
        await queue.pass_time(5)
        assert queue.active_count == 0
        waiting = queue.accepting()
        await queue.quiet()
        assert not waiting.done()
        waiting.cancel()
