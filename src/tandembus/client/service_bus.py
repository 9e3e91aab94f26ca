"""The front door of the client: connect to a namespace, then send, receive and manage."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

from tandembus.amqp.engine import EngineSettings, plain_response
from tandembus.client.addresses import SubQueue, address_of
from tandembus.client.connection import Connection
from tandembus.client.errors import ConnectionLost
from tandembus.client.management import Management
from tandembus.client.receiver import ReceiveMode, Receiver
from tandembus.client.reservations import Reservations
from tandembus.client.sender import DEFAULT_WINDOW, Sender
from tandembus.client.session_receiver import SessionReceiver
from tandembus.client.tokens import Tokens, TokenSource, tokens_of
from tandembus.clock import Clock, SystemClock
from tandembus.errors import OperationTimeout, Unauthorized
from tandembus.security.sas import ConnectionString, parse_connection_string

AMQP_PORT: Final = 5672
AMQPS_PORT: Final = 5671
DEFAULT_TIMEOUT_S: Final = 60.0
ANSWER_MARGIN_S: Final = 10.0
"""How much longer than the service may wait for a session its answer may take."""
MAX_FRAME_SIZE: Final = 1_048_576
IDLE_TIMEOUT_MS: Final = 60_000
"""A service that is silent for longer than this, and half as long again, is given up."""


class ServiceBus:
    """One connection to a namespace, with as many senders, receivers and management nodes as you like.

    Nothing is reconnected behind your back: when the connection is lost, everything on it raises
    `ConnectionLost`, and what was under way may or may not have happened.
    """

    def __init__(self, connection: Connection, tokens: Tokens | None) -> None:
        self.connection: Final = connection
        self._tokens: Final = tokens

    async def __aenter__(self) -> ServiceBus:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self.connection.close()

    async def sender(
        self, entity: str, *, window: int = DEFAULT_WINDOW, properties: dict[str, object] | None = None
    ) -> Sender:
        """`window`: how many sends may be under way at once on this link. `properties` say more about the link."""
        await self._authorize(entity)
        sender = Sender(self.connection, entity, window, properties=properties)
        await self.connection.attach(sender)
        return sender

    async def receiver(
        self,
        entity: str,
        sub_queue: SubQueue | None = None,
        *,
        mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
        prefetch: int = 0,
    ) -> Receiver:
        """`prefetch`: how many messages the service may send ahead; 0 = only what a `receive` waits for."""
        await self._authorize(entity)
        receiver = Receiver(self.connection, address_of(entity, sub_queue), mode, prefetch)
        await self.connection.attach(receiver)
        return receiver

    async def accept_session(
        self,
        entity: str,
        session_id: str | None = None,
        timeout_s: float | None = None,
        *,
        mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
        prefetch: int = 0,
    ) -> SessionReceiver:
        """The receiver of one session, which nobody else can receive from meanwhile.

        Without an id it is the next session that has messages and no receiver; `OperationTimeout` if there is
        none for `timeout_s` (default: as long as every wait on this connection). A named session needs no messages;
        `SessionCannotBeLocked` if another receiver has it.
        """
        await self._authorize(entity)
        wait_s = self.connection.timeout_s if timeout_s is None else timeout_s
        receiver = SessionReceiver(self.connection, entity, session_id, wait_s, mode, prefetch)
        await self.connection.attach(receiver, wait_s + ANSWER_MARGIN_S)
        return receiver

    async def management(self, entity: str, sub_queue: SubQueue | None = None) -> Management:
        await self._authorize(entity)
        management = Management(self.connection, address_of(entity, sub_queue))
        await management.open()
        return management

    async def reservations(self, entity: str, sub_queue: SubQueue | None = None) -> Reservations:
        """Messages set aside for an owner: only a tandembus namespace has that."""
        await self._authorize(entity)
        reservations = Reservations(self.connection, address_of(entity, sub_queue))
        await reservations.open()
        return reservations

    async def _authorize(self, entity: str) -> None:
        if self._tokens is not None:
            await self._tokens.ensure(entity)


async def connect(
    connection_string: str,
    *,
    sasl_plain: bool = False,
    ca_path: str | None = None,
    container_id: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    clock: Clock | None = None,
) -> ServiceBus:
    """Connect to the namespace of a connection string; TLS unless it says `UseDevelopmentEmulator=true`.

    `sasl_plain` presents the policy's name and key once, for the whole connection, in place of a token per
    entity; a key is then sent as it is, so use it over TLS or on your own machine. `timeout_s` bounds every
    wait for the service.
    """
    parts = parse_connection_string(connection_string)
    tls = None if parts.use_emulator else ssl.create_default_context(cafile=ca_path)
    port = parts.port or (AMQP_PORT if tls is None else AMQPS_PORT)
    return await open_bus(
        partial(dial_socket, host=parts.host, port=port, tls=tls, timeout_s=timeout_s),
        parts.endpoint,
        tokens_of(parts),
        plain=_plain(parts) if sasl_plain else None,
        container_id=container_id,
        timeout_s=timeout_s,
        clock=clock,
    )


async def open_bus(
    dial: Callable[[Connection], Coroutine[Any, Any, None]],
    endpoint: str,
    token_of: TokenSource,
    *,
    plain: bytes | None = None,
    container_id: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    clock: Clock | None = None,
) -> ServiceBus:
    """`dial` makes the connection to the namespace `endpoint`, host[:port]. `plain` are credentials for SASL PLAIN, in
    place of tokens."""
    clock = clock or SystemClock()
    settings = EngineSettings(
        is_server=False,
        container_id=container_id or f"tandembus-{uuid.uuid4().hex}",
        hostname=urlsplit(f"//{endpoint}").hostname or endpoint,
        max_frame_size=MAX_FRAME_SIZE,
        idle_timeout_ms=IDLE_TIMEOUT_MS,
        open_timeout_s=timeout_s,
    )
    mechanism = "ANONYMOUS" if plain is None else "PLAIN"
    connection = Connection(settings, mechanism, plain or b"", clock, timeout_s)
    await dial(connection)
    try:
        await connection.opened()
    except BaseException:
        await connection.close()
        raise
    if plain is not None:
        return ServiceBus(connection, None)
    tokens = Tokens(connection, endpoint, token_of)
    connection.on_tick = tokens.renew_due
    connection.on_unauthorized = tokens.doubt
    return ServiceBus(connection, tokens)


async def dial_socket(
    connection: Connection, host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float
) -> None:
    opening = connection.loop.create_connection(lambda: connection, host, port, ssl=tls)
    try:
        await asyncio.wait_for(opening, timeout_s)
    except TimeoutError as error:
        raise OperationTimeout(f"{host}:{port} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise ConnectionLost(f"cannot connect to {host}:{port}: {error}") from error


def _plain(parts: ConnectionString) -> bytes:
    if parts.key_name is None or parts.key is None:
        raise Unauthorized("SASL PLAIN needs a policy name and a key in the connection string")
    return plain_response(parts.key_name, parts.key)
