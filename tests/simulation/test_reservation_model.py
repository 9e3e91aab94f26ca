"""Random lives of a queue with owners and receivers, against a model that is a table of states.

Whatever fails in between and is asked again: no message is lost, handed out twice, or settled by anybody but its owner.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from tandembus.broker.locks import ABANDON, COMPLETE
from tandembus.errors import StaleEpoch, StoreUnavailable
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, Receiver
from tests.unit.broker.reserving_queue import OwnerAt

SEEDS = range(12)
STEPS = 60
ACTIVE, GONE = "", "gone"


class Model:
    """Each number is active, gone, or an owner's (by its name)."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.states: dict[int, str] = {}
        self.queue: OneQueue
        self.owners = [OwnerAt(None, name) for name in ("a", "b")]  # type: ignore[arg-type]
        self.sent = 0

    def of(self, state: str) -> list[int]:
        return [number for number, one in sorted(self.states.items()) if one == state]

    def begin(self, queue: OneQueue) -> None:
        self.queue = queue
        for owner in self.owners:
            owner.queue = queue

    async def certainly(self, step: str, owner: OwnerAt, numbers: list[int]) -> list[int]:
        """Ask until it is answered: any failure in between may have happened before the commit or after it."""
        if self.random.random() < 0.3:
            self.queue.fault_next(self.random.choice([Fault.UNKNOWN_KEPT, Fault.UNKNOWN_LOST]))
        while True:
            try:
                found = await self.ask(step, owner, numbers)
                self.queue.disk.faults.clear()  # not every request needs a commit
                return found
            except StoreUnavailable:
                await self.reopened()

    async def ask(self, step: str, owner: OwnerAt, numbers: list[int]) -> list[int]:
        if step == "open":
            await owner.open()
        elif step == "reserve":
            return await owner.reserve_again(len(numbers))
        elif step == "complete":
            await owner.complete(numbers)
        else:
            await owner.release(numbers)
        return []

    async def reopened(self) -> None:
        while self.queue.fragment.failure is not None or self.queue.broker.failure is not None:
            self.queue.broker.reopen_soon()
            await asyncio.sleep(0)

    async def step(self) -> None:
        owner = self.random.choice(self.owners)
        match self.random.choice(["send", "open", "reserve", "reserve", "complete", "release", "receive", "stale"]):
            case "send":
                bodies = [str(self.sent + one) for one in range(self.random.randrange(1, 12))]
                self.sent += len(bodies)
                self.states.update(dict.fromkeys(await self.queue.send(*bodies), ACTIVE))
            case "open":
                await self.certainly("open", owner, [])
            case "reserve" if owner.epoch >= 0:
                owner.request += 1
                wanted = self.of(ACTIVE)[: self.random.randrange(1, 15)]
                found = await self.certainly("reserve", owner, wanted or [0])
                assert [number for number in found if self.states[number] != GONE] == wanted
                self.states.update(dict.fromkeys(wanted, owner.name))
            case "complete" | "release" as ending if owner.epoch >= 0:
                asked = [number for number in self.states if self.random.random() < 0.4]
                await self.certainly(ending, owner, asked)
                mine = set(self.of(owner.name)) & set(asked)
                self.states.update(dict.fromkeys(mine, GONE if ending == "complete" else ACTIVE))
            case "receive":
                await self.receive()
            case "stale" if owner.epoch >= 0:
                old = OwnerAt(self.queue, owner.name)
                old.epoch = owner.epoch
                await self.certainly("open", owner, [])
                with pytest.raises(StaleEpoch):
                    await old.complete(list(self.states))

    async def receive(self) -> None:
        """What is active comes in order; each is completed or given back."""
        receiver = Receiver(self.queue, 0, False)
        await receiver.take(self.random.randrange(1, 10))
        receiver.consumer.credit = 0
        numbers = [int(lock.number) for lock in receiver.locks]
        assert numbers == sorted(numbers)
        for lock in list(receiver.locks):
            assert self.states[int(lock.number)] == ACTIVE
            settlement = COMPLETE if self.random.random() < 0.7 else ABANDON
            answer = self.queue.settle(lock, settlement)
            await self.queue.quiet()
            assert answer.is_accepted
            if settlement == COMPLETE:
                self.states[int(lock.number)] = GONE
        receiver.leave()
        await self.queue.quiet()

    async def check(self) -> None:
        for owner in self.owners:
            if owner.epoch >= 0:
                reserved = [number for number in await owner.reserved() if self.states[number] != GONE]
                assert reserved == self.of(owner.name)
        assert len(await self.queue.peek()) == len(self.states) - len(self.of(GONE))
        assert int(self.queue.fragment.main.live_count) == len(self.states) - len(self.of(GONE))


@covers("D1")
@pytest.mark.parametrize("seed", SEEDS)
async def test_reservations_are_what_the_model_says(seed: int) -> None:
    model = Model(seed)
    queue = OneQueue()
    model.queue = queue
    await queue.__aenter__()
    model.begin(queue)
    # Whoever is delivered to three times would be dead-lettered: nobody is, here.
    queue.settings.max_delivery_count = 1000
    for step in range(STEPS):
        await model.step()
        if step % 10 == 9:
            following = await model.queue.after_crash()
            await following.__aenter__()
            model.begin(following)
        await model.check()
    for owner in model.owners:
        await owner.ledger.release(0, owner.name, None, None)
    receiver = Receiver(model.queue, 0, False)
    await receiver.take(2000)
    assert [int(lock.number) for lock in receiver.locks] == [
        n for n, one in sorted(model.states.items()) if one != GONE
    ]
    assert model.queue.disk.reserved == {}
    await model.queue.__aexit__()
