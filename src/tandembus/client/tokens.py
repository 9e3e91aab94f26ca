"""Tokens for the entities in use: put on `$cbs` before a link is attached, and again before they expire."""

from __future__ import annotations

import asyncio
from typing import Final

from tandembus.amqp.encoding.values import timestamp
from tandembus.client.addresses import TOKEN_NODE
from tandembus.client.connection import Connection
from tandembus.client.errors import ClientFailure, failure_of_status
from tandembus.client.request_link import RequestLink, StatusNames
from tandembus.errors import Unauthorized
from tandembus.security.sas import ConnectionString, make_token

STATUS_NAMES: Final = StatusNames("status-code", "status-description", "error-condition")
LIFETIME_S: Final = 3600.0
RENEW_AFTER_S: Final = 0.75 * LIFETIME_S
RETRY_AFTER_S: Final = 30.0
"""A renewal that failed: the old token is still good for a while."""


class Tokens:
    """The tokens of one connection, by entity. A ready signature is put as it is and cannot be renewed."""

    def __init__(self, connection: Connection, parts: ConnectionString) -> None:
        self._connection: Final = connection
        self._parts: Final = parts
        self._node: RequestLink | None = None
        self._renew_at: Final[dict[str, float]] = {}
        self._opening: Final = asyncio.Lock()
        self._renewals: Final[set[asyncio.Task[None]]] = set()

    async def ensure(self, entity: str) -> None:
        """A token for `entity`, unless there is one. `Unauthorized` if the namespace refuses it."""
        if entity not in self._renew_at:
            await self._put(entity)

    def renew_due(self) -> None:
        """Put anew what is about to expire; called on every tick."""
        now = self._connection.clock.now()
        for entity, renew_at in self._renew_at.items():
            if now >= renew_at and self._parts.signature is None:
                self._renew_at[entity] = now + RETRY_AFTER_S
                renewal = self._connection.loop.create_task(self._renew(entity))
                self._renewals.add(renewal)
                renewal.add_done_callback(self._renewals.discard)

    async def _renew(self, entity: str) -> None:
        try:
            await self._put(entity)
        except ClientFailure:
            pass  # Tried again in a while; if it never works the service detaches the links and says why.

    async def _put(self, entity: str) -> None:
        node = await self._opened_node()
        audience = f"sb://{self._parts.endpoint}/{entity}"
        now = self._connection.clock.now()
        properties: dict[str, object] = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": audience,
            "expiration": timestamp(round((now + LIFETIME_S) * 1000)),
        }
        answer = await node.request(self._token(audience, now + LIFETIME_S), properties)
        if not 200 <= answer.status < 300:
            raise failure_of_status(answer.status, None, answer.description)
        self._renew_at[entity] = now + RENEW_AFTER_S

    async def _opened_node(self) -> RequestLink:
        async with self._opening:
            if self._node is None or self._node.is_lost:
                node = RequestLink(self._connection, TOKEN_NODE, STATUS_NAMES)
                await node.open()
                self._node = node
            return self._node

    def _token(self, audience: str, expires_at: float) -> str:
        if self._parts.signature is not None:
            return self._parts.signature
        if self._parts.key_name is None or self._parts.key is None:
            raise Unauthorized("the connection string has neither a key nor a signature")
        return make_token(audience, self._parts.key_name, self._parts.key, expires_at)
