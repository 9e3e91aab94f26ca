"""What waits at a slow fragment: in its order, no longer than the faults of the moment say, and nothing overtakes."""

from __future__ import annotations

import pytest

from tandembus.broker.locks import ABANDON, COMPLETE, RELEASE, REMOVE
from tandembus.broker.operations import CallbackConsumer
from tandembus.errors import FragmentUnavailable
from tandembus.namespace.partitioning import PartitionSettings
from tandembus.namespace.receive_cache import CacheLink, ReceiveCache, Removal
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import message, small
from tests.unit.faults.gated_queue import GatedQueue


@covers("B3")
async def test_a_fault_after_a_healed_one_has_a_latency_of_its_own() -> None:
    async with GatedQueue() as queue:
        queue.inject("slow", latency_ms=600_000)
        first = queue.send_through("a")
        queue.heal()
        await queue.quiet()
        assert first.is_accepted
        queue.inject("slow", latency_ms=10)
        second = queue.send_through("b")
        queue.timers.pass_time(0.01)
        await queue.quiet()
        assert second.is_accepted


@covers("B3")
async def test_a_fault_after_an_outage_has_a_latency_of_its_own() -> None:
    async with GatedQueue() as queue:
        queue.inject("slow", latency_ms=600_000)
        first = queue.send_through("a")
        queue.inject("unavailable", name="f2")
        assert isinstance(first.error, FragmentUnavailable)
        queue.heal()
        queue.inject("slow", latency_ms=10)
        second = queue.send_through("b")
        queue.timers.pass_time(0.01)
        await queue.quiet()
        assert second.is_accepted


@covers("B3")
async def test_what_waits_waits_no_longer_than_the_new_latency() -> None:
    async with GatedQueue() as queue:
        queue.inject("slow", latency_ms=60_000)
        waiting = [queue.send_through("a"), queue.send_through("b")]
        queue.inject("slow", latency_ms=100)
        waiting.append(queue.send_through("c"))
        queue.timers.pass_time(0.09)
        await queue.quiet()
        assert not any(answer.is_given for answer in waiting)
        queue.timers.pass_time(0.01)
        await queue.quiet()
        assert all(answer.is_accepted for answer in waiting)
        assert await queue.peek() == ["a", "b", "c"]


@covers("B3")
async def test_a_larger_latency_does_not_put_back_what_waits_already() -> None:
    async with GatedQueue() as queue:
        queue.inject("slow", latency_ms=100)
        first = queue.send_through("a")
        queue.inject("slow", latency_ms=60_000)
        second = queue.send_through("b")
        queue.timers.pass_time(0.1)
        await queue.quiet()
        assert (first.is_accepted, second.is_given) == (True, False)


@covers("B3", "P6")
async def test_a_removal_that_nobody_wants_when_its_turn_comes_gives_the_message_back() -> None:
    async with GatedQueue() as queue:
        await queue.send("a")
        link = queue.link()
        link.ask(1)
        await queue.quiet()
        (lock,) = link.locks
        gone = CacheLink(CallbackConsumer(True, lambda *_: None))
        cache = ReceiveCache([queue.gate], MAIN, PartitionSettings(), queue.clock, queue.timers.later)
        queue.inject("slow", latency_ms=500)
        queue.gate.settle(lock, REMOVE, Removal(cache, gone, message("a")))
        gone.is_gone = True
        queue.timers.pass_time(0.5)
        await queue.quiet()
        assert (await queue.peek(), int(lock.settlement)) == (["a"], RELEASE)


@covers("B3")
async def test_a_complete_before_the_end_of_a_receiver_holds_however_slow_it_is() -> None:
    async with GatedQueue() as queue:
        await queue.send("a", "b")
        link = queue.link()
        link.ask(2)
        await queue.quiet()
        queue.inject("slow", latency_ms=500)
        settled = queue.settle_through(link.locks[0], COMPLETE)
        link.leave()
        queue.timers.pass_time(0.5)
        await queue.quiet()
        assert settled.is_accepted
        queue.heal()
        other = queue.link()
        other.ask(5)
        await queue.quiet()
        assert other.bodies == [], "what was not settled stays locked"
        await queue.pass_time(61.0)
        await queue.quiet()
        assert other.bodies == ["b"]


@covers("B3")
async def test_a_receiver_that_has_left_gets_nothing_while_a_settlement_of_it_waits() -> None:
    async with GatedQueue() as queue:
        await queue.send("a")
        link = queue.link()
        link.ask(5)
        await queue.quiet()
        queue.inject("slow", latency_ms=500)
        settled = queue.settle_through(link.locks[0], COMPLETE)
        link.ask(5)
        link.leave()
        await queue.send("b")
        assert link.bodies == ["a"]
        queue.timers.pass_time(0.5)
        await queue.send("c")
        assert settled.is_accepted
        assert link.bodies == ["a"]


@covers("B3")
async def test_a_receive_and_delete_is_called_off_at_once_when_its_receiver_leaves() -> None:
    async with GatedQueue() as queue:
        await queue.send("a")
        link = queue.link(is_destructive=True)
        link.ask(1)  # about to be removed, not committed yet
        queue.inject("slow", latency_ms=500)
        waiting = queue.send_through("b")
        link.leave()
        await queue.quiet()
        assert not waiting.is_given
        assert link.bodies == []
        assert await queue.peek() == ["a"]


@covers("B3")
async def test_a_receiver_that_has_left_when_its_fragment_goes_out_leaves_its_messages_locked() -> None:
    async with GatedQueue() as queue:
        await queue.send("a", "b")
        link = queue.link()
        link.ask(2)
        await queue.quiet()
        queue.inject("slow", latency_ms=500)
        settled = queue.settle_through(link.locks[0], COMPLETE)
        link.leave()
        queue.inject("unavailable", name="f2")
        assert isinstance(settled.error, FragmentUnavailable)
        queue.heal()
        assert link.consumer not in queue.fragment.consumers(0)._consumers
        again = queue.settle_through(link.locks[0], COMPLETE)
        other = queue.link()
        other.ask(5)
        await queue.quiet()
        assert again.is_accepted
        assert other.bodies == []


@covers("B3")
async def test_a_complete_before_the_end_of_a_session_receiver_holds_however_slow_it_is() -> None:
    async with GatedQueue(small(requires_session=True)) as queue:
        await queue.send_to("s", "a", "b")
        holder = queue.wish("s").holder
        holder.ask(2)
        await queue.quiet()
        queue.inject("slow", latency_ms=500)
        settled = queue.settle_through(holder.locks[0], COMPLETE)
        assert holder.hold is not None
        queue.gate.leave_session(holder.hold)
        next_wish = queue.wish("s")
        queue.timers.pass_time(0.5)
        await queue.quiet()
        assert settled.is_accepted
        assert next_wish.link is not None, "the session is free by then"
        queue.heal()
        next_wish.holder.ask(5)
        await queue.quiet()
        assert next_wish.holder.bodies == ["b"]


@covers("B3")
@pytest.mark.parametrize("settlement", [COMPLETE, ABANDON])
async def test_a_session_whose_holder_leaves_while_it_is_slow_is_free_after_an_outage(settlement: int) -> None:
    async with GatedQueue(small(requires_session=True)) as queue:
        await queue.send_to("s", "a")
        holder = queue.wish("s").holder
        holder.ask(1)
        await queue.quiet()
        queue.inject("slow", latency_ms=500)
        settled = queue.settle_through(holder.locks[0], settlement)
        assert holder.hold is not None
        queue.gate.leave_session(holder.hold)
        queue.inject("unavailable", name="f2")
        assert isinstance(settled.error, FragmentUnavailable)
        assert holder.loss is None, "it has left, and nothing more is told to it"
        queue.heal()
        again = queue.wish("s").holder
        again.ask(1)
        await queue.quiet()
        assert again.bodies == ["a"]
