"""Connections of our own client to where a client of the SDK connects, for a syphon in the application's process."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import Any, Final, final
from urllib.parse import urlsplit

import aiohttp
import certifi
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient
from yarl import URL

from tandembus.client import ConnectionLost
from tandembus.client.connection import Connection
from tandembus.client.service_bus import ServiceBus, dial_socket, open_bus
from tandembus.client.tokens import SAS, Token
from tandembus.errors import OperationTimeout, Unauthorized
from tandembus.pairing.sdk import UnknownSdk
from tandembus.security.sas import make_token

WEB_TOKEN: Final = "jwt"
SCOPE: Final = "https://servicebus.azure.net//.default"
WEB_SOCKET_PATH: Final = "/$servicebus/websocket"
NEEDED: Final = ("_config", "_credential", "_connection_verify", "_ssl_context")
"""The SDK does not promise these, and has had them since version 7.12."""


async def connect(client: ServiceBusClient, timeout_s: float) -> ServiceBus:
    """With the settings and the credential of the client. `UnknownSdk`: it does not show them."""
    if not all(hasattr(client, name) for name in NEEDED):
        raise UnknownSdk
    host = client.fully_qualified_namespace
    token_of = partial(_token, client._credential)
    return await open_bus(partial(_dial, client, timeout_s), host, token_of, timeout_s=timeout_s)


async def _dial(client: Any, timeout_s: float, connection: Connection) -> None:
    settings = client._config
    tls = client._ssl_context
    if not settings.use_tls:
        tls = None
    elif tls is None:
        tls = ssl.create_default_context(cafile=client._connection_verify or certifi.where())
    where = urlsplit(settings.custom_endpoint_address or f"sb://{client.fully_qualified_namespace}")
    host, port = str(where.hostname), where.port or settings.connection_port
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if settings.transport_type is TransportType.Amqp and not settings.http_proxy:
        await dial_socket(connection, host, port, tls, timeout_s)
        return
    session = aiohttp.ClientSession()
    try:
        async with asyncio.timeout(timeout_s):
            socket = await session.ws_connect(
                f"{'ws' if tls is None else 'wss'}://{address}{where.path or WEB_SOCKET_PATH}",
                protocols=("AMQPWSB10",),
                ssl=True if tls is None else tls,
                proxy=_proxy(settings.http_proxy),
                max_msg_size=0,
            )
    except BaseException as error:
        await session.close()
        if isinstance(error, TimeoutError):
            raise OperationTimeout(f"{address} did not answer within {timeout_s:g} s") from error
        if isinstance(error, (OSError, aiohttp.ClientError)):
            raise ConnectionLost(f"cannot connect to {address}: {error!r}") from error
        raise
    connection.connection_made(_WebSocket(session, socket, connection))


def _proxy(settings: dict[str, Any] | None) -> URL | None:
    if not settings:
        return None
    host, port = settings["proxy_hostname"], int(settings["proxy_port"])
    return URL.build(
        scheme="http", host=host, port=port, user=settings.get("username"), password=settings.get("password")
    )


@final
class _WebSocket(asyncio.Transport):
    """AMQP in the messages of a WebSocket."""

    def __init__(
        self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse, protocol: asyncio.Protocol
    ) -> None:
        super().__init__()
        self._session = session
        self._socket = socket
        self._protocol = protocol
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._writing = asyncio.ensure_future(self._write())
        self._reading = asyncio.ensure_future(self._read())

    def write(self, data: Any) -> None:
        self._outgoing.put_nowait(bytes(data))

    def abort(self) -> None:
        self._reading.cancel()

    close = abort

    async def _write(self) -> None:
        try:
            while True:
                await self._socket.send_bytes(await self._outgoing.get())
        except (OSError, aiohttp.ClientError):
            self._reading.cancel()

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    self._protocol.data_received(message.data)
        finally:
            self._writing.cancel()
            self._protocol.connection_lost(None)
            try:
                await self._socket.close()
            finally:
                await self._session.close()


async def _token(credential: Any, audience: str, expires_at: float) -> Token:
    if isinstance(credential, AzureSasCredential):
        return Token(credential.signature, SAS, expires_at)
    if isinstance(credential, AzureNamedKeyCredential):
        name, key = credential.named_key
        return Token(make_token(audience, name, key, expires_at), SAS, expires_at)
    is_sas = getattr(credential, "token_type", None) == SAS.encode()
    try:
        found = await credential.get_token(audience if is_sas else SCOPE)
    except ClientAuthenticationError as error:
        raise Unauthorized(str(error)) from error
    except AzureError as error:
        raise ConnectionLost(f"no token: {error}") from error
    text = found.token.decode() if isinstance(found.token, bytes) else found.token
    return Token(text, SAS if is_sas else WEB_TOKEN, found.expires_on)
