"""A namespace of several processes as tests use it: what it consists of, who can be killed, and what clients see."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings, TopicSettings
from tandembus.client.messages import OutgoingMessage
from tandembus.client.service_bus import ServiceBus, connect
from tandembus.client.topology import Topology, topology_of
from tandembus.errors import BusError
from tests.integration.serving import RunningNamespace, start_namespace

COMES_WITHIN_S = 30.0


class Processes:
    """Started with some number of brokers, stopped, started with another, killed as a whole or in part."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        self.running = start_namespace(data, *options)

    @property
    def connection_string(self) -> str:
        return self.running.connection_string

    def restart(self, *options: str, end: Callable[[RunningNamespace], object] = RunningNamespace.stop) -> None:
        end(self.running)
        self.running = start_namespace(self.data, *options, port=self.running.port)

    # What it consists of.

    @asynccontextmanager
    async def administration(self) -> AsyncIterator[Administration]:
        async with Administration(self.connection_string, ca_path=str(self.running.ca_path)) as administration:
            yield administration

    async def topology(self, entity: str | None = None) -> Topology:
        async with self.administration() as administration:
            return await topology_of(administration.requests, entity)

    async def broker(self, index: int) -> dict[str, Any]:
        return dict((await self.topology()).brokers[index])

    async def front_end(self, index: int) -> dict[str, Any]:
        return dict((await self.topology()).front_ends[index])

    async def stores_of(self, path: str) -> list[int]:
        (entity,) = (await self.topology(path)).entities
        fragments: Any = entity["fragments"]
        return [fragment["store"] for fragment in fragments]

    async def signal_broker(self, index: int, number: signal.Signals) -> int:
        pid = (await self.broker(index))["pid"]
        os.kill(pid, number)
        return int(pid)

    async def until(self, condition: Callable[[Topology], object]) -> Topology:
        give_up_at = time.monotonic() + COMES_WITHIN_S
        while True:
            try:
                found = await self.topology()
                if condition(found):
                    return found
            except (BusError, OSError):
                found = Topology()
            assert time.monotonic() < give_up_at, f"it did not come: {found}"
            await asyncio.sleep(0.05)

    async def until_ready(self) -> Topology:
        return await self.until(is_ready)

    # What clients see.

    @asynccontextmanager
    async def client(self) -> AsyncIterator[ServiceBus]:
        async with await connect(self.connection_string) as bus:
            yield bus

    async def make_queues(self, *names: str, **settings: Any) -> None:
        async with self.administration() as administration:
            for name in names:
                await administration.create_queue(name, QueueSettings(**settings))

    async def make_topic(self, name: str, *subscriptions: str) -> None:
        async with self.administration() as administration:
            await administration.create_topic(name, TopicSettings())
            for one in subscriptions:
                await administration.create_subscription(name, one)

    async def send(self, entity: str, bodies: Iterable[str]) -> None:
        async with self.client() as bus:
            sender = await bus.sender(entity)
            await sender.send_many([OutgoingMessage(body.encode()) for body in bodies])

    async def until_accepted(self, entity: str, body: str) -> None:
        """Sends again what is refused, as clients do: a connection that has just broken is made anew."""
        give_up_at = time.monotonic() + COMES_WITHIN_S
        while True:
            try:
                return await self.send(entity, [body])
            except BusError as refusal:
                if not refusal.retryable or time.monotonic() > give_up_at:
                    raise

    async def receive_all(self, entity: str, count: int, wait_s: float = 10.0) -> list[str]:
        """So many messages, completed; fewer, if no more came in time."""
        found: list[str] = []
        async with self.client() as bus:
            receiver = await bus.receiver(entity)
            while len(found) < count:
                messages = await receiver.receive(count - len(found), wait_s)
                if not messages:
                    break
                await receiver.complete(*messages)
                found += [_text(message.body) for message in messages]
        return found

    async def counts(self, queue: str) -> int:
        async with self.administration() as administration:
            count = (await administration.get_queue(queue)).counts.active
        assert count is not None
        return count


def is_ready(topology: Topology) -> bool:
    return all(one["state"] == "ready" for one in (*topology.brokers, *topology.front_ends)) and all(
        one["state"] == "available" for one in topology.stores
    )


def is_gone(pid: int) -> bool:
    try:
        return _state(pid) == "Z"
    except FileNotFoundError:
        return True


def is_stopped(pid: int) -> bool:
    return _state(pid) == "T"


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def _text(body: object) -> str:
    assert isinstance(body, bytes)
    return body.decode()
