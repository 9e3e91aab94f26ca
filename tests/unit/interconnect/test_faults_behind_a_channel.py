"""Faults that hit a fragment behind a channel: the broker knows nothing of them, so the front end withdraws from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandembus.broker.locks import COMPLETE
from tandembus.errors import FragmentUnavailable, MessageLockLost, ServerBusy
from tandembus.faults.board import FaultBoard, FragmentPlace
from tandembus.faults.fault import read_fault
from tandembus.interconnect.traffic import SessionWatch
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import message
from tests.unit.interconnect.test_channel_sessions import Wisher
from tests.unit.interconnect.two_ends import KEY, Receiver, TwoEnds, send, settle, stage, turns, until


class FaultyEnds(TwoEnds):
    def __init__(self, folder: Path, **fragment: object) -> None:
        super().__init__(folder, **fragment)  # type: ignore[arg-type]
        self.board = FaultBoard(self.clock)
        self.board.connect(KEY, self.traffic, FragmentPlace("orders"))

    async def __aenter__(self) -> FaultyEnds:
        await super().__aenter__()
        return self

    def inject(self, kind: str = "unavailable", name: str = "f1", **more: object) -> None:
        self.board.put(read_fault(name, {"target": "entity/orders", "kind": kind, **more}))


async def hold(ends: TwoEnds, wisher: Wisher) -> Receiver:
    receiver = Receiver(ends.traffic)
    ends.traffic.hold_session(await wisher.granted(), receiver.consumer)
    return receiver


@covers("B3", "P3")
async def test_receivers_get_nothing_during_an_outage_and_are_fed_after_it(run_folder: Path) -> None:
    async with FaultyEnds(run_folder) as ends:
        first, gone = ends.receiver(), ends.receiver()
        first.want(3)
        await turns()
        ends.inject()
        late = ends.receiver()
        late.want(3)
        gone.leave()
        assert isinstance(ends.traffic.failure(), FragmentUnavailable)
        await send(ends.front_end.traffic(), "a", "b", "c", "d")  # by a front end that nobody has told of the fault
        await turns()
        assert first.bodies + late.bodies == []
        ends.board.clear()
        await until(lambda: len(first.bodies + late.bodies) == 4)
        assert (gone.bodies, ends.traffic.failure()) == ([], None)
        assert first.consumer.credit + late.consumer.credit == 2


@covers("B3", "P3")
async def test_what_is_pushed_while_a_fragment_goes_out_and_comes_back_is_not_counted_twice(run_folder: Path) -> None:
    async with FaultyEnds(run_folder) as ends:
        receiver = ends.receiver()
        receiver.want(2)
        await turns()
        answer = stage(ends.traffic, message("a"))
        await until(lambda: ends.disk.commit_count > 1)
        ends.inject()
        ends.board.clear()
        assert await answer.wait() is None
        await until(lambda: receiver.bodies == ["a"])
        await send(ends.traffic, "b", "c")
        await until(lambda: receiver.bodies == ["a", "b"])
        assert receiver.consumer.credit == 0


@covers("B3")
async def test_what_was_received_before_an_outage_is_settled_after_it(run_folder: Path) -> None:
    async with FaultyEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver()
        await receiver.take(1)
        ends.inject()
        with pytest.raises(FragmentUnavailable):
            settle(ends.traffic, receiver.locks[0], COMPLETE)
        ends.board.clear()
        assert await settle(ends.traffic, receiver.locks[0], COMPLETE).wait() is None
        assert (await ends.front_end.requests().counts()).active == 0


@covers("B3", "P6")
async def test_a_fragment_that_goes_out_counts_as_drained(run_folder: Path) -> None:
    async with FaultyEnds(run_folder) as ends:
        receiver = ends.receiver()
        ends.inject()
        receiver.want(5, is_draining=True)
        assert receiver.drain_count == 1
        ends.board.clear()
        await send(ends.traffic, "a")
        await turns()
        assert receiver.bodies == []
        assert await receiver.take(1) == ["a"]


@covers("B3", "P6")
async def test_a_drain_ends_after_the_removals_that_belong_to_it_whatever_goes_out(run_folder: Path) -> None:
    async with FaultyEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver(is_destructive=True)
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.HANG
        receiver.want(5, is_draining=True)
        await ends.disk.is_hanging.wait()
        ends.inject()
        assert (receiver.bodies, receiver.drain_count) == ([], 0)
        ends.board.clear()
        ends.disk.go_on.set()
        await until(lambda: receiver.drain_count == 1)
        assert receiver.bodies == ["a"]


@covers("B3")
async def test_sessions_are_lost_and_free_when_the_fragment_is_back(run_folder: Path) -> None:
    async with FaultyEnds(run_folder, requires_session=True) as ends:
        await stage(ends.traffic, message("a", session_id="s")).wait()
        holder, waiting = Wisher(ends.traffic, "s"), Wisher(ends.traffic)
        receiver = await hold(ends, holder)
        assert await receiver.take(1) == ["a"]
        ends.inject()
        assert receiver.loss is not None
        assert isinstance(waiting.refusal, FragmentUnavailable)
        assert isinstance(Wisher(ends.traffic, "s").refusal, FragmentUnavailable)
        offers: list[int] = []
        ends.traffic.watch_sessions(SessionWatch(lambda index, _at: offers.append(index)))
        await turns()
        assert offers == []
        ends.board.clear()
        await until(lambda: offers == [0])
        again = await hold(ends, Wisher(ends.traffic, "s"))
        assert await again.take(1) == ["a"]
        assert isinstance(await settle(ends.traffic, receiver.locks[0], COMPLETE).wait(), MessageLockLost)


@covers("B3")
async def test_what_is_slow_waits_at_the_front_end_in_its_order(run_folder: Path) -> None:
    async with FaultyEnds(run_folder) as ends:
        ends.inject("slow", latency_ms=60_000)
        answers = [stage(ends.traffic, message(body)) for body in "ab"]
        receiver = ends.receiver()
        receiver.want(2)
        await turns()
        assert (ends.broker.bodies(), receiver.bodies) == ([], [])
        ends.board.clear()
        assert [await answer.wait() for answer in answers] == [None, None]
        await until(lambda: receiver.bodies == ["a", "b"])


@covers("B3")
async def test_requests_are_hit_too(run_folder: Path) -> None:
    async with FaultyEnds(run_folder) as ends:
        requests = ends.front_end.requests()
        requests.traffic = ends.traffic
        ends.inject("throttled")
        with pytest.raises(ServerBusy):
            await requests.peek(MAIN, 0, 1, 1000)
        ends.inject()
        with pytest.raises(FragmentUnavailable):
            await requests.ledgers[0].end(MAIN)
        with pytest.raises(FragmentUnavailable):
            await requests.counts()
