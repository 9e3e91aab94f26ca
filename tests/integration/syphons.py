"""Two namespaces and syphons between them, in the process of the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from tandembus.client import OutgoingMessage, Payload, ReceivedMessage, ReceiveMode, ServiceBus, SubQueue, connect
from tandembus.client.messages import payload_of
from tandembus.clock import SystemClock
from tandembus.limits import Limits
from tandembus.pairing.aliases import backlog_path
from tandembus.pairing.client_ports import ClientBacklog, ClientPrimary, SharedConnection
from tandembus.pairing.payloads import to_backlog
from tandembus.pairing.runtime import Runtime
from tandembus.pairing.syphon import Syphon
from tandembus.pairing.syphon_observer import SyphonFigures
from tandembus.pairing.syphon_rules import SyphonSettings
from tandembus.testing import AsyncEmbeddedNamespace, EmbeddedNamespace

PRIMARY = "contoso"
QUIET_S = 0.2
POLL_S = 0.02
PATIENCE_S = 30.0


class Pair:
    """A primary and a secondary with backlog queues, and what a test does with them."""

    def __init__(self, primary: AsyncEmbeddedNamespace, secondary: AsyncEmbeddedNamespace, queue_count: int) -> None:
        self.primary = primary
        self.secondary = secondary
        self.queues = [backlog_path(PRIMARY, index) for index in range(queue_count)]
        self.figures = SyphonFigures(SystemClock())
        self._connections: list[SharedConnection] = []

    def connection_to(self, namespace: AsyncEmbeddedNamespace) -> SharedConnection:
        connection = SharedConnection(partial(connect, namespace.connection_string, timeout_s=5.0))
        self._connections.append(connection)
        return connection

    def syphon(
        self,
        settings: SyphonSettings | None = None,
        backlog: ClientBacklog | None = None,
        primary: ClientPrimary | None = None,
    ) -> Syphon:
        secondary = self.connection_to(self.secondary)
        return Syphon(
            [ClientBacklog(secondary, queue) for queue in self.queues] if backlog is None else [backlog],
            primary or ClientPrimary(self.connection_to(self.primary)),
            settings or SyphonSettings(quiet_s=0.1),
            self.figures,
            Runtime(SystemClock()),
        )

    @asynccontextmanager
    async def syphoning(
        self,
        settings: SyphonSettings | None = None,
        backlog: ClientBacklog | None = None,
        primary: ClientPrimary | None = None,
    ) -> AsyncIterator[Syphon]:
        """One at work, stopped in order at the end."""
        async with at_work(self.syphon(settings, backlog, primary)) as syphon:
            yield syphon

    async def cut_off(self) -> None:
        """Every connection of the syphons ends, as if a cable had been pulled."""
        for each in self._connections:
            await each.close()

    async def divert(self, path: str, messages: Sequence[Payload], queue: int = 0) -> None:
        """As senders do while their entity is failed over."""
        await self.store([to_backlog(payload_of(each), path) for each in messages], queue)

    async def store(self, payloads: Sequence[bytes], queue: int = 0) -> None:
        async with await connect(self.secondary.connection_string) as bus:
            await (await bus.sender(self.queues[queue])).send_many(payloads)

    async def at_home(self, path: str) -> list[ReceivedMessage]:
        """What is in an entity of the primary; it is empty then."""
        return await everything(self.primary, path)

    async def dead_letters(self, queue: int = 0) -> list[ReceivedMessage]:
        return await everything(self.secondary, self.queues[queue], SubQueue.DEAD_LETTER)

    async def left(self) -> int:
        """Messages in the backlog queues, whatever their state."""
        return sum([(await self.secondary.counts(queue)).active for queue in self.queues])


@asynccontextmanager
async def pair(
    *entities: str,
    queues: int = 1,
    limits: Limits | None = None,
    lock_duration_s: float = 60.0,
    enable_partitioning: bool = False,
) -> AsyncIterator[Pair]:
    async with (
        AsyncEmbeddedNamespace(name=PRIMARY, limits=limits) as primary,
        AsyncEmbeddedNamespace(name="secondary", limits=Limits(min_lock_duration_s=1.0)) as secondary,
    ):
        made = Pair(primary, secondary, queues)
        for queue in made.queues:
            await secondary.create_queue(
                queue,
                max_delivery_count=2147483647,
                lock_duration=lock_duration_s,
                enable_partitioning=enable_partitioning,
            )
        for entity in entities:
            await primary.create_queue(entity)
        yield made


async def everything(
    namespace: AsyncEmbeddedNamespace, path: str, sub_queue: SubQueue | None = None
) -> list[ReceivedMessage]:
    async with await connect(namespace.connection_string) as bus:
        return await _everything(bus, path, sub_queue)


async def _everything(bus: ServiceBus, path: str, sub_queue: SubQueue | None) -> list[ReceivedMessage]:
    receiver = await bus.receiver(path, sub_queue, mode=ReceiveMode.RECEIVE_AND_DELETE)
    found: list[ReceivedMessage] = []
    while some := await receiver.receive(1000, QUIET_S):
        found += some
    return found


def numbered(count: int, first: int = 0) -> list[OutgoingMessage]:
    return [OutgoingMessage(str(number), message_id=str(number)) for number in range(first, first + count)]


def bodies(messages: Sequence[ReceivedMessage]) -> list[int]:
    return [int(message.body) for message in messages if isinstance(message.body, bytes)]


@asynccontextmanager
async def at_work(syphon: Syphon) -> AsyncIterator[Syphon]:
    """Stopped in order at the end."""
    running = asyncio.ensure_future(syphon.run())
    try:
        yield syphon
    finally:
        await syphon.stop()
        await asyncio.wait_for(running, PATIENCE_S)


async def until(condition: Callable[[], Awaitable[bool]], patience_s: float = PATIENCE_S) -> None:
    """Asks again and again, until it is so."""
    ends_at = asyncio.get_running_loop().time() + patience_s
    while not await condition():
        assert asyncio.get_running_loop().time() < ends_at, "it did not come true"
        await asyncio.sleep(POLL_S)


def send_all(namespace: EmbeddedNamespace, path: str, payloads: Sequence[bytes]) -> None:
    """From a test that does not wait on an event loop of its own."""

    async def send() -> None:
        async with await connect(namespace.connection_string) as bus:
            await (await bus.sender(path)).send_many(payloads)

    asyncio.run(send())


def everything_in(namespace: EmbeddedNamespace, path: str) -> list[ReceivedMessage]:
    async def receive() -> list[ReceivedMessage]:
        async with await connect(namespace.connection_string) as bus:
            return await _everything(bus, path, None)

    return asyncio.run(receive())


def wait_until(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    async def holds() -> bool:
        return condition()

    asyncio.run(until(holds, patience_s))
