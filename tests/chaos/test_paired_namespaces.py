"""F8: of a pair under load the primary, the secondary, both, or the syphon is taken away, and nothing is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tandembus.client.entities import QueueSettings
from tests.chaos.history import History
from tests.chaos.inventory import take_inventory
from tests.chaos.load import Load
from tests.chaos.paired_load import PairedLoad
from tests.chaos.paired_stage import PairedStage
from tests.chaos.pairing_figures import PairingFigures
from tests.chaos.pairs import BACKLOG_QUEUES, FAILOVER_INTERVAL_S, paired
from tests.chaos.recorder import Recorder
from tests.chaos.syphon_processes import IN_PROCESS, PROGRAM
from tests.chaos.targets import Target
from tests.covers import covers
from tests.scale import scaled

KINDS = ("primary killed", "primary stopped", "syphon killed", "secondary killed", "both killed")
LONGEST_S = float(scaled(280, 600, 1800))
"""For one history: a test that hangs must not take all others with it. On a machine that is busy with much else, every
process takes its time to start, and here are many."""
CLOCKS_DIFFER_S = 0.1
SENDERS_EACH = scaled(1, 2, 2)
PAUSE_S = 0.06
RECONNECT_S = 0.3
"""Receivers wait longer than that for a primary that is away."""
LOCK_S = 5.0
SYPHON_KILLS = scaled(1, 2, 2)


def target(
    name: str, keys: int = 0, sessions: int = 0, batch: int = 1, subscriptions: int = 0, **chosen: bool | float
) -> Target:
    settings = QueueSettings(lock_duration_s=LOCK_S, **chosen)  # type: ignore[arg-type]
    return Target(name, settings, keys, sessions, batch, subscriptions, is_paired=True)


TARGETS = (
    target("conventional"),
    target("keyed", keys=100, partitioning=True),
    target("lists", batch=10, partitioning=True),
    target("sessions", sessions=4, requires_session=True),
    target("unique", batch=5, requires_duplicate_detection=True, duplicate_detection_window_s=7 * 86400.0),
    target("topic", subscriptions=2),
)
DISABLED = TARGETS[2]
"""Most messages of the load go to it, so that many are put aside while it takes none."""


@pytest.mark.chaos
@pytest.mark.timeout(scaled(300, 0, 0))  # 0: as long as its many histories take
@covers("F8", "N5", "N6", "N7", "N8", "N10", "N11", "N12")
async def test_a_pair_loses_nothing_whatever_of_it_is_taken_away(tmp_path: Path, tell: Callable[[str], None]) -> None:
    cycles, done = scaled(5, 100, 300), 0
    while done < cycles:
        folder = tmp_path / f"after-{done}"
        folder.mkdir()
        chance = random.Random(800 + done)
        kinds = chance.sample(KINDS, len(KINDS))
        tell(await asyncio.wait_for(_run(folder, 800 + done, kinds), LONGEST_S))
        done += len(kinds)


async def _run(folder: Path, seed: int, kinds: list[str]) -> str:
    with Recorder(folder / "history.jsonl", seed, ", ".join(kinds)) as recorder:
        async with PairedStage(folder, recorder) as stage:
            async with Load(stage.primary.connection_string, recorder, (), TARGETS, RECONNECT_S) as receivers:
                await receivers.prepare()
                receivers.start()
                async with paired(stage.ends) as client, PairedLoad(client, recorder, TARGETS) as load:
                    await load.start(SENDERS_EACH, PAUSE_S)
                    await stage.start_syphons(PROGRAM, PROGRAM)
                    cycles = Cycles(stage, load, random.Random(seed))
                    for kind in kinds:
                        await load.until_accepted(cycles.chance.randint(50, 150))
                        await cycles.run(kind)
                    await load.until_accepted(100)
                    await load.stop()
                await stage.until_depth(lambda depth: depth == 0)
                await receivers.stop()
            await stage.stop_syphons()
            assert any(f"{DISABLED.name} does not take messages" in line for line in stage.syphon_log), stage.syphon_log
            assert [one.dead_letter for one in await stage.backlog()] == [0] * BACKLOG_QUEUES
            left = await take_inventory(stage.primary.connection_string, recorder, TARGETS)
            history = await asyncio.to_thread(recorder.judged)
    pings, dropped = load.told["PingSent"], load.told["BacklogQueueDropped"]
    return (
        f"seed {seed}: {', '.join(kinds)}\n{_judge(history, len(kinds))}\n"
        f"{left} left, {pings} pings, backlog queues out of use {dropped} times, "
        f"{cycles.syphon_kills} syphons killed, {cycles.killed_at_work} of them with a backlog left"
    )


def _judge(history: History, cycles: int) -> str:
    """What the row asks for beyond what is asked of every history. That a killed syphon doubled nothing but what was in
    its hands is asked of every history, message by message. How late a busy machine fails over and returns is a figure:
    the times themselves are asserted where a test moves the clock."""
    figures = PairingFigures.of(history)
    told = figures.text()
    assert len(figures.engaged_s) == len(figures.returned_s) == cycles * len(TARGETS), told
    assert (figures.lost, figures.needless, figures.pings_received, figures.unexplained) == (0, 0, 0, 0), told
    assert min(figures.engaged_s) >= FAILOVER_INTERVAL_S - CLOCKS_DIFFER_S, told
    return told


class Cycles:
    """Each takes something away, lets the load feel it, and waits until all is as before."""

    def __init__(self, stage: PairedStage, load: PairedLoad, chance: random.Random) -> None:
        self._stage = stage
        self._load = load
        self.chance = chance
        self.syphon_kills = 0
        self.killed_at_work = 0

    async def run(self, kind: str) -> None:
        await {
            "primary killed": self._primary_killed,
            "primary stopped": self._primary_stopped,
            "syphon killed": self._syphon_killed,
            "secondary killed": self._secondary_killed,
            "both killed": self._both_killed,
        }[kind]()
        await self._load.until_healthy()
        await self._stage.until_depth(lambda depth: depth == 0)

    async def _primary_killed(self) -> None:
        outage = await self._stage.kill_primary()
        await self._divert()
        await self._stage.restart_primary(outage)

    async def _primary_stopped(self) -> None:
        outage = await self._stage.stop_primary()
        await self._divert()
        await self._stage.continue_primary(outage)

    async def _syphon_killed(self) -> None:
        """Where it hurts: with messages that are home and not yet completed in the backlog, or put aside because one
        entity takes none. Another syphon is at work beside it, and killed in its turn."""
        await self._kill_all_syphons()
        disabled = await self._stage.disable(DISABLED.name)
        await self._load.until_failed_over(DISABLED)
        outage = await self._stage.kill_primary()
        await self._divert(2)
        await self._stage.restart_primary(outage)
        await self._load.until_healthy(*[one for one in TARGETS if one is not DISABLED])
        for _ in range(SYPHON_KILLS):
            depth = await self._stage.depth()
            await self._stage.start_syphons(PROGRAM, IN_PROCESS)
            await self._kill_at_work(depth)
        await self._stage.enable(disabled)
        for _ in range(SYPHON_KILLS):
            await self._kill_at_work(await self._stage.depth())
        await self._stage.start_syphons(PROGRAM, PROGRAM)

    async def _kill_at_work(self, depth: int) -> None:
        left = await self._stage.until_depth(partial(_has_fallen, depth))
        await self._stage.kill_syphon()
        self.syphon_kills += 1
        self.killed_at_work += left > 0

    async def _kill_all_syphons(self) -> None:
        self.syphon_kills += await self._stage.kill_all_syphons()

    async def _secondary_killed(self) -> None:
        """While its backlog is being emptied; senders do not need it then, and must not notice."""
        await self._kill_all_syphons()
        outage = await self._stage.kill_primary()
        await self._divert()
        await self._stage.restart_primary(outage)
        await self._load.until_healthy()
        depth = await self._stage.depth()
        await self._stage.start_syphons(IN_PROCESS)
        await self._stage.until_depth(partial(_has_fallen, depth))
        second = await self._stage.kill_secondary()
        await self._load.until_accepted(100)
        await self._stage.restart_secondary(second)
        await self._stage.start_syphons(PROGRAM)

    async def _both_killed(self) -> None:
        """No send can be accepted then. With the secondary they come back, and later with the primary."""
        first = await self._stage.kill_primary()
        await self._divert()
        second = await self._stage.kill_secondary()
        await self._load.until_refused(self.chance.randint(5, 20))
        await self._stage.restart_secondary(second)
        await self._divert()
        await self._stage.restart_primary(first)

    async def _divert(self, times: int = 1) -> None:
        await self._load.until_failed_over()
        await self._load.until_accepted(times * self.chance.randint(150, 300) * scaled(1, 4, 24))


def _has_fallen(before: int, now: int) -> bool:
    return now < before or now == 0
