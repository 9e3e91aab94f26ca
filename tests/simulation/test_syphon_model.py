"""The syphon's engine against dice: nothing is lost, the order of a destination is kept, memory is bounded by rules.

Time stands still unless everything waits; then it jumps to the next moment that somebody waits for.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from tandembus.pairing.runtime import Runtime
from tandembus.pairing.syphon_messages import Delivery
from tandembus.pairing.syphon_observer import SyphonFigures
from tandembus.pairing.syphon_queue import QueueSyphon
from tandembus.pairing.syphon_rules import SyphonSettings
from tests.covers import covers
from tests.simulation.jumping_loop import JumpingLoop, LoopClock
from tests.simulation.simulated_backlog import (
    LOCK_S,
    Costs,
    LinkLost,
    SimulatedBacklog,
    SimulatedPrimary,
    SimulatedQueue,
)

PATHS = ("orders", "events", "audit")
SETTINGS = SyphonSettings(poll_s=60.0, window=16, batch_size=5, quiet_s=0.5)
COSTS = Costs(page=7)


class World:
    """One run: senders, an unreliable primary and secondary, and a syphon that is killed now and then."""

    def __init__(
        self, loop: JumpingLoop, seed: int, failure_rate: float, syphons: int, do_locks_outlive_links: bool = False
    ) -> None:
        self.dice = random.Random(seed)
        self.clock = LoopClock(loop)
        self.queue = SimulatedQueue()
        self.primary = SimulatedPrimary(self.dice, failure_rate, (0.0, 0.01, 0.3))
        self.do_locks_outlive_links = do_locks_outlive_links
        self.failure_rate = failure_rate
        self.sent: dict[str, list[int]] = {path: [] for path in PATHS}
        self._count = 0
        self._syphon_count = syphons
        self._running: list[tuple[SimulatedBacklog, QueueSyphon, asyncio.Task[bool]]] = []

    async def live(self, is_killed: bool = True) -> None:
        happenings = [self._send, self._send, self._trouble, self._trouble, self._heal, self._leave]
        for _ in range(40):
            self.dice.choice([*happenings, self._kill] if is_killed else happenings)()
            self._start()
            await asyncio.sleep(self.dice.choice((0.0, 0.2, 3.0)))
        self.primary.troubled.clear()
        self.primary.is_away = False
        self.primary.unknown_rate = 0.0
        self.failure_rate = 0.0
        while self._running:
            if is_killed:
                self._kill()
            else:
                await self._stop()
        await asyncio.sleep(LOCK_S)
        assert await self._syphon(0.0)[1].run(once=True)
        assert not self.queue.mistakes

    async def leave_one(self) -> None:
        """All but one syphon are stopped, wherever they are, as soon as the primary is well. It is slow, so that not
        everything comes home before their end."""
        self.primary.takes_s = (1.0,)
        self._send()
        self._trouble()
        for _ in range(10):
            self._start()
            self.dice.choice([self._send, self._trouble])()
            await asyncio.sleep(self.dice.choice((0.2, 3.0)))
        await asyncio.sleep(LOCK_S)
        self._heal()
        await asyncio.sleep(self.dice.choice((0.5, 1.0, 1.5)))
        while len(self._running) > 1:
            await self._stop()
        await asyncio.sleep(3600.0)
        assert not self.queue.messages
        await self._stop()
        assert not self.queue.mistakes

    def _send(self) -> None:
        for _ in range(self.dice.randrange(1, 40)):
            path = self.dice.choice(PATHS)
            self._count += 1
            self.sent[path].append(self._count)
            self.queue.put(path, self._count)

    def _trouble(self) -> None:
        self.primary.troubled.add(self.dice.choice(PATHS))

    def _heal(self) -> None:
        self.primary.troubled.clear()
        self.primary.is_away = False

    def _leave(self) -> None:
        self.primary.is_away = True

    def _start(self) -> None:
        if len(self._running) < self._syphon_count:
            port, syphon = self._syphon(self.failure_rate)
            self._running.append((port, syphon, asyncio.ensure_future(syphon.run())))

    def _syphon(self, failure_rate: float) -> tuple[SimulatedBacklog, QueueSyphon]:
        port = SimulatedBacklog(self.queue, self.dice, failure_rate, COSTS, self.do_locks_outlive_links)
        figures = SyphonFigures(self.clock)
        return port, QueueSyphon(port, self.primary, SETTINGS, figures, Runtime(self.clock))

    async def _stop(self) -> None:
        """In order."""
        _, syphon, task = self._running.pop(0)
        await syphon.stop()
        await task

    def _kill(self) -> None:
        """As `kill -9` does: its locks lapse some time later."""
        if self._running:
            port, _, task = self._running.pop(0)
            task.cancel()
            port.die()


@covers("N12")
@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_whatever_breaks(loop: JumpingLoop, seed: int) -> None:
    world = World(loop, seed, failure_rate=0.05, syphons=1 + seed % 3, do_locks_outlive_links=seed % 2 == 0)
    loop.run_until_complete(world.live())
    for path in PATHS:
        assert set(world.primary.arrived.get(path, [])) == set(world.sent[path])
    assert not world.queue.messages


@covers("N12")
@pytest.mark.parametrize("seed", range(100, 120))
def test_one_syphon_keeps_the_order_of_a_destination(loop: JumpingLoop, seed: int) -> None:
    """And nothing comes twice."""
    world = World(loop, seed, failure_rate=0.0, syphons=1)
    loop.run_until_complete(world.live(is_killed=False))
    for path in PATHS:
        assert world.primary.arrived.get(path, []) == world.sent[path]


@covers("N12")
@pytest.mark.parametrize("seed", range(200, 220))
def test_one_syphon_keeps_the_order_also_when_its_connections_break(loop: JumpingLoop, seed: int) -> None:
    world = World(loop, seed, failure_rate=0.04, syphons=1)
    loop.run_until_complete(world.live(is_killed=False))
    for path in PATHS:
        assert list(dict.fromkeys(world.primary.arrived.get(path, []))) == world.sent[path]


@covers("N11", "N12")
@pytest.mark.parametrize("seed", range(300, 320))
def test_the_last_syphon_inherits_what_the_others_leave_behind(loop: JumpingLoop, seed: int) -> None:
    world = World(loop, seed, failure_rate=0.0, syphons=2 + seed % 2)
    loop.run_until_complete(world.leave_one())
    for path in PATHS:
        assert sorted(world.primary.arrived.get(path, [])) == world.sent[path]


class PollingBacklog(SimulatedBacklog):
    """Notes how long it is asked to wait, and is cut off once in the middle of that."""

    def __init__(self, queue: SimulatedQueue, cut_off_after_s: float) -> None:
        super().__init__(queue)
        self.waits: list[float] = []
        self._cut_off_after_s: float | None = cut_off_after_s

    async def receive(self, max_count: int, wait_s: float) -> Sequence[Delivery]:
        self.waits.append(round(wait_s))
        if self._cut_off_after_s is not None:
            await asyncio.sleep(self._cut_off_after_s)
            self._cut_off_after_s = None
            raise LinkLost("the service detached the link")
        await asyncio.sleep(wait_s)
        return []


@covers("N11")
def test_a_poll_whose_link_is_detached_goes_on_for_the_rest_of_its_time(loop: JumpingLoop) -> None:
    async def poll() -> list[float]:
        clock = LoopClock(loop)
        backlog = PollingBacklog(SimulatedQueue(), cut_off_after_s=600.0)
        primary = SimulatedPrimary(random.Random(0))
        syphon = QueueSyphon(backlog, primary, SyphonSettings(), SyphonFigures(clock), Runtime(clock))
        running = asyncio.ensure_future(syphon.run())
        await asyncio.sleep(45 * 60 - 1)
        running.cancel()
        return backlog.waits

    # One second passes before the link is attached again.
    assert loop.run_until_complete(poll()) == [900, 299, 900, 900]
