"""A broker and a front end with a real socket between them, in one loop; and somebody who cuts the line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tandembus.broker.fragment import Fragment
from tandembus.broker.locks import CallbackSettleReply, MessageLock
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.operations import CallbackConsumer, CallbackSendReply, SendOperation
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.transactions import CallbackTransactionReply, TransactionOperation, TransactionSettlement
from tandembus.clock import Clock, ManualClock
from tandembus.errors import BusError, FragmentUnavailable
from tandembus.interconnect.channel import Channel
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.handshake import Party
from tandembus.interconnect.remote_requests import RemoteRequests
from tandembus.interconnect.remote_traffic import RemoteTraffic
from tandembus.interconnect.server import ChannelServer, ServedStore
from tandembus.interconnect.traffic import Traffic
from tandembus.message import Message
from tandembus.store.memory import MemoryDisk, MemoryStore
from tandembus.store.messaging_store import MAIN, MessagingStore
from tests.unit.broker.one_queue import Answer, body_of, message, small

INSTALL_KEY = bytes(range(32))
KEY = 5
"""Of the fragment that most tests use."""


async def until(is_so: Callable[[], bool], within_s: float = 10.0) -> None:
    """Both ends run in this loop, so they only need their turns."""
    deadline = asyncio.get_running_loop().time() + within_s
    while not is_so():
        assert asyncio.get_running_loop().time() < deadline, "it has not come to that"
        await asyncio.sleep(0.0005)


async def in_the_turn(is_so: Callable[[], bool]) -> None:
    """Returns in the very turn of the loop in which it is so, before what comes of it has reached anybody."""
    for _ in range(100_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it has not come to that")


async def turns() -> None:
    """What is under way has got where it was going: both ends run in this loop."""
    for _ in range(200):
        await asyncio.sleep(0)


class BrokerEnd:
    """One life of a broker with one store; the disk outlives it."""

    def __init__(
        self,
        path: Path,
        disk: MemoryDisk,
        clock: Clock,
        fragments: dict[int, FragmentSettings],
        settings: ChannelSettings | None = None,
        key: bytes = INSTALL_KEY,
        party: Party | None = None,
    ) -> None:
        self.path = path
        self.disk = disk
        self.clock = clock
        self.fragments = fragments
        """Settings by fragment key; its index is the key less the first key."""
        self.broker = MessageBroker(self._open_store, clock, commit_outage_s=5.0)
        self.is_gone = False
        self.open_faults: list[BusError] = []
        self.before_open: Callable[[int], asyncio.Future[None]] | None = None
        self.opened: list[int] = []
        self.served = ServedStore(self.broker, self._open_by_key, clock, settings or ChannelSettings())
        self.server = ChannelServer(key, party or Party("broker", {"index": 0}), {0: self.served})

    async def _open_store(self) -> MessagingStore:
        if self.open_faults:
            raise self.open_faults.pop(0)
        return MemoryStore(self.disk)

    async def _open_by_key(self, key: int) -> Fragment | None:
        self.opened.append(key)
        if self.before_open is not None:
            await self.before_open(key)
        settings = self.fragments.get(key)
        return None if settings is None else await self.broker.open_fragment(key, self.index_of(key), settings)

    def index_of(self, key: int) -> int:
        return key - min(self.fragments)

    async def start(self) -> BrokerEnd:
        await self.broker.start()
        for key in self.fragments:
            if key not in self.disk.heads:
                await self.broker.make_fragment(key, 1, self.index_of(key))
        await self.server.start(self.path)
        return self

    async def stop(self) -> None:
        if self.is_gone:
            return
        self.disk.go_on.set()
        await self.server.stop()
        await self.broker.stop()

    async def crash(self) -> None:
        """Gone without a word: what was staged and not committed is lost, and so are the answers."""
        self.is_gone = True
        listening = self.server._listener._server
        assert listening is not None
        listening.close()
        for _ in range(5):
            await asyncio.sleep(0)  # whom the loop has accepted by now is known to the server
        for task in self.broker._tasks:
            task.cancel()
        await asyncio.gather(*self.broker._tasks, return_exceptions=True)
        self.broker._tasks, self.broker._store = [], None
        self.disk.is_held = False
        for peer in self.server._listener.peers:
            peer.connection.end(FragmentUnavailable("killed"))
        await self.server.stop()

    async def fragment(self, key: int = KEY) -> Fragment:
        fragment = await self._open_by_key(key)
        assert fragment is not None
        return fragment

    def bodies(self, key: int = KEY, lane: int = MAIN) -> list[str]:
        """What the disk holds, in order."""
        live = [place for place in self.disk.bodies if place[:2] == (key, lane)]
        return [body_of(self.disk.bodies[place]) for place in sorted(live)]


class Receiver:
    """A consumer that notes what it is given."""

    def __init__(self, traffic: Traffic, lane: int = MAIN, is_destructive: bool = False) -> None:
        self.consumer = CallbackConsumer(is_destructive, self._deliver, self._drained, self._lost)
        self.locks: list[MessageLock] = []
        self.messages: list[Message] = []
        self.drain_count = 0
        self.loss: BusError | None = None
        self.traffic = traffic
        self.lane = lane

    def _deliver(self, message: Message, lock: MessageLock) -> None:
        self.messages.append(message)
        self.locks.append(lock)

    def _drained(self) -> None:
        self.drain_count += 1
        self.consumer.credit = 0

    def _lost(self, error: BusError) -> None:
        self.loss = error

    @property
    def bodies(self) -> list[str]:
        return [body_of(one) for one in self.messages]

    def attach(self) -> Receiver:
        self.traffic.attach(self.consumer, self.lane)
        return self

    def want(self, credit: int, is_draining: bool = False) -> None:
        self.consumer.credit = credit
        self.traffic.feed(self.consumer, self.lane, is_draining)

    async def take(self, count: int) -> list[str]:
        """So many more, and no more credit than for them."""
        before = len(self.messages)
        self.want(count)
        await until(lambda: len(self.messages) >= before + count)
        return self.bodies[before:]

    def leave(self) -> None:
        self.traffic.detach(self.consumer, self.lane)


class FrontEnd:
    """A channel, and what a front end does on it."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        settings: ChannelSettings | None = None,
        key: bytes = INSTALL_KEY,
        party: Party | None = None,
    ) -> None:
        self.clock = clock
        self.channel = Channel(
            0, path, key, party or Party("front end", {"index": 0}), clock, settings or ChannelSettings()
        )

    async def start(self) -> FrontEnd:
        self.channel.start()
        assert await self.channel.until_up(10.0)
        return self

    async def stop(self) -> None:
        await self.channel.stop()

    async def kill(self) -> None:
        """Its process is gone: the socket closes, and nobody comes back."""
        for task in self.channel._tasks:
            task.cancel()
        await asyncio.gather(*self.channel._tasks, return_exceptions=True)

    def traffic(self, key: int = KEY, index: int = 0, requires_session: bool = False) -> RemoteTraffic:
        return RemoteTraffic(self.channel.core, key, index, requires_session)

    def requests(self, key: int = KEY) -> RemoteRequests:
        return RemoteRequests(self.channel, key, 0, self.clock)


def stage(traffic: Traffic, *messages: Message, is_via: bool = False) -> Answer:
    """Send these as one batch, without waiting. A refusal on the spot is an answer, too."""
    answer = Answer()
    answer.messages = list(messages)
    size = sum(len(one.sections) for one in messages)
    reply = CallbackSendReply(lambda _operation, error: answer.give(error))
    try:
        traffic.send(SendOperation(answer.messages, size, reply, 0, is_via))
    except BusError as error:
        answer.give(error)
    return answer


async def send(traffic: Traffic, *bodies: str) -> None:
    answers = [stage(traffic, message(body)) for body in bodies]
    errors = [await answer.wait() for answer in answers]
    assert errors == [None] * len(bodies)


def settle(traffic: Traffic, lock: MessageLock, settlement: int) -> Answer:
    answer = Answer()
    traffic.settle(lock, settlement, CallbackSettleReply(lambda _lock, error: answer.give(error)))
    return answer


def discharge(traffic: Traffic, sends: list[Message], *settlements: TransactionSettlement) -> Answer:
    answer = Answer()
    operations = [SendOperation([one], len(one.sections), CallbackSendReply(lambda *_: None), -1) for one in sends]
    reply = CallbackTransactionReply(lambda _operation, error: answer.give(error))
    traffic.discharge(TransactionOperation(operations, list(settlements), reply))
    return answer


class TwoEnds:
    def __init__(self, folder: Path, *, settings: ChannelSettings | None = None, **fragment: object) -> None:
        self.path = folder / "broker"
        self.clock = ManualClock()
        self.disk = MemoryDisk()
        self.settings = settings
        self.fragments = {KEY: small(**fragment), KEY + 1: small(**fragment)}  # type: ignore[arg-type]
        self.broker = self._broker()
        self.front_end = FrontEnd(self.path, self.clock, settings)
        self.traffic = self.front_end.traffic()

    def _broker(self) -> BrokerEnd:
        return BrokerEnd(self.path, self.disk, self.clock, self.fragments, self.settings)

    async def __aenter__(self) -> TwoEnds:
        await self.broker.start()
        await self.front_end.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.front_end.stop()
        await self.broker.stop()

    async def restart_broker(self) -> None:
        await self.broker.crash()
        await until(lambda: not self.front_end.channel.is_up)
        self.broker = await self._broker().start()

    def receiver(self, is_destructive: bool = False, lane: int = MAIN) -> Receiver:
        return Receiver(self.traffic, lane, is_destructive).attach()

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.front_end.channel.core.tick(self.clock.monotonic())


class Cutter:
    """Stands between the two, and cuts the line after so many bytes in one direction."""

    def __init__(self, path: Path, to: Path) -> None:
        self.path = path
        self._to = to
        self._server: asyncio.AbstractServer | None = None
        self._left: int | None = None
        self._is_forward = True
        self.passed = [0, 0]
        """Bytes that have gone through, from the caller and to it."""
        self.cut_count = 0
        self._pairs: set[asyncio.Task[None]] = set()

    async def start(self) -> Cutter:
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))
        return self

    def cut_after(self, count: int, is_forward: bool) -> None:
        """Once: later connections are left alone."""
        self._left = count
        self._is_forward = is_forward

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other_writer = await asyncio.open_unix_connection(str(self._to))
        except OSError:
            writer.close()
            return
        here = asyncio.ensure_future(self._pass(reader, other_writer, True))
        there = asyncio.ensure_future(self._pass(other_reader, writer, False))
        self._pairs |= {here, there}
        await asyncio.wait({here, there}, return_when=asyncio.FIRST_COMPLETED)
        for task in (here, there):
            task.cancel()
        self._pairs -= {here, there}
        for one in (writer, other_writer):
            one.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_forward: bool) -> None:
        while data := await reader.read(65536):
            if self._left is not None and is_forward == self._is_forward:
                if len(data) >= self._left:
                    writer.write(data[: self._left])
                    self._left = None
                    self.cut_count += 1
                    # What was let through arrives before the line goes dead.
                    writer.write_eof()
                    await writer.drain()
                    return
                self._left -= len(data)
            self.passed[0 if is_forward else 1] += len(data)
            writer.write(data)
            await writer.drain()

    async def stop(self) -> None:
        for task in list(self._pairs):
            task.cancel()
        if self._server is not None:
            self._server.close()
