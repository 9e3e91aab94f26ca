"""Where the syphon's engine is watched: a backlog queue, a primary, and syphons that come and go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from tandembus.pairing.runtime import Runtime
from tandembus.pairing.syphon import Syphon
from tandembus.pairing.syphon_observer import SyphonFigures
from tandembus.pairing.syphon_rules import SyphonSettings
from tests.simulation.jumping_loop import JumpingLoop, LoopClock
from tests.simulation.simulated_backlog import Costs, SimulatedBacklog, SimulatedPrimary, SimulatedQueue


class SkewedClock(LoopClock):
    """The clock of a machine, which may be ahead of the secondary's."""

    ahead_s = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_s


class Stage:
    """A backlog queue, a primary, and syphons that come and go."""

    def __init__(self, loop: JumpingLoop, lock_s: float = 60.0, costs: Costs | None = None) -> None:
        self.loop = loop
        self.clock = SkewedClock(loop)
        self.costs = costs or Costs()
        self.queue = SimulatedQueue(lock_s)
        self.primary = SimulatedPrimary(random.Random(0))
        self.figures = SyphonFigures(self.clock)
        self.port = SimulatedBacklog(self.queue, costs=self.costs)

    def put(self, path: str, bodies: range, is_deferred: bool = False, delivery_count: int = 0) -> None:
        for body in bodies:
            self.queue.put(path, body, is_deferred, delivery_count)

    def syphon(self, settings: SyphonSettings | None = None, port: SimulatedBacklog | None = None) -> Syphon:
        self.port = port or SimulatedBacklog(self.queue, costs=self.costs)
        return Syphon([self.port], self.primary, settings or SyphonSettings(), self.figures, Runtime(self.clock))

    async def during(
        self,
        play: Callable[[], Awaitable[None]],
        settings: SyphonSettings | None = None,
        port: SimulatedBacklog | None = None,
    ) -> None:
        """With a syphon at work, that is stopped in order at the end."""
        syphon = self.syphon(settings, port)
        running = asyncio.ensure_future(syphon.run())
        try:
            await play()
        finally:
            await syphon.stop()
            await running
        assert not self.queue.mistakes

    async def until(self, condition: Callable[[], bool], within_s: float) -> None:
        ends_at = self.loop.time() + within_s
        while not condition():
            assert self.loop.time() < ends_at, "it did not come true"
            await asyncio.sleep(0.1)

    def are_home(self, path: str, count: int) -> bool:
        return len(self.primary.arrived.get(path, [])) >= count

    def is_empty(self) -> bool:
        return not self.queue.messages

    def deferred_count(self) -> int:
        return sum([each.is_deferred for each in self.queue.messages.values()])
