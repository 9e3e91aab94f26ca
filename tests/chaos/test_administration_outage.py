"""F22: entities are created, changed, deleted and looked at while some of their fragments are out: all or nothing."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tandembus.client import OutgoingMessage, ServiceBus, connect
from tandembus.client.administration import Administration
from tandembus.client.entities import EntityInfo, QueueSettings
from tandembus.client.faults import Faults
from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.errors import BusError, EntityNotFound, OperationTimeout, StoreUnavailable
from tests.chaos.cluster import CLOCK, PATIENCE_S, PROBE, Cluster
from tests.chaos.targets import key_in
from tests.covers import covers
from tests.integration.serving import RunningNamespace, start_namespace
from tests.scale import scaled

BROKERS = 2
FAULT = "outage"
LONGEST_STEP_S = 0.1
LOCKS_S = (30.0, 40.0)
"""What an update changes: each fragment tells it with every lock that it gives."""


@dataclass(slots=True)
class Outage:
    """What is out while something is asked for."""

    targets: list[str]
    fragments: frozenset[int]
    """Of the queue in question."""


@dataclass(slots=True)
class Tally:
    """How often what was asked for was done, and how often refused."""

    outcomes: Counter[str] = field(default_factory=Counter)

    def text(self) -> str:
        return ", ".join(f"{outcome} {count}" for outcome, count in sorted(self.outcomes.items()))


class Administered:
    """One queue with a message in each fragment, through all that is done to it."""

    def __init__(self, name: str, administration: Administration, client: ServiceBus, tally: Tally) -> None:
        self._name = name
        self._administration = administration
        self._client = client
        self._faults = Faults(administration.requests)
        self._tally = tally

    async def create(self, outage: Outage) -> None:
        """Created with all its fragments, or not there at all: then the name is free, and nothing is in it."""
        if await self._is_done("create", outage, self._make(LOCKS_S[0])):
            await self._fill()
        else:
            with pytest.raises(EntityNotFound):
                await self._administration.get_queue(self._name)
            await self._make(LOCKS_S[0])
            assert await self._count() == 0
            await self._fill()
        await self._check_content(LOCKS_S[0])

    async def update(self, outage: Outage) -> None:
        """The new lock duration in every fragment, or the old one in every fragment."""
        await self._make(LOCKS_S[0])
        await self._fill()
        change = self._administration.update_queue(self._name, QueueSettings(lock_duration_s=LOCKS_S[1]))
        is_done = await self._is_done("update", outage, change)
        expected_s = LOCKS_S[1 if is_done else 0]
        assert (await self._administration.get_queue(self._name)).settings.lock_duration_s == expected_s
        await self._check_content(expected_s)

    async def delete(self, outage: Outage) -> None:
        """Gone for good, or there with all it has."""
        await self._make(LOCKS_S[0])
        await self._fill()
        if await self._is_done("delete", outage, self._administration.delete_queue(self._name)):
            with pytest.raises(EntityNotFound):
                await self._administration.get_queue(self._name)
            await self._make(LOCKS_S[0])
            assert await self._count() == 0, "a queue of the same name came back with old messages"
        else:
            await self._check_content(LOCKS_S[0])

    async def get(self, outage: Outage) -> None:
        """What the live fragments hold, and that there are others."""
        await self._make(LOCKS_S[0])
        await self._fill()
        await self._begin(outage)
        found = await self._administration.get_queue(self._name)
        assert found.availability_status == "Limited"
        assert found.counts.active == FRAGMENT_COUNT - len(outage.fragments)
        await self._end()
        found = await self._until_available()
        assert found.counts.active == FRAGMENT_COUNT
        self._tally.outcomes["get: done"] += 1

    async def survive(self, step: str, cluster: Cluster, broker: int, after_s: float) -> None:
        """A broker dies while it is under way; when it is back, all of it was done, or nothing."""
        if step != "create":
            await self._make(LOCKS_S[0])
            await self._fill()
        doing = asyncio.ensure_future(self._step(step))
        await asyncio.sleep(after_s)
        killed = await cluster.broker(broker)
        os.kill(killed.pid, signal.SIGKILL)
        (failure,) = await asyncio.gather(doing, return_exceptions=True)
        assert failure is None or isinstance(failure, StoreUnavailable | OperationTimeout), repr(failure)
        self._tally.outcomes[f"{step}: {'done' if failure is None else 'refused'}"] += 1
        await asyncio.wait_for(cluster.until_replaced(killed), PATIENCE_S)
        await asyncio.wait_for(cluster.until_ready(broker), PATIENCE_S)
        await self._check_after(step, failure is None)

    async def _step(self, step: str) -> None:
        if step == "create":
            await self._make(LOCKS_S[0])
        elif step == "update":
            await self._administration.update_queue(self._name, QueueSettings(lock_duration_s=LOCKS_S[1]))
        else:
            await self._administration.delete_queue(self._name)

    async def _check_after(self, step: str, is_done: bool) -> None:
        """Everything of it, or nothing; and what was answered as done, was done."""
        try:
            found = await asyncio.wait_for(self._until_available(), PATIENCE_S)
        except EntityNotFound:
            assert step == "delete" or not is_done
            await self._make(LOCKS_S[0])
            assert await self._count() == 0
            return
        assert step != "delete" or not is_done
        lock_s = found.settings.lock_duration_s
        assert lock_s in LOCKS_S
        assert step != "update" or not is_done or lock_s == LOCKS_S[1]
        if step == "create":
            await self._fill()
        await self._check_content(lock_s)

    async def remove(self) -> None:
        await self._administration.delete_queue(self._name)

    async def _is_done(self, what: str, outage: Outage, doing: Awaitable[object]) -> bool:
        """During the outage; a refusal must name what is wrong."""
        await self._begin(outage)
        try:
            await doing
            is_done = True
        except StoreUnavailable:
            is_done = False
        except BusError as other:
            raise AssertionError(f"{what} was refused for the wrong reason: {other!r}") from other
        finally:
            await self._end()
        self._tally.outcomes[f"{what}: {'done' if is_done else 'refused'}"] += 1
        return is_done

    async def _begin(self, outage: Outage) -> None:
        for number, target in enumerate(outage.targets):
            await self._faults.put(f"{FAULT}-{number}", target, "unavailable")

    async def _end(self) -> None:
        await self._faults.clear()

    async def _make(self, lock_s: float) -> None:
        """When the outage is over, its stores may take a moment to open again."""
        settings = QueueSettings(partitioning=True, lock_duration_s=lock_s)
        await self._administration.create_queue(self._name, settings)

    async def _fill(self) -> None:
        sender = await self._client.sender(self._name)
        keys = [key_in(fragment) for fragment in range(FRAGMENT_COUNT)]
        await asyncio.gather(*(sender.send(OutgoingMessage(key, partition_key=key)) for key in keys))
        await sender.close()

    async def _count(self) -> int:
        return (await self._until_available()).counts.active

    async def _until_available(self) -> EntityInfo[QueueSettings]:
        found = await self._administration.get_queue(self._name)
        while found.availability_status != "Available":
            found = await self._administration.get_queue(self._name)
        return found

    async def _check_content(self, lock_s: float) -> None:
        """One message in each fragment, given out under locks of this duration."""
        await asyncio.wait_for(self._until_available(), PATIENCE_S)
        receiver = await self._client.receiver(self._name)
        seen: dict[int, float] = {}
        while len(seen) < FRAGMENT_COUNT:
            messages = await receiver.receive(FRAGMENT_COUNT, PATIENCE_S)
            assert messages, f"{FRAGMENT_COUNT - len(seen)} messages are missing"
            for message in messages:
                assert message.locked_until is not None
                seen[message.sequence_number >> 48] = message.locked_until - CLOCK.now()
            await receiver.complete(*messages)
        await receiver.close()
        least, most = min(seen.values()), max(seen.values())
        is_everywhere = lock_s - 5.0 < least <= most < lock_s + 5.0
        assert is_everywhere, f"locks of {least:.1f} to {most:.1f} s instead of {lock_s} s"


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[RunningNamespace]:
    namespace = start_namespace(tmp_path / "data", "--brokers", str(BROKERS))
    yield namespace
    assert namespace.stop() == 0, "".join(namespace.log)


@pytest.mark.chaos
@covers("F22", "P18", "P19")
async def test_administration_during_an_outage_is_done_on_all_fragments_or_on_none(
    namespace: RunningNamespace, tell: Callable[[str], None]
) -> None:
    chance, tally = random.Random(22), Tally()
    async with (
        Cluster(namespace.connection_string) as cluster,
        Administration(namespace.connection_string, timeout_s=PATIENCE_S) as administration,
        await connect(namespace.connection_string, timeout_s=PATIENCE_S) as client,
    ):
        for number in range(scaled(100, 2000, 2000)):
            queue = Administered(f"queue-{number}", administration, client, tally)
            steps = (queue.create, queue.update, queue.delete, queue.get)
            await steps[number % len(steps)](await _outage(chance, cluster, f"queue-{number}"))
            await queue.remove()
    tell(tally.text())


async def _outage(chance: random.Random, cluster: Cluster, name: str) -> Outage:
    """One to fifteen fragments of the queue, or a whole broker and so half of them."""
    if chance.randrange(3) == 0:
        index = chance.randrange(BROKERS)
        return Outage([f"broker/{index}"], frozenset((await cluster.places(index))[PROBE]))
    fragments = chance.sample(range(FRAGMENT_COUNT), chance.randint(1, FRAGMENT_COUNT - 1))
    return Outage([f"fragment/{name}/{index}" for index in fragments], frozenset(fragments))


@pytest.mark.chaos
@covers("F22", "P18")
async def test_a_broker_killed_between_any_two_steps_of_administration_leaves_nothing_half_done(
    namespace: RunningNamespace, tell: Callable[[str], None]
) -> None:
    chance, tally = random.Random(23), Tally()
    async with (
        Cluster(namespace.connection_string) as cluster,
        Administration(namespace.connection_string, timeout_s=PATIENCE_S) as administration,
        await connect(namespace.connection_string, timeout_s=PATIENCE_S) as client,
    ):
        for number in range(scaled(12, 200, 1000)):
            queue = Administered(f"queue-{number}", administration, client, tally)
            step = ("create", "update", "delete")[number % 3]
            await queue.survive(step, cluster, number % BROKERS, chance.uniform(0.0, LONGEST_STEP_S))
    tell(tally.text())
