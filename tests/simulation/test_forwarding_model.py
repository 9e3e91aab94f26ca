"""Queues that forward to each other while commits fail, reads are slow, destinations come and go, and the broker dies:
every accepted message is in one place, once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from tandembus.errors import BusError, EntityDisabled, StoreUnavailable
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.scale import scaled
from tests.unit.broker.one_queue import Answer
from tests.unit.broker.one_topic import ALL
from tests.unit.broker.several_queues import SeveralQueues, numbered, settings

STEPS = 40
SUBSCRIPTION = 11
FAULTS = (Fault.FULL, Fault.UNKNOWN_LOST, Fault.UNKNOWN_KEPT)


class ForwardingModel:
    """Random steps of one seed; then everything heals, and what is there is compared with what was accepted."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.queues = SeveralQueues(
            {
                "a": settings("b"),
                "b": settings("t"),
                "t": settings(),
                "end": settings(duplicate_window_ms=600_000),
                "small": settings(max_size_bytes=400),
            }
        )
        self.queues.topics["t"] = [(SUBSCRIPTION, settings("end"), ALL)]
        self.queues.disk.before_read = self._dawdle
        self.sent: dict[str, Answer] = {}

    async def _dawdle(self) -> None:
        for _ in range(self.chance.choice((0, 0, 1, 3))):
            await asyncio.sleep(0)

    async def run(self) -> None:
        steps = (self.send, self.send, self.send_via, self.send_via, self.fail, self.disable, self.enable)
        rare = (self.crash, self.redirect, self.pass_time, self.close)
        for _ in range(STEPS):
            step = self.chance.choice(steps if self.chance.random() < 0.8 else rare)
            try:
                await step()
            except BusError:
                pass  # refused on the spot: nothing was taken
            await self.turn()

    async def turn(self) -> None:
        for _ in range(self.chance.randrange(12)):
            await asyncio.sleep(0)
        if self.queues.broker.failure is not None:
            await self.crash()

    async def send(self) -> None:
        await self._send(self.chance.choice(("a", "b", "t", "end")), "")

    async def send_via(self) -> None:
        await self._send(self.chance.choice(("a", "end")), self.chance.choice(("end", "small", "nowhere")))

    async def _send(self, name: str, via: str) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            body = f"m{len(self.sent):03}"
            self.sent[body] = await self.queues.stage(name, numbered(body), via=via)

    async def fail(self) -> None:
        disk = self.queues.disk
        disk.faults[disk.commit_count + self.chance.randrange(1, 3)] = self.chance.choice(FAULTS)

    async def disable(self) -> None:
        self.queues.refusals[self.chance.choice(("b", "t", "end"))] = EntityDisabled("disabled")

    async def enable(self) -> None:
        self.queues.refusals.clear()
        self.queues.broker.forwarding.retry_all()

    async def redirect(self) -> None:
        await self.queues.change("b", settings(self.chance.choice(("t", "end"))))

    async def pass_time(self) -> None:
        self.queues.clock.advance(5.0)
        self.queues.broker.forwarding.retry_due()
        self.queues.broker.check_room()

    async def close(self) -> None:
        for name in ("a", "b", "end"):
            self.queues.broker.close_fragment(self.queues.keys[name])

    async def crash(self) -> None:
        """And come back, however often it takes: what is opened goes on forwarding, and meets the next fault."""
        is_back = False
        while not is_back:
            await self.queues.crash()
            try:
                for name in self.queues.queues:
                    await self.queues.open(name)
                is_back = True
            except StoreUnavailable:
                pass

    async def heal(self) -> None:
        queues = self.queues
        queues.disk.faults.clear()
        queues.disk.before_read = None
        await self.crash()
        queues.refusals.clear()
        for _ in range(4):
            await queues.quiet()
            await queues.pass_time(60.0)

    async def check(self) -> None:
        found: Counter[str] = Counter()
        for lanes in (await self.queues.contents()).values():
            for bodies in lanes:
                found.update(bodies)
        topic = await self.queues.open("t")
        assert topic.fan_out is not None
        for lane in range(4):
            own = await self.queues.messages_of(topic.fan_out.subscriptions[SUBSCRIPTION], lane)
            assert not own, "the subscription forwards all it has"
        assert max(found.values(), default=1) == 1, "something is there twice"
        lost = [body for body, answer in self.sent.items() if answer.is_accepted and body not in found]
        assert not lost
        assert set(found) <= set(self.sent)
        assert not await self.queues.peek("a")
        assert not await self.queues.peek("b")


@covers("M1", "M8", "M10", "F2", "F3")
@pytest.mark.parametrize("seed", range(scaled(40, 400, 4_000)))
async def test_every_accepted_message_is_in_one_place_whatever_happens_on_its_way(seed: int) -> None:
    model = ForwardingModel(seed)
    async with model.queues:
        await model.run()
        await model.heal()
        await model.check()
        assert model.sent
