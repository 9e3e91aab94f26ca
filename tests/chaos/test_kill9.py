"""F2: the process is killed while it works, at any moment, and started again on the same data."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tandembus.client.administration import Administration
from tests.chaos.history import History
from tests.chaos.load import drain, keep_receiving, keep_sending
from tests.covers import covers
from tests.integration.serving import RunningNamespace, start_namespace
from tests.scale import scaled

QUEUE = "survivor"
SENDERS = 3
RECEIVERS = 2
LOST_WITHIN_S = 60.0
MODES = ("loop", "thread")
"""Where commits run: in the event loop, or beside it, where everything else goes on meanwhile."""


@pytest.mark.chaos
@covers("M1", "F2")
async def test_no_accepted_message_is_lost_when_the_process_is_killed_under_load(tmp_path: Path) -> None:
    rounds = scaled(20, 500, 5000)
    history = History(seed=20)
    moments = random.Random(21)
    for number in range(rounds):
        mode = MODES[number % len(MODES)]
        namespace = start_namespace(tmp_path / "data", environment={"TANDEMBUS_LIMITS_COMMIT_MODE": mode})
        if number == 0:
            async with Administration(namespace.connection_string) as administration:
                await administration.create_queue(QUEUE)
        await _load_until_killed(namespace, history, after=moments.randint(1, 1500))
    namespace = start_namespace(tmp_path / "data")
    left = await drain(namespace.connection_string, QUEUE, history)
    async with Administration(namespace.connection_string) as administration:
        counts = (await administration.get_queue(QUEUE)).counts
    assert namespace.stop() == 0
    history.check(left)
    assert (counts.active, counts.dead_letter, counts.size_bytes) == (0, 0, 0)
    print(f"kill -9: {rounds} rounds, {len(history.accepted)} accepted, {len(history.completed)} completed under load")


async def _load_until_killed(namespace: RunningNamespace, history: History, after: int) -> None:
    """Kill once so many sends of this round are accepted; by then hundreds of others are under way."""
    enough = asyncio.Event()
    accepted = 0

    def told() -> None:
        nonlocal accepted
        accepted += 1
        if accepted >= after:
            enough.set()

    target = namespace.connection_string
    clients = [asyncio.create_task(keep_sending(target, QUEUE, history, told)) for _ in range(SENDERS)]
    clients += [asyncio.create_task(keep_receiving(target, QUEUE, history)) for _ in range(RECEIVERS)]
    await asyncio.wait_for(enough.wait(), LOST_WITHIN_S)
    await asyncio.to_thread(namespace.kill)
    await asyncio.wait_for(asyncio.gather(*clients), LOST_WITHIN_S)
