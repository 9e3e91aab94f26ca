"""Forwarding is pointed elsewhere while brokers die and answers are lost: each message is somewhere once."""

from __future__ import annotations

import random

import pytest

from tandembus.broker import message_broker
from tandembus.errors import StoreUnavailable
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.scale import scaled
from tests.unit.broker.one_queue import Answer
from tests.unit.broker.several_queues import numbered, settings
from tests.unit.broker.several_stores import Placed, SeveralStores

STEPS = 60
FAULTS = [Fault.UNKNOWN_KEPT, Fault.UNKNOWN_LOST, Fault.FULL]
TARGETS = ["b", "c", "many", "own", ""]


@pytest.fixture(autouse=True)
def _reopens_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_broker, "FIRST_REOPEN_S", 0.0)


class Changes:
    """The source's broker lives on: what it remembers of its flights does not outlive it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        places = {"b": (1,), "c": (2,), "many": (1, 2, 0, 1), "own": (0,)}
        entities = {name: Placed(settings(), stores) for name, stores in places.items()}
        self.stores = SeveralStores(3, a=Placed(settings("b"), (0,)), **entities)
        self.answers: dict[str, Answer] = {}

    async def step(self) -> None:
        stores, chance = self.stores, self.random.random()
        if chance < 0.4:
            await self.send()
        elif chance < 0.5:
            await stores.change("a", settings(self.random.choice(TARGETS)))
        elif chance < 0.6:
            stores.lose_answers += 1
        elif chance < 0.65:
            stores.lose_requests += 1
        elif chance < 0.8:
            await self.kill_or_restart(self.random.choice([1, 2]))
        elif chance < 0.85:
            disk = stores.stores[0].disk
            disk.faults[disk.commit_count + self.random.randint(1, 3)] = self.random.choice(FAULTS)
        else:
            await stores.pass_time(self.random.choice([1.0, 10.0]))
        await stores.quiet()

    async def send(self) -> None:
        body = f"m{len(self.answers):03}"
        try:
            self.answers[body] = await self.stores.stage("a", numbered(body))
        except StoreUnavailable:
            self.answers[body] = Answer()  # it was refused on the spot

    async def kill_or_restart(self, store: int) -> None:
        if store in self.stores.down:
            await self.stores.restart(store)
        else:
            await self.stores.kill(store)

    async def heal(self) -> None:
        stores = self.stores
        stores.lose_answers = stores.lose_requests = 0
        stores.stores[0].disk.faults.clear()
        for store in sorted(stores.down):
            await stores.restart(store)
        for _ in range(6):
            await stores.quiet()
            await stores.pass_time(61.0)


@covers("P17", "M1")
@pytest.mark.parametrize("seed", range(scaled(10, 40, 400)))
async def test_each_message_is_somewhere_once_wherever_it_was_to_go_meanwhile(seed: int) -> None:
    changes = Changes(seed)
    async with changes.stores as stores:
        for _ in range(STEPS):
            await changes.step()
        await changes.heal()
        found = await stores.everything()
        assert [body for body, count in found.items() if count > 1] == []
        assert {body for body, answer in changes.answers.items() if answer.is_accepted} <= set(found)
        if stores.entities["a"].settings.forward_to:
            assert await stores.peek("a") == []
