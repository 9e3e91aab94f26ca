"""Pings among a hundred thousand looks at entities: nobody who receives, counts or peeks ever sees one (N10)."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Sequence

from tandembus.client import OutgoingMessage, ReceivedMessage, ReceiveMode, ServiceBus, connect
from tandembus.pairing.ping import PING_CONTENT_TYPE
from tandembus.testing import AsyncEmbeddedNamespace
from tests.covers import covers

LOOKS = 100_000
ROUNDS = 20
BATCH = 240
"""Messages of a round, for each entity, with as many pings between them."""
PINGS = 10
"""More of them in a round, one by one, as pairing sends them."""
PEEKS = 6
"""How often everything is peeked at before it is received."""
PAGE = 250
MARK = PING_CONTENT_TYPE.encode()
WAIT_S = 10.0
ENTITIES = {"plain": "plain", "partitioned": "partitioned", "topic": "topic/subscriptions/all"}
"""Where messages go, and where they come out."""


def ping(session_id: str | None = None) -> OutgoingMessage:
    return OutgoingMessage(b"", content_type=PING_CONTENT_TYPE, session_id=session_id, time_to_live_s=1.0)


class Onlooker:
    """Sends messages and pings to one entity, and looks at it in every way there is."""

    def __init__(self, bus: ServiceBus, namespace: AsyncEmbeddedNamespace, target: str, outlet: str) -> None:
        self._bus = bus
        self._namespace = namespace
        self._target = target
        self._outlet = outlet
        self.looks: Counter[str] = Counter()

    async def run(self) -> None:
        sender = await self._bus.sender(self._target)
        for number in range(ROUNDS):
            bodies = [b"%d-%03d" % (number, at) for at in range(BATCH)]
            # The keys of a batch have to agree (P27), so the pings in it are of no session.
            mixed = [one for body in bodies for one in (OutgoingMessage(body), ping())]
            await sender.send_batch(mixed)
            await asyncio.gather(*[sender.send(ping(uuid.uuid4().hex)) for _ in range(PINGS)])
            await self._look(bodies)
        await sender.send(ping(uuid.uuid4().hex))
        await self._look([])

    async def _look(self, expected: list[bytes]) -> None:
        await self._count(len(expected))
        for _ in range(PEEKS):
            self._check("peeks", await self._peeked(), expected)
        received = await self._received(len(expected))
        self._check("receives", received, expected)
        assert sorted(str(one.body) for one in received) == [str(body) for body in expected]
        await self._count(0)

    def _check(self, how: str, found: Sequence[ReceivedMessage], expected: list[bytes]) -> None:
        assert not any(MARK in one.payload for one in found), "a ping was seen"
        assert len(found) == len(expected)
        self.looks[how] += max(len(found), 1)

    async def _count(self, expected: int) -> None:
        counts = await self._namespace.counts(self._outlet)
        assert (counts.active, counts.scheduled, counts.dead_letter) == (expected, 0, 0)
        self.looks["counts"] += 1

    async def _peeked(self) -> list[ReceivedMessage]:
        management = await self._bus.management(self._outlet)
        found: list[ReceivedMessage] = []
        while page := await management.peek(found[-1].sequence_number + 1 if found else 1, PAGE):
            found += page
        await management.close()
        return found

    async def _received(self, count: int) -> list[ReceivedMessage]:
        """Everything, and then once more, for whatever else there may be."""
        receiver = await self._bus.receiver(self._outlet, mode=ReceiveMode.RECEIVE_AND_DELETE)
        found: list[ReceivedMessage] = []
        while len(found) < count and (some := await receiver.receive(BATCH, WAIT_S)):
            found += some
        found += await receiver.receive(BATCH, 0.0)
        await receiver.close()
        return found


@covers("N10")
async def test_no_ping_is_seen_by_any_of_a_hundred_thousand_receives_counts_and_peeks() -> None:
    looks: Counter[str] = Counter()
    async with AsyncEmbeddedNamespace() as namespace, await connect(namespace.connection_string) as bus:
        await namespace.create_queue("plain")
        await namespace.create_queue("partitioned", enable_partitioning=True)
        await namespace.create_topic("topic")
        await namespace.create_subscription("topic", "all")
        for target, outlet in ENTITIES.items():
            onlooker = Onlooker(bus, namespace, target, outlet)
            await onlooker.run()
            looks += onlooker.looks
    assert looks.total() >= LOOKS, looks
