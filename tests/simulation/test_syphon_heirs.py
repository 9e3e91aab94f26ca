"""What becomes of deferred messages when the syphon that deferred them ends, beside others that know of none."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from functools import partial

import pytest

from tandembus.pairing.syphon import Syphon
from tests.covers import covers
from tests.simulation.jumping_loop import JumpingLoop
from tests.simulation.simulated_backlog import SimulatedBacklog, SimulatedPrimary, Stored
from tests.simulation.syphon_stage import Stage

DAY_S = 24 * 3600.0
COUNT = 2000


@dataclass(eq=False)
class Overlooked(SimulatedBacklog):
    """Gets nothing as long as the service prefers others, who wait as well."""

    is_overlooked: bool = True

    def _available(self, max_count: int) -> list[Stored]:
        return [] if self.is_overlooked else super()._available(max_count)


class Heirs:
    """A syphon with 2,000 messages for a dead destination, and others that were there before and have seen none."""

    def __init__(self, loop: JumpingLoop, heirs: int = 1) -> None:
        self.stage = Stage(loop)
        self.stage.primary = SimulatedPrimary(random.Random(0), takes_s=(3.0,))
        self.stage.primary.troubled.add("orders")
        self.ports = [Overlooked(self.stage.queue) for _ in range(heirs)]
        self.first_port = SimulatedBacklog(self.stage.queue)
        self.syphons = [self.stage.syphon(port=port) for port in (self.first_port, *self.ports)]
        self.runs: dict[Syphon, asyncio.Task[bool]] = {}

    async def start(self) -> None:
        """Until all but the first message are deferred."""
        for syphon in self.syphons:
            self.runs[syphon] = asyncio.get_running_loop().create_task(syphon.run())
        await asyncio.sleep(1000.0)
        self.stage.put("orders", range(COUNT))
        await self.stage.until(lambda: self.stage.deferred_count() == COUNT - 1, within_s=60.0)
        await asyncio.sleep(1000.0)

    async def heal(self) -> None:
        """Until some are home, and far from all."""
        self.stage.primary.troubled.clear()
        await self.stage.until(lambda: self.stage.are_home("orders", 100), within_s=30.0)

    async def stop(self, heir: int) -> None:
        """In order, from the first on. Only the next one is not overlooked then."""
        for port in self.ports[heir : heir + 1]:
            port.is_overlooked = False
        syphon = self.syphons[heir]
        await syphon.stop()
        await self.runs[syphon]
        assert not self.stage.queue.mistakes

    def has_some(self, heir: int) -> bool:
        locks = [each.lock for each in self.stage.queue.messages.values() if each.lock is not None]
        return any(lock.holder is self.ports[heir - 1] for lock in locks)

    def kill(self) -> None:
        self.ports[0].is_overlooked = False
        self.runs[self.syphons[0]].cancel()
        self.first_port.die()


@covers("N11", "N12")
@pytest.mark.parametrize("is_on_its_way", [True, False])
def test_an_idle_syphon_inherits_from_one_that_is_stopped(loop: JumpingLoop, is_on_its_way: bool) -> None:
    """At once, nothing twice, in order; and then it is as idle as before."""

    async def play() -> None:
        heirs = Heirs(loop)
        await heirs.start()
        if is_on_its_way:
            await heirs.heal()
        await heirs.stop(0)
        assert heirs.stage.deferred_count() > 500
        heirs.stage.primary.troubled.clear()
        await heirs.stage.until(heirs.stage.is_empty, within_s=60.0)
        await asyncio.sleep(3600.0)
        heirs.ports[0].calls.clear()
        await asyncio.sleep(DAY_S)
        assert heirs.ports[0].calls == {"receive": 96}
        await heirs.stop(1)
        assert heirs.stage.primary.arrived == {"orders": list(range(COUNT))}

    loop.run_until_complete(play())


@covers("N11", "N12")
@pytest.mark.parametrize("is_on_its_way", [True, False])
def test_an_idle_syphon_inherits_from_one_that_is_killed(loop: JumpingLoop, is_on_its_way: bool) -> None:
    """As soon as its locks lapse. What was in hand may come twice."""

    async def play() -> None:
        heirs = Heirs(loop)
        await heirs.start()
        if is_on_its_way:
            await heirs.heal()
        heirs.kill()
        assert heirs.stage.deferred_count() > 500
        heirs.stage.primary.troubled.clear()
        await heirs.stage.until(heirs.stage.is_empty, within_s=180.0)
        await heirs.stop(1)
        arrived = heirs.stage.primary.arrived["orders"]
        assert set(arrived) == set(range(COUNT))
        assert len(arrived) - COUNT <= 251

    loop.run_until_complete(play())


@covers("N11", "N12")
@pytest.mark.parametrize("is_on_its_way", [True, False])
def test_syphons_that_are_stopped_one_after_the_other_leave_nothing_to_chance(
    loop: JumpingLoop, is_on_its_way: bool
) -> None:
    async def play() -> None:
        heirs = Heirs(loop, heirs=3)
        await heirs.start()
        if is_on_its_way:
            await heirs.heal()
        await heirs.stop(0)
        heirs.stage.primary.troubled.clear()
        for heir in (1, 2):
            await heirs.stage.until(partial(heirs.has_some, heir), within_s=60.0)
            await heirs.stop(heir)
        assert heirs.stage.deferred_count() > 100
        await heirs.stage.until(heirs.stage.is_empty, within_s=60.0)
        await heirs.stop(3)
        assert heirs.stage.primary.arrived == {"orders": list(range(COUNT))}

    loop.run_until_complete(play())


@covers("N11", "N12")
def test_what_a_syphon_gave_back_once_may_lead_when_it_inherits_it(loop: JumpingLoop) -> None:
    """It had the first message itself, while the primary was away, and nothing was behind it then."""

    async def play() -> None:
        stage = Stage(loop)
        ports = [Overlooked(stage.queue), Overlooked(stage.queue)]
        heir, other = [stage.syphon(port=port) for port in ports]
        runs = [asyncio.ensure_future(heir.run()), asyncio.ensure_future(other.run())]
        stage.primary.troubled.add("dead")
        stage.put("dead", range(2))
        ports[0].is_overlooked = False
        await asyncio.sleep(30.0)
        stage.primary.is_away = True
        stage.put("audit", range(1))
        stage.put("orders", range(300))
        await stage.until(lambda: ports[0].calls["release"] > 0, within_s=60.0)
        ports[0].is_overlooked, ports[1].is_overlooked = True, False
        stage.primary.is_away = False
        stage.primary.troubled.add("orders")
        await stage.until(lambda: stage.deferred_count() == 300, within_s=1000.0)
        ports[0].is_overlooked = False
        await other.stop()
        stage.primary.troubled.discard("orders")
        await stage.until(lambda: stage.are_home("orders", 300), within_s=30.0)
        await heir.stop()
        await asyncio.gather(*runs)
        assert stage.primary.arrived["orders"] == list(range(300))
        assert not stage.queue.mistakes

    loop.run_until_complete(play())


@covers("N11", "N12")
@pytest.mark.parametrize("is_away", [True, False], ids=["primary away", "destination dead"])
@pytest.mark.parametrize("back_after_s", [0.0, 1.0, 8.0])
def test_a_lead_whose_link_broke_is_sent_only_by_whoever_received_it_then(
    loop: JumpingLoop, is_away: bool, back_after_s: float
) -> None:
    """The secondary is restarted; long before any lock has to be renewed the destination takes messages again."""
    stage = Stage(loop)
    stage.primary.is_away = is_away
    stage.primary.troubled.add("orders")
    stage.put("orders", range(1))
    first, heir = SimulatedBacklog(stage.queue), SimulatedBacklog(stage.queue)

    async def while_both_run() -> None:
        await asyncio.sleep(3.0)
        first.cut()
        await stage.until(lambda: stage.queue.holder_of(1) is heir, within_s=1.0)
        await asyncio.sleep(back_after_s)
        stage.primary.is_away = False
        stage.primary.troubled.clear()
        await stage.until(stage.is_empty, within_s=60.0)
        await asyncio.sleep(60.0)

    async def play() -> None:
        await stage.until(lambda: stage.queue.holder_of(1) is first, within_s=5.0)
        await stage.during(while_both_run, port=heir)

    loop.run_until_complete(stage.during(play, port=first))
    assert stage.primary.arrived == {"orders": [0]}


@covers("N12")
@pytest.mark.parametrize("is_away", [True, False], ids=["primary away", "destination dead"])
def test_a_link_that_breaks_while_a_lead_waits_is_noticed_within_a_second(loop: JumpingLoop, is_away: bool) -> None:
    stage = Stage(loop)
    stage.primary.is_away = is_away
    stage.primary.troubled.add("orders")
    stage.put("orders", range(1))

    async def play() -> None:
        for _ in range(20):
            await stage.until(lambda: stage.queue.holder_of(1) is stage.port, within_s=5.0)
            await asyncio.sleep(0.37)
            stage.port.cut()
            await stage.until(lambda: not stage.port.is_cut, within_s=1.0)

    loop.run_until_complete(stage.during(play))
