"""Senders and receivers that never give up: they connect again whenever the namespace is back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tandembus.client import ClientFailure, OutgoingMessage, ReceivedMessage, Receiver, Sender, ServiceBus, SubQueue
from tandembus.client import connect as connect_to
from tests.chaos.history import History, body_of
from tests.chaos.server import Server

WINDOW = 20
PREFETCH = 30
TIMEOUT_S = 30.0
SIZES = (10, 100, 1_000, 20_000)
BATCH = 5


class Traffic:
    def __init__(self, server: Server, queue: str, history: History) -> None:
        self._server = server
        self._queue = queue
        self.history = history
        self._is_over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, senders: int, receivers: int) -> None:
        for number in range(senders):
            self._begin(self._send_for_ever, f"s{number}")
        for number in range(receivers):
            self._begin(self._receive_for_ever, f"r{number}")

    def _begin(self, work: Callable[[str], Awaitable[None]], name: str) -> None:
        self._tasks.append(asyncio.ensure_future(work(name)))

    async def stop(self) -> None:
        self._is_over.set()
        await asyncio.gather(*self._tasks)

    async def _connected(self, work: Callable[[ServiceBus], Awaitable[None]]) -> None:
        """Do this on one connection after the other, until it is over."""
        while not self._is_over.is_set():
            await self._server.is_up.wait()
            try:
                async with await connect(self._server) as bus:
                    await work(bus)
            except ClientFailure:
                await asyncio.sleep(0)

    # Sending.

    async def _send_for_ever(self, name: str) -> None:
        serial = 0

        async def send(bus: ServiceBus) -> None:
            nonlocal serial
            sender = await bus.sender(self._queue)
            while not self._is_over.is_set():
                keys = [f"{name}-{serial + i}" for i in range(WINDOW)]
                serial += WINDOW
                await self._send_window(sender, keys, serial)

        await self._connected(send)

    async def _send_window(self, sender: Sender, keys: list[str], serial: int) -> None:
        sends = [self._send_one(sender, key, SIZES[(serial + i) % len(SIZES)]) for i, key in enumerate(keys)]
        sends.append(self._send_batch(sender, f"{keys[0]}-batch"))
        for outcome in await asyncio.gather(*sends, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _send_one(self, sender: Sender, key: str, size_bytes: int) -> None:
        self.history.attempt(key)
        await sender.send(OutgoingMessage(body_of(key, size_bytes), message_id=key))
        self.history.accept(key)

    async def _send_batch(self, sender: Sender, name: str) -> None:
        keys = [f"{name}-{i}" for i in range(BATCH)]
        self.history.attempt(*keys)
        await sender.send_batch([OutgoingMessage(body_of(key, 50), message_id=key) for key in keys])
        self.history.accept(*keys)

    # Receiving.

    async def _receive_for_ever(self, name: str) -> None:
        async def receive(bus: ServiceBus) -> None:
            receiver = await bus.receiver(self._queue, prefetch=PREFETCH)
            while not self._is_over.is_set():
                messages = await receiver.receive(WINDOW, wait_s=0.2)
                settles = [self._settle(receiver, message) for message in messages]
                for outcome in await asyncio.gather(*settles, return_exceptions=True):
                    if isinstance(outcome, BaseException):
                        raise outcome

        await self._connected(receive)

    async def _settle(self, receiver: Receiver, message: ReceivedMessage) -> None:
        key = self.history.deliver(message.body)
        if self.history.delivery_count % 11 == 0:
            await receiver.abandon(message)
            return
        self.history.ask_to_complete(key)
        await receiver.complete(message)
        self.history.complete(key)


async def connect(server: Server) -> ServiceBus:
    return await connect_to(server.connection_string, sasl_plain=True, timeout_s=TIMEOUT_S)


async def take_all(server: Server, queue: str, history: History | None = None) -> set[str]:
    """Receive and complete what is left in the queue and among its dead letters."""
    history = history or History()
    left: set[str] = set()
    async with await connect(server) as bus:
        for sub_queue in (None, SubQueue.DEAD_LETTER):
            receiver = await bus.receiver(queue, sub_queue, prefetch=200)
            while True:
                messages = await receiver.receive(200, wait_s=0.5)
                for message in messages:
                    left.add(history.deliver(message.body))
                await receiver.complete(*messages)
                if not messages and await _is_empty(server, queue, sub_queue):
                    break
            await receiver.close()
    return left


async def _is_empty(server: Server, queue: str, sub_queue: SubQueue | None) -> bool:
    counts = await server.counts(queue)
    return (counts.active if sub_queue is None else counts.dead_letter) == 0
