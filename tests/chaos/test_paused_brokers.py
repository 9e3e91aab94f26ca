"""F7: a broker is stopped in the middle of its work, another takes its place, and the old one wakes up."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.chaos.check import judge
from tests.chaos.cluster import CLOCK, Cluster, Loss, say_lost
from tests.chaos.inventory import take_inventory
from tests.chaos.load import Load
from tests.chaos.recorder import Recorder
from tests.chaos.test_broker_kills import TARGETS
from tests.covers import covers
from tests.integration.serving import start_namespace
from tests.scale import scaled

BROKERS = 3
HEARTBEAT_S = 1.0
PAUSES_PER_HISTORY = 20


@pytest.mark.chaos
@covers("F7", "M1")
async def test_a_broker_that_was_paused_over_a_takeover_accepts_and_settles_nothing_more(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    pauses, done = scaled(10, 200, 1000), 0
    while done < pauses:
        count = min(PAUSES_PER_HISTORY, pauses - done)
        folder = tmp_path / f"after-{done}"
        folder.mkdir()
        tell(await _pause_brokers(folder, seed=700 + done, pauses=count))
        done += count


async def _pause_brokers(folder: Path, seed: int, pauses: int) -> str:
    chance = random.Random(seed)
    options = ("--brokers", str(BROKERS), "--heartbeat-timeout", str(HEARTBEAT_S))
    namespace = start_namespace(folder / "data", *options)
    with Recorder(folder / "history.jsonl", seed, "SIGSTOP of brokers") as recorder:
        async with (
            Load(namespace.connection_string, recorder, TARGETS) as load,
            Cluster(namespace.connection_string) as cluster,
        ):
            await load.prepare()
            load.start(8, 8)
            for number in range(pauses):
                await load.until_accepted(chance.randint(1, 300))
                if chance.randrange(3) == 0:
                    await _pause_briefly(cluster, number % BROKERS, chance.uniform(0.1, 0.4) * HEARTBEAT_S)
                else:
                    await _pause(cluster, recorder, number % BROKERS)
            await load.until_accepted(100)
            await load.stop()
        left = await take_inventory(namespace.connection_string, recorder, TARGETS)
        figures = recorder.judge()
        history, _ = await asyncio.to_thread(judge, recorder.path)
    assert figures.keyless_errors == 0, figures.text()
    assert namespace.stop() == 0, "".join(namespace.log)
    return f"seed {seed}, {pauses} pauses, {len(history.downs)} of them over a takeover, {left} left, {figures.text()}"


async def _pause_briefly(cluster: Cluster, index: int, seconds: float) -> None:
    """Nobody takes its place, and nothing is lost: clients only wait."""
    broker = await cluster.broker(index)
    os.kill(broker.pid, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    os.kill(broker.pid, signal.SIGCONT)


async def _pause(cluster: Cluster, recorder: Recorder, index: int) -> None:
    """Until somebody else has its place. What it wakes up to, if it is still there at all, is not its own any more."""
    broker, places = await cluster.broker(index), await cluster.places(index)
    loss = Loss(recorder.number(), broker, CLOCK.now())
    os.kill(broker.pid, signal.SIGSTOP)
    await cluster.until_replaced(broker)
    with suppress(ProcessLookupError):
        os.kill(broker.pid, signal.SIGCONT)
    say_lost(recorder, loss, places)
    await cluster.until_owned_again(loss, recorder)
