"""One port serves everything: a look at the first byte says whether TLS, AMQP or HTTP is spoken.

`0x16` is a TLS ClientHello, `A` begins the AMQP header, anything else is taken for HTTP. Inside TLS the same look
happens again. So one connection string works for every client, and the customary ports are only doors to one thing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import cast

from tandembus.limits import Limits

log = logging.getLogger("tandembus.listener")

TLS_CLIENT_HELLO = 0x16
AMQP_FIRST_BYTE = ord("A")
ACCEPTS_PER_TURN = 64
BACKLOG = 1024

Claimed = Callable[[], None]
AmqpFactory = Callable[[Claimed], asyncio.Protocol]
HttpHandOver = Callable[[asyncio.Transport, bytes, Claimed], asyncio.Protocol]


class Doors:
    """What all listening sockets share: whom to hand connections to, and how many there may be."""

    def __init__(self, amqp: AmqpFactory, http: HttpHandOver, tls: ssl.SSLContext, limits: Limits) -> None:
        self.amqp = amqp
        self.http = http
        self.tls = tls
        self.limits = limits
        self.open_count = 0
        self.stranger_count = 0
        """Connections that have not shown a valid claim yet: they have a budget of their own."""
        self.by_address: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        if self.open_count >= self.limits.max_connections:
            return False
        if self.stranger_count >= self.limits.max_unauthenticated_connections:
            return False
        if self.by_address[address] >= self.limits.max_connections_per_address:
            return False
        self.open_count += 1
        self.stranger_count += 1
        self.by_address[address] += 1
        return True

    def turn_away(self, address: str) -> None:
        self.stranger_count -= 1
        self.leave(address)

    def leave(self, address: str) -> None:
        self.open_count -= 1
        self.by_address[address] -= 1
        if self.by_address[address] <= 0:
            del self.by_address[address]


def listen(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """A bound socket; who connects from now on waits until a `Listener` has it. `is_shared`: other processes of this
    user may listen there, too, and each gets its share of the connections. Raises OSError naming the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.setblocking(False)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(f"{host} port {port} cannot be listened on ({error.strerror or error})") from error
    return listening


class Listener:
    """One listening socket."""

    def __init__(self, doors: Doors, listening: socket.socket) -> None:
        self._doors = doors
        self._greeting: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._socket = listening
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connection, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                log.warning("accepting a connection failed: %s", error)
                return
            connection.setblocking(False)
            if not self._doors.enter(address[0]):
                connection.close()
                continue
            task = self._loop.create_task(self._greet(connection, address[0]))
            self._greeting.add(task)
            task.add_done_callback(self._greeting.discard)

    async def _greet(self, connection: socket.socket, address: str) -> None:
        """Hand a new connection to a transport, in TLS if that is how it begins."""
        limits = self._doors.limits
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            first = await asyncio.wait_for(self._peek(connection), limits.pre_auth_timeout_s)
            if not first:
                raise ConnectionError("closed before a word was said")
            tls = self._doors.tls if first[0] == TLS_CLIENT_HELLO else None
            await self._loop.connect_accepted_socket(
                lambda: Doorway(self._doors, address),
                connection,
                ssl=tls,
                ssl_handshake_timeout=limits.pre_auth_timeout_s if tls is not None else None,
            )
        except (OSError, asyncio.TimeoutError, ssl.SSLError) as error:
            log.debug("a connection from %s came to nothing: %s", address, error)
            connection.close()
            self._doors.turn_away(address)
        except asyncio.CancelledError:
            connection.close()
            self._doors.turn_away(address)
            raise

    async def _peek(self, connection: socket.socket) -> bytes:
        readable = self._loop.create_future()
        descriptor = connection.fileno()
        self._loop.add_reader(descriptor, _resolve, readable)
        try:
            await readable
        finally:
            self._loop.remove_reader(descriptor)
        return connection.recv(1, socket.MSG_PEEK)

    def close(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for task in self._greeting:
            task.cancel()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Doorway(asyncio.Protocol):
    """Stays between the transport and whoever speaks on it: chooses the speaker by the first byte, and counts the
    connection out when it ends."""

    def __init__(self, doors: Doors, address: str) -> None:
        self._doors = doors
        self._address = address
        self._inner: asyncio.Protocol | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_claimed = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._doors.limits.pre_auth_timeout_s, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._inner is None:
            self._choose(data)
        else:
            self._inner.data_received(data)

    def _choose(self, data: bytes) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if data[0] == AMQP_FIRST_BYTE:
            self._inner = self._doors.amqp(self._claimed)
            self._inner.connection_made(self._transport)
            self._inner.data_received(data)
        else:
            self._inner = self._doors.http(self._transport, data, self._claimed)
            self._transport.set_protocol(self)

    def _claimed(self) -> None:
        """The peer has shown a valid claim: it no longer counts as a stranger."""
        if not self._is_claimed:
            self._is_claimed = True
            self._doors.stranger_count -= 1

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._inner is not None else None

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._claimed()
        self._doors.leave(self._address)
        if self._inner is not None:
            self._inner.connection_lost(exc)
