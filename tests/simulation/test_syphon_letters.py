"""Messages that nobody will ever take: they become dead letters together, and hold up nobody for long."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tandembus.errors import EntityNotFound
from tandembus.pairing.syphon_messages import Delivery
from tests.covers import covers
from tests.simulation.jumping_loop import JumpingLoop
from tests.simulation.simulated_backlog import SimulatedBacklog, SimulatedPrimary, SimulatedQueue, Stored
from tests.simulation.syphon_stage import Stage

COUNT = 3000


@dataclass(eq=False)
class Burying(SimulatedBacklog):
    """Takes dead letters. `loses`: how many locks lapse just before the first of them."""

    loses: int = 0

    async def dead_letter(self, deliveries: Sequence[Delivery], reason: str, description: str) -> None:
        for each in deliveries[: self.loses]:
            each.origin.message.lapse()
        self.loses = 0
        await self._settle("dead_letter", deliveries, self._gone)


class WithoutOne(SimulatedPrimary):
    """There is no entity named `nosuch`."""

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        if path == "nosuch":
            raise EntityNotFound("no such entity")
        await super().send(path, payloads)


def burying(loop: JumpingLoop, loses: int = 0) -> tuple[Stage, Burying]:
    stage = Stage(loop)
    stage.primary = WithoutOne(random.Random(0))
    return stage, Burying(stage.queue, loses=loses)


@covers("N12")
def test_many_messages_for_an_unknown_path_hold_up_those_behind_them_for_a_moment_only(loop: JumpingLoop) -> None:
    stage, port = burying(loop)
    stage.put("nosuch", range(COUNT))
    stage.put("live", range(100))

    async def play() -> None:
        await stage.until(lambda: stage.are_home("live", 100), within_s=3.0)

    loop.run_until_complete(stage.during(play, port=port))
    assert stage.figures.dead_lettered_count == COUNT
    assert port.calls["dead_letter"] < COUNT / 100


@covers("N12")
def test_malformed_messages_become_dead_letters_together(loop: JumpingLoop) -> None:
    stage, port = burying(loop)
    put_malformed(stage.queue, 1000)

    async def play() -> None:
        await stage.until(stage.is_empty, within_s=3.0)

    loop.run_until_complete(stage.during(play, port=port))
    assert stage.figures.dead_lettered_count == 1000
    assert port.calls["dead_letter"] < 10


@covers("N12")
def test_dead_letters_whose_locks_were_lost_are_counted_when_they_are_buried(loop: JumpingLoop) -> None:
    stage, port = burying(loop, loses=3)
    stage.put("nosuch", range(10))

    async def play() -> None:
        await stage.until(stage.is_empty, within_s=10.0)

    loop.run_until_complete(stage.during(play, port=port))
    assert stage.figures.dead_lettered_count == 10
    assert stage.figures.lost_lock_count == 3


def put_malformed(queue: SimulatedQueue, count: int) -> None:
    for number in range(1, count + 1):
        queue.messages[number] = Stored(number, b"\x00\x53\x75\xa0\x01x")
