"""Messages over HTTP (wire contract 6.3): which operation a request means, and who may ask for it.

The same fragments, checks and counters as over AMQP; only the form of a message is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from tandembus.clock import Clock
from tandembus.errors import EntityNotFound, Unauthorized
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.message_paths import MessagePath, Target
from tandembus.front_end.http.receiving import HttpReceiver
from tandembus.front_end.http.request import allow
from tandembus.front_end.http.sending import HttpSender
from tandembus.metering.meter import Meter
from tandembus.namespace.entity import Entity
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.paths import EntityAddress
from tandembus.security.claims import Claims, Right
from tandembus.security.scopes import covers

METHODS: Final[Mapping[Target, tuple[str, ...]]] = {
    Target.ALL: ("POST",),
    Target.HEAD: ("POST", "DELETE"),
    Target.LOCKED: ("POST", "PUT", "DELETE"),
}


class MessagesOverHttp:
    def __init__(self, namespace: Namespace, access: Access, meter: Meter, clock: Clock) -> None:
        self._namespace = namespace
        self._access = access
        self._sender = HttpSender(namespace.limits, meter, clock, namespace.sightings, namespace.large_messages)
        self._receiver = HttpReceiver(namespace, access, meter, clock)

    def stop_waiting(self) -> None:
        self._receiver.stop_waiting()

    async def answer(self, request: web.Request, path: MessagePath) -> web.Response:
        allow(request, *METHODS[path.target])
        right = Right.SEND if path.target is Target.ALL else Right.LISTEN
        claims = self._access.check(request, right, path.address.claim_path, path.behind)
        self._check_is_meant(claims, path.address)
        entity = await self._entity(path)
        lane = path.address.sub_queue.lane
        with entity.in_use():
            if path.target is Target.ALL:
                return await self._sender.send(request, entity, path.address.sub_queue)
            if path.target is Target.HEAD:
                return await self._receiver.receive(request, path, entity, lane, claims)
            return await self._receiver.settle(request, path, entity, lane)

    def _check_is_meant(self, claims: Claims, address: EntityAddress) -> None:
        """A claim for `orders/messages` is one for the messages of `orders`, unless an entity is called so itself."""
        if covers(claims.scope, address.claim_path):
            return
        place = claims.scope
        while len(place) > len(address.claim_path):
            if self._namespace.catalog.find(place) is not None:
                raise Unauthorized(f"The token is one for '{place}', which is another entity.")
            place = place.rpartition("/")[0]

    async def _entity(self, path: MessagePath) -> Entity:
        if path.address.is_management:
            raise EntityNotFound("There are no messages at a management node.")
        return await self._namespace.entity(path.address.key)
