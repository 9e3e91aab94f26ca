"""One port serves everything: a look at the first byte says whether TLS, AMQP or HTTP is spoken.

`0x16` is a TLS ClientHello, `A` begins the AMQP header, anything else is taken for HTTP. Inside TLS the same look
happens again. So one connection string works for every client, and the customary ports are only doors to one thing.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import ipaddress
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol, cast

from tandembus.limits import Limits

log = logging.getLogger("tandembus.listener")

TLS_CLIENT_HELLO = 0x16
AMQP_FIRST_BYTE = ord("A")
ACCEPTS_PER_TURN = 64
BACKLOG = 1024
RESERVED_FILES: Final = 32
"""File descriptors that connections leave free: stores, the meter and children need some at any time."""
PAUSE_S: Final = 1.0
"""How long no connection is accepted when file descriptors run out."""
LOGGED_EVERY_S: Final = 60.0
_OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Speaker(Protocol):
    """Who speaks a protocol on a connection."""

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...
    def data_received(self, data: bytes, /) -> None: ...
    def eof_received(self) -> bool | None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, exc: Exception | None, /) -> None: ...

    def expire(self) -> None:
        """The peer has shown no valid claim in time: end the connection, and say why if the protocol can."""


Claimed = Callable[[], None]
AmqpFactory = Callable[[Claimed], Speaker]
HttpHandOver = Callable[[asyncio.Transport, bytes, Claimed], Speaker]


class Refusal(Enum):
    """Why a connection without a valid claim was not taken, or ended; the value is its label among the metrics."""

    LIMIT = "limit"
    ADDRESS = "address"
    GAVE_WAY = "gave_way"
    TIMEOUT = "timeout"
    FILES = "files"


_REFUSALS: Final = {
    Refusal.LIMIT: "max_connections or max_connections_per_address is reached",
    Refusal.ADDRESS: "max_unauthenticated_connections_per_address is reached",
    Refusal.GAVE_WAY: "max_unauthenticated_connections is reached, and it is the oldest of the address that has most",
    Refusal.TIMEOUT: "it has shown no valid claim within pre_auth_timeout_s",
    Refusal.FILES: "the process is out of file descriptors (ulimit -n)",
}


class Stranger:
    """A connection that has not shown a valid claim yet."""

    def __init__(self, address: str) -> None:
        self.address: Final = address
        self.end: Callable[[], object] = _nothing
        """Ends the connection at once."""
        self.expire: Callable[[], object] = self._end
        """Ends it at its time limit."""
        self.timer: asyncio.TimerHandle | None = None
        self.has_left = False

    def _end(self) -> None:
        self.end()


class Doors:
    """What all listening sockets share: whom to hand connections to, and how many there may be."""

    def __init__(self, amqp: AmqpFactory, http: HttpHandOver, tls: ssl.SSLContext | None, limits: Limits) -> None:
        self.amqp = amqp
        self.http = http
        self.tls = tls
        self.limits = limits
        self.open_count = 0
        self.by_address: Counter[str] = Counter()
        self.stranger_count = 0
        """Connections that have not shown a valid claim yet: they have a budget of their own."""
        self._strangers: dict[str, dict[Stranger, None]] = {}
        """By address; the oldest comes first."""
        self.refusals: Counter[Refusal] = Counter()
        self._quiet_until: dict[Refusal, float] = {}

    def enter(self, address: str) -> Stranger | None:
        """Take a place among the strangers, for `pre_auth_timeout_s` at most; None: there is none for this address."""
        limits = self.limits
        if self.open_count >= limits.max_connections or self.by_address[address] >= limits.max_connections_per_address:
            self.refuse(Refusal.LIMIT, address)
            return None
        places = self._places_of(address)
        if places is not None and len(self._strangers.get(address, ())) >= places:
            self.refuse(Refusal.ADDRESS, address)
            return None
        if self.stranger_count >= limits.max_unauthenticated_connections:
            self._make_room()
        stranger = Stranger(address)
        self.open_count += 1
        self.stranger_count += 1
        self.by_address[address] += 1
        self._strangers.setdefault(address, {})[stranger] = None
        loop = asyncio.get_running_loop()
        stranger.timer = loop.call_later(limits.pre_auth_timeout_s, self._expired, stranger)
        return stranger

    def claimed(self, stranger: Stranger) -> None:
        """The peer has shown a valid claim, or is gone: it no longer counts as a stranger."""
        of_address = self._strangers.get(stranger.address, {})
        if stranger not in of_address:
            return
        del of_address[stranger]
        if not of_address:
            del self._strangers[stranger.address]
        self.stranger_count -= 1
        if stranger.timer is not None:
            stranger.timer.cancel()

    def leave(self, stranger: Stranger) -> None:
        if stranger.has_left:
            return
        stranger.has_left = True
        self.claimed(stranger)
        stranger.end = stranger.expire = _nothing  # which refer back to the connection
        self.open_count -= 1
        self.by_address[stranger.address] -= 1
        if self.by_address[stranger.address] <= 0:
            del self.by_address[stranger.address]

    def refuse(self, refusal: Refusal, address: str) -> None:
        """Count it, and log it now and then: strangers decide how often it happens."""
        self.refusals[refusal] += 1
        now = asyncio.get_running_loop().time()
        if now >= self._quiet_until.get(refusal, now):
            self._quiet_until[refusal] = now + LOGGED_EVERY_S
            level = logging.INFO if refusal is Refusal.TIMEOUT else logging.WARNING
            text = "a connection from %s is refused: %s (%d since the start; logged once a minute)"
            log.log(level, text, address, _REFUSALS[refusal], self.refusals[refusal])

    def _places_of(self, address: str) -> int | None:
        limits = self.limits
        if limits.max_unauthenticated_connections_per_address is not None:
            return limits.max_unauthenticated_connections_per_address
        if _is_loopback(address):
            return None
        return max(1, limits.max_unauthenticated_connections // 10)

    def _make_room(self) -> None:
        address = max(self._strangers, key=lambda one: len(self._strangers[one]))
        oldest = next(iter(self._strangers[address]))
        self.claimed(oldest)
        self.refuse(Refusal.GAVE_WAY, address)
        oldest.end()

    def _expired(self, stranger: Stranger) -> None:
        self.refuse(Refusal.TIMEOUT, stranger.address)
        stranger.expire()


def _nothing() -> None:
    """Before there is anything to end."""


def _is_loopback(address: str) -> bool:
    found = ipaddress.ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def listen(host: str, port: int, *, is_shared: bool = False, is_ipv6_alone: bool = False) -> socket.socket:
    """A bound socket; who connects from now on waits until a `Listener` has it. `is_shared`: other processes of this
    user may listen there, too, and each gets its share of the connections. `is_ipv6_alone`: '::' is not IPv4's
    addresses, too. Raises OSError naming the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if is_ipv6_alone and family == socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
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
        self._paused: asyncio.TimerHandle | None = None
        self._resume()

    def _resume(self) -> None:
        self._paused = None
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _pause(self, address: str) -> None:
        """Out of file descriptors: who connects meanwhile waits in the socket's backlog."""
        self._doors.refuse(Refusal.FILES, address)
        self._loop.remove_reader(self._socket.fileno())
        self._paused = self._loop.call_later(PAUSE_S, self._resume)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connection, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    self._pause("a client")
                else:
                    log.warning("accepting a connection failed: %s", error)
                return
            if _is_reserved(connection.fileno()):
                connection.close()
                self._pause(address[0])
                return
            connection.setblocking(False)
            stranger = self._doors.enter(address[0])
            if stranger is None:
                connection.close()
                continue
            task = self._loop.create_task(self._greet(connection, stranger))
            stranger.end = task.cancel
            self._greeting.add(task)
            task.add_done_callback(functools.partial(self._greeted, connection, stranger))

    async def _greet(self, connection: socket.socket, stranger: Stranger) -> None:
        """Hand a new connection to a transport, in TLS if that is how it begins."""
        limits = self._doors.limits
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            first = await self._peek(connection)
            if not first:
                raise ConnectionError("closed before a word was said")
            tls = self._doors.tls if first[0] == TLS_CLIENT_HELLO else None
            await self._loop.connect_accepted_socket(
                lambda: Doorway(self._doors, stranger),
                connection,
                ssl=tls,
                ssl_handshake_timeout=limits.pre_auth_timeout_s if tls is not None else None,
            )
        except (TimeoutError, OSError, ssl.SSLError) as error:
            log.debug("a connection from %s came to nothing: %s", stranger.address, error)
            error.__traceback__ = None  # asyncio's frames refer back to it, and to the transport with its buffers
            connection.close()
            self._doors.leave(stranger)

    def _greeted(self, connection: socket.socket, stranger: Stranger, task: asyncio.Task[None]) -> None:
        self._greeting.discard(task)
        if task.cancelled():
            connection.close()
            self._doors.leave(stranger)

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
        if self._paused is None:
            self._loop.remove_reader(self._socket.fileno())
        else:
            self._paused.cancel()
        self._socket.close()
        for task in self._greeting:
            task.cancel()


def _is_reserved(descriptor: int) -> bool:
    """The lowest free number is always taken, so a high one shows how many are left."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most != resource.RLIM_INFINITY and descriptor >= most - RESERVED_FILES


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Doorway(asyncio.Protocol):
    """Stays between the transport and whoever speaks on it: chooses the speaker by the first byte, and counts the
    connection out when it ends."""

    def __init__(self, doors: Doors, stranger: Stranger) -> None:
        self._doors = doors
        self._stranger = stranger
        self._inner: Speaker | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._stranger.end = self._transport.abort

    def data_received(self, data: bytes) -> None:
        if self._inner is None:
            self._choose(data)
        else:
            self._inner.data_received(data)

    def _choose(self, data: bytes) -> None:
        if data[0] == AMQP_FIRST_BYTE:
            self._inner = self._doors.amqp(self._claimed)
            self._stranger.expire = self._inner.expire
            self._inner.connection_made(self._transport)
            self._inner.data_received(data)
        else:
            self._inner = self._doors.http(self._transport, data, self._claimed)
            self._stranger.expire = self._inner.expire
            self._transport.set_protocol(self)

    def _claimed(self) -> None:
        self._doors.claimed(self._stranger)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._inner is not None else None

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._doors.leave(self._stranger)
        inner, self._inner = self._inner, None  # which refers back here
        if inner is not None:
            inner.connection_lost(exc)
