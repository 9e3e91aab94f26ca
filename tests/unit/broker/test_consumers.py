"""Handing over: in turn, within credit, and receive-and-delete only after its commit."""

from __future__ import annotations

import pytest

from tandembus.broker.consumers import TURN_MESSAGES
from tandembus.broker.operations import CallbackConsumer
from tandembus.errors import StoreUnavailable
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import DEAD_LETTER, MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, body_of, small

BODIES = [f"m{index:03}" for index in range(30)]


@covers("M1")
async def test_messages_are_handed_over_in_the_order_in_which_they_were_sent() -> None:
    async with OneQueue() as queue:
        await queue.send(*BODIES)
        assert await queue.receiver().take(100) == BODIES


@covers("M12")
async def test_nobody_gets_more_than_his_credit() -> None:
    async with OneQueue() as queue:
        await queue.send(*BODIES)
        receiver = queue.receiver()
        assert await receiver.take(3) == BODIES[:3]
        assert receiver.consumer.credit == 0
        assert await receiver.take(0) == []
        assert await receiver.take(2) == BODIES[3:5]


@covers("M12")
async def test_credit_given_before_there_is_anything_is_used_as_it_comes() -> None:
    async with OneQueue() as queue:
        receiver = queue.receiver()
        assert await receiver.take(5) == []
        await queue.send("a", "b")
        assert receiver.bodies == ["a", "b"]
        assert receiver.consumer.credit == 3


@covers("M1")
async def test_competing_consumers_share_and_nobody_gets_what_another_has() -> None:
    bodies = [f"{index:04}" for index in range(4 * TURN_MESSAGES)]
    async with OneQueue(small(window_messages=1000, block_size=1024)) as queue:
        await queue.send(*bodies)
        receivers = [queue.receiver() for _ in range(2)]
        receivers[0].consumer.credit = receivers[1].consumer.credit = 1000
        await receivers[0].take(0)
        assert sorted(receivers[0].bodies + receivers[1].bodies) == bodies
        assert len(receivers[0].bodies) == len(receivers[1].bodies) == 2 * TURN_MESSAGES


@covers("M2")
async def test_a_handed_over_message_is_locked_until_its_time() -> None:
    async with OneQueue(small(lock_duration_s=30.0)) as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        assert lock.locked_until == queue.clock.monotonic() + 30.0
        assert lock.locked_until_ms == queue.clock.now_ms() + 30_000


@covers("M12")
async def test_no_more_messages_are_locked_than_the_limit_allows() -> None:
    async with OneQueue(small(max_locks=4)) as queue:
        await queue.send(*BODIES)
        receiver = queue.receiver()
        assert await receiver.take(100) == BODIES[:4]
        await queue.complete(receiver.locks[0])
        assert receiver.bodies == BODIES[:5]


# Receive-and-delete.


@covers("M2")
async def test_receive_and_delete_takes_messages_out_before_they_are_handed_over() -> None:
    async with OneQueue() as queue:
        await queue.send(*BODIES[:5])
        queue.fault_next(Fault.HANG)
        receiver = queue.receiver(is_destructive=True)
        receiver.consumer.credit = 5
        queue.broker.want(queue.fragment)
        await queue.disk.is_hanging.wait()
        assert receiver.bodies == []
        queue.disk.go_on.set()
        await queue.quiet()
        assert receiver.bodies == BODIES[:5]
        assert await queue.peek() == []


@covers("M2")
async def test_receive_and_delete_keeps_no_locks() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        await queue.receiver(is_destructive=True).take(5)
        assert len(queue.fragment.locks) == 0


@covers("M2")
async def test_what_was_deleted_on_receive_is_gone_after_a_crash() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        await queue.receiver(is_destructive=True).take(1)
        async with await queue.after_crash() as again:
            assert await again.receiver().take(5) == ["b"]


@covers("M2")
async def test_a_failed_removal_is_not_handed_over_and_gives_the_credit_back() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        queue.fault_next(Fault.UNKNOWN_LOST)
        receiver = queue.receiver(is_destructive=True)
        receiver.consumer.credit = 1
        queue.broker.want(queue.fragment)
        assert isinstance(await queue.failed(), StoreUnavailable)
        assert receiver.bodies == []
        assert (receiver.consumer.credit, receiver.consumer.removing_count) == (1, 0)


@covers("M2")
async def test_what_was_only_kept_ready_for_a_leaving_consumer_goes_to_the_next() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        leaving = queue.receiver(is_destructive=True)
        leaving.consumer.credit = 2
        queue.fragment.pump()
        leaving.leave()
        await queue.quiet()
        assert leaving.bodies == []
        assert await queue.receiver().take(5) == ["a", "b"]


# Draining.


def draining(queue: OneQueue, credit: int, drained: list[int]) -> CallbackConsumer:
    consumer = CallbackConsumer(False, lambda _message, _lock: None, lambda: drained.append(int(consumer.credit)))
    queue.fragment.consumers(MAIN).add(consumer)
    consumer.credit = credit
    queue.fragment.consumers(MAIN).drain(consumer)
    queue.broker.want(queue.fragment)
    return consumer


@covers("M12")
async def test_a_drain_of_an_empty_queue_is_over_at_once() -> None:
    async with OneQueue() as queue:
        drained: list[int] = []
        draining(queue, 10, drained)
        await queue.quiet()
        assert drained == [10]


@covers("M12")
async def test_a_drain_hands_over_what_there_is_first() -> None:
    async with OneQueue() as queue:
        await queue.send(*BODIES)
        drained: list[int] = []
        draining(queue, 40, drained)
        await queue.quiet()
        assert drained == [40 - len(BODIES)]


@covers("M12")
async def test_a_drain_is_over_when_the_credit_is_used_up() -> None:
    async with OneQueue() as queue:
        await queue.send(*BODIES)
        drained: list[int] = []
        draining(queue, 10, drained)
        await queue.quiet()
        assert drained == [0]


@covers("M12")
async def test_a_drain_ends_though_all_that_waits_is_beyond_the_lock_limit() -> None:
    async with OneQueue(small(max_locks=2)) as queue:
        await queue.send(*BODIES)
        drained: list[int] = []
        draining(queue, 10, drained)
        await queue.quiet()
        assert drained == [8]


# Leaving.


@covers("M2")
async def test_when_a_receiver_leaves_its_messages_stay_locked_and_can_be_settled_by_token() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        leaving, other = queue.receiver(), queue.receiver()
        lock = await leaving.take_one()
        await leaving.take_one()
        leaving.leave()
        assert await other.take(5) == []
        await queue.complete(queue.fragment.find_lock(lock.token))
        assert await queue.peek() == ["b"]
        await queue.pass_time(61.0)
        assert [(body_of(one), one.delivery_count) for one in other.messages] == [("b", 1)]


@covers("M2")
async def test_receivers_that_come_take_and_leave_hold_no_more_locks_than_there_may_be() -> None:
    async with OneQueue(small(max_locks=4)) as queue:
        await queue.send(*[f"m{number}" for number in range(12)])
        for _ in range(10):
            leaving = queue.receiver()
            await leaving.take(2)
            leaving.leave()
        assert len(queue.fragment.locks) == 4
        await queue.pass_time(61.0)
        assert await queue.receiver().take(12) == [f"m{number}" for number in range(4)]


@pytest.mark.parametrize("is_destructive", [False, True])
@covers("M3")
async def test_dead_letters_are_received_like_other_messages(is_destructive: bool) -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        await queue.dead_letter(await queue.receiver().take_one())
        assert await queue.receiver(DEAD_LETTER, is_destructive).take(5) == ["a"]
