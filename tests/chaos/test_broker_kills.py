"""F1: one broker after the other is killed under load, at any moment, and comes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tandembus.client.entities import QueueSettings
from tests.chaos.cluster import Cluster
from tests.chaos.figures import Figures
from tests.chaos.history import History
from tests.chaos.inventory import take_inventory
from tests.chaos.load import Load
from tests.chaos.outages import FailedShare, deleted_unseen, losses_of, needless_copies, stray_failures
from tests.chaos.recorder import Recorder
from tests.chaos.targets import Target
from tests.chaos.transacting import TransactingSender
from tests.covers import covers
from tests.integration.serving import serving
from tests.scale import scaled

BROKERS = 4
KILLS_PER_HISTORY = 10
LONGEST_S = 170.0
"""For one history: a machine that has much else to do takes long, and a test that hangs must not take all others with
it."""
OWNED_AGAIN_WITHIN_S = 30.0
"""Two seconds is the aim; a process that starts beside a dozen others may take longer."""
LOCK_S = 5.0


def settings(**chosen: bool | float) -> QueueSettings:
    return QueueSettings(lock_duration_s=LOCK_S, partitioning=True, **chosen)  # type: ignore[arg-type]


TARGETS = (
    Target("anywhere", settings()),
    Target("keyed", settings(), keys=800),
    Target("batches", settings(), batch=5),
    Target("sessions", settings(requires_session=True), sessions=12),
    Target("unique", settings(requires_duplicate_detection=True, duplicate_detection_window_s=7 * 86400.0)),
    Target("keyed-batches", settings(), keys=800, batch=5),
    Target("topic", settings(), subscriptions=2),
    Target("deleted-at-once", settings(), is_at_most_once=True),
    Target("forwarding", settings(), forwards_to="forwarded"),
    Target("conventional", QueueSettings(lock_duration_s=LOCK_S)),
    Target("conventional-sessions", QueueSettings(lock_duration_s=LOCK_S, requires_session=True), sessions=12),
)
TRANSACTED = Target("transacted", settings(), keys=800)


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
        tell(await asyncio.wait_for(_kill_brokers(folder, seed=100 + done, kills=count), LONGEST_S))
        done += count


async def _kill_brokers(folder: Path, seed: int, kills: int) -> str:
    chance = random.Random(seed)
    with (
        serving(folder / "data", "--brokers", str(BROKERS), "--heartbeat-timeout", "30") as namespace,
        Recorder(folder / "history.jsonl", seed, "kill -9 of brokers") as recorder,
    ):
        async with (
            Load(namespace.connection_string, recorder, TARGETS, received_only=[TRANSACTED]) as load,
            Cluster(namespace.connection_string) as cluster,
        ):
            await load.prepare()
            load.start()
            with TransactingSender(namespace.port, recorder, TRANSACTED):
                for index in _order(chance, kills):
                    await load.until_accepted(chance.randint(1, 300))
                    loss = await cluster.kill(index, recorder)
                    await cluster.until_owned_again(loss, recorder)
                await load.until_accepted(100)
            await load.stop()
        left = await take_inventory(namespace.connection_string, recorder, [*TARGETS, TRANSACTED])
        history = await asyncio.to_thread(recorder.judged)
    return f"seed {seed}, {left} left, {_judge(history, kills)}"


def _judge(history: History, kills: int) -> str:
    """What the row asks for beyond what is asked of every history."""
    figures, share = Figures.of(history), FailedShare.of(history)
    assert (figures.kills, len(figures.owned_again_s), figures.lost) == (kills, kills, 0), figures.text()
    assert {one.broker for one in history.downs} == set(range(min(kills, BROKERS))), "each broker is killed"
    assert figures.keyless_errors == 0, figures.text()
    strays, copies = stray_failures(history), needless_copies(history)
    assert not strays, strays[:10]
    assert not copies, copies[:10]
    assert not deleted_unseen(history), deleted_unseen(history)[:10]
    assert share.is_as_expected, share.text()
    assert figures.owned_again(99) <= OWNED_AGAIN_WITHIN_S, figures.text()
    assert figures.commits > 0, "no transaction was committed"
    short = sum(one.is_short for one in losses_of(history))
    return f"{figures.text()}\n{share.text()}\n{short} of {kills} brokers were back before any send was given up"


def _order(chance: random.Random, kills: int) -> list[int]:
    """Any broker, the first included; each of them comes."""
    rounds = -(-kills // BROKERS)
    return [index for _ in range(rounds) for index in chance.sample(range(BROKERS), BROKERS)][:kills]
