"""Sessions of what is slow, and gates that are let go of with the last of them."""

from __future__ import annotations

import pytest

from tandembus.errors import FragmentUnavailable, OperationTimeout, SessionCannotBeLocked
from tests.covers import covers
from tests.unit.broker.one_queue import small
from tests.unit.faults.gated_queue import GatedQueue


def sessions() -> GatedQueue:
    return GatedQueue(small(requires_session=True))


@covers("B3")
@pytest.mark.parametrize("name", ["s", None], ids=["named", "next"])
async def test_a_session_of_what_is_slow_is_granted_later(name: str | None) -> None:
    async with sessions() as queue:
        await queue.send_to("s", "a")
        queue.inject("slow", latency_ms=5000)
        wisher = queue.wish(name)
        queue.timers.pass_time(4.9)
        await queue.quiet()
        assert wisher.link is None
        queue.timers.pass_time(0.1)
        await queue.quiet()
        assert wisher.link is not None


@covers("B3")
async def test_slowness_by_chance_delays_as_many_sessions_as_it_says() -> None:
    async with sessions() as queue:
        queue.inject("slow", latency_ms=5000, probability=0.3)
        queue.draws += [0.9, 0.29]
        quick, slow = queue.wish("a"), queue.wish("b")
        assert (quick.link is None, slow.link is None) == (False, True)
        queue.timers.pass_time(5.0)
        assert slow.link is not None


@covers("B3", "P20")
async def test_sessions_of_what_is_throttled_are_granted() -> None:
    async with sessions() as queue:
        queue.inject("throttled")
        assert queue.wish("s").link is not None


@covers("B3")
async def test_a_session_that_is_refused_is_refused_later_where_it_is_slow() -> None:
    async with sessions() as queue:
        holder = queue.wish("s").holder
        assert holder.hold is not None
        queue.inject("slow", latency_ms=5000)
        second, impatient = queue.wish("s"), queue.wish(None, is_patient=False)
        assert (second.refusal, impatient.refusal) == (None, None)
        queue.timers.pass_time(5.0)
        assert isinstance(second.refusal, SessionCannotBeLocked)
        assert isinstance(impatient.refusal, OperationTimeout)


@covers("B3")
async def test_a_wish_that_is_given_up_while_it_waits_gets_nothing() -> None:
    async with sessions() as queue:
        queue.inject("slow", latency_ms=5000)
        wisher = queue.wish("s")
        queue.gate.give_up_session(wisher.wish)
        queue.timers.pass_time(5.0)
        assert (wisher.link, wisher.refusal) == (None, None)
        queue.heal()
        assert queue.wish("s").link is not None


@covers("B3")
async def test_a_wish_that_waits_at_a_slow_fragment_is_refused_when_that_goes_out() -> None:
    async with sessions() as queue:
        queue.inject("slow", latency_ms=5000)
        wisher = queue.wish("s")
        queue.inject("unavailable", name="f2")
        assert isinstance(wisher.refusal, FragmentUnavailable)
        queue.heal()
        queue.timers.pass_time(5.0)
        assert wisher.link is None


async def test_whoever_is_refused_a_session_leaves_no_gate_behind() -> None:
    async with sessions() as queue:
        listeners = queue.board.state.listeners
        assert isinstance(queue.wish(None, is_patient=False).refusal, OperationTimeout)
        assert len(listeners) == 0
        holder = queue.wish("s").holder
        with pytest.raises(SessionCannotBeLocked):
            queue.wish("s")
        assert holder.hold is not None
        queue.gate.leave_session(holder.hold)
        assert len(listeners) == 0


async def test_whoever_waited_for_a_session_and_has_left_it_leaves_no_gate_behind() -> None:
    async with sessions() as queue:
        listeners = queue.board.state.listeners
        wisher = queue.wish(None)
        assert len(listeners) == 1
        await queue.send_to("s", "a")
        hold = wisher.holder.hold
        assert hold is not None
        queue.gate.leave_session(hold)
        assert len(listeners) == 0


async def test_a_gate_that_is_closed_keeps_nothing_waiting_and_is_not_remembered() -> None:
    async with sessions() as queue:
        queue.inject("slow", latency_ms=600_000)
        sent = queue.send_through("a", session_id="s")
        queue.wish(None)
        queue.gate.close()
        assert len(queue.board.state.listeners) == 0
        await queue.quiet()
        assert sent.is_accepted
