"""F22: a process dies in the middle of a creation, a change or a deletion. What is found afterwards is all of it, or
nothing; the process may be a message broker, or the one that has the catalog."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tandembus.client.errors import ClientFailure
from tandembus.errors import OperationTimeout, StoreUnavailable
from tests.chaos.administered import CASES, Administered, tools_for
from tests.chaos.cluster import CLOCK, PATIENCE_S, Broker, Cluster
from tests.chaos.test_broker_kills import LONGEST_S
from tests.covers import covers
from tests.integration.serving import RunningNamespace, serving, start_namespace
from tests.scale import scaled

BROKERS = 2
OPTIONS = ("--brokers", str(BROKERS), "--heartbeat-timeout", "30")
LONGEST_STEP_S = 1.0
STOPPED_S = (0.4, 0.7)
"""How long a broker is stopped before it is killed: whatever needs it has begun by then, and cannot go on."""


class Steps:
    """How long each takes when nobody dies: within that time somebody has to."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._took_s: dict[str, float] = {}

    async def measure(self, thing: Administered, step: str) -> None:
        await thing.prepare(step)
        began = CLOCK.monotonic()
        await thing.carry_out(step)
        self._took_s[step] = min(LONGEST_STEP_S, CLOCK.monotonic() - began)
        await thing.check(step, is_done=True)

    def moment(self, step: str) -> float:
        return self._chance.uniform(0.0, self._took_s[step])


@pytest.mark.chaos
@covers("F22", "P18")
async def test_a_broker_killed_between_any_two_steps_of_administration_leaves_nothing_half_done(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    rounds = scaled(12, 200, 1000)
    tell(await asyncio.wait_for(_kill_brokers(tmp_path / "data", rounds), LONGEST_S * scaled(1, 10, 50)))


async def _kill_brokers(data: Path, rounds: int) -> str:
    chance, outcomes = random.Random(23), Counter[str]()
    with serving(data, *OPTIONS) as namespace:
        async with Cluster(namespace.connection_string) as cluster, tools_for(namespace.connection_string) as tools:
            steps = Steps(chance)
            for number, step in enumerate(("create", "update", "delete")):
                await steps.measure(CASES[0][0](f"measured-{number}", tools), step)
            for number in range(rounds):
                kind, step = _case(number)
                thing = kind(f"entity-{number}", tools)
                await thing.prepare(step)
                broker = await cluster.broker(number // 2 % BROKERS)
                is_certain = number % 2 == 0
                dying = _stop_and_kill(broker, chance) if is_certain else _kill_after(broker, steps.moment(step))
                failure, _ = await asyncio.gather(_failure_of(thing.carry_out(step)), dying)
                assert failure is None or isinstance(failure, StoreUnavailable | OperationTimeout), repr(failure)
                outcomes[f"{step}: {'done' if failure is None else 'refused'}"] += 1
                await cluster.until_replaced(broker)
                await cluster.until_ready(broker.index)
                await thing.check(step, failure is None)
                await thing.remove()
    refused = sum(count for outcome, count in outcomes.items() if outcome.endswith("refused"))
    assert refused >= rounds // 4, f"nobody died in the middle: {outcomes}"
    return _text(outcomes)


async def _stop_and_kill(broker: Broker, chance: random.Random) -> None:
    os.kill(broker.pid, signal.SIGSTOP)
    await _kill_after(broker, chance.uniform(*STOPPED_S))


async def _kill_after(broker: Broker, seconds: float) -> None:
    await asyncio.sleep(seconds)
    os.kill(broker.pid, signal.SIGKILL)


@pytest.mark.chaos
@covers("F22", "P18", "P1")
async def test_administration_that_is_interrupted_by_the_death_of_everything_is_finished_or_undone(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    rounds = scaled(5, 100, 500)
    tell(await asyncio.wait_for(_kill_everything(tmp_path / "data", rounds), LONGEST_S * scaled(1, 10, 50)))


async def _kill_everything(data: Path, rounds: int) -> str:
    chance, outcomes = random.Random(24), Counter[str]()
    namespace = start_namespace(data, *OPTIONS)
    try:
        for number in range(rounds):
            kind, step = _case(number)
            is_done = await _kill_in(namespace, kind, f"entity-{number}", step, chance)
            namespace = await asyncio.to_thread(start_namespace, data, *OPTIONS, port=namespace.port)
            async with tools_for(namespace.connection_string) as tools:
                thing = kind(f"entity-{number}", tools)
                await thing.check(step, is_done)
                await thing.remove()
            outcomes[f"{step}: {'done' if is_done else 'interrupted'}"] += 1
        assert namespace.stop() == 0, "".join(namespace.log)
    finally:
        if namespace.process.poll() is None:
            namespace.kill()
    for step in ("create", "update", "delete"):
        assert outcomes[f"{step}: interrupted"] > 0, f"nobody died in the middle: {outcomes}"
    return _text(outcomes)


async def _kill_in(
    namespace: RunningNamespace, kind: type[Administered], name: str, step: str, chance: random.Random
) -> bool:
    """Returns whether the step was answered as done before. A stopped broker keeps it from its end."""
    async with Cluster(namespace.connection_string, makes_probe=False) as cluster:
        broker = await cluster.broker(chance.randrange(BROKERS))
        async with tools_for(namespace.connection_string) as tools:
            thing = kind(name, tools)
            await thing.prepare(step)
            os.kill(broker.pid, signal.SIGSTOP)
            doing = asyncio.ensure_future(_failure_of(thing.carry_out(step)))
            await asyncio.sleep(chance.uniform(*STOPPED_S))
            await asyncio.to_thread(namespace.kill)
            failure = await asyncio.wait_for(doing, PATIENCE_S)
    assert failure is None or isinstance(failure, ClientFailure), repr(failure)
    return failure is None


def _case(number: int) -> tuple[type[Administered], str]:
    """All of them in turn, so that few have every step among them."""
    return CASES[7 * number % len(CASES)]


async def _failure_of(work: Awaitable[None]) -> BaseException | None:
    (found,) = await asyncio.gather(work, return_exceptions=True)
    return found


def _text(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcome} {count}" for outcome, count in sorted(outcomes.items()))
