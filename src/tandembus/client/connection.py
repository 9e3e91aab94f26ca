"""One AMQP connection to a namespace: moves bytes between socket and engine, tells links what happened.

Everything that takes many messages per second happens in `data_received`: what arrived is handled in one go
and answered with one write. Nothing is retried here; a lost connection fails what was under way, with an
outcome the caller must take for unknown.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast

from tandembus.amqp.engine import (
    AmqpError,
    AmqpSession,
    ConnectionClosed,
    DeliveryReceived,
    DispositionReceived,
    EngineSettings,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    Opened,
    SaslOutcome,
    SessionEnded,
    SettlementConfirmed,
)
from tandembus.amqp.engine import Connection as Engine
from tandembus.client.errors import ConnectionLost, failure_of
from tandembus.clock import Clock
from tandembus.errors import OperationTimeout, Unauthorized
from tandembus.tasks import within

TICK_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 2.0
T = TypeVar("T")


class LinkOwner:
    """What a connection tells the user of a link. `failure` is set once the link is gone."""

    def __init__(self, connection: Connection, session: AmqpSession | None = None) -> None:
        self.connection: Final = connection
        self.session: Final[AmqpSession] = session or connection.begin()
        self.name: Final = uuid.uuid4().hex
        self.failure: Exception | None = None
        self.attached: Final[asyncio.Future[None]] = connection.loop.create_future()

    def on_attached(self) -> None:
        if not self.attached.done():
            self.attached.set_result(None)

    def on_lost(self, failure: Exception) -> None:
        """The link is gone; what is under way on it fails. May be told more than once: the first reason counts."""
        if self.failure is not None:
            return
        self.failure = failure
        self.connection.forget(self)
        if not self.attached.done():
            self.attached.set_exception(failure)
            self.attached.exception()  # Nobody may be waiting any more; that is no news worth a warning.

    def on_flow(self) -> None: ...

    def on_delivery(self, event: DeliveryReceived) -> None: ...

    def on_outcomes(self, event: DispositionReceived) -> None: ...

    def on_confirmed(self, event: SettlementConfirmed) -> None: ...

    def on_tick(self, now: float) -> None: ...

    def raise_if_lost(self) -> None:
        if self.failure is not None:
            raise self.failure


class Connection(asyncio.Protocol):
    """A connection with any number of links, each in an AMQP session of its own so that none can stall another."""

    def __init__(
        self, settings: EngineSettings, mechanism: str, response: bytes, clock: Clock, timeout_s: float
    ) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self.clock: Final = clock
        self.timeout_s: Final = timeout_s
        self.failure: Exception | None = None
        self.on_tick: Callable[[], None] | None = None
        self.on_unauthorized: Callable[[], None] | None = None
        self._sasl: Final = (mechanism, response)
        self._engine: Final = Engine(settings, clock.monotonic())
        self._transport: asyncio.Transport | None = None
        self._owners: Final[set[LinkOwner]] = set()
        self._opened: Final[asyncio.Future[None]] = self.loop.create_future()
        self._gone: Final[asyncio.Future[None]] = self.loop.create_future()
        self._ticker: asyncio.TimerHandle | None = None
        self._is_flush_due = False
        self._handlers: Final[dict[type[Event], Callable[..., None]]] = {
            DeliveryReceived: self._on_delivery,
            DispositionReceived: self._on_disposition,
            SettlementConfirmed: self._on_confirmed,
            LinkFlow: self._on_flow,
            LinkAttached: self._on_attached,
            LinkDetached: self._on_detached,
            SessionEnded: self._on_session_ended,
            SaslOutcome: self._on_sasl_outcome,
            Opened: self._on_opened,
            ConnectionClosed: self._on_closed,
        }

    async def opened(self) -> None:
        """Until the namespace has answered; `Unauthorized` if it refused the SASL credentials."""
        await self.in_time(self._opened, "the connection was not opened")

    async def close(self) -> None:
        """Say goodbye and wait for the answer, but not for long."""
        if self.failure is None:
            self._engine.close()
            self.flush()
            await asyncio.wait((self._gone,), timeout=CLOSE_TIMEOUT_S)
        if self._transport is not None:
            self._transport.abort()
        self._fail(ConnectionLost("the connection was closed"))

    async def in_time(self, awaitable: Awaitable[T], otherwise: str, timeout_s: float | None = None) -> T:
        """The result, or `OperationTimeout` after the connection's time-out, unless another one is given."""
        patience_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            return await within(awaitable, patience_s)
        except TimeoutError as error:
            raise OperationTimeout(f"{otherwise} within {patience_s:g} s") from error

    def begin(self) -> AmqpSession:
        if self.failure is not None:
            raise self.failure
        return self._engine.begin()

    async def attach(self, owner: LinkOwner, timeout_s: float | None = None) -> None:
        """Until the link of `owner` stands, or was refused."""
        self._owners.add(owner)
        self.flush()
        try:
            await self.in_time(owner.attached, "the link was not attached", timeout_s)
        except BaseException:
            self.forget(owner)
            owner.session.end()
            self.flush_soon()
            raise

    def forget(self, owner: LinkOwner) -> None:
        self._owners.discard(owner)

    def flush(self) -> None:
        """Write what the engine has ready."""
        if self._transport is not None and (data := self._engine.data_to_send()):
            self._transport.write(data)

    def flush_soon(self) -> None:
        """The same at the end of this turn of the loop, together with what others add until then."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self.loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._is_flush_due = False
        self.flush()

    def tick(self) -> None:
        """Heartbeats and time-outs. Called every second; also by tests, whose clocks do not move by themselves."""
        now = self.clock.monotonic()
        self._handle(self._engine.tick(now))
        for owner in list(self._owners):
            owner.on_tick(now)
        if self.on_tick is not None:
            self.on_tick()
        self.flush()

    def _tick_on(self) -> None:
        self._ticker = self.loop.call_later(TICK_S, self._tick_on)
        self.tick()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Some event loops have transports of their own that only look like asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._engine.start(*self._sasl)
        self.flush()
        self._ticker = self.loop.call_later(TICK_S, self._tick_on)

    def data_received(self, data: bytes) -> None:
        self._handle(self._engine.receive_data(data))
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(ConnectionLost(f"the connection was lost: {error}" if error else "the connection was closed"))

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            handler = self._handlers.get(type(event))
            if handler is not None:
                handler(event)

    def _on_delivery(self, event: DeliveryReceived) -> None:
        owner = event.link.context
        if isinstance(owner, LinkOwner):
            owner.on_delivery(event)

    def _on_disposition(self, event: DispositionReceived) -> None:
        owner = event.deliveries[0].link.context  # A session of ours has one sending link at most.
        if isinstance(owner, LinkOwner):
            owner.on_outcomes(event)

    def _on_confirmed(self, event: SettlementConfirmed) -> None:
        owner = event.session.context
        if isinstance(owner, LinkOwner):
            owner.on_confirmed(event)

    def _on_flow(self, event: LinkFlow) -> None:
        owner = event.link.context
        if isinstance(owner, LinkOwner):
            owner.on_flow()

    def _on_attached(self, event: LinkAttached) -> None:
        owner = event.link.context
        if isinstance(owner, LinkOwner):
            owner.on_attached()

    def _on_detached(self, event: LinkDetached) -> None:
        owner = event.link.context
        if isinstance(owner, LinkOwner):
            failure = _failure_of(event.error, "the service detached the link")
            if isinstance(failure, Unauthorized) and self.on_unauthorized is not None:
                self.on_unauthorized()
            owner.on_lost(failure)
            owner.session.end()

    def _on_session_ended(self, event: SessionEnded) -> None:
        for owner in [each for each in self._owners if each.session is event.session]:
            owner.on_lost(_failure_of(event.error, "the service ended the AMQP session"))

    def _on_sasl_outcome(self, event: SaslOutcome) -> None:
        if not event.ok:
            self._fail(Unauthorized("the namespace refused the policy's name or key"))

    def _on_opened(self, event: Opened) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    def _on_closed(self, event: ConnectionClosed) -> None:
        self.flush()
        self._fail(_failure_of(event.error, "the service closed the connection"))
        if self._transport is not None:
            self._transport.close()

    def _fail(self, failure: Exception) -> None:
        """Everything that waits on this connection fails; only the first reason counts."""
        if self.failure is not None:
            return
        self.failure = failure
        if self._ticker is not None:
            self._ticker.cancel()
        for owner in list(self._owners):
            owner.on_lost(failure)
        if not self._opened.done():
            self._opened.set_exception(failure)
            self._opened.exception()
        self._gone.set_result(None)


def _failure_of(error: AmqpError | None, otherwise: str) -> Exception:
    if error is None:
        return ConnectionLost(otherwise)
    return failure_of(error.condition, error.description)
