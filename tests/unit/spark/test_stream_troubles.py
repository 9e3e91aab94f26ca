"""Streams in trouble, by seeds: connections go before or after whatever is asked, drivers die at any moment.

Played against a real namespace as Spark plays it. However it goes: every message is read, in order, and settled.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tandembus.client import Management, Receiver
from tandembus.client.errors import ConnectionLost
from tandembus.client.reservations import Reservations
from tandembus.clock import SystemClock
from tandembus.loop_thread import LoopThread
from tandembus.spark.source import deferral
from tandembus.spark.source import link as link_module
from tandembus.spark.source.backends import ledger_for
from tandembus.spark.source.link import Link
from tandembus.spark.source.offsets import Offset
from tandembus.spark.source.options import SourceOptions
from tandembus.spark.source.ranges import numbers_of
from tandembus.spark.source.stream import Stream
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.unit.spark.stage import Stage, numbered

COUNT = 90
LOCK_S = 61.0


class ShakyLink(Link):
    """Its connection is lost at times: before the service hears of a request, or before it is heard."""

    def __init__(self, options: SourceOptions, chance: random.Random, share: float) -> None:
        super().__init__(options)
        self._chance = chance
        self._share = share

    def _shake(self) -> None:
        if self._chance.random() < self._share:
            raise ConnectionLost("shaken")

    def _shaken(self, owner: object, *names: str) -> None:
        """Once for each object: what a link gives is kept for the next time."""
        if names[0] in vars(owner):
            return
        for name in names:
            setattr(owner, name, self._shaken_call(getattr(owner, name), is_heard=name != "receive"))

    # What a lost link was about to deliver stays locked for a while and is overtaken, whatever a reader does: so here
    # everything that is received arrives.
    def _shaken_call(self, call: Callable[..., Awaitable[Any]], *, is_heard: bool) -> Callable[..., Awaitable[Any]]:
        async def shaken(*given: Any, **named: Any) -> Any:
            self._shake()
            answer = await call(*given, **named)
            if is_heard:
                self._shake()
            return answer

        return shaken

    async def management(self, entity: str) -> Management:
        node = await super().management(entity)
        self._shaken(node, "_ask")
        return node

    async def reservations(self, entity: str) -> Reservations:
        reservations = await super().reservations(entity)
        self._shaken(reservations, "_ask")
        return reservations

    async def receiver(self, entity: str) -> Receiver:
        receiver = await super().receiver(entity)
        self._shaken(receiver, "defer", "release", "receive")
        return receiver


class Driver:
    """Spark's part: two logs that outlive the process, and a process that does not live long."""

    def __init__(self, stage: Stage, backend: str, seed: int, loop: LoopThread) -> None:
        self._stage = stage
        self._options = stage.options(entities=stage.queue, backend=backend, owner="o", retryFor="1")
        self._chance = random.Random(seed)
        self._loop = loop
        self.read: list[int] = []
        self._begin()
        self._start: Offset = self._stream.initial()
        self._planned: Offset | None = None

    def _begin(self) -> None:
        self._link = ShakyLink(self._options, self._chance, self._chance.choice((0.0, 0.03, 0.1)))
        self._stream = Stream(self._options, self._link, ledger_for(self._link, SystemClock()))

    def _maybe_die(self) -> bool:
        if self._chance.random() > 0.1:
            return False
        self._loop.call(self._link.drop())
        self._stage.namespace.clock.advance(LOCK_S)
        self._begin()
        return True

    def step(self) -> None:
        if self._planned is None:
            limit_bytes = self._chance.choice((2000, 1 << 30))
            end = self._loop.call(self._stream.latest(self._start, self._chance.choice((7, 30)), limit_bytes))
            if end == self._start or self._maybe_die():
                self._stage.namespace.clock.advance(LOCK_S)
                return
            self._planned = end
        self._maybe_die()
        batch = self._loop.call(self._stream.batch(self._start, self._planned))
        there = {message.sequence_number for message in self._stage.peek()}
        numbers = numbers_of(batch[self._stage.queue])
        assert there.union(self.read).issuperset(numbers)
        self.read += numbers
        self._start, self._planned = self._planned, None
        self._maybe_die()

    def close(self) -> None:
        self._loop.call(self._link.drop())


@covers("D1")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("backend", ["native", "azure"])
def test_whatever_happens_every_message_is_read_in_order_and_settled(
    backend: str,
    seed: int,
    plain_namespace: EmbeddedNamespace,
    namespace: EmbeddedNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module, name in ((link_module, "FIRST_PAUSE_S"), (link_module, "LONGEST_PAUSE_S"), (deferral, "FIRST_WAIT_S")):
        monkeypatch.setattr(module, name, 0.002)
    stage = Stage(namespace if backend == "native" else plain_namespace, f"q-{uuid.uuid4().hex[:12]}")
    stage.create()
    stage.send(numbered(COUNT))
    with LoopThread() as loop:
        driver = Driver(stage, backend, seed, loop)
        for _ in range(400):
            driver.step()
            if not stage.peek():
                break
        driver.close()
    assert list(dict.fromkeys(driver.read)) == list(range(1, COUNT + 1))
    assert stage.peek() == []
