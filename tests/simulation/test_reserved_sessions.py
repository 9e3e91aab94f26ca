"""Random lives of a queue with sessions, owners and receivers: each session is one's at a time, and keeps its order."""

from __future__ import annotations

import random

import pytest

from tandembus.errors import SessionCannotBeLocked
from tests.covers import covers
from tests.scale import scaled
from tests.unit.broker.one_queue import small
from tests.unit.broker.reserving_queue import OwnerAt
from tests.unit.broker.session_queue import SessionQueue, SessionReceiver

STEPS = 60
SESSIONS = "abcd"
SHORT_MS = 5_000


class Model:
    """Of each number: its session, until when it lives, and whose it is. Empty: nobody's."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.queue: SessionQueue
        self.owners = [OwnerAt(None, name) for name in ("one", "other")]  # type: ignore[arg-type]
        self.sessions: dict[int, str] = {}
        self.ends: dict[int, int | None] = {}
        self.whose: dict[int, str] = {}
        self.receivers: dict[str, SessionReceiver] = {}
        self.reserved_count = 0

    def begin(self, queue: SessionQueue) -> None:
        self.queue = queue
        self.receivers = {}
        for owner in self.owners:
            owner.queue = queue

    def waiting(self, session: str) -> list[int]:
        now_ms = self.queue.clock.now_ms()
        return [
            number
            for number, of_session in self.sessions.items()
            if of_session == session and not self.whose[number] and (self.ends[number] or now_ms + 1) > now_ms
        ]

    def owner_of(self, session: str) -> set[str]:
        return {whose for number, whose in self.whose.items() if whose and self.sessions[number] == session}

    def forget(self, number: int) -> None:
        del self.sessions[number], self.ends[number], self.whose[number]

    async def step(self) -> None:
        owner = self.random.choice(self.owners)
        session = self.random.choice(SESSIONS)
        match self.random.choice(["send", "send", "reserve", "reserve", "end", "accept", "receive", "leave", "time"]):
            case "send":
                ttl_ms = self.random.choice([None, None, SHORT_MS])
                bodies = ["x"] * self.random.randrange(1, 6)
                for number in await self.queue.send_to(session, *bodies, ttl_ms=ttl_ms):
                    self.sessions[number], self.whose[number] = session, ""
                    self.ends[number] = None if ttl_ms is None else self.queue.clock.now_ms() + ttl_ms
            case "reserve":
                await self.reserve(owner)
            case "end":
                await self.end(owner)
            case "accept":
                await self.accept(session)
            case "receive" if self.receivers:
                await self.receive(self.random.choice(sorted(self.receivers)))
            case "leave" if self.receivers:
                await self.receivers.pop(self.random.choice(sorted(self.receivers))).leave()
            case "time":
                self.queue.clock.advance(self.random.choice([1.0, 3.0]))

    async def reserve(self, owner: OwnerAt) -> None:
        expected = [
            number
            for session in SESSIONS
            if session not in self.receivers and self.owner_of(session) <= {owner.name}
            for number in self.waiting(session)
        ]
        wanted = sorted(expected)[: self.random.randrange(1, 12)]
        found = await owner.reserve(max(len(wanted), 1))
        alive = {number for session in SESSIONS for number in self.waiting(session)}
        assert [number for number in found if number in alive] == wanted, "ranges go over what is gone"
        self.reserved_count += len(wanted)
        self.whose.update(dict.fromkeys(wanted, owner.name))
        reserved = self.queue.fragment.main.ledger.owners[owner.name].message_count
        assert int(reserved) == sum(whose == owner.name for whose in self.whose.values())

    async def end(self, owner: OwnerAt) -> None:
        """Of each session the first ones are completed, or all that it has released: so whoever is next finds order."""
        mine = [number for number, whose in self.whose.items() if whose == owner.name]
        if self.random.random() < 0.5:
            assert await owner.complete(mine[: len(mine) // 2]) == len(mine[: len(mine) // 2])
            for number in mine[: len(mine) // 2]:
                self.forget(number)
        else:
            assert await owner.release(mine) == len(mine)
            self.whose.update(dict.fromkeys(mine, ""))

    async def accept(self, session: str) -> None:
        if session in self.receivers or self.owner_of(session):
            with pytest.raises(SessionCannotBeLocked):
                await self.queue.accept(session)
        else:
            self.receivers[session] = await self.queue.accept(session)

    async def receive(self, session: str) -> None:
        receiver, waiting = self.receivers[session], self.waiting(session)
        before = len(receiver.locks)
        await receiver.take(2)
        receiver.consumer.credit = 0
        locks = receiver.locks[before:]
        assert [int(lock.number) for lock in locks] == waiting[:2]
        for lock in locks:
            await self.queue.complete(lock)
            self.forget(int(lock.number))

    async def crash(self) -> None:
        following = await self.queue.again()
        await following.__aenter__()
        self.begin(following)


@covers("D1")
@pytest.mark.parametrize("seed", range(scaled(12, 200, 2_000)))
async def test_a_session_is_one_owners_or_one_receivers_and_keeps_its_order(seed: int) -> None:
    model = Model(seed)
    queue = SessionQueue(small(requires_session=True, lock_duration_s=10_000.0, max_delivery_count=1000))
    await queue.__aenter__()
    model.begin(queue)
    for owner in model.owners:
        await owner.open()
    for step in range(STEPS):
        await model.step()
        if step % 15 == 14:
            await model.crash()
    assert model.reserved_count > 0
    await model.queue.__aexit__()
