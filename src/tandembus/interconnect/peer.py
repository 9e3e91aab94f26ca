"""Calls and notices between two processes that trust each other.

A call is a name and a value, and is answered with a value or a BusError, which arrives as the same error. A notice is
not answered. Values are plain: None, bool, int, float, str, bytes, lists and maps of them. Calls are begun in the
order in which they were made; how long each takes is its own affair.

Used for control connections, and on data channels for what happens rarely.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tandembus.amqp.encoding.codec import decode_between, encode
from tandembus.errors import (
    BusError,
    FragmentUnavailable,
    MalformedData,
    NotSupported,
    OutcomeUnknown,
    ServerBusy,
    StoreUnavailable,
)
from tandembus.interconnect.connection import CallerSteps, Connection, ListenerSteps
from tandembus.interconnect.frames import CALL, FAILURE, MAX_FRAME_BYTES, NOTICE, OTHER_LIFE, RESULT, FrameReader, frame
from tandembus.interconnect.handshake import Agreement, CallerHandshake, ListenerHandshake, Party
from tandembus.interconnect.wire_errors import error_of, name_of, text_of
from tandembus.tasks import within

log = logging.getLogger("tandembus.interconnect")

MAX_CALLS: Final = 1024
"""Calls of one peer under way at the same time; more are refused."""
MAX_STRANGERS: Final = 64
"""Connections to one listener that have not shown that they have the key."""
HANDSHAKE_TIMEOUT_S: Final = 5.0

CallHandler = Callable[["Peer", object], Awaitable[object]]
NoticeHandler = Callable[["Peer", object], None]


@dataclass(slots=True)
class Handlers:
    """What this process does for others, by name."""

    calls: dict[str, CallHandler] = field(default_factory=dict)
    notices: dict[str, NoticeHandler] = field(default_factory=dict)


class Peer:
    """The other end of a connection, once both have shown that they have the key."""

    def __init__(self, connection: Connection, handlers: Handlers) -> None:
        self.connection: Final = connection
        self.handlers: Final = handlers
        self.epoch = 0
        """Of the store that this connection is about; stands in every frame."""
        self.is_meant_for_us: Callable[[int], bool] = _any_life
        """Whether a call that was made of this epoch is still to be carried out."""
        self.on_lost: Callable[[Peer], None] = _nothing
        self.on_other_frame: Callable[[FrameReader], None] | None = None
        """For frames that are neither calls nor notices."""
        self._next_call = 1
        self._asked: dict[int, asyncio.Future[object]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        connection.on_frame = self._take
        connection.on_lost = self._lost

    @property
    def agreement(self) -> Agreement:
        assert self.connection.agreement is not None, "nobody is a peer before the handshake"
        return self.connection.agreement

    @property
    def role(self) -> str:
        return self.agreement.role

    @property
    def facts(self) -> Mapping[str, object]:
        """What the other end said of itself when it came."""
        return self.agreement.facts

    @property
    def is_open(self) -> bool:
        return self.connection.is_open

    # Asking.

    async def call(self, name: str, value: object = None, timeout_s: float = 15.0) -> object:
        """Raises what the other end raised; FragmentUnavailable when it was not even asked; OutcomeUnknown when it
        was, and did not answer."""
        if not self.is_open:
            raise FragmentUnavailable("The other process is not there.")
        number = self._next_call
        self._next_call += 1
        body = encode([number, name, value])
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._send(CALL, body)
        try:
            return await within(answer, timeout_s)
        except TimeoutError:
            raise OutcomeUnknown(f"'{name}' was not answered within {timeout_s:g} s.") from None
        finally:
            self._asked.pop(number, None)

    def push(self, name: str, value: object = None) -> None:
        """A notice: nobody answers, and nobody hears it if the connection is gone."""
        if self.is_open:
            self._send(NOTICE, encode([name, value]))

    def _send(self, kind: int, body: bytes) -> None:
        """Behind the messages that were sent, pushed or settled before: an answer tells of no state that is older than
        what the other end has heard."""
        self.connection.send_in_order(frame(kind, self.epoch, body))

    # Being asked.

    def _take(self, reader: FrameReader) -> None:
        kind = int(reader.kind)
        if kind == CALL:
            self._take_call(_values(reader, 3), int(reader.epoch))
        elif kind == RESULT:
            number, value = _values(reader, 2)
            self._answered(number, value, None)
        elif kind == FAILURE:
            number, name, text = _values(reader, 3)
            self._answered(number, None, error_of(str(name), str(text)))
        elif kind == NOTICE:
            self._take_notice(_values(reader, 2))
        elif self.on_other_frame is not None:
            self.on_other_frame(reader)
        else:
            raise MalformedData(f"a frame of type {kind} that nobody here knows")

    def _answered(self, number: object, value: object, error: BusError | None) -> None:
        answer = self._asked.get(number) if isinstance(number, int) else None
        if answer is None or answer.done():
            return  # whoever asked has given up
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)

    def _take_notice(self, values: list[object]) -> None:
        name, value = values
        handler = self.handlers.notices.get(name) if isinstance(name, str) else None
        if handler is None:
            log.debug("a notice that nobody here knows: %s", name)
        else:
            handler(self, value)

    def _take_call(self, values: list[object], epoch: int) -> None:
        number, name, value = values
        if not isinstance(number, int) or not isinstance(name, str):
            raise MalformedData("a call without a number or a name")
        handler = self.handlers.calls.get(name)
        if handler is None:
            self._fail(number, NotSupported(f"This version does not know '{name}'."))
        elif not self.is_meant_for_us(epoch):
            self._fail(number, FragmentUnavailable(OTHER_LIFE))
        elif len(self._answering) >= MAX_CALLS:
            self._fail(number, ServerBusy("Too many requests of one process at the same time."))
        else:
            task = asyncio.get_running_loop().create_task(self._answer(handler, number, name, value))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, handler: CallHandler, number: int, name: str, value: object) -> None:
        try:
            body = encode([number, await handler(self, value)])
        except BusError as error:
            self._fail(number, error)
        except Exception:
            log.exception("'%s' failed", name)
            self._fail(number, StoreUnavailable(f"'{name}' failed inside the other process."))
        else:
            if self.is_open:
                self._send(RESULT, body)

    def _fail(self, number: int, error: BusError) -> None:
        if self.is_open:
            self._send(FAILURE, encode([number, name_of(error), text_of(error)]))

    # The end.

    def _lost(self, _error: BusError) -> None:
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            if not answer.done():
                answer.set_exception(OutcomeUnknown("The connection broke before the answer came."))
        for task in list(self._answering):
            task.cancel()
        self.on_lost(self)

    async def close(self) -> None:
        self.connection.close()
        await self.connection.until_ended()


def _nothing(_peer: Peer) -> None:
    return


def _any_life(_epoch: int) -> bool:
    return True


def _values(reader: FrameReader, count: int) -> list[object]:
    """More may follow in what a newer version says: it is passed over."""
    value = decode_between(reader.data, reader.at, reader.end)
    if not isinstance(value, list) or len(value) < count:
        raise MalformedData("a call or notice without its parts")
    return value[:count]


def _bound(path: Path) -> socket.socket:
    """Nobody but the owner can connect to it, not even in the first moment. A file that an earlier life has left there
    is in nobody's use: whoever starts has locked the folder."""
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(path))
        path.chmod(0o600)
    except BaseException:
        bound.close()
        raise
    return bound


async def connect_peer(
    path: Path,
    key: bytes,
    party: Party,
    handlers: Handlers | None = None,
    timeout_s: float = HANDSHAKE_TIMEOUT_S,
    max_frame_bytes: int = MAX_FRAME_BYTES,
) -> Peer:
    """Raises FragmentUnavailable when nobody is there; Unauthorized, NotSupported ... when it came to no terms."""
    loop = asyncio.get_running_loop()
    connection = Connection(CallerSteps(CallerHandshake(key, party)), max_frame_bytes)
    agreed: asyncio.Future[Agreement] = loop.create_future()
    peer = Peer(connection, handlers or Handlers())
    connection.on_lost = lambda error: None if agreed.done() else agreed.set_exception(error)
    connection.on_ready = lambda agreement: _begin(peer, agreed, agreement)
    connection.time_out_after(timeout_s)
    try:
        await _connect(connection, path)
        await agreed
    except asyncio.CancelledError:
        agreed.cancel()
        connection.end(FragmentUnavailable("Given up."))
        raise
    return peer


async def _connect(connection: Connection, path: Path) -> None:
    try:
        await asyncio.get_running_loop().create_unix_connection(lambda: connection, str(path))
    except OSError as error:
        connection.end(FragmentUnavailable(f"Nobody listens there: {error}"))


def _begin(peer: Peer, agreed: asyncio.Future[Agreement], agreement: Agreement) -> None:
    """From here on its end is the peer's affair, not that of whoever waits for the handshake."""
    peer.connection.on_lost = peer._lost
    if not agreed.done():
        agreed.set_result(agreement)


class PeerListener:
    """Lets peers in on a Unix socket."""

    def __init__(
        self,
        key: bytes,
        party: Party,
        handlers: Handlers,
        admit: Callable[[Agreement], Mapping[str, object]],
        joined: Callable[[Peer], None],
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        """`admit` decides on somebody who has the key: raises, or says what the newcomer is to know of us. `joined`
        is told of the peer before anything of it is heard."""
        self._key = key
        self._party = party
        self._handlers = handlers
        self._admit = admit
        self._joined = joined
        self._handshake_timeout_s = handshake_timeout_s
        self._max_frame_bytes = max_frame_bytes
        self._server: asyncio.AbstractServer | None = None
        self._strangers: dict[Connection, None] = {}
        self._peers: set[Peer] = set()

    @property
    def peers(self) -> list[Peer]:
        return list(self._peers)

    async def start(self, path: Path) -> None:
        self._server = await asyncio.get_running_loop().create_unix_server(self._accept, sock=_bound(path))

    def _accept(self) -> asyncio.Protocol:
        steps = ListenerSteps(ListenerHandshake(self._key, self._party), self._admit)
        connection = Connection(steps, self._max_frame_bytes)
        if len(self._strangers) >= MAX_STRANGERS:
            self._send_away(next(iter(self._strangers)))
        self._strangers[connection] = None
        connection.on_ready = lambda _: self._join(connection)
        connection.on_lost = lambda _: self._forget(connection)
        connection.time_out_after(self._handshake_timeout_s)
        return connection

    def _forget(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)

    def _send_away(self, connection: Connection) -> None:
        self._forget(connection)
        connection.end(ServerBusy("Too many connections that have not finished their handshake."))

    def _join(self, connection: Connection) -> None:
        self._forget(connection)
        peer = Peer(connection, self._handlers)
        self._peers.add(peer)
        connection.on_lost = lambda error: self._left(peer, error)
        self._joined(peer)

    def _left(self, peer: Peer, error: BusError) -> None:
        self._peers.discard(peer)
        peer._lost(error)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._strangers):
            connection.end(FragmentUnavailable("This process stops."))
        for peer in self.peers:
            await peer.close()
        if self._server is not None:
            await self._server.wait_closed()
