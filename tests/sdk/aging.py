"""A namespace whose connections age when its clock is put forward, and a line to it that may go dead unnoticed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tandembus.clock import JumpingClock
from tandembus.config import Limits, ServeSettings
from tandembus.descriptions import QueueDescription
from tandembus.loop_thread import LoopThread
from tandembus.node.wiring import NamespaceNode


class AgingNamespace:
    """Its clock stands for time in which clients are silent, as on a machine that sleeps."""

    def __init__(self, node: NamespaceNode, clock: JumpingClock, loop: LoopThread) -> None:
        self.node = node
        self._clock = clock
        self._loop = loop

    @property
    def connection_string(self) -> str:
        return self.node.connection_string

    def make_queue(self, name: str, is_partitioned: bool, requires_session: bool = False) -> str:
        description = QueueDescription(name, enable_partitioning=is_partitioned, requires_session=requires_session)
        self._loop.call(self.node.namespace.create_queue(description))
        return name

    @property
    def port(self) -> int:
        return self.node.ports.amqp

    def line(self) -> Line:
        return Line(self.port, self._loop)

    def let_pass(self, seconds: float) -> None:
        """What is too old then is gone: all links of senders and receivers."""
        self._loop.call(self._let_pass(seconds))

    async def _let_pass(self, seconds: float) -> None:
        self._tick()  # whatever has happened is dated by the next tick
        self._clock.jump(seconds)
        self._tick()
        assert not any(one.entity_links() for one in self.node.front_end.connections())
        for _ in range(20):
            await asyncio.sleep(0)  # their sockets are closed in the loop's next turns

    def _tick(self) -> None:
        for connection in self.node.front_end.connections():
            connection.tick(self._clock.monotonic())


@contextmanager
def aging_namespace(folder: Path, limits: Limits) -> Iterator[AgingNamespace]:
    clock = JumpingClock()
    settings = ServeSettings(
        data=folder / "data", host="127.0.0.1", amqp_port=0, amqps_port=None, http_port=0, limits=limits, stores=2
    )
    node = NamespaceNode(settings, clock, is_in_memory=True)
    loop = LoopThread("aging namespace")
    loop.call(node.start())
    try:
        yield AgingNamespace(node, clock, loop)
    finally:
        loop.call(node.stop())
        loop.stop()


class Line:
    """Passes connections on, until it goes dead: then nothing that either end says or does reaches the other, and a
    client that says something is reset, as by a host that knows nothing of the connection. New ones are passed on."""

    def __init__(self, port: int, loop: LoopThread) -> None:
        self._to = port
        self._loop = loop
        self._dead: set[asyncio.StreamWriter] = set()
        """Towards clients."""
        self._live: set[asyncio.StreamWriter] = set()
        self._server = loop.call(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def go_dead(self) -> None:
        self._loop.call(self._go_dead())

    async def _go_dead(self) -> None:
        self._dead |= self._live

    def close(self) -> None:
        self._loop.call(self._close())

    async def _close(self) -> None:
        self._server.close()
        for client in self._live:
            client.transport.abort()

    async def _serve(self, from_client: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        from_server, server = await asyncio.open_connection("127.0.0.1", self._to)
        self._live.add(client)
        await asyncio.gather(self._forth(from_client, client, server), self._back(from_server, client))
        self._live.discard(client)

    async def _forth(
        self, from_client: asyncio.StreamReader, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await from_client.read(65536):
                if client in self._dead:
                    reset = struct.pack("ii", 1, 0)
                    client.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                    break
                server.write(data)
        client.transport.abort()
        server.transport.abort()

    async def _back(self, from_server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await from_server.read(65536):
                if client not in self._dead:
                    client.write(data)
        if client not in self._dead:
            client.close()
