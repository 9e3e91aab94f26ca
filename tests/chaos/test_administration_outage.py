"""F22: entities are created, changed, deleted and looked at while some of their fragments are out: all or nothing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tandembus.client.faults import Faults
from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.errors import BusError, StoreUnavailable
from tests.chaos.administered import CASES, Administered, AdministeredRule, tools_for
from tests.chaos.cluster import PROBE, Cluster
from tests.chaos.test_broker_kills import LONGEST_S
from tests.covers import covers
from tests.integration.serving import serving
from tests.scale import scaled

BROKERS = 2


@dataclass(slots=True)
class InjectedOutage:
    """What is out while something is asked for."""

    targets: list[str]
    fragments: frozenset[int]
    """Of the entity in question."""

    async def begin(self, faults: Faults) -> None:
        for number, target in enumerate(self.targets):
            await faults.put(f"outage-{number}", target, "unavailable")


@pytest.mark.chaos
@covers("F22", "P18", "P19")
async def test_administration_during_an_outage_is_done_on_all_fragments_or_on_none(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    tell(await asyncio.wait_for(_administer(tmp_path / "data", scaled(70, 2000, 2000)), LONGEST_S * scaled(1, 20, 20)))


async def _administer(data: Path, rounds: int) -> str:
    chance, outcomes = random.Random(22), Counter[str]()
    with serving(data, "--brokers", str(BROKERS), "--heartbeat-timeout", "30") as namespace:
        async with Cluster(namespace.connection_string) as cluster, tools_for(namespace.connection_string) as tools:
            faults = Faults(tools.administration.requests)
            for number in range(rounds):
                kind, step = CASES[number % len(CASES)]
                thing = kind(f"entity-{number}", tools)
                outage = await _outage(chance, cluster, thing.name)
                await thing.prepare(step)
                if step != "create" and kind is not AdministeredRule:
                    await _look(thing, outage, faults)
                    outcomes["get: done"] += 1
                outcomes[await _try(thing, step, outage, faults)] += 1
                await thing.remove()
    for step in ("create", "update", "delete"):
        assert outcomes[f"{step}: refused"] > 0, outcomes
    return ", ".join(f"{outcome} {count}" for outcome, count in sorted(outcomes.items()))


async def _try(thing: Administered, step: str, outage: InjectedOutage, faults: Faults) -> str:
    """During the outage; a refusal must name what is wrong."""
    await outage.begin(faults)
    try:
        await thing.carry_out(step)
        is_done = True
    except StoreUnavailable:
        is_done = False
    except BusError as other:
        raise AssertionError(f"{step} was refused for the wrong reason: {other!r}") from other
    finally:
        await faults.clear()
    await thing.check(step, is_done)
    return f"{step}: {'done' if is_done else 'refused'}"


async def _look(thing: Administered, outage: InjectedOutage, faults: Faults) -> None:
    """Get tells what the live fragments hold, and that there are others."""
    await outage.begin(faults)
    assert await thing.status() == ("Limited", FRAGMENT_COUNT - len(outage.fragments))
    await faults.clear()
    assert await thing.until_available() == FRAGMENT_COUNT


async def _outage(chance: random.Random, cluster: Cluster, name: str) -> InjectedOutage:
    """One to fifteen fragments of the entity, or a whole broker and so half of them."""
    if chance.randrange(3) == 0:
        index = chance.randrange(BROKERS)
        return InjectedOutage([f"broker/{index}"], frozenset((await cluster.places(index))[PROBE]))
    fragments = chance.sample(range(FRAGMENT_COUNT), chance.randint(1, FRAGMENT_COUNT - 1))
    return InjectedOutage([f"fragment/{name}/{index}" for index in fragments], frozenset(fragments))
