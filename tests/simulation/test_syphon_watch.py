"""What a syphon does beside others, and while it waits: it inherits what they leave behind, and waiting is cheap."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tandembus.pairing.syphon_messages import Delivery
from tandembus.pairing.syphon_rules import SyphonSettings
from tests.covers import covers
from tests.simulation.jumping_loop import JumpingLoop
from tests.simulation.simulated_backlog import LinkLost, SimulatedBacklog, SimulatedPrimary
from tests.simulation.syphon_stage import Stage

HOUR_S = 3600.0


class Pair:
    """Two syphons: one holds the lead of 3,000 messages for a dead destination, the other came later and is idle."""

    def __init__(self, loop: JumpingLoop, settings: SyphonSettings | None = None) -> None:
        self.stage = Stage(loop)
        self.stage.primary = SimulatedPrimary(random.Random(0), takes_s=(1.0,))
        self.stage.primary.troubled.add("orders")
        self.first = self.stage.syphon(settings)
        self.second_port = SimulatedBacklog(self.stage.queue)
        self.second = self.stage.syphon(port=self.second_port)
        self.runs: list[asyncio.Future[bool]] = []

    async def start(self) -> None:
        self.runs.append(asyncio.ensure_future(self.first.run()))
        await asyncio.sleep(5.0)
        self.stage.put("orders", range(3000))
        await self.stage.until(lambda: self.stage.deferred_count() == 2999, within_s=60.0)
        self.runs.append(asyncio.ensure_future(self.second.run()))

    async def stop(self) -> None:
        await self.second.stop()
        await self.runs[1]
        assert not self.stage.queue.mistakes


@covers("N11", "N12")
def test_a_syphon_that_runs_on_inherits_what_one_that_is_stopped_leaves_behind(loop: JumpingLoop) -> None:
    async def play() -> None:
        pair = Pair(loop)
        await pair.start()
        await asyncio.sleep(300.0)
        pair.stage.primary.troubled.clear()
        await asyncio.sleep(4.0)
        await pair.first.stop()
        await pair.runs[0]
        assert pair.stage.deferred_count() > 1000
        await pair.stage.until(pair.stage.is_empty, within_s=20 * 60.0)
        await asyncio.sleep(HOUR_S)
        pair.second_port.calls.clear()
        await asyncio.sleep(24 * HOUR_S)
        assert pair.second_port.calls == {"receive": 96}
        await pair.stop()
        assert pair.stage.primary.arrived == {"orders": list(range(3000))}

    loop.run_until_complete(play())


@covers("N11")
def test_looking_after_what_another_syphon_keeps_waiting_costs_little(loop: JumpingLoop) -> None:
    async def play() -> None:
        pair = Pair(loop, SyphonSettings(retry_interval_s=60.0))
        await pair.start()
        await asyncio.sleep(HOUR_S)
        pair.second_port.calls.clear()
        await asyncio.sleep(6 * HOUR_S)
        assert set(pair.second_port.calls) == {"receive", "browse"}
        assert pair.second_port.calls["receive"] <= 25
        assert pair.second_port.calls["browse"] <= 25 * (3000 / 250 + 1)
        pair.stage.primary.troubled.clear()
        await pair.first.stop()
        await pair.runs[0]
        await pair.stop()

    loop.run_until_complete(play())


@covers("N12")
def test_a_dead_destination_costs_hardly_more_receives_than_an_idle_queue(loop: JumpingLoop) -> None:
    """Its lead is tried every second all the same, and what comes for others is moved at once."""
    stage = Stage(loop)
    stage.primary.troubled.add("dead")
    stage.put("dead", range(10))

    async def play() -> None:
        await stage.until(lambda: stage.deferred_count() == 9, within_s=10.0)
        await asyncio.sleep(60.0)
        stage.port.calls.clear()
        await asyncio.sleep(HOUR_S)
        assert stage.port.calls["receive"] <= 8
        assert stage.port.calls["browse"] <= 8
        assert stage.figures.record()["retries"] in range(3400, 3800)
        stage.put("live", range(10))
        await stage.until(lambda: stage.are_home("live", 10), within_s=1.0)
        await asyncio.sleep(300.0)
        stage.primary.troubled.clear()
        await stage.until(stage.is_empty, within_s=5.0)

    loop.run_until_complete(stage.during(play))
    assert stage.primary.arrived == {"live": list(range(10)), "dead": list(range(10))}
    assert stage.figures.lost_lock_count == 0


class CutOff(SimulatedBacklog):
    """A renewal finds the link gone."""

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        if self.calls["renew"] == 5:
            self.calls["renew"] += 1
            self._lose_link(is_orderly=False)
            raise LinkLost("the connection broke")
        await super().renew(deliveries)


@covers("N12")
def test_a_poll_beside_a_dead_destination_ends_when_the_link_of_its_lead_is_gone(loop: JumpingLoop) -> None:
    stage = Stage(loop)
    stage.primary.troubled.add("dead")
    stage.put("dead", range(10))

    async def play() -> None:
        await stage.until(lambda: stage.port.calls["renew"] > 5, within_s=200.0)
        await asyncio.sleep(100.0)
        stage.primary.troubled.clear()
        await stage.until(stage.is_empty, within_s=10.0)

    loop.run_until_complete(stage.during(play, port=CutOff(stage.queue)))
    assert stage.primary.arrived == {"dead": list(range(10))}


@covers("N11")
def test_a_syphon_that_is_stopped_after_it_moved_everything_leaves_nothing_behind(loop: JumpingLoop) -> None:
    stage = Stage(loop)
    stage.put("orders", range(50))

    async def play() -> None:
        syphon = stage.syphon()
        running = asyncio.ensure_future(syphon.run())
        await stage.until(stage.is_empty, within_s=10.0)
        await syphon.stop()
        assert await running

    loop.run_until_complete(play())


@covers("N12")
def test_a_syphon_that_waits_for_what_another_held_says_so_once(
    loop: JumpingLoop, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(loop)
    stage.put("orders", range(5))

    async def play() -> None:
        killed = SimulatedBacklog(stage.queue)
        assert len(await killed.receive(5, 1.0)) == 5
        killed.die()
        assert await stage.syphon().run(once=True)

    with caplog.at_level(logging.INFO, "tandembus.syphon"):
        loop.run_until_complete(play())
    assert stage.primary.arrived == {"orders": list(range(5))}
    assert caplog.text.count("for messages in the hands of another syphon") == 1


@covers("N11", "N12")
def test_a_backlog_that_nobody_has_touched_is_not_read_through_before_it_is_moved(loop: JumpingLoop) -> None:
    stage = Stage(loop)
    stage.put("orders", range(5000))

    async def play() -> None:
        await stage.until(lambda: stage.are_home("orders", 1), within_s=10.0)
        assert stage.port.calls["browse"] <= 500 / 250
        await stage.until(stage.is_empty, within_s=60.0)

    loop.run_until_complete(stage.during(play))
    assert stage.primary.arrived == {"orders": list(range(5000))}


@covers("N12")
def test_deferred_messages_behind_what_others_have_in_hand_are_found_by_the_second_look(loop: JumpingLoop) -> None:
    stage = Stage(loop)
    stage.put("events", range(1500))
    stage.put("orders", range(10), is_deferred=True)

    async def play() -> None:
        other = SimulatedBacklog(stage.queue)
        taken = await other.receive(1500, 1.0)
        async with others_at_work(other, taken):
            await stage.during(lambda: stage.until(lambda: stage.are_home("orders", 10), within_s=120.0))

    loop.run_until_complete(play())
    assert stage.primary.arrived == {"orders": list(range(10))}


@asynccontextmanager
async def others_at_work(port: SimulatedBacklog, taken: Sequence[Delivery]) -> AsyncIterator[None]:
    """They keep the locks of what they have."""

    async def keep() -> None:
        while True:
            await port.renew(taken)
            await asyncio.sleep(20.0)

    keeping = asyncio.ensure_future(keep())
    yield
    keeping.cancel()
