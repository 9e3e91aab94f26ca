"""What a syphon does beside others, and while it waits: it inherits what they leave behind, and waiting is cheap."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tandembus.pairing.syphon.ports import Delivery
from tandembus.pairing.syphon.settings import SyphonSettings
from tests.covers import covers
from tests.simulation.jumping_loop import JumpingLoop
from tests.simulation.simulated_backlog import LinkLost, SimulatedBacklog, SimulatedPrimary
from tests.simulation.syphon_stage import Stage

HOUR_S = 3600.0


@covers("N12", "N13")
def test_messages_for_a_dead_destination_cost_nothing_while_they_wait(loop: JumpingLoop) -> None:
    """They are neither received nor deferred. The probe is sent less and less often, and its lock renewed."""
    stage = Stage(loop)
    stage.primary.troubled.add("dead")
    stage.put("dead", range(1000))

    async def play() -> None:
        await asyncio.sleep(HOUR_S)
        assert stage.port.calls["receive"] == 1
        assert stage.deferred_count() == 0
        assert stage.figures.record()["retries"] in range(60, 70)
        assert stage.port.calls["browse"] <= 70 + 2 * 1000 / 250
        assert stage.port.calls["renew"] <= 181
        stage.put("live", range(10))
        await stage.until(lambda: stage.are_home("live", 10), within_s=61.0)
        assert stage.deferred_count() == 999, "they stood before live ones"
        stage.primary.troubled.clear()
        await stage.until(stage.is_empty, within_s=62.0)

    loop.run_until_complete(stage.during(play))
    assert {path: sorted(found) for path, found in stage.primary.arrived.items()} == {
        "live": list(range(10)),
        "dead": list(range(1000)),
    }
    assert stage.figures.lost_lock_count == 0


@covers("N12")
@pytest.mark.parametrize("retry_interval_s", [1.0, 90.0])
def test_the_retry_interval_doubles_up_to_a_minute_unless_it_is_longer(
    loop: JumpingLoop, retry_interval_s: float
) -> None:
    stage = Stage(loop)
    stage.primary = primary = Timed(random.Random(0), takes_s=(0.0,))
    primary.troubled.add("dead")
    stage.put("dead", range(5))
    settings = SyphonSettings(retry_interval_s=retry_interval_s)
    loop.run_until_complete(stage.during(lambda: asyncio.sleep(300.0), settings))
    waits = [round(after - before) for before, after in itertools.pairwise(primary.times)]
    assert waits == ([1, 2, 4, 8, 16, 32, 60, 60, 60] if retry_interval_s == 1.0 else [90, 90, 90])


class Timed(SimulatedPrimary):
    """Notes when something is sent to it."""

    def __init__(self, dice: random.Random, takes_s: Sequence[float]) -> None:
        super().__init__(dice, takes_s=takes_s)
        self.times: list[float] = []

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        self.times.append(asyncio.get_running_loop().time())
        await super().send(path, payloads)


@covers("N12", "N13")
def test_messages_come_home_at_four_calls_for_all_of_them_when_their_destination_is_back(loop: JumpingLoop) -> None:
    """None is received twice, however many waited."""
    stage = Stage(loop)
    stage.primary.troubled.add("dead")
    received: list[int] = []

    class Counting(SimulatedBacklog):
        async def receive(self, max_count: int, wait_s: float) -> Sequence[Delivery]:
            found = await super().receive(max_count, wait_s)
            received.append(len(found))
            return found

    async def play() -> None:
        await asyncio.sleep(5.0)
        stage.put("dead", range(1000))
        await asyncio.sleep(100.0)
        stage.primary.troubled.clear()
        await stage.until(stage.is_empty, within_s=62.0)

    loop.run_until_complete(stage.during(play, port=Counting(stage.queue)))
    assert sum(received) == 1000
    assert stage.port.calls["defer"] == stage.port.calls["receive_deferred"] == 0


@covers("N11", "N12")
def test_a_second_syphon_waits_beside_the_first_and_both_bring_everything_home_once(loop: JumpingLoop) -> None:
    stage = Stage(loop)
    stage.primary = SimulatedPrimary(random.Random(0), takes_s=(1.0,))
    stage.put_dead("orders", 3000)
    first, other = SimulatedBacklog(stage.queue), SimulatedBacklog(stage.queue)

    async def while_both_run() -> None:
        await asyncio.sleep(HOUR_S)
        other.calls.clear()
        await asyncio.sleep(6 * HOUR_S)
        assert other.calls["receive"] <= 6 * 4
        assert other.calls["browse"] <= 6 * 61 + 25 * 3000 / 250
        stage.primary.troubled.clear()
        await stage.until(stage.is_empty, within_s=600.0)

    async def play() -> None:
        await stage.until(lambda: stage.deferred_count() == 2999, within_s=60.0)
        await stage.during(while_both_run, port=other)

    loop.run_until_complete(stage.during(play, port=first))
    assert sorted(stage.primary.arrived["orders"]) == list(range(3000))


class CutOff(SimulatedBacklog):
    """A renewal finds the link gone."""

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        if self.calls["renew"] == 5:
            self.calls["renew"] += 1
            self._lose_link(is_orderly=False)
            raise LinkLost("the connection broke")
        await super().renew(deliveries)


@covers("N12")
def test_a_syphon_that_waits_starts_again_when_the_link_of_its_lead_is_gone(loop: JumpingLoop) -> None:
    stage = Stage(loop)
    stage.primary.troubled.add("dead")
    stage.put("dead", range(10))

    async def play() -> None:
        await stage.until(lambda: stage.port.calls["renew"] > 5, within_s=200.0)
        await asyncio.sleep(100.0)
        stage.primary.troubled.clear()
        await stage.until(stage.is_empty, within_s=62.0)

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
