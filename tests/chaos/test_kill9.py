"""F2: the process is killed while it works, at any moment, and started again on the same data."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tandembus.client.entities import QueueSettings
from tandembus.clock import SystemClock
from tests.chaos.inventory import take_inventory
from tests.chaos.load import Load
from tests.chaos.recorder import Recorder
from tests.chaos.targets import Target
from tests.covers import covers
from tests.integration.serving import RunningNamespace, start_namespace
from tests.scale import scaled

SENDERS = 5
RECEIVERS = 5
MODES = ("loop", "thread")
"""Where commits run: in the event loop, or beside it, where everything else goes on meanwhile."""
KILLS_PER_HISTORY = 50
LOCK_S = 5.0

TARGETS = (
    Target("single", QueueSettings(lock_duration_s=LOCK_S)),
    Target("batches", QueueSettings(lock_duration_s=LOCK_S), batch=5),
    Target("keyed", QueueSettings(lock_duration_s=LOCK_S), keys=100),
    Target("sessions", QueueSettings(lock_duration_s=LOCK_S, requires_session=True), sessions=6),
    Target(
        "unique",
        QueueSettings(
            lock_duration_s=LOCK_S, requires_duplicate_detection=True, duplicate_detection_window_s=7 * 86400.0
        ),
    ),
)


@pytest.mark.chaos
@covers("M1", "M4", "M7", "M8", "F2")
async def test_no_accepted_message_is_lost_when_the_process_is_killed_under_load(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    kills, done = scaled(20, 500, 5000), 0
    while done < kills:
        count = min(KILLS_PER_HISTORY, kills - done)
        folder = tmp_path / f"after-{done}"
        folder.mkdir()
        tell(await _kill_under_load(folder, seed=20 + done, kills=count))
        done += count


async def _kill_under_load(folder: Path, seed: int, kills: int) -> str:
    moments, clock = random.Random(seed), SystemClock()
    namespace = start_namespace(folder / "data")
    with Recorder(folder / "history.jsonl", seed, "kill -9 of the process") as recorder:
        async with Load(namespace.connection_string, recorder, TARGETS) as load:
            await load.prepare()
            load.start(SENDERS, RECEIVERS)
            for number in range(kills):
                await load.until_accepted(moments.randint(1, 800))
                began_at = clock.now()
                await asyncio.to_thread(namespace.kill)
                recorder.say_at(began_at, "down", took_s=clock.now() - began_at)
                namespace = await asyncio.to_thread(_start_again, namespace, MODES[number % len(MODES)])
            await load.until_accepted(100)
            await load.stop()
        left = await take_inventory(namespace.connection_string, recorder, TARGETS)
        figures = recorder.judge()
    assert namespace.stop() == 0, "".join(namespace.log)
    return f"seed {seed}, {left} left, {figures.text()}"


def _start_again(namespace: RunningNamespace, mode: str) -> RunningNamespace:
    """On the same port: clients find it without being told."""
    return start_namespace(namespace.data, port=namespace.port, environment={"TANDEMBUS_LIMITS_COMMIT_MODE": mode})
