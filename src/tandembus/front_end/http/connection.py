"""One HTTP connection: aiohttp's protocol with bounds on what it costs before anybody has shown a claim.

The listener has read the first bytes already to find out that this is HTTP, so a connection starts from an
accepted transport (plain, or inside TLS) and those bytes.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from aiohttp import web
from aiohttp.web_request import BaseRequest

from tandembus.front_end.http.atom import ERROR_CONTENT_TYPE, error_document
from tandembus.front_end.listener import Speaker
from tandembus.front_end.websocket.transport import WebSocketTransport
from tandembus.limits import Limits
from tandembus.logs import ids

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.http_websocket import WebSocketReader

MAX_LINE_BYTES: Final = 8 * 1024
MAX_HEADERS: Final = 64
UNCLAIMED_PART_BYTES: Final = 16 * 1024
MANY_REQUESTS: Final = 16
"""So many that wait for their turn may keep the parser from going on: what comes then is no head that grows."""
BANNER: Final = "tandembus"
"""Which software, for who looks for a fault; never which version, for who looks for a hole."""

logger = logging.getLogger(__name__)

_NUMBERS: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class HttpTimings:
    """How slow a client may be, by what it is slow at."""

    keep_alive_s: float = 60.0
    """Between requests, and from there to the end of the next request's head."""
    body_s: float = 30.0
    """From the head to the end of the body."""
    unread_s: float = 60.0
    """For an answer that the client does not read."""
    lingering_s: float = 1.0
    """How long the rest of a refused body is read and dropped, so that the client sees the refusal."""
    refused_sign_in_s: float = 0.5
    """An answer to somebody who signs in with what is wrong takes so long: guessing is slow."""


class HttpConnection(web.RequestHandler):
    """aiohttp's request handler, with a budget until a valid claim is shown and deadlines for the slow."""

    def __init__(
        self,
        server: web.Server,
        limits: Limits,
        timings: HttpTimings,
        when_claimed: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=timings.keep_alive_s,
            access_log=None,  # type: ignore[arg-type]
            max_line_size=MAX_LINE_BYTES,
            max_field_size=min(limits.max_http_header_bytes, limits.max_token_size_bytes + 1024),
            max_headers=MAX_HEADERS,
            lingering_time=timings.lingering_s,
            auto_decompress=False,
        )
        self.id: Final = f"http-{next(_NUMBERS)}"
        """In logs."""
        self._limits = limits
        self.timings: Final = timings
        self._when_claimed = when_claimed
        self.when_lost: Final[set[Callable[[], None]]] = set()
        """Called when the client has gone: whoever waits on its behalf need not wait any longer."""
        self.is_lost = False
        self._unclaimed_bytes = 0
        self._head_bytes = 0
        """Bytes read in a row that were no part of a body: of a head that is not complete yet, or of trailers."""
        self._body: StreamReader | None = None
        """Body of the last request whose head is complete."""
        self._is_claimed = False
        self._unread_deadline: asyncio.TimerHandle | None = None
        self._websocket: WebSocketTransport | None = None
        self._amqp: Speaker | None = None

    def start_on(self, transport: asyncio.Transport, first_bytes: bytes) -> None:
        """Take over an accepted transport and what was read from it already."""
        transport.set_protocol(self)
        self.connection_made(transport)
        if first_bytes:
            self.data_received(first_bytes)

    def claim_shown(self) -> None:
        """A request had a valid claim: from here on the connection counts as somebody's."""
        if not self._is_claimed:
            self._is_claimed = True
            if self._when_claimed is not None:
                self._when_claimed()

    def expire(self) -> None:
        """No valid claim was shown in time, whatever else was asked for and answered."""
        if self._amqp is not None:
            self._amqp.expire()
        else:
            self._drop("has shown no valid claim in time")

    def become_websocket(self, amqp: Speaker) -> WebSocketTransport:
        """From here on the connection speaks AMQP inside frames, and HTTP no more."""
        assert self.transport is not None
        self._amqp = amqp
        self._websocket = WebSocketTransport(self.transport, amqp, self._limits)
        # Hands over what has come behind the request already; what comes later does not go through HTTP's parser.
        self.set_parser(cast("WebSocketReader", _Tail(self._websocket)))
        return self._websocket

    def data_received(self, data: bytes) -> None:
        if self._is_claimed:
            self._take(data)
            return
        # In small parts, so that a head which follows other things is measured as well.
        for start in range(0, max(len(data), 1), UNCLAIMED_PART_BYTES):
            # A body ends nothing: its head has the claim, which is judged before anybody reads on. Unread bytes are
            # bounded by flow control, and the rest of a refused body by `lingering_s`.
            if self._unclaimed_bytes > self._limits.pre_auth_bytes and not self._has_open_body():
                self._drop("has sent too much without a valid claim")
                return
            part = data[start : start + UNCLAIMED_PART_BYTES]
            self._unclaimed_bytes += len(part)
            self._take(part)

    def _take(self, data: bytes) -> None:
        if self._websocket is not None:
            self._websocket.data_received(data)
            return
        body_bytes, known_count = self._read_of_body(), self._request_count
        super().data_received(data)
        if self._request_count != known_count:
            self._head_bytes = 0
            request, self._body = self._messages[-1]
            error: BaseException | None = getattr(request, "exc", None)  # of what is no HTTP
            if error is not None:
                error.__traceback__ = None  # refers back to it, and to all bytes that were read
        elif body_bytes is not None and body_bytes != self._read_of_body():
            self._head_bytes = 0
        elif len(self._messages) < MANY_REQUESTS:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.max_http_header_bytes + MAX_LINE_BYTES:
                self._refuse_head()

    def _read_of_body(self) -> int | None:
        """Bytes of the open body; None while there is none. Trailers and extensions of chunks add nothing."""
        return self._body.total_bytes if self._body is not None and not self._body.is_eof() else None

    def _has_open_body(self) -> bool:
        return self._read_of_body() is not None

    def connection_lost(self, exc: BaseException | None) -> None:
        self.is_lost = True
        for tell in list(self.when_lost):
            tell()
        if self._unread_deadline is not None:
            self._unread_deadline.cancel()
        if self._websocket is not None:
            self._websocket.connection_lost(exc if isinstance(exc, Exception) else None)
            self._amqp = None  # which refers back here
        super().connection_lost(exc)
        self._body = None  # likewise

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._websocket is not None:
            self._websocket.pause_writing()
            return  # a receiver may take its time
        loop = asyncio.get_running_loop()
        self._unread_deadline = loop.call_later(self.timings.unread_s, self._drop, "does not read its answer")

    def resume_writing(self) -> None:
        if self._unread_deadline is not None:
            self._unread_deadline.cancel()
            self._unread_deadline = None
        super().resume_writing()
        if self._websocket is not None:
            self._websocket.resume_writing()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is no HTTP gets the same kind of answer as everything else, and no stack trace in the log."""
        # Not what it says: that may quote a header, and so a token.
        logger.debug("refused as HTTP with %d: %s", status, type(exc).__name__, extra=ids(self.id))
        text = "The request could not be read as HTTP." if status < 500 else "The request failed."
        response = web.Response(
            status=status,
            body=error_document(status, text),
            headers={"Content-Type": ERROR_CONTENT_TYPE, "Server": BANNER},
        )
        response.force_close()
        return response

    def _refuse_head(self) -> None:
        """A head is larger than it may be, and more of it would come."""
        if self.transport is None or self.transport.is_closing():
            return
        if self._current_request is None and not self._messages:
            text = f"The headers have more than {self._limits.max_http_header_bytes} bytes."
            body = error_document(431, text)
            head = f"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: {ERROR_CONTENT_TYPE}\r\n"
            head += f"Content-Length: {len(body)}\r\nConnection: close\r\nServer: {BANNER}\r\n\r\n"
            self.transport.write(head.encode() + body)
        self.force_close()

    def _drop(self, reason: str) -> None:
        transport = self.transport
        if transport is not None:
            # Strangers must not decide how much is logged; the listener counts them.
            level = logging.INFO if self._is_claimed else logging.DEBUG
            logger.log(level, "an HTTP connection is closed: the client %s", reason, extra=ids(self.id))
            transport.abort()


class _Tail:
    """What aiohttp takes for its own reader of frames."""

    def __init__(self, websocket: WebSocketTransport) -> None:
        self._websocket = websocket

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._websocket.data_received(data)
        return False, b""

    def feed_eof(self) -> None:
        """The end of the connection is told otherwise."""
