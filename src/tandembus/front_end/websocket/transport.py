"""Stands between an AMQP connection and the socket of its WebSocket: a transport above, a protocol below.

Back-pressure is the socket's own in both directions: nothing is kept here but the beginning of a frame.
"""

from __future__ import annotations

import asyncio
import logging

from tandembus.front_end.listener import Speaker
from tandembus.front_end.websocket.frames import (
    BINARY,
    CLOSE,
    NORMAL,
    PING,
    PONG,
    FrameReader,
    close_frame,
    frame,
    frame_head,
)
from tandembus.limits import Limits

log = logging.getLogger("tandembus.websocket")

JOINED_BYTES = 64 * 1024
"""Up to here a frame is written as one; what is larger is not copied for that."""
CLOSE_ANSWER_S = 2.0
"""How long the peer may take to answer a close frame before its socket is closed all the same."""
REFUSED_S = 0.5
"""How long a peer that broke the protocol may still read why; what it says itself is not understood any more."""


class WebSocketTransport(asyncio.Transport):
    """What AMQP writes goes out as binary frames, and the payloads of the peer's frames come to AMQP."""

    def __init__(
        self,
        transport: asyncio.Transport,
        amqp: Speaker,
        limits: Limits,
        close_answer_s: float = CLOSE_ANSWER_S,
    ) -> None:
        super().__init__()
        self._close_answer_s = close_answer_s
        self._transport = transport
        self._amqp: Speaker | asyncio.Protocol = amqp
        self._reader = FrameReader(limits.max_websocket_message_bytes)
        self._ping_interval_s = limits.websocket_ping_interval_s
        self._loop = asyncio.get_running_loop()
        self._is_closing = False
        self._is_over = False
        """AMQP has been told that the connection is lost."""
        self._close_timer: asyncio.TimerHandle | None = None
        self._ping_timer = self._loop.call_later(self._ping_interval_s, self._ping)
        self.lost: asyncio.Future[None] = self._loop.create_future()
        amqp.connection_made(self)

    # What the socket's side calls.

    def data_received(self, data: bytes) -> None:
        received = self._reader.receive(data)
        if received.payload and not self._is_closing:
            self._amqp.data_received(received.payload)
        for ping in received.pings:
            self._write_frame(PONG, ping)
        if received.violation is not None:
            self._refuse(*received.violation)
        elif received.close is not None:
            if not self._is_closing:
                self._transport.write(frame(CLOSE, received.close))
            self._transport.close()
            self._end(None)

    def pause_writing(self) -> None:
        self._amqp.pause_writing()

    def resume_writing(self) -> None:
        self._amqp.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error)
        if self._close_timer is not None:
            self._close_timer.cancel()
        if not self.lost.done():
            self.lost.set_result(None)

    def _end(self, error: Exception | None) -> None:
        self._is_closing = True
        self._ping_timer.cancel()
        if not self._is_over:
            self._is_over = True
            amqp, self._amqp = self._amqp, asyncio.Protocol()  # which refers back here
            amqp.connection_lost(error)

    def _refuse(self, code: int, reason: str) -> None:
        log.debug("a WebSocket is closed with %d: %s", code, reason)
        self._say_close(code, reason, REFUSED_S)
        self._end(ConnectionError(reason))

    def _ping(self) -> None:
        """Keeps proxies from forgetting a quiet connection. Whether the peer is alive is asked by AMQP's own
        heartbeats: a pong may be stuck behind what is not read just now."""
        if not self._is_closing:
            self._write_frame(PING, b"")
            self._ping_timer = self._loop.call_later(self._ping_interval_s, self._ping)

    def _write_frame(self, opcode: int, payload: bytes) -> None:
        if not self._is_closing:
            self._transport.write(frame(opcode, payload))

    # What AMQP calls.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        if len(data) <= JOINED_BYTES:
            self._transport.write(frame_head(BINARY, len(data)) + data)
        else:
            self._transport.write(frame_head(BINARY, len(data)))
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def pause_reading(self) -> None:
        if not self._is_closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._transport.get_extra_info(name, default)

    def close(self) -> None:
        self._say_close(NORMAL, "", self._close_answer_s)

    def abort(self) -> None:
        self._transport.abort()

    def _say_close(self, code: int, reason: str, patience_s: float) -> None:
        """The socket stays until the peer has answered: closed at once, with something of the peer's unread, it would
        take what was written before away from the peer again."""
        if self.is_closing():
            return
        self._transport.write(close_frame(code, reason))
        self._is_closing = True
        self._ping_timer.cancel()
        self._transport.resume_reading()
        self._close_timer = self._loop.call_later(patience_s, self._transport.abort)
