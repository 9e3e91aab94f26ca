"""The syphon's engine where calls take their time and locks lapse: what is sent is held, nobody waits for a search,
nothing is left lying, and being idle costs nothing but its polls."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from tandembus.pairing.runtime import Runtime
from tandembus.pairing.syphon import Syphon
from tandembus.pairing.syphon_messages import Delivery
from tandembus.pairing.syphon_observer import SyphonFigures
from tandembus.pairing.syphon_rules import SyphonSettings
from tests.covers import covers
from tests.simulation.jumping_loop import JumpingLoop
from tests.simulation.simulated_backlog import Costs, LinkLost, SimulatedBacklog, SimulatedPrimary
from tests.simulation.syphon_stage import Stage

DAY_S = 24 * 3600.0


@covers("N12")
def test_a_search_that_takes_longer_than_a_lock_holds_up_nobody_and_doubles_nothing(loop: JumpingLoop) -> None:
    """A syphon was killed: its lead comes back, with 2,000 deferred messages behind it, on a queue slow to browse."""
    stage = Stage(loop, costs=Costs(browse_s=9.0))
    stage.put("orders", range(1), delivery_count=1)
    stage.put("orders", range(1, 2000), is_deferred=True, delivery_count=1)
    stage.put("live", range(100))

    async def play() -> None:
        await stage.until(lambda: stage.are_home("live", 100), within_s=30.0)
        await stage.until(stage.is_empty, within_s=600.0)

    loop.run_until_complete(stage.during(play))
    assert stage.primary.arrived == {"orders": list(range(2000)), "live": list(range(100))}
    assert stage.figures.lost_lock_count == 0


@covers("N12")
def test_many_destinations_that_come_back_together_keep_their_leads(loop: JumpingLoop) -> None:
    stage = Stage(loop, costs=Costs(browse_s=0.05))
    paths = [f"queue{number}" for number in range(200)]
    for step in range(20):
        for path in paths:
            stage.put(path, range(step, step + 1))
    stage.primary.troubled.update(paths)

    async def play() -> None:
        await stage.until(lambda: stage.deferred_count() == 19 * 200, within_s=600.0)
        await asyncio.sleep(300.0)
        stage.primary.troubled.clear()
        await stage.until(stage.is_empty, within_s=300.0)

    loop.run_until_complete(stage.during(play))
    assert stage.primary.arrived == {path: list(range(20)) for path in paths}
    assert stage.figures.lost_lock_count == 0
    assert stage.port.calls["browse"] <= 2 * 4000 / 250  # At the start and at the end, not for each of them.


@covers("N12")
def test_destinations_that_come_back_do_not_read_through_the_messages_of_one_that_does_not(loop: JumpingLoop) -> None:
    """They led lanes of a syphon that was killed, so each has to look for followers: once for all of them."""
    stage = Stage(loop, costs=Costs(browse_s=0.05))
    paths = [f"queue{number}" for number in range(50)]
    for path in ("dead", *paths):
        stage.put(path, range(1), delivery_count=1)
    stage.put("dead", range(1, 5000), is_deferred=True, delivery_count=1)
    stage.primary.troubled.add("dead")

    async def play() -> None:
        await stage.until(lambda: len(stage.queue.messages) == 5000, within_s=120.0)

    loop.run_until_complete(stage.during(play))
    assert stage.primary.arrived == {path: [0] for path in paths}
    assert stage.port.calls["browse"] <= 4 * 5000 / 250


@covers("N12")
@pytest.mark.parametrize("lock_s", [5.0, 10.0])
def test_locks_shorter_than_a_send_may_take_are_kept(loop: JumpingLoop, lock_s: float) -> None:
    stage = Stage(loop, lock_s)
    stage.primary = SimulatedPrimary(random.Random(0), takes_s=(14.0,))
    stage.put("orders", range(1000))

    async def play() -> None:
        await stage.until(stage.is_empty, within_s=3600.0)

    loop.run_until_complete(stage.during(play))
    assert stage.primary.arrived == {"orders": list(range(1000))}
    assert stage.figures.lost_lock_count == 0


@covers("N12")
def test_a_lock_that_is_lost_costs_one_message(loop: JumpingLoop) -> None:
    stage = Stage(loop)
    stage.primary = SimulatedPrimary(random.Random(0), takes_s=(5.0,))
    stage.put("orders", range(10))

    async def play() -> None:
        await asyncio.sleep(1.0)
        stage.queue.messages[5].lapse()
        await stage.until(stage.is_empty, within_s=120.0)

    loop.run_until_complete(stage.during(play))
    assert stage.primary.arrived == {"orders": [*range(10), 4]}
    assert stage.figures.lost_lock_count == 1


@covers("N12")
@pytest.mark.parametrize("is_home", [True, False])
def test_a_lead_whose_lock_is_lost_costs_no_order(loop: JumpingLoop, is_home: bool) -> None:
    """Not even a second copy, if we know that it was home."""
    stage = Stage(loop)
    stage.primary.troubled.add("orders")
    stage.put("orders", range(50))

    async def play() -> None:
        await stage.until(lambda: stage.deferred_count() == 49, within_s=10.0)
        stage.primary.troubled.clear()
        if is_home:
            await stage.until(lambda: stage.are_home("orders", 1), within_s=10.0)
        stage.queue.messages[1].lapse()
        stage.put("orders", range(50, 60))
        await stage.until(stage.is_empty, within_s=200.0)

    loop.run_until_complete(stage.during(play))
    assert stage.primary.arrived == {"orders": list(range(60))}


@covers("N12")
def test_a_lead_that_somebody_else_brought_home_is_not_waited_for(loop: JumpingLoop) -> None:
    """Its lock lapsed while we were cut off, and another syphon got it."""
    stage = Stage(loop)
    stage.primary.troubled.add("orders")
    stage.put("orders", range(50))

    async def play() -> None:
        await stage.until(lambda: stage.deferred_count() == 49, within_s=10.0)
        del stage.queue.messages[1]
        await asyncio.sleep(30.0)
        stage.put("orders", range(50, 60))
        stage.primary.troubled.clear()
        await stage.until(stage.is_empty, within_s=15.0)

    loop.run_until_complete(stage.during(play))
    assert stage.primary.arrived == {"orders": list(range(1, 60))}


@covers("N11", "N12")
def test_deferred_messages_without_a_lead_are_found_by_a_syphon_that_starts(loop: JumpingLoop) -> None:
    stage = Stage(loop)
    stage.put("orders", range(30), is_deferred=True)

    async def play() -> None:
        await stage.until(stage.is_empty, within_s=60.0)

    loop.run_until_complete(stage.during(play))
    assert stage.primary.arrived == {"orders": list(range(30))}


@covers("N12")
def test_deferred_messages_whose_lead_is_removed_come_home_while_the_syphon_runs(loop: JumpingLoop) -> None:
    """Although another destination stays dead."""
    stage = Stage(loop)
    stage.primary.troubled.update(("orders", "dead"))
    stage.put("dead", range(10))
    stage.put("orders", range(30))

    async def play() -> None:
        await stage.until(lambda: stage.deferred_count() == 38, within_s=10.0)
        del stage.queue.messages[11]
        await asyncio.sleep(60.0)
        stage.primary.troubled.remove("orders")
        await stage.until(lambda: stage.are_home("orders", 29), within_s=1800.0)

    loop.run_until_complete(stage.during(play))
    assert stage.primary.arrived == {"orders": list(range(1, 30))}


@covers("N11")
def test_an_idle_syphon_polls_four_times_an_hour_for_a_month_and_looks_once(loop: JumpingLoop) -> None:
    stage = Stage(loop, costs=Costs(receive_s=0.0, browse_s=0.0))
    counts: list[int] = []

    async def play() -> None:
        for end_s in (3600.0, DAY_S, 30 * DAY_S):
            await asyncio.sleep(end_s - loop.time() - 1.0)
            counts.append(stage.port.calls["receive"])
            await asyncio.sleep(1.0)

    loop.run_until_complete(stage.during(play))
    assert counts == [4, 96, 2880]
    assert stage.port.calls["browse"] == 1
    assert set(stage.port.calls) == {"receive", "browse"}


class Broken(SimulatedBacklog):
    """Raises what no port should raise, once."""

    async def receive(self, max_count: int, wait_s: float) -> Sequence[Delivery]:
        if not self.calls["receive"]:
            self.calls["receive"] += 1
            raise AttributeError("'NoneType' object has no attribute 'settle_messages'")
        return await super().receive(max_count, wait_s)


@covers("N12")
def test_a_failure_that_nobody_expected_is_told_and_ends_nothing(
    loop: JumpingLoop, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(loop)
    stage.put("orders", range(10))

    async def play() -> None:
        port, runtime = Broken(stage.queue), Runtime(stage.clock)
        syphon = Syphon([port], stage.primary, SyphonSettings(), stage.figures, runtime)
        running = asyncio.ensure_future(syphon.run())
        await stage.until(stage.is_empty, within_s=10.0)
        await syphon.stop()
        await running

    loop.run_until_complete(play())
    assert "settle_messages" in caplog.text
    assert "Traceback" in caplog.text


@covers("N12")
def test_more_dead_destinations_than_leads_can_be_held_stop_neither_others_nor_the_end(loop: JumpingLoop) -> None:
    stage = Stage(loop)
    settings = SyphonSettings(max_dead_destinations=3)
    paths = [f"dead{number}" for number in range(8)]
    stage.primary.troubled.update(paths)
    for path in paths:
        stage.put(path, range(5))
    stage.put("live", range(100))

    async def play() -> None:
        assert not await asyncio.wait_for(stage.syphon(settings).run(once=True), 300.0)
        assert stage.primary.arrived == {"live": list(range(100))}
        stage.primary.troubled.clear()
        assert await asyncio.wait_for(stage.syphon(settings).run(once=True), 300.0)

    loop.run_until_complete(play())
    assert {path: sorted(stage.primary.arrived[path]) for path in paths} == {path: list(range(5)) for path in paths}
    assert stage.is_empty()


@covers("N12", "N14")
def test_a_syphon_that_is_stopped_while_a_lane_moves_doubles_nothing(loop: JumpingLoop) -> None:
    stage = Stage(loop)
    stage.primary.troubled.add("orders")
    stage.put("orders", range(100))

    async def play() -> None:
        await stage.until(lambda: stage.deferred_count() == 99, within_s=10.0)
        stage.primary.troubled.clear()
        await stage.until(lambda: stage.are_home("orders", 1), within_s=10.0)
        stage.primary.troubled.add("orders")

    loop.run_until_complete(stage.during(play))
    stage.primary.troubled.clear()
    assert not stage.is_empty()
    loop.run_until_complete(stage.during(lambda: stage.until(stage.is_empty, within_s=60.0)))
    assert stage.primary.arrived == {"orders": list(range(100))}


@covers("N12")
def test_paths_that_differ_in_case_are_one_destination(loop: JumpingLoop) -> None:
    stage = Stage(loop)
    stage.primary.troubled.add("Orders")
    for body in range(40):
        stage.put("Orders" if body % 2 == 0 else "orders", range(body, body + 1))

    async def play() -> None:
        await stage.until(lambda: stage.deferred_count() == 39, within_s=10.0)
        stage.primary.troubled.clear()
        await stage.until(stage.is_empty, within_s=60.0)

    loop.run_until_complete(stage.during(play))
    assert stage.primary.arrived == {"Orders": list(range(40))}


class LateAnswers(SimulatedBacklog):
    """The first renewal gets no answer, and fails long after the link it was made on."""

    is_hanging = False
    is_broken = False

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        if self.is_hanging:
            await super().renew(deliveries)
            return
        self.is_hanging = True
        await asyncio.sleep(45.0)
        raise LinkLost("no answer to a renewal")

    async def receive(self, max_count: int, wait_s: float) -> Sequence[Delivery]:
        if self.is_hanging and not self.is_broken:
            self.is_broken = True
            self._lose_link(is_orderly=True)
            raise LinkLost("detached")
        return await super().receive(max_count, min(wait_s, 1.0))


@covers("N12")
def test_a_renewal_that_fails_late_costs_nothing_of_what_came_on_the_next_link(loop: JumpingLoop) -> None:
    """Nor does it keep the locks there from being renewed."""
    stage = Stage(loop)
    stage.primary = SimulatedPrimary(random.Random(0), takes_s=(3.0,))
    stage.primary.troubled.add("dead")
    stage.put("dead", range(1))
    stage.queue.lock_s = 30.0

    async def play() -> None:
        for body in range(2000):
            stage.put("live", range(body, body + 1))
            await asyncio.sleep(0.05)
        await stage.until(lambda: len(stage.queue.messages) == 1, within_s=300.0)

    loop.run_until_complete(stage.during(play, port=LateAnswers(stage.queue)))
    assert stage.primary.arrived == {"live": list(range(2000))}
    assert stage.figures.lost_lock_count == 0


@covers("N12")
@pytest.mark.parametrize("ahead_s", [-600.0, -5.0, 15.0, 29.0, 600.0])
def test_clocks_that_differ_cost_neither_locks_nor_a_storm_of_renewals(loop: JumpingLoop, ahead_s: float) -> None:
    stage = Stage(loop, lock_s=30.0)
    stage.clock.ahead_s = ahead_s
    stage.primary.troubled.add("dead")

    async def play() -> None:
        await asyncio.sleep(1000.0)
        stage.put("dead", range(1))
        await asyncio.sleep(3600.0)

    loop.run_until_complete(stage.during(play))
    assert stage.figures.lost_lock_count == 0
    assert len(stage.queue.messages) == 1
    assert stage.port.calls["renew"] <= 3600 * 3 / 5


class Faulty(SyphonFigures):
    """Fails at the second thing it is told of a destination."""

    def retried(self, queue: str, path: str, error: BaseException) -> None:
        raise RuntimeError("nobody expected that")


@covers("N12")
def test_a_try_that_fails_beyond_expectation_is_not_the_last_one(loop: JumpingLoop) -> None:
    stage = Stage(loop)
    stage.figures = Faulty(stage.clock)
    stage.primary.troubled.add("orders")
    stage.put("orders", range(3))

    async def play() -> None:
        await asyncio.sleep(10.0)
        stage.primary.troubled.clear()
        await stage.until(stage.is_empty, within_s=30.0)

    loop.run_until_complete(stage.during(play))
    assert stage.primary.arrived == {"orders": list(range(3))}


@covers("N12")
def test_a_lead_that_another_syphon_had_for_long_is_sent_when_it_comes_back(loop: JumpingLoop) -> None:
    """By then we do not wait for it any more, and those behind it are tried."""
    stage = Stage(loop)
    stage.primary.troubled.add("orders")
    stage.put("orders", range(50))
    other = SimulatedBacklog(stage.queue)

    async def play() -> None:
        await stage.until(lambda: stage.deferred_count() == 49, within_s=10.0)
        stage.queue.messages[1].lapse()
        taken = await other.receive(1, 1.0)
        for _ in range(20):
            await other.renew(taken)
            await asyncio.sleep(20.0)
        await other.release(taken)
        await asyncio.sleep(20.0)
        stage.primary.troubled.clear()
        await stage.until(stage.is_empty, within_s=60.0)

    loop.run_until_complete(stage.during(play))
    assert stage.primary.arrived == {"orders": list(range(50))}
