"""What a fault does to the traffic of one fragment, and that nothing else changes."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.broker.locks import COMPLETE, RELEASE
from tandembus.broker.transactions import TransactionSettlement
from tandembus.errors import FragmentUnavailable, MessageLockLost, ServerBusy, StoreFull
from tandembus.faults.sessions import MIN_PRUNED
from tandembus.faults.waiting_line import MAX_WAITING
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import message, small
from tests.unit.faults.gated_queue import GatedQueue


@covers("B3")
async def test_without_a_fault_the_gate_passes_everything() -> None:
    async with GatedQueue() as queue:
        answer = queue.send_through("a")
        await queue.quiet()
        assert answer.is_accepted
        link = queue.link()
        link.ask(5)
        await queue.quiet()
        assert link.bodies == ["a"]
        settled = queue.settle_through(link.locks[0], COMPLETE)
        await queue.quiet()
        assert settled.is_accepted
        assert queue.gate.failure() is None
        link.ask(is_draining=True)
        await queue.quiet()
        assert link.drained_count == 1


@covers("B3")
@pytest.mark.parametrize("target", ["namespace", "entity/orders", "entity/Orders", "fragment/orders/0", "broker/0"])
async def test_what_is_unavailable_takes_nothing_and_says_so(target: str) -> None:
    async with GatedQueue() as queue:
        queue.inject(target=target)
        for _ in range(2):
            with pytest.raises(FragmentUnavailable, match="injected fault 'f1'"):
                queue.send_through("a")
        assert isinstance(queue.gate.failure(), FragmentUnavailable)
        assert queue.gate.is_out()
        with pytest.raises(FragmentUnavailable):
            queue.discharge_through([message("b")])
        queue.heal()
        assert queue.gate.failure() is None
        assert not queue.gate.is_out()
        answer = queue.send_through("c")
        await queue.quiet()
        assert answer.is_accepted
        assert await queue.peek() == ["c"]


@covers("B3")
@pytest.mark.parametrize("target", ["entity/other", "fragment/orders/1", "broker/1", "store/1", "entity/orders/a"])
async def test_faults_of_others_are_not_felt(target: str) -> None:
    async with GatedQueue() as queue:
        queue.inject(target=target)
        answer = queue.send_through("a")
        await queue.quiet()
        assert answer.is_accepted
        assert queue.gate.failure() is None


@covers("B3")
async def test_receivers_of_what_is_unavailable_get_nothing_and_are_fed_again_when_it_is_healed() -> None:
    async with GatedQueue() as queue:
        link = queue.link()
        link.ask(5)
        queue.inject()
        await queue.send("a", "b")
        link.ask(1)
        await queue.quiet()
        assert link.bodies == []
        assert link.consumer.credit == 6
        queue.heal()
        await queue.quiet()
        assert link.bodies == ["a", "b"]
        assert link.consumer.credit == 4


@covers("B3")
async def test_a_receiver_that_comes_during_an_outage_is_fed_when_it_is_over() -> None:
    async with GatedQueue() as queue:
        await queue.send("a")
        queue.inject()
        link = queue.link()
        link.ask(1)
        gone = queue.link()
        gone.ask(1)
        gone.leave()
        await queue.quiet()
        assert link.bodies == []
        queue.heal()
        await queue.quiet()
        assert link.bodies == ["a"]
        assert gone.bodies == []


@covers("B3", "P6")
async def test_what_is_unavailable_counts_as_drained_at_once() -> None:
    async with GatedQueue() as queue:
        await queue.send("a")
        queue.inject()
        link = queue.link()
        link.ask(1, is_draining=True)
        assert link.drained_count == 1
        queue.heal()
        await queue.quiet()
        assert link.bodies == []


@covers("B3")
async def test_what_was_received_before_an_outage_stays_locked_and_is_settled_after_it() -> None:
    async with GatedQueue() as queue:
        await queue.send("a")
        link = queue.link()
        link.ask(1)
        await queue.quiet()
        queue.inject()
        with pytest.raises(FragmentUnavailable):
            queue.settle_through(link.locks[0], COMPLETE)
        queue.heal()
        settled = queue.settle_through(link.locks[0], COMPLETE)
        await queue.quiet()
        assert settled.is_accepted
        assert await queue.peek() == []


@covers("B3", "P6")
async def test_what_was_kept_ready_goes_back_uncounted_even_during_an_outage() -> None:
    async with GatedQueue() as queue:
        await queue.send("a")
        link = queue.link()
        link.ask(1)
        await queue.quiet()
        queue.inject()
        queue.gate.settle(link.locks[0], RELEASE, None)
        await queue.quiet()
        queue.heal()
        link.ask(1)
        await queue.quiet()
        assert link.bodies == ["a", "a"]
        assert link.locks[1].delivery_count == 0


@covers("B3")
async def test_a_receive_and_delete_that_an_outage_cuts_off_loses_nothing() -> None:
    async with GatedQueue() as queue:
        await queue.send("a", "b")
        link = queue.link(is_destructive=True)
        link.ask(3)  # locked and about to be removed, not committed yet
        queue.inject()
        await queue.quiet()
        assert link.bodies == []
        assert await queue.peek() == ["a", "b"]
        queue.heal()
        await queue.quiet()
        assert link.bodies == ["a", "b"]
        assert (link.consumer.credit, link.consumer.removing_count) == (1, 0)


@covers("B3")
async def test_sessions_are_lost_with_their_fragment_and_free_when_it_is_back() -> None:
    async with GatedQueue(small(requires_session=True)) as queue:
        await queue.send_to("s", "a")
        holder = queue.wish("s").holder
        holder.ask(1)
        await queue.quiet()
        assert holder.bodies == ["a"]
        waiting = queue.wish(None)
        queue.inject()
        assert holder.loss is not None
        assert isinstance(waiting.refusal, FragmentUnavailable)
        refused = queue.wish("s")
        assert isinstance(refused.refusal, FragmentUnavailable)
        queue.heal()
        await queue.quiet()
        again = queue.wish("s").holder
        again.ask(1)
        await queue.quiet()
        assert again.bodies == ["a"]


@covers("B3")
async def test_free_sessions_are_watched_for_again_after_an_outage() -> None:
    from tandembus.interconnect.traffic import SessionWatch

    async with GatedQueue(small(requires_session=True)) as queue:
        queue.inject()
        offers: list[tuple[int, int]] = []
        queue.gate.watch_sessions(SessionWatch(lambda index, at_ms: offers.append((index, at_ms))))
        await queue.send_to("s", "a")
        assert offers == []
        queue.heal()
        await queue.quiet()
        assert len(offers) == 1


@covers("B3", "P20")
async def test_throttling_turns_sends_away_as_busy_and_lets_receivers_go_on() -> None:
    async with GatedQueue() as queue:
        await queue.send("a")
        queue.inject("throttled")
        with pytest.raises(ServerBusy):
            queue.send_through("b")
        with pytest.raises(ServerBusy):
            queue.discharge_through([message("b")])
        assert queue.gate.failure() is None
        link = queue.link()
        link.ask(1)
        await queue.quiet()
        settled = queue.discharge_through([], TransactionSettlement(link.locks[0], COMPLETE))
        await queue.quiet()
        assert settled.is_accepted


@covers("B3")
async def test_a_full_disk_refuses_sends_and_settling_goes_on() -> None:
    async with GatedQueue() as queue:
        await queue.send("a")
        queue.inject("disk-full")
        with pytest.raises(StoreFull):
            queue.send_through("b")
        link = queue.link()
        link.ask(1)
        await queue.quiet()
        settled = queue.settle_through(link.locks[0], COMPLETE)
        await queue.quiet()
        assert settled.is_accepted


@covers("B3")
async def test_what_is_slow_comes_later_and_in_its_order() -> None:
    async with GatedQueue() as queue:
        queue.inject("slow", latency_ms=500)
        first, second = queue.send_through("a"), queue.send_through("b")
        queue.timers.pass_time(0.4)
        await queue.quiet()
        third = queue.send_through("c")
        assert not first.is_given
        queue.timers.pass_time(0.1)
        await queue.quiet()
        assert (first.is_accepted, second.is_accepted, third.is_given) == (True, True, False)
        queue.timers.pass_time(0.4)
        await queue.quiet()
        assert third.is_accepted
        assert await queue.peek() == ["a", "b", "c"]


@covers("B3")
async def test_receiving_and_settling_are_slow_too() -> None:
    async with GatedQueue() as queue:
        await queue.send("a")
        queue.inject("slow", latency_ms=200)
        link = queue.link()
        for _ in range(3):
            link.ask(1)
        link.ask(is_draining=True)
        await queue.quiet()
        assert link.bodies == []
        queue.timers.pass_time(0.2)
        await queue.quiet()
        assert (link.bodies, link.drained_count) == (["a"], 1)
        settled = queue.settle_through(link.locks[0], COMPLETE)
        await queue.quiet()
        assert not settled.is_given
        queue.timers.pass_time(0.2)
        await queue.quiet()
        assert settled.is_accepted


@covers("B3")
async def test_what_is_healed_keeps_nothing_waiting() -> None:
    async with GatedQueue() as queue:
        queue.inject("slow", latency_ms=60_000)
        waiting = [queue.send_through("a"), queue.send_through("b")]
        queue.heal()
        waiting.append(queue.send_through("c"))
        await queue.quiet()
        assert all(answer.is_accepted for answer in waiting)
        assert await queue.peek() == ["a", "b", "c"]
        queue.timers.pass_time(61.0)
        await queue.quiet()
        assert await queue.peek() == ["a", "b", "c"]


@covers("B3")
async def test_what_waits_at_a_slow_fragment_fails_when_that_goes_out() -> None:
    async with GatedQueue() as queue:
        await queue.send("x")
        link = queue.link()
        link.ask(1)
        await queue.quiet()
        queue.inject("slow", latency_ms=1000)
        sent, settled = queue.send_through("a"), queue.settle_through(link.locks[0], COMPLETE)
        link.ask(1, is_draining=True)
        discharged = queue.discharge_through([message("t")])
        queue.inject("unavailable", name="f2")
        for answer in (sent, settled, discharged):
            assert isinstance(answer.error, FragmentUnavailable)
        assert link.drained_count == 1
        queue.heal()
        queue.timers.pass_time(2.0)
        await queue.quiet()
        assert await queue.peek() == ["x"]


@covers("B3")
async def test_a_lock_that_lapses_while_its_settlement_waits_is_lost() -> None:
    async with GatedQueue(small(lock_duration_s=5.0)) as queue:
        await queue.send("a")
        link = queue.link()
        link.ask(1)
        await queue.quiet()
        queue.inject("slow", latency_ms=6000)
        settled = queue.settle_through(link.locks[0], COMPLETE)
        queue.timers.pass_time(6.0)
        await queue.quiet()
        assert isinstance(settled.error, MessageLockLost)


@covers("B3")
async def test_a_slow_fragment_keeps_so_much_waiting_and_is_busy_then() -> None:
    async with GatedQueue() as queue:
        queue.inject("slow", latency_ms=1000)
        for _ in range(MAX_WAITING):
            queue.send_through("a")
        with pytest.raises(ServerBusy):
            queue.send_through("b")
        queue.timers.pass_time(1.0)
        queue.send_through("c")


@covers("B3")
async def test_a_fault_with_a_probability_hits_as_often_as_it_says() -> None:
    async with GatedQueue() as queue:
        queue.inject("unavailable", probability=0.3)
        assert queue.gate.failure() is None
        queue.draws += [0.29, 0.3, 0.9]
        with pytest.raises(FragmentUnavailable):
            queue.send_through("a")
        answers = [queue.send_through("b"), queue.send_through("c")]
        link = queue.link()
        link.ask(5)
        await queue.quiet()
        assert all(answer.is_accepted for answer in answers)
        assert link.bodies == ["b", "c"]


@covers("B3")
async def test_faults_of_several_kinds_add_up() -> None:
    async with GatedQueue() as queue:
        queue.inject("slow", latency_ms=100, name="a")
        queue.inject("slow", latency_ms=200, name="b", target="namespace")
        answer = queue.send_through("x")
        queue.timers.pass_time(0.2)
        await queue.quiet()
        assert not answer.is_given
        queue.timers.pass_time(0.1)
        await queue.quiet()
        assert answer.is_accepted
        queue.inject("throttled", name="c")
        with pytest.raises(ServerBusy):
            queue.send_through("y")
        queue.board.remove("c")
        assert not queue.send_through("z").is_given


@covers("B3")
async def test_an_outage_with_a_duration_ends_for_senders_and_receivers_alike() -> None:
    async with GatedQueue() as queue:
        await queue.send("a")
        link = queue.link()
        queue.inject(for_s=10)
        link.ask(2)
        queue.clock.advance(9.9)
        with pytest.raises(FragmentUnavailable):
            queue.send_through("b")
        queue.clock.advance(0.1)
        answer = queue.send_through("c")
        await queue.quiet()
        assert answer.is_accepted
        assert link.bodies == ["a", "c"]


@covers("B3")
async def test_a_gate_that_nobody_waits_behind_is_not_remembered() -> None:
    async with GatedQueue(small(requires_session=True)) as queue:
        gates = queue.board.state.listeners
        link = queue.link()
        wisher = queue.wish("s")
        patient = queue.wish(None)
        queue.inject("slow", latency_ms=100)
        queue.send_through("a", session_id="s")
        assert len(gates) == 1
        link.leave()
        queue.gate.give_up_session(patient.wish)
        hold = wisher.holder.hold
        assert hold is not None
        queue.gate.leave_session(hold)
        queue.heal()
        assert len(gates) == 0


async def test_granted_wishes_are_not_kept_for_ever() -> None:
    async with GatedQueue(small(requires_session=True)) as queue:
        for number in range(500):
            wisher = queue.wish(None)
            await queue.send_to(f"s{number}", "a")
            assert wisher.link is not None
        assert len(queue.gate._sessions._wishes) <= 2 * MIN_PRUNED


@covers("B3")
async def test_requests_of_what_is_unavailable_fail_and_those_of_what_is_throttled_wait_their_turn() -> None:
    async with GatedQueue() as queue:
        await queue.send("a")
        assert (await queue.requests.counts()).active == 1
        queue.inject()
        for request in (queue.requests.counts(), queue.requests.peek(MAIN, 0, 1, 1000), queue.requests.renew([])):
            with pytest.raises(FragmentUnavailable):
                await request
        queue.inject("throttled")
        assert (await queue.requests.counts()).active == 1
        with pytest.raises(ServerBusy):
            await queue.requests.peek(MAIN, 0, 1, 1000)
        with pytest.raises(ServerBusy):
            await queue.requests.schedule([message("b")], 10)
        queue.inject("disk-full")
        assert len(await queue.requests.peek(MAIN, 0, 1, 1000)) == 1
        with pytest.raises(StoreFull):
            await queue.requests.schedule([message("b")], 10)


@covers("B3")
async def test_a_slow_request_is_answered_later_and_at_once_when_healed() -> None:
    async with GatedQueue() as queue:
        queue.inject("slow", latency_ms=60_000)
        late, healed = (asyncio.create_task(queue.requests.counts()) for _ in range(2))
        await queue.quiet()
        assert not late.done()
        queue.clock.advance(60.0)
        queue.inject("throttled", target="entity/other", name="f2")  # whatever wakes it
        assert (await late).active == 0
        assert (await healed).active == 0
        third = asyncio.create_task(queue.requests.counts())
        await queue.quiet()
        assert not third.done()
        queue.heal()
        assert (await third).active == 0


@covers("B3")
async def test_a_slow_request_fails_when_its_fragment_goes_out_meanwhile() -> None:
    async with GatedQueue() as queue:
        queue.inject("slow", latency_ms=60_000)
        request = asyncio.create_task(queue.requests.counts())
        await queue.quiet()
        queue.inject("unavailable")
        with pytest.raises(FragmentUnavailable):
            await request
