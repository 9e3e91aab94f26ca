"""Tokens for the entities in use: put on `$cbs` before a link is attached, and again before they expire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from tandembus.amqp.encoding.values import timestamp
from tandembus.client.addresses import TOKEN_NODE
from tandembus.client.connection import Connection
from tandembus.client.errors import ClientFailure, TokenRefused, failure_of_status
from tandembus.client.request_link import RequestLink, StatusNames
from tandembus.errors import Unauthorized
from tandembus.security.sas import ConnectionString, make_token

STATUS_NAMES: Final = StatusNames("status-code", "status-description", "error-condition")
SAS: Final = "servicebus.windows.net:sastoken"
LIFETIME_S: Final = 3600.0
RENEW_AFTER: Final = 0.75
"""Of its lifetime."""
RETRY_AFTER_S: Final = 30.0
"""A renewal that failed: the old token is still good for a while."""


class Token(NamedTuple):
    text: str
    kind: str
    expires_at: float


TokenSource: TypeAlias = Callable[[str, float], Coroutine[Any, Any, Token]]
"""Makes a token for an audience, `sb://HOST/ENTITY`, which need not hold longer than until a time."""


class Tokens:
    """The tokens of one connection, by entity."""

    def __init__(self, connection: Connection, endpoint: str, token_of: TokenSource) -> None:
        self._connection: Final = connection
        self._endpoint: Final = endpoint
        self._token_of: Final = token_of
        self._node: RequestLink | None = None
        self._renew_at: Final[dict[str, float]] = {}
        self._doubted: Final[set[str]] = set()
        self._opening: Final = asyncio.Lock()
        self._renewals: Final[set[asyncio.Task[None]]] = set()

    async def ensure(self, entity: str) -> None:
        """A token for `entity`, unless there is one. `Unauthorized` if the namespace refuses it."""
        if entity not in self._renew_at or entity in self._doubted:
            await self._put(entity)

    def doubt(self) -> None:
        """The namespace has refused a link: a key may have changed, so each entity's next link puts its token again."""
        self._doubted.update(self._renew_at)

    def renew_due(self) -> None:
        """Put again what is about to expire; called on every tick."""
        now = self._connection.clock.now()
        for entity, renew_at in self._renew_at.items():
            if now >= renew_at:
                self._renew_at[entity] = now + RETRY_AFTER_S
                renewal = self._connection.loop.create_task(self._renew(entity))
                self._renewals.add(renewal)
                renewal.add_done_callback(self._renewals.discard)

    async def _renew(self, entity: str) -> None:
        try:
            await self._put(entity)
        except ClientFailure:
            self._doubted.add(entity)  # Tried again in a while, or by the next link, which says why it does not work.

    async def _put(self, entity: str) -> None:
        node = await self._opened_node()
        audience = f"sb://{self._endpoint}/{entity}"
        now = self._connection.clock.now()
        token = await self._token_of(audience, now + LIFETIME_S)
        properties: dict[str, object] = {
            "operation": "put-token",
            "type": token.kind,
            "name": audience,
            "expiration": timestamp(round(token.expires_at * 1000)),
        }
        answer = await node.request(token.text, properties)
        if answer.status == 401:
            raise TokenRefused(answer.description)
        if not 200 <= answer.status < 300:
            raise failure_of_status(answer.status, None, answer.description)
        self._renew_at[entity] = now + RENEW_AFTER * (token.expires_at - now)
        self._doubted.discard(entity)

    async def _opened_node(self) -> RequestLink:
        async with self._opening:
            if self._node is None or self._node.is_lost:
                node = RequestLink(self._connection, TOKEN_NODE, STATUS_NAMES)
                await node.open()
                self._node = node
            return self._node


def tokens_of(parts: ConnectionString) -> TokenSource:
    return partial(_token, parts)


async def _token(parts: ConnectionString, audience: str, expires_at: float) -> Token:
    """A ready signature is put as it is."""
    if parts.signature is not None:
        return Token(parts.signature, SAS, expires_at)
    if parts.key_name is None or parts.key is None:
        raise Unauthorized("the connection string has neither a key nor a signature")
    return Token(make_token(audience, parts.key_name, parts.key, expires_at), SAS, expires_at)
