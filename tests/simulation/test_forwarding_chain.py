"""Chains of forwarding over three stores, each with a broker of its own that dies at every step: counts are equal,
order is kept, and nothing is there twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from tandembus.broker import message_broker
from tandembus.errors import BusError
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.scale import scaled
from tests.unit.broker.one_queue import Answer
from tests.unit.broker.one_topic import ALL
from tests.unit.broker.several_queues import numbered, settings
from tests.unit.broker.several_stores import Placed, SeveralStores

BODIES = [f"m{number:02}" for number in range(12)]
LAST_ROUND = 70
"""By then everything has arrived if nobody dies."""


@pytest.fixture(autouse=True)
def _reopens_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_broker, "FIRST_REOPEN_S", 0.0)


def chain() -> SeveralStores:
    return SeveralStores(3, a=Placed(settings("b"), (0,)), b=Placed(settings("c"), (1,)), c=Placed(settings(), (2,)))


async def rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def heal(stores: SeveralStores) -> None:
    for store in stores.stores:
        store.disk.faults.clear()
        store.disk.go_on.set()
    for number in range(len(stores.stores)):
        # Also those that only failed: whatever their brokers have in memory must not be needed.
        if number not in stores.down:
            await stores.kill(number)
    for number in range(len(stores.stores)):
        await stores.restart(number)
    for _ in range(4):
        await stores.quiet()
        await stores.pass_time(61.0)


@covers("P17", "M1", "F1")
@pytest.mark.parametrize("killed", range(3))
async def test_a_broker_of_a_chain_dies_between_any_two_steps(killed: int) -> None:
    arrived_before = 0
    for step in range(0, LAST_ROUND, scaled(2, 1, 1)):
        async with chain() as stores:
            answers = [await stores.stage("a", numbered(body)) for body in BODIES]
            await rounds(step)
            arrived_before = len(stores.stores[2].disk.bodies)
            await stores.kill(killed)
            await rounds(5)
            await stores.restart(killed)
            for _ in range(3):
                await stores.quiet()
                await stores.pass_time(61.0)
            found = await stores.peek("c")
            assert found == BODIES[: len(found)], f"killed after {step} rounds"
            assert len(found) >= sum(answer.is_accepted for answer in answers)
            assert await stores.everything() == Counter(found)
    assert arrived_before == len(BODIES), "the last kill comes when all is over"


@covers("P17", "M1", "F3")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_LOST, Fault.UNKNOWN_KEPT, Fault.FULL, Fault.HANG])
@pytest.mark.parametrize("store", range(3))
async def test_every_commit_of_a_chain_fails_in_turn(store: int, fault: Fault) -> None:
    for k in range(1, 7):
        async with chain() as stores:
            disk = stores.stores[store].disk
            answers = [await stores.stage("a", numbered(body)) for body in BODIES]
            disk.faults[disk.commit_count + k] = fault
            await rounds(LAST_ROUND)
            if fault is Fault.HANG and disk.is_hanging.is_set():
                await stores.kill(store)  # as a supervisor would
            await heal(stores)
            found = await stores.peek("c")
            assert found == BODIES[: len(found)]
            assert len(found) >= sum(answer.is_accepted for answer in answers)
            assert await stores.everything() == Counter(found)


class ChainModel:
    """Random steps of one seed over stores that fail and brokers that die, with messages of sessions, on their way
    through a partitioned queue and a partitioned topic; then everything heals."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.stores = SeveralStores(
            3,
            a=Placed(settings("b"), (0,)),
            b=Placed(settings("t"), (2, 0, 1, 1)),
            t=Placed(settings(), (1, 2), subscriptions=[(950, settings("end"), ALL)], is_topic=True),
            end=Placed(settings(), (0,)),
            twice=Placed(settings(duplicate_window_ms=600_000, is_partitioned=True), (2, 1)),
            small=Placed(settings(max_size_bytes=400), (1,)),
        )
        for store in self.stores.stores:
            store.disk.before_read = self._dawdle
        self.sent: dict[str, Answer] = {}
        self.sessions: dict[str, str] = {}

    async def _dawdle(self) -> None:
        await rounds(self.chance.choice((0, 0, 1, 3)))

    async def run(self) -> None:
        steps = (self.send, self.send, self.send_via, self.fail, self.lose, self.pass_time)
        rare = (self.kill, self.restart, self.restart, self.close)
        await self.send()
        for _ in range(scaled(40, 40, 60)):
            step = self.chance.choice(steps if self.chance.random() < 0.7 else rare)
            try:
                await step()
            except BusError:
                pass  # refused on the spot: nothing was taken
            await rounds(self.chance.randrange(30))

    async def send(self) -> None:
        await self._send(self.chance.choice(("a", "b")), "")

    async def send_via(self) -> None:
        await self._send("a", self.chance.choice(("end", "twice", "small", "b", "nowhere")))

    async def _send(self, name: str, via: str) -> None:
        index = self.chance.randrange(len(self.stores.entities[name].stores))
        if self.stores.entities[name].stores[index] in self.stores.down:
            return
        session = self.chance.choice((None, "s1", "s2", "s3"))
        for _ in range(self.chance.randrange(1, 5)):
            body = f"m{len(self.sent):03}"
            # Sessions keep their order only on one way: those of the first queue's.
            own = session if name == "a" and not via else None
            self.sent[body] = await self.stores.stage(name, numbered(body, own), via, index)
            if own is not None:
                self.sessions[body] = own

    async def fail(self) -> None:
        disk = self.chance.choice(self.stores.stores).disk
        faults = (Fault.FULL, Fault.UNKNOWN_LOST, Fault.UNKNOWN_KEPT)
        disk.faults[disk.commit_count + self.chance.randrange(1, 4)] = self.chance.choice(faults)

    async def lose(self) -> None:
        self.stores.lose_answers += self.chance.randrange(2)
        self.stores.lose_requests += self.chance.randrange(2)

    async def pass_time(self) -> None:
        self.stores.clock.advance(3.0)
        for number, store in enumerate(self.stores.stores):
            if number not in self.stores.down:
                store.broker.forwarding.retry_due()

    async def kill(self) -> None:
        up = [number for number in range(3) if number not in self.stores.down]
        if up:
            await self.stores.kill(self.chance.choice(up))

    async def restart(self) -> None:
        if self.stores.down:
            number = self.chance.choice(sorted(self.stores.down))
            self.stores.stores[number].disk.faults.clear()
            await self.stores.restart(number)

    async def close(self) -> None:
        """What nobody uses leaves the memory of its broker."""
        for name, entity in self.stores.entities.items():
            for index, store in enumerate(entity.stores):
                if store not in self.stores.down:
                    self.stores.broker_of(name, index).close_fragment(entity.first_key + index)

    async def check(self) -> None:
        found = await self.stores.everything()
        assert max(found.values(), default=1) == 1, "something is there twice"
        lost = [body for body, answer in self.sent.items() if answer.is_accepted and body not in found]
        assert not lost
        assert set(found) <= set(self.sent)
        arrived = await self.stores.peek("end")
        for session in ("s1", "s2", "s3"):
            own = [body for body in arrived if self.sessions.get(body) == session]
            assert own == sorted(own), "a session is out of order"
        for name in ("a", "b"):
            for index in range(len(self.stores.entities[name].stores)):
                assert not await self.stores.peek(name, index=index)


@covers("P17", "P10", "M1", "M7", "F1", "F3")
@pytest.mark.parametrize("seed", range(scaled(40, 400, 4_000)))
async def test_every_accepted_message_is_in_one_place_whichever_brokers_die_on_its_way(seed: int) -> None:
    model = ChainModel(seed)
    async with model.stores:
        await model.run()
        model.stores.lose_answers = model.stores.lose_requests = 0
        for store in model.stores.stores:
            store.disk.before_read = None
        await heal(model.stores)
        await model.check()
        assert model.sent
