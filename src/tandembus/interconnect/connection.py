"""One connection between two processes of an installation: the socket, the handshake, and frames both ways.

Written once per turn of the loop, whatever was said in it. What the frames mean is left to others: `peer.py` for calls
and notices, `channel.py` and `server.py` for the messages of clients.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Final, Protocol, cast

from tandembus.amqp.encoding.codec import decode, encode
from tandembus.errors import BusError, FragmentUnavailable, MalformedData, OperationTimeout
from tandembus.interconnect.frames import (
    HELLO,
    MAX_FRAME_BYTES,
    PRE_AUTH_FRAME_BYTES,
    PROOF,
    READY,
    REFUSED,
    WELCOME,
    FrameReader,
    frame,
)
from tandembus.interconnect.handshake import Agreement, CallerHandshake, ListenerHandshake
from tandembus.interconnect.wire_errors import error_of, name_of, text_of

log = logging.getLogger("tandembus.interconnect")

UNSENT_HIGH_BYTES: Final = 1024 * 1024
"""Above it the channel keeps what it has to say until the other end has read."""
MAX_UNSENT_BYTES: Final = 256 * 1024 * 1024
"""An end that lets so much stand unread is not there any more."""


class Steps(Protocol):
    """One side's part in the handshake."""

    def begin(self) -> bytes:
        """What is said unasked."""

    def take(self, kind: int, body: bytes) -> tuple[bytes, Agreement | None]:
        """A frame of the other side: what is answered, and what was agreed on when this was the last step. Raises."""

    def trusts(self) -> bool:
        """Whether the other side has shown that it has the key."""


class CallerSteps:
    def __init__(self, handshake: CallerHandshake) -> None:
        self._handshake = handshake
        self._expected = WELCOME

    def begin(self) -> bytes:
        return frame(HELLO, 0, self._handshake.hello())

    def trusts(self) -> bool:
        return self._expected != WELCOME

    def take(self, kind: int, body: bytes) -> tuple[bytes, Agreement | None]:
        if kind == REFUSED:
            raise _refusal(body)
        if kind != self._expected:
            raise MalformedData(f"a frame of type {kind} where {self._expected} must come")
        if kind == READY:
            return b"", self._handshake.ready(body)
        self._expected = READY
        return frame(PROOF, 0, self._handshake.welcome(body)), None


class ListenerSteps:
    def __init__(self, handshake: ListenerHandshake, admit: Callable[[Agreement], Mapping[str, object]]) -> None:
        """`admit` may raise, and says what the newcomer is to know of us."""
        self._handshake = handshake
        self._admit = admit
        self._expected = HELLO

    def begin(self) -> bytes:
        return b""

    def trusts(self) -> bool:
        return False

    def take(self, kind: int, body: bytes) -> tuple[bytes, Agreement | None]:
        if kind != self._expected:
            raise MalformedData(f"a frame of type {kind} where {self._expected} must come")
        if kind == HELLO:
            self._expected = PROOF
            return frame(WELCOME, 0, self._handshake.hello(body)), None
        agreement = self._handshake.proof(body)
        return frame(READY, 0, self._handshake.ready(self._admit(agreement))), agreement


def _refusal(body: bytes) -> BusError:
    value, _ = decode(body)
    if isinstance(value, list) and len(value) >= 2:
        return error_of(str(value[0]), str(value[1]))
    raise MalformedData("a refusal without a reason")


class Connection(asyncio.Protocol):
    """Its owner sets `on_ready`, `on_frame` and `on_lost` before it is connected."""

    def __init__(self, steps: Steps, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.reader: Final = FrameReader(PRE_AUTH_FRAME_BYTES)
        self.agreement: Agreement | None = None
        self.is_open = False
        self.is_writable = True
        """The other end reads as fast as we write, so far."""
        self.failure: BusError | None = None
        """Why it came to nothing, or to an end."""
        self.on_ready: Callable[[Agreement], None] = _no_agreement
        self.on_frame: Callable[[FrameReader], None] = _no_frame
        """Told of each frame after the handshake; it looks at the reader. What it raises ends the connection."""
        self.on_read: Callable[[], None] = _nothing
        """Called after all frames of one read."""
        self.on_lost: Callable[[BusError], None] = _no_loss
        self.on_flush: Callable[[], bytes] = _no_bytes
        """Asked once per turn in which somebody wanted to write, while the other end reads."""
        self._steps: Final = steps
        self._max_frame_bytes = max_frame_bytes
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._is_flush_due = False
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports are of no common class.
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        if self.failure is not None:
            transport.abort()  # sent away before the loop came to it
            return
        transport.set_write_buffer_limits(high=UNSENT_HIGH_BYTES)
        _let_much_stand(transport)
        self.send(self._steps.begin())

    def time_out_after(self, seconds: float) -> None:
        """Whoever has not come to terms by then is sent away."""
        self._timer = self._loop.call_later(seconds, self._handshake_timed_out)

    def _handshake_timed_out(self) -> None:
        if self.agreement is None:
            self.end(OperationTimeout("The other end did not finish its handshake in time."))

    def data_received(self, data: bytes) -> None:
        if self.failure is not None:
            return
        reader = self.reader
        try:
            reader.feed(data)
            while self.failure is None and reader.next():
                if self.agreement is None:
                    self._take_step(int(reader.kind), reader.body())
                else:
                    self.on_frame(reader)
        except BusError as error:
            self._break(error)
        self.on_read()

    def _break(self, error: BusError) -> None:
        """Somebody said what cannot be said. Before the handshake is over it is told why."""
        if self.agreement is None and isinstance(self._steps, ListenerSteps):
            self.send(frame(REFUSED, 0, encode([name_of(error), text_of(error)])))
            self.flush()
        # Somebody who came too early comes again, ten times a second; whoever keeps it waiting says why.
        is_too_early = self.agreement is None and isinstance(error, FragmentUnavailable)
        log.log(logging.DEBUG if is_too_early else logging.WARNING, "a connection is ended: %s", error)
        self.end(error)

    def _take_step(self, kind: int, body: bytes) -> None:
        answer, agreement = self._steps.take(kind, body)
        if agreement is not None:
            self._agreed(agreement, answer)
            return
        self.send(answer)
        if self._steps.trusts():
            self.reader.max_frame_bytes = self._max_frame_bytes

    def _agreed(self, agreement: Agreement, answer: bytes) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.reader.max_frame_bytes = self._max_frame_bytes
        self.agreement = agreement
        self.is_open = True
        self.send(answer)
        self.on_ready(agreement)

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self.want_flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(FragmentUnavailable("The connection to the other process is broken."))
        if not self.ended.done():
            self.ended.set_result(None)

    # What its owner calls.

    def send(self, data: bytes) -> None:
        """Whole frames, written at the end of this turn."""
        if data:
            self._out.append(data)
            self.want_flush()

    def send_in_order(self, data: bytes) -> None:
        """As `send`, but not before what the owner would have to say by now."""
        self._collect()
        self.send(data)

    def want_flush(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._is_flush_due = False
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._collect()
        if self._out:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out = []
            transport.write(data)
            if transport.get_write_buffer_size() > MAX_UNSENT_BYTES + self._max_frame_bytes:
                self.end(FragmentUnavailable("The other process does not read what it is sent."))

    def _collect(self) -> None:
        if self.is_writable and self.is_open:
            more = self.on_flush()
            if more:
                self._out.append(more)

    def close(self) -> None:
        """What was said is still written."""
        self.flush()
        if self._transport is not None:
            self._transport.close()
        self._lose(FragmentUnavailable("The connection to the other process is closed."))

    def end(self, error: BusError) -> None:
        """At once: nothing that may still come is looked at."""
        if self._transport is not None:
            if self.agreement is None:
                self._transport.close()  # a refusal is still to be read
            else:
                self._transport.abort()
        self._lose(error)

    def _lose(self, error: BusError) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.failure is None:
            self.failure = error
            self.is_open = False
            self._out = []
            self.on_lost(error)

    async def until_ended(self) -> None:
        await asyncio.shield(self.ended)


def _let_much_stand(transport: asyncio.Transport) -> None:
    """A turn's messages go to the system in one piece, where it allows that: else both ends take turns to write and
    read a part."""
    end = transport.get_extra_info("socket")
    if end is not None:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSENT_HIGH_BYTES)


def _nothing() -> None:
    return


def _no_bytes() -> bytes:
    return b""


def _no_agreement(_agreement: Agreement) -> None:
    return


def _no_loss(_error: BusError) -> None:
    return


def _no_frame(reader: FrameReader) -> None:
    raise MalformedData(f"a frame of type {int(reader.kind)} that nobody here knows")
