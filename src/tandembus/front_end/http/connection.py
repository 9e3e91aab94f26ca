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
from tandembus.front_end.websocket.transport import WebSocketTransport
from tandembus.limits import Limits
from tandembus.logs import ids

if TYPE_CHECKING:
    from aiohttp.http_websocket import WebSocketReader

MAX_LINE_BYTES: Final = 8 * 1024
MAX_HEADERS: Final = 64
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
        self._is_answered = False
        self._is_claimed = False
        self._deadline: asyncio.TimerHandle | None = None
        self._unread_deadline: asyncio.TimerHandle | None = None
        self._websocket: WebSocketTransport | None = None

    def start_on(self, transport: asyncio.Transport, first_bytes: bytes) -> None:
        """Take over an accepted transport and what was read from it already."""
        transport.set_protocol(self)
        self.connection_made(transport)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._limits.pre_auth_timeout_s, self._drop_if_unanswered)
        if first_bytes:
            self.data_received(first_bytes)

    def claim_shown(self) -> None:
        """A request had a valid claim: from here on the connection counts as somebody's."""
        if not self._is_claimed:
            self._is_claimed = True
            if self._when_claimed is not None:
                self._when_claimed()

    def answered(self) -> None:
        """A request was complete and got an answer: the peer does speak HTTP."""
        self._is_answered = True

    def become_websocket(self, amqp: asyncio.Protocol) -> WebSocketTransport:
        """From here on the connection speaks AMQP inside frames, and HTTP no more."""
        assert self.transport is not None
        self._websocket = WebSocketTransport(self.transport, amqp, self._limits)
        # Hands over what has come behind the request already; what comes later does not go through HTTP's parser.
        self.set_parser(cast("WebSocketReader", _Tail(self._websocket)))
        return self._websocket

    def data_received(self, data: bytes) -> None:
        # Asked before adding: a first read may be larger than the budget and hold a valid claim.
        if not self._is_claimed and self._unclaimed_bytes > self._limits.pre_auth_bytes:
            self._drop("has sent too much without a valid claim")
            return
        self._unclaimed_bytes += len(data)
        if self._websocket is not None:
            self._websocket.data_received(data)
        else:
            super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.is_lost = True
        for tell in list(self.when_lost):
            tell()
        for deadline in (self._deadline, self._unread_deadline):
            if deadline is not None:
                deadline.cancel()
        if self._websocket is not None:
            self._websocket.connection_lost(exc if isinstance(exc, Exception) else None)
        super().connection_lost(exc)

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

    def _drop_if_unanswered(self) -> None:
        self._deadline = None
        # Who has shown a claim may wait for a message longer than that.
        if not self._is_answered and not self._is_claimed:
            self._drop("has not made a request in time")

    def _drop(self, reason: str) -> None:
        transport = self.transport
        if transport is not None:
            logger.info("an HTTP connection is closed: the client %s", reason, extra=ids(self.id))
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
