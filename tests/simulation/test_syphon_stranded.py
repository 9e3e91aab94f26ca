"""Live messages come home while another destination stays dead, however they came to be behind the syphon's look."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from tandembus.pairing.syphon.settings import SyphonSettings
from tests.covers import covers
from tests.simulation.jumping_loop import JumpingLoop
from tests.simulation.simulated_backlog import SimulatedBacklog, SimulatedPrimary
from tests.simulation.syphon_stage import Stage

HOUR_S = 3600.0
BATCH = 5


class LeavingPrimary(SimulatedPrimary):
    """Goes out of reach after it accepted a batch, once it is told to."""

    is_to_leave = False

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        await super().send(path, payloads)
        if self.is_to_leave and len(payloads) == BATCH:
            self.is_to_leave, self.is_away = False, True


@covers("N12")
def test_what_a_killed_syphon_held_comes_home_while_a_destination_is_dead(loop: JumpingLoop) -> None:
    stage = Stage(loop)
    stage.primary.troubled.add("dead")

    async def play() -> None:
        stage.put("live", range(5))
        killed = SimulatedBacklog(stage.queue)
        assert len(await killed.receive(5, 1.0)) == 5
        stage.put("dead", range(1))
        killed.die()
        await stage.during(came)

    async def came() -> None:
        await stage.until(lambda: stage.are_home("live", 5), within_s=HOUR_S)

    loop.run_until_complete(play())


@covers("N12")
def test_deferred_messages_come_home_after_the_primary_was_away_while_another_destination_is_dead(
    loop: JumpingLoop,
) -> None:
    stage = Stage(loop)
    primary = LeavingPrimary(random.Random(1))
    stage.primary = primary
    primary.troubled.update(["a", "b", "c"])
    for body in range(300):
        for path in ("a", "b", "c"):
            stage.put(path, range(body, body + 1))
    stage.put("live", range(5))

    async def play() -> None:
        await asyncio.sleep(3 * HOUR_S)
        assert stage.deferred_count() == 3 * 299
        primary.takes_s = (1.0,)
        primary.troubled.difference_update(["a", "b"])
        await stage.until(lambda: stage.are_home("a", 100) and stage.are_home("b", 100), within_s=HOUR_S)
        primary.is_to_leave = True
        await asyncio.sleep(120.0)
        assert primary.is_away
        primary.is_away = False
        await stage.until(lambda: stage.are_home("a", 300) and stage.are_home("b", 300), within_s=6 * HOUR_S)

    loop.run_until_complete(stage.during(play, SyphonSettings(batch_size=BATCH)))


@covers("N12")
def test_a_destination_beyond_the_most_that_are_probed_gets_its_messages_when_it_is_back(
    loop: JumpingLoop,
) -> None:
    stage = Stage(loop)
    stage.primary.troubled.update(["a", "b", "c"])
    for body in range(5):
        for path in ("a", "b", "c"):
            stage.put(path, range(body, body + 1))
    stage.put("live", range(5))

    async def play() -> None:
        await asyncio.sleep(HOUR_S)
        assert stage.are_home("live", 5)
        stage.primary.troubled.remove("c")
        await stage.until(lambda: stage.are_home("c", 5), within_s=6 * HOUR_S)

    loop.run_until_complete(stage.during(play, SyphonSettings(max_dead_destinations=1)))
