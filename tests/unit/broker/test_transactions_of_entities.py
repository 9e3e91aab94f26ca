"""Transactions where an entity is more than a queue: topics, subscriptions, sessions, duplicate detection."""

from __future__ import annotations

import pytest

from tandembus.broker.locks import ABANDON, COMPLETE, OPEN, MessageLock
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.transactions import (
    CallbackTransactionReply,
    PartReply,
    TransactionOperation,
    TransactionPart,
    TransactionSettlement,
)
from tandembus.errors import InvalidOperation, MessageLockLost, SessionLockLost, StoreFull, StoreUnavailable
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.unit.broker.one_queue import Answer, OneQueue, message, small
from tests.unit.broker.one_topic import ALL, OneTopic, rule_set
from tests.unit.broker.session_queue import session_queue

RED, BLUE = 11, 12
OUTCOMES = {
    Fault.FULL: (StoreFull, False),
    Fault.UNKNOWN_LOST: (StoreUnavailable, False),
    Fault.UNKNOWN_KEPT: (StoreUnavailable, True),
}
with_every_fault = pytest.mark.parametrize("fault", OUTCOMES, ids=lambda fault: fault.name)


def complete(lock: MessageLock) -> TransactionSettlement:
    return TransactionSettlement(lock, COMPLETE)


def topic() -> OneTopic:
    settings = small(window_messages=10)
    return OneTopic({RED: (settings, ALL), BLUE: (settings, rule_set("sys.MessageId LIKE 'b%'"))}, settings)


# Topics.


@covers("M11", "M9")
async def test_what_is_sent_to_a_topic_in_a_transaction_is_fanned_out_in_one_commit() -> None:
    async with topic() as bus:
        before = bus.disk.commit_count
        answer = bus.discharge([message("a"), message("b1"), message("b2")])
        await answer.wait()
        assert answer.is_accepted
        assert bus.disk.commit_count == before + 1
        assert await bus.subscription(RED).receiver().take(9) == ["a", "b1", "b2"]
        assert await bus.subscription(BLUE).receiver().take(9) == ["b1", "b2"]
        assert bus.stored_bodies() == 3


@covers("M11", "M9", "F2", "F3")
@with_every_fault
async def test_a_transaction_of_a_topic_reaches_all_of_its_subscriptions_or_none(fault: Fault) -> None:
    kind, is_kept = OUTCOMES[fault]
    async with topic() as bus:
        await bus.publish(message("a"))
        bus.fault_next(fault)
        answer = bus.discharge([message("b1"), message("b2")])
        assert type(await answer.wait()) is kind
        async with await bus.after_crash() as again:
            added = ["b1", "b2"] if is_kept else []
            assert await again.subscription(RED).receiver().take(9) == ["a", *added]
            assert await again.subscription(BLUE).receiver().take(9) == added
            assert again.stored_bodies() == 1 + len(added)


@covers("M11", "M9")
async def test_after_a_full_store_a_topic_goes_on_from_what_is_stored() -> None:
    async with topic() as bus:
        await bus.publish(message("a"))
        bus.fault_next(Fault.FULL)
        answer = bus.discharge([message("b1")])
        assert isinstance(await answer.wait(), StoreFull)
        await bus.quiet()
        bus.broker.check_room()
        again = bus.discharge([message("b2")])
        await bus.quiet()
        assert again.is_accepted
        assert await bus.subscription(RED).receiver().take(9) == ["a", "b2"]
        assert await bus.subscription(BLUE).receiver().take(9) == ["b2"]


@covers("M11", "M9", "F2", "F3")
@with_every_fault
async def test_settlements_on_a_subscription_are_one_transaction(fault: Fault) -> None:
    kind, is_kept = OUTCOMES[fault]
    async with topic() as bus:
        await bus.publish(message("a"), message("b1"), message("b2"))
        red = bus.subscription(RED)
        receiver = red.receiver()
        await receiver.take(3)
        done, dead, _open = receiver.locks
        bus.fault_next(fault)
        answer = red.discharge([], complete(done), TransactionSettlement(dead, TO_DEAD_LETTERS))
        assert type(await answer.wait()) is kind
        async with await bus.after_crash() as again:
            red, blue = again.subscription(RED), again.subscription(BLUE)
            assert await red.peek() == (["b2"] if is_kept else ["a", "b1", "b2"])
            assert await red.dead_letters() == (["b1"] if is_kept else [])
            assert await blue.peek() == ["b1", "b2"]


def together(bus: OneTopic, body: str, *parts: tuple[int, TransactionSettlement]) -> Answer:
    """One transaction: a message to the topic, and a settlement on each of these subscriptions."""
    answer = Answer()
    message_sent = message(body)
    send = SendOperation([message_sent], len(message_sent.sections), CallbackSendReply(lambda *_: None), -1)
    reply = CallbackTransactionReply(lambda _operation, error: answer.give(error))
    others: list[TransactionPart] = []
    for key, settlement in parts:
        part = TransactionPart(None, TransactionOperation([], [settlement], PartReply()))
        part.fragment = bus.subscription(key).fragment
        others.append(part)
    bus.fragment.discharge(TransactionOperation([send], [], reply, others))
    return answer


@covers("M11", "M9", "F2", "F3")
@pytest.mark.parametrize("fault", [None, *OUTCOMES], ids=str)
async def test_a_topic_and_its_subscriptions_have_one_commit_for_one_transaction(fault: Fault | None) -> None:
    kind, is_kept = OUTCOMES[fault] if fault is not None else (type(None), True)
    async with topic() as bus:
        await bus.publish(message("b1"))
        red, blue = [await bus.subscription(key).receiver().take_one() for key in (RED, BLUE)]
        if fault is not None:
            bus.fault_next(fault)
        before = bus.disk.commit_count
        answer = together(bus, "b2", (RED, complete(red)), (BLUE, TransactionSettlement(blue, TO_DEAD_LETTERS)))
        assert type(await answer.wait()) is kind
        if fault is None:
            assert bus.disk.commit_count == before + 1
        async with await bus.after_crash() as again:
            assert await again.subscription(RED).peek() == ["b2" if is_kept else "b1"]
            assert await again.subscription(BLUE).peek() == ["b2" if is_kept else "b1"]
            assert await again.subscription(BLUE).dead_letters() == (["b1"] if is_kept else [])


@covers("M11", "M9")
async def test_one_lost_lock_leaves_all_locks_of_the_family_as_they_were() -> None:
    async with topic() as bus:
        await bus.publish(message("b1"))
        red, blue = [await bus.subscription(key).receiver().take_one() for key in (RED, BLUE)]
        await bus.subscription(BLUE).complete(blue)
        with pytest.raises(MessageLockLost):
            together(bus, "b2", (RED, complete(red)), (BLUE, complete(blue)))
        assert red.settlement == OPEN
        assert await bus.subscription(RED).peek() == ["b1"]


@covers("M11", "M9")
async def test_a_subscription_that_is_dropped_before_the_commit_takes_its_part_along_only() -> None:
    async with topic() as bus:
        await bus.publish(message("b1"))
        red, blue = [await bus.subscription(key).receiver().take_one() for key in (RED, BLUE)]
        answer = together(bus, "b2", (RED, complete(red)), (BLUE, TransactionSettlement(blue, TO_DEAD_LETTERS)))
        await bus.unsubscribe(BLUE)
        await bus.quiet()
        assert answer.is_accepted
        assert await bus.subscription(RED).peek() == ["b2"]
        assert bus.fragment.main.live_count == 1


@covers("M11", "M9")
async def test_members_of_two_families_are_refused() -> None:
    async with topic() as bus, OneQueue() as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        part = TransactionPart(None, TransactionOperation([], [complete(lock)], PartReply()))
        part.fragment = queue.fragment
        with pytest.raises(InvalidOperation):
            bus.fragment.discharge(TransactionOperation([], [], PartReply(), [part]))
        assert lock.settlement == OPEN


@covers("M11", "M9")
async def test_a_subscriptions_transaction_leaves_the_others_alone() -> None:
    async with topic() as bus:
        await bus.publish(message("b1"))
        red, blue = bus.subscription(RED), bus.subscription(BLUE)
        lock = await red.receiver().take_one()
        answer = red.discharge([], complete(lock))
        await bus.quiet()
        assert answer.is_accepted
        assert await red.peek() == []
        assert await blue.receiver().take(9) == ["b1"]


# Sessions.


@covers("M11", "M7")
async def test_messages_of_two_sessions_can_be_part_of_one_transaction() -> None:
    async with session_queue() as queue:
        await queue.send_to("s", "s1", "s2")
        await queue.send_to("t", "t1")
        one, other = await queue.accept("s"), await queue.accept("t")
        locks = [await one.take_one(), await other.take_one()]
        answer = queue.discharge(
            [message("s3", session_id="s"), message("u1", session_id="u")], *[complete(lock) for lock in locks]
        )
        await queue.quiet()
        assert answer.is_accepted
        assert await one.take(9) == ["s2", "s3"]
        await one.leave()
        await other.leave()
        assert await queue.drain() == {"s": ["s2", "s3"], "u": ["u1"]}


@covers("M11", "M7")
async def test_in_a_session_an_abandoned_message_is_next_again_when_the_transaction_is_carried_out() -> None:
    async with session_queue() as queue:
        await queue.send_to("s", "s1", "s2")
        receiver = await queue.accept("s")
        lock = await receiver.take_one()
        answer = queue.discharge([], TransactionSettlement(lock, ABANDON))
        await queue.quiet()
        assert answer.is_accepted
        assert await receiver.take(2) == ["s1", "s2"]


@covers("M11", "M7")
async def test_a_session_that_was_lost_rolls_back() -> None:
    async with session_queue() as queue:
        await queue.send_to("s", "s1")
        receiver = await queue.accept("s")
        lock = await receiver.take_one()
        await receiver.leave()
        with pytest.raises(SessionLockLost):
            queue.discharge([message("s2", session_id="s")], complete(lock))
        assert await queue.drain() == {"s": ["s1"]}


@covers("M11", "M7")
async def test_a_message_without_a_session_is_refused_and_nothing_else_is_done() -> None:
    async with session_queue() as queue:
        await queue.send_to("s", "s1")
        lock = await (await queue.accept("s")).take_one()
        with pytest.raises(InvalidOperation):
            queue.discharge([message("s2", session_id="s"), message("none")], complete(lock))
        assert lock.settlement == OPEN
        assert await queue.peek() == ["s1"]


@covers("M11", "M7")
async def test_what_is_sent_via_an_entity_with_sessions_needs_none() -> None:
    async with session_queue() as queue:
        assert queue.discharge([message("none")], is_via=True) is not None
        assert queue.stage_via(message("none")) is not None
        await queue.quiet()
        assert queue.fragment.transfer.live_count == 2


@covers("M11", "M7", "F2", "F3")
@with_every_fault
async def test_a_transaction_over_sessions_is_whole_whatever_happens(fault: Fault) -> None:
    kind, is_kept = OUTCOMES[fault]
    async with session_queue() as queue:
        await queue.send_to("s", "s1", "s2")
        receiver = await queue.accept("s")
        lock = await receiver.take_one()
        queue.fault_next(fault)
        answer = queue.discharge([message("t1", session_id="t")], complete(lock))
        assert type(await answer.wait()) is kind
        async with await queue.again() as other:
            expected = {"s": ["s2"], "t": ["t1"]} if is_kept else {"s": ["s1", "s2"]}
            assert await other.drain() == expected


# Duplicate detection.


def detecting() -> OneQueue:
    settings = small(window_messages=10)
    settings.duplicate_window_ms = 60_000
    return OneQueue(settings)


@covers("M11", "M8")
async def test_a_duplicate_within_a_transaction_or_of_an_earlier_message_is_dropped() -> None:
    async with detecting() as queue:
        await queue.send("a")
        answer = queue.discharge([message("a"), message("b"), message("b"), message("c")])
        await queue.quiet()
        assert answer.is_accepted
        await queue.send("c", "d")
        assert await queue.peek() == ["a", "b", "c", "d"]


@covers("M11", "M8")
@with_every_fault
async def test_the_ids_of_a_transaction_that_was_not_carried_out_are_free(fault: Fault) -> None:
    kind, is_kept = OUTCOMES[fault]
    async with detecting() as queue:
        queue.fault_next(fault)
        answer = queue.discharge([message("a"), message("b")])
        assert type(await answer.wait()) is kind
        async with await queue.after_crash() as other:
            assert await other.peek() == (["a", "b"] if is_kept else [])
            await other.send("b", "a")
            assert await other.peek() == (["a", "b"] if is_kept else ["b", "a"])


@covers("M11", "M8")
async def test_after_a_full_store_the_ids_of_the_transaction_are_free_at_once() -> None:
    async with detecting() as queue:
        await queue.send("a")
        queue.fault_next(Fault.FULL)
        answer = queue.discharge([message("b")])
        assert isinstance(await answer.wait(), StoreFull)
        await queue.quiet()
        queue.broker.check_room()
        await queue.send("a", "b")
        assert await queue.peek() == ["a", "b"]
