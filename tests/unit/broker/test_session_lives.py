"""What outlives receivers and crashes: the state of sessions, their order, and what a failing store leaves of them."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.errors import (
    SessionLockLost,
    StoreFull,
    StoreUnavailable,
)
from tandembus.message import Message
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.unit.broker.one_queue import KEY, Answer, body_of, message
from tests.unit.broker.session_queue import session_queue, sessions

# State.


@covers("M7")
async def test_a_session_keeps_its_state_without_messages_and_across_a_restart() -> None:
    async with session_queue() as queue:
        assert await queue.state_of("a") is None
        await queue.set_state("a", b"one")
        await queue.set_state("a", b"two")
        await queue.set_state("b", b"")
        again = await queue.again()
    async with again:
        assert await again.state_of("a") == b"two"
        assert await again.state_of("b") == b""
        await again.set_state("a", None)
        assert await again.state_of("a") is None


@covers("M7")
async def test_states_set_together_are_the_last_ones_set() -> None:
    async with session_queue() as queue:
        await asyncio.gather(*(queue.set_state("a", bytes([i])) for i in range(5)), queue.set_state("b", b"b"))
        assert (await queue.state_of("a"), await queue.state_of("b")) == (bytes([4]), b"b")


@covers("M7", "F4")
async def test_a_state_that_does_not_fit_is_refused_and_clearing_one_goes_on() -> None:
    async with session_queue() as queue:
        await queue.set_state("a", b"old")
        await queue.set_state("b", b"old")
        queue.fault_next(Fault.FULL)
        results = await asyncio.gather(queue.set_state("a", b"new"), queue.set_state("b", None), return_exceptions=True)
        assert isinstance(results[0], StoreFull)
        assert results[1] is None
        assert (await queue.state_of("a"), await queue.state_of("b")) == (b"old", None)


@covers("M7", "M13")
async def test_a_cleared_state_is_refused_with_the_new_one_that_takes_its_place() -> None:
    async with session_queue() as queue:
        await queue.set_state("a", b"old")
        queue.fault_next(Fault.FULL)
        results = await asyncio.gather(queue.set_state("a", None), queue.set_state("a", b"new"), return_exceptions=True)
        assert [type(result) for result in results] == [StoreFull, StoreFull]
        assert await queue.state_of("a") == b"old"


# Restarts and failures.


@covers("M7", "F2")
async def test_after_a_crash_sessions_are_free_and_in_order() -> None:
    async with session_queue() as queue:
        for number in range(9):
            for session_id in "abc":
                await queue.send_to(session_id, f"{session_id}{number}")
        receiver = await queue.accept("a")
        await receiver.take(3)
        await queue.complete(receiver.locks[0])
        again = await queue.again()
    async with again:
        received = await again.drain()
        assert received["a"] == [f"a{number}" for number in range(1, 9)]
        assert received["b"] == [f"b{number}" for number in range(9)]
        assert list(received) == ["b", "c", "a"], "the oldest message decides, and a's first is gone"


@covers("M7")
async def test_receivers_that_come_together_after_the_queue_left_the_memory_all_get_messages() -> None:
    names = [f"session-{number}" for number in range(16)]
    async with session_queue() as queue:
        for name in names:
            await queue.send_to(name, *"abcde")
        queue.broker.close_fragment(KEY)
        queue.fragment = await queue.broker.open_fragment(KEY, 0, queue.settings)
        receivers = [await queue.accept(name) for name in names]
        for receiver in receivers:
            receiver.consumer.credit = 4
            receiver.stir()
        await queue.quiet()
        assert [receiver.bodies for receiver in receivers] == [list("abcd")] * 16


@covers("M7")
async def test_the_receiver_of_a_long_session_with_large_messages_leaves_room_for_others() -> None:
    settings = sessions(window_messages=100)
    settings.window_bytes = 600
    async with session_queue(settings) as queue:
        for name in "abc":
            await queue.send_to(name, *[name * 100] * 6)
        queue.broker.close_fragment(KEY)
        queue.fragment = await queue.broker.open_fragment(KEY, 0, queue.settings)
        receivers = [await queue.accept(name) for name in "abc"]
        delivered: list[Message] = []
        for receiver in receivers:
            receiver.messages = delivered
            receiver.consumer.credit = 6
            receiver.stir()
        await queue.quiet()
        order = [body_of(one)[0] for one in delivered]
        assert len(order) == 18
        assert set(order[:6]) == set("abc"), "nobody waits until another has all of its messages"


@covers("M7", "F2")
async def test_when_the_store_fails_sessions_are_lost_and_waiting_accepts_are_told() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1")
        receiver = await queue.accept("a")
        await receiver.take_one()
        waiting = queue.accepting()
        await queue.quiet()
        queue.fault_next(Fault.UNKNOWN_LOST)
        answer: Answer = queue.stage(message("b1", session_id="b"))
        assert isinstance(await answer.wait(), StoreUnavailable)
        assert isinstance(receiver.loss, SessionLockLost)
        with pytest.raises(StoreUnavailable):
            await waiting
        await queue.quiet()
        assert await (await queue.accept("a")).take(5) == ["a1"]


@covers("M7", "F4")
async def test_a_refused_send_leaves_no_trace_in_the_columns() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", *(f"a{i}" for i in range(6)))
        queue.fault_next(Fault.FULL)
        refused = queue.stage(*(message(f"no{i}", session_id="b") for i in range(20)))
        assert isinstance(await refused.wait(), StoreFull)
        queue.broker.check_room()
        await queue.send_to("c", *(f"c{i}" for i in range(20)))
        again = await queue.again()
    async with again:
        assert await again.drain() == {"a": [f"a{i}" for i in range(6)], "c": [f"c{i}" for i in range(20)]}
