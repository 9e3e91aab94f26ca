"""Many senders, random outages, a clock moved by hand: pairing does at every moment what a few lines say it must."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from tandembus.pairing import EntityState, FailoverEngaged, PingSent, SendAvailabilityBacklogError
from tandembus.pairing.sender import PairedSender
from tests.covers import covers
from tests.unit.pairing.conftest import ScriptedPair

PATHS = ("orders", "bills", "news")
INTERVAL_S = 20.0
PING_INTERVAL_S = 7.0
TIMEOUT_S = 11.0
STEPS = 120
CONDITIONS = ("up", "up", "down", "busy", "hangs")


@dataclass
class Expected:
    """What must be true of one entity, worked out from what its callers saw."""

    failing_since: float | None = None
    is_failed_over: bool = False
    accepted_pings: int = 0
    failover_count: int = 0

    def answered(self) -> None:
        self.failing_since = None

    def failed(self, now: float) -> None:
        if self.failing_since is None:
            self.failing_since = now

    def at(self, now: float, accepted_pings: int) -> EntityState:
        if not self.is_failed_over and self.failing_since is not None and now >= self.failing_since + INTERVAL_S:
            self.is_failed_over = True
            self.failover_count += 1
        if accepted_pings > self.accepted_pings:
            self.accepted_pings = accepted_pings
            self.is_failed_over, self.failing_since = False, None
        if self.is_failed_over:
            return EntityState.FAILED_OVER
        return EntityState.HEALTHY if self.failing_since is None else EntityState.FAILING


@dataclass
class World:
    pair: ScriptedPair
    dice: random.Random
    senders: list[PairedSender]
    expected: dict[str, Expected] = field(default_factory=lambda: {path: Expected() for path in PATHS})
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    count: int = 0

    async def step(self) -> None:
        what = self.dice.random()
        if what < 0.25:
            self._change(self.dice.choice(PATHS), self.dice.choice(CONDITIONS))
        elif what < 0.35:
            self._change_backlog()
        elif what < 0.8:
            for _ in range(self.dice.choice((1, 1, 5))):
                self.tasks.append(asyncio.ensure_future(self._send(self.dice.choice(self.senders))))
        else:
            # In small steps, so that the expectation is asked at every moment that matters.
            for _ in range(self.dice.randrange(1, 40)):
                await self.pair.runtime.advance(0.25)
                self.check()
        await self.pair.runtime.settle()
        self.check()

    async def _send(self, sender: PairedSender) -> None:
        self.count += 1
        text = f"{sender.entity_name} {self.count}"
        expected = self.expected[sender.entity_name]
        is_failed_over = self.pair.client.entity_state(sender.entity_name) is EntityState.FAILED_OVER
        try:
            await sender.send_messages(ServiceBusMessage(text))
        except SendAvailabilityBacklogError:
            self.refused.append(text)
        except ServiceBusServerBusyError:
            self.refused.append(text)
            expected.answered()
        except ServiceBusError:
            assert not is_failed_over, "while failed over nothing is tried on the primary"
            self.refused.append(text)
            expected.failed(self.pair.runtime.clock.monotonic())
        else:
            self.accepted.append(text)
            if text in self.pair.primary.bodies(sender.entity_name):
                expected.answered()

    def _change(self, path: str, condition: str) -> None:
        primary = self.pair.primary
        for name, members in (("down", primary.down), ("busy", primary.busy), ("hangs", primary.hangs)):
            members.discard(path)
            if condition == name:
                members.add(path)

    def _change_backlog(self) -> None:
        queue = self.dice.choice(self.pair.queues)
        self.pair.secondary.down.symmetric_difference_update({queue})

    def check(self) -> None:
        now = self.pair.runtime.clock.monotonic()
        for path, expected in self.expected.items():
            state = expected.at(now, self.pair.primary.pings[path].count(True))
            assert self.pair.client.entity_state(path) is state, (path, now, expected)


@covers("N5", "N6", "N7", "N10")
@pytest.mark.parametrize("seed", range(8))
async def test_at_every_moment_the_state_is_what_the_callers_saw_and_no_message_is_lost(seed: int) -> None:
    pair = ScriptedPair(
        failover_interval=timedelta(seconds=INTERVAL_S),
        ping_primary_interval=timedelta(seconds=PING_INTERVAL_S),
        operation_timeout=timedelta(seconds=TIMEOUT_S),
        seed=seed,
    )
    senders = [pair.client.get_queue_sender(path) for path in PATHS for _ in range(4)]
    world = World(pair, random.Random(seed), senders)
    for _ in range(STEPS):
        await world.step()
    pair.primary.down.clear()
    pair.primary.busy.clear()
    pair.primary.hangs.clear()
    pair.secondary.down.clear()
    for _ in range(200):
        await pair.runtime.advance(0.25)
        world.check()
    await asyncio.gather(*world.tasks)
    found = pair.in_backlog() + [text for path in PATHS for text in pair.primary.bodies(path)]
    assert sorted(found) == sorted(world.accepted), "each once, in one of the two places, and nothing else"
    assert len(world.accepted) + len(world.refused) == world.count > 50
    assert len(pair.told(FailoverEngaged)) == sum(one.failover_count for one in world.expected.values())
    for path in PATHS:
        pings = [event.at for event in pair.told(PingSent) if event.path == path]
        failovers = [event.at for event in pair.told(FailoverEngaged) if event.path == path]
        for earlier, later in itertools.pairwise(pings):
            assert later - earlier >= PING_INTERVAL_S - 1e-6 or later in failovers
    assert all(pair.client.entity_state(path) is EntityState.HEALTHY for path in PATHS)
