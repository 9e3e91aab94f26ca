"""F1: one broker after the other is killed under load, at any moment, and comes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tandembus.client.entities import QueueSettings
from tests.chaos.check import judge
from tests.chaos.cluster import Cluster
from tests.chaos.inventory import take_inventory
from tests.chaos.load import Load, Target
from tests.chaos.outages import failed_share, stray_failures
from tests.chaos.recorder import Recorder
from tests.covers import covers
from tests.integration.serving import start_namespace
from tests.scale import scaled

BROKERS = 4
SENDERS = 8
RECEIVERS = 8
KILLS_PER_HISTORY = 20
LOCK_S = 5.0


def settings(**chosen: bool | float) -> QueueSettings:
    return QueueSettings(lock_duration_s=LOCK_S, partitioning=True, **chosen)  # type: ignore[arg-type]


TARGETS = (
    Target("anywhere", settings()),
    Target("keyed", settings(), keys=400),
    Target("batches", settings(), batch=5),
    Target("sessions", settings(requires_session=True), sessions=12),
    Target("unique", settings(requires_duplicate_detection=True, duplicate_detection_window_s=7 * 86400.0)),
    Target("keyed-batches", settings(), keys=400, batch=5),
    Target("conventional", QueueSettings(lock_duration_s=LOCK_S)),
    Target("conventional-sessions", QueueSettings(lock_duration_s=LOCK_S, requires_session=True), sessions=12),
)


@pytest.mark.chaos
@covers("F1", "P3", "P13", "P14", "P20", "M1")
async def test_a_killed_broker_costs_no_accepted_message_and_no_send_without_a_key(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    kills, done = scaled(10, 200, 1000), 0
    while done < kills:
        count = min(KILLS_PER_HISTORY, kills - done)
        folder = tmp_path / f"after-{done}"
        folder.mkdir()
        tell(await _kill_brokers(folder, seed=100 + done, kills=count))
        done += count


async def _kill_brokers(folder: Path, seed: int, kills: int) -> str:
    chance = random.Random(seed)
    namespace = start_namespace(folder / "data", "--brokers", str(BROKERS))
    with Recorder(folder / "history.jsonl", seed, "kill -9 of brokers") as recorder:
        async with (
            Load(namespace.connection_string, recorder, TARGETS) as load,
            Cluster(namespace.connection_string) as cluster,
        ):
            await load.prepare()
            load.start(SENDERS, RECEIVERS)
            for index in _order(chance, kills):
                await load.until_accepted(chance.randint(1, 600))
                killed_at = await cluster.kill(index, recorder)
                await cluster.until_owned_again(index, killed_at, recorder)
            await load.until_accepted(100)
            await load.stop()
        left = await take_inventory(namespace.connection_string, recorder, TARGETS)
        figures = recorder.judge()
        history, _ = await asyncio.to_thread(judge, recorder.path)
    strays = stray_failures(history)
    assert not strays, strays[:10]
    assert figures.keyless_errors == 0, figures.text()
    assert namespace.stop() == 0, "".join(namespace.log)
    failed, lost = failed_share(history)
    share = f"of sends with a key during an outage {failed:.1%} failed, of the fragments {lost:.1%} were lost"
    return f"seed {seed}, {left} left, {figures.text()}\n{share}"


def _order(chance: random.Random, kills: int) -> list[int]:
    """Any broker, the first included; each of them comes."""
    rounds = -(-kills // BROKERS)
    return [index for _ in range(rounds) for index in chance.sample(range(BROKERS), BROKERS)][:kills]
