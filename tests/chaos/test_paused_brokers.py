"""F7: a broker is stopped in the middle of its work, another takes its place, and the old one wakes up."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.chaos import late_kills
from tests.chaos.cluster import CLOCK, PATIENCE_S, Broker, Cluster, Loss, is_running, say_lost
from tests.chaos.figures import Figures
from tests.chaos.inventory import take_inventory
from tests.chaos.load import Load
from tests.chaos.recorder import Recorder
from tests.chaos.test_broker_kills import LONGEST_S, TARGETS
from tests.covers import covers
from tests.integration.serving import RunningNamespace, serving
from tests.scale import scaled

BROKERS = 3
HEARTBEAT_S = 1.0
PAUSES_PER_HISTORY = 10
KINDS = ("fenced", "brief", "killed", "fenced", "brief")
"""What comes of the pauses, in turn: the old owner wakes up beside a new one; it is killed before; nothing."""
TAKEN_OVER_WITHIN_S = 10.0
MORE_TRIES = 5
"""Where every broker was stopped in the middle of a commit, which keeps its successor waiting until it wakes up."""
REFUSED = "another broker has opened it since: this one has lost it"
SILENT = re.compile(r"broker (\d+) \(process (\d+)\) is silent and is killed")


@pytest.mark.chaos
@covers("F7", "M1")
async def test_a_broker_that_wakes_up_after_a_takeover_accepts_and_settles_nothing_more(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    pauses, done = scaled(10, 200, 1000), 0
    while done < pauses:
        count = min(PAUSES_PER_HISTORY, pauses - done)
        folder = tmp_path / f"after-{done}"
        folder.mkdir()
        tell(await asyncio.wait_for(_pause_brokers(folder, seed=700 + done, pauses=count), LONGEST_S))
        done += count


async def _pause_brokers(folder: Path, seed: int, pauses: int) -> str:
    options = ("--brokers", str(BROKERS), "--heartbeat-timeout", str(HEARTBEAT_S))
    with (
        serving(folder / "data", *options, module=late_kills.__name__) as namespace,
        Recorder(folder / "history.jsonl", seed, "SIGSTOP of brokers") as recorder,
    ):
        async with (
            Load(namespace.connection_string, recorder, TARGETS) as load,
            Cluster(namespace.connection_string) as cluster,
        ):
            await load.prepare()
            load.start()
            pausing = Pausing(namespace, cluster, recorder)
            chance = random.Random(seed)
            for number in range(pauses):
                await load.until_accepted(chance.randint(1, 200))
                await pausing.pause(KINDS[number % len(KINDS)], number % BROKERS, chance)
            for number in range(MORE_TRIES):
                if pausing.late_count == 0:
                    await load.until_accepted(chance.randint(1, 200))
                    await pausing.pause("fenced", number % BROKERS, chance)
            await load.until_accepted(100)
            await load.stop()
            await pausing.own_up()
        left = await take_inventory(namespace.connection_string, recorder, TARGETS)
        figures = Figures.of(await asyncio.to_thread(recorder.judged))
    assert figures.keyless_errors == 0, figures.text()
    assert pausing.done["fenced"] == pausing.refused_count
    assert pausing.late_count > 0
    return f"seed {seed}, {pausing.text()}, {left} left, {figures.text()}"


class Pausing:
    """Stops brokers, and sees what becomes of them."""

    def __init__(self, namespace: RunningNamespace, cluster: Cluster, recorder: Recorder) -> None:
        self.done: Counter[str] = Counter()
        self.refused_count = 0
        self.late_count = 0
        """How many woke up when their successor had the store already."""
        self._slept: set[int] = set()
        self._began_at = CLOCK.now()
        self._namespace = namespace
        self._cluster = cluster
        self._recorder = recorder

    def text(self) -> str:
        return (
            f"{self.done['brief']} brief pauses, {self.done['killed']} killed before they woke, "
            f"{self.done['fenced']} woke beside a new owner ({self.late_count} when it had the store already) and had "
            f"their commits refused"
        )

    async def pause(self, kind: str, index: int, chance: random.Random) -> None:
        broker, places = await self._cluster.broker(index), await self._cluster.places(index)
        self._slept.add(broker.pid)
        self.done[kind] += 1
        loss = Loss(self._recorder.number(), broker, CLOCK.now())
        os.kill(broker.pid, signal.SIGSTOP)
        if kind == "brief":
            # Nobody takes its place, and nothing is lost: clients only wait.
            await asyncio.sleep(chance.uniform(0.1, 0.4) * HEARTBEAT_S)
            os.kill(broker.pid, signal.SIGCONT)
            return
        if kind == "killed":
            await self._cluster.until_replaced(broker)
            assert not is_running(broker.pid), "two processes own one store"
        else:
            await self._wake_beside_a_new_owner(broker)
        say_lost(self._recorder, loss, places)
        await self._cluster.until_owned_again(loss, self._recorder)
        with suppress(ProcessLookupError):
            os.kill(broker.pid, signal.SIGKILL)

    async def _wake_beside_a_new_owner(self, old: Broker) -> None:
        """Whatever it has in its sockets and in its memory then, the store takes nothing of it."""
        switch = self._namespace.data / late_kills.SWITCH
        switch.touch()
        refusals = self._refusals()
        # Stopped within a commit it wakes before the takeover, and finishes that one.
        with suppress(AssertionError):
            await self._cluster.until(old.index, lambda now: _has_taken_over(now, old), TAKEN_OVER_WITHIN_S)
            self.late_count += 1
        assert is_running(old.pid), "nobody was to kill it"
        os.kill(old.pid, signal.SIGCONT)
        new = await self._cluster.until(old.index, lambda now: _has_taken_over(now, old))
        switch.unlink()
        await self._until(lambda: self._refusals() > refusals)
        assert is_running(old.pid)
        assert is_running(new.pid)
        self.refused_count += 1

    def _refusals(self) -> int:
        return sum(REFUSED in line and "its last commit" in line for line in self._namespace.log)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        give_up_at = CLOCK.monotonic() + PATIENCE_S
        while not is_so():
            assert CLOCK.monotonic() < give_up_at, "".join(self._namespace.log[-50:])
            await asyncio.sleep(0.01)

    async def own_up(self) -> None:
        """On a machine with much else to do, a broker may be silent for so long by itself: that was a loss, too."""
        for index, pid in SILENT.findall("".join(self._namespace.log)):
            if int(pid) not in self._slept:
                places = await self._cluster.places(int(index))
                broker = Broker(int(index), int(pid), "", 0)
                say_lost(self._recorder, Loss(self._recorder.number(), broker, self._began_at), places)
                self.done["unplanned"] += 1


def _has_taken_over(now: Broker, old: Broker) -> bool:
    return now.pid not in (0, old.pid) and now.epoch > old.epoch and now.state == "ready"
