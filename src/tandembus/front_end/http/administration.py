"""Administration of a namespace: which resource and operation a request means, who may ask, and who is charged."""

from __future__ import annotations

import functools
from typing import Final

from aiohttp import web

from tandembus.clock import Clock
from tandembus.errors import EntityNotFound, InvalidArgument
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.atom import Origin
from tandembus.front_end.http.entities import Answer, EntityAdministration
from tandembus.front_end.http.message_paths import HEAD, MESSAGES
from tandembus.front_end.http.request import allow, is_update, origin_of, read_xml_body
from tandembus.front_end.http.resource_paths import Resource, ResourcePath, parse_resource_path
from tandembus.front_end.http.rules import RuleAdministration
from tandembus.front_end.http.upkeep import parse_upkeep_path
from tandembus.metering import Meter
from tandembus.metering.slot import MANAGE, NORMAL
from tandembus.namespace.namespace import Namespace
from tandembus.security.claims import Claims, Right

METER_PATH: Final = "tandembus/meter"
HEAD_SUFFIX: Final = f"/{MESSAGES}/{HEAD}"


class Administration:
    def __init__(self, namespace: Namespace, access: Access, meter: Meter, clock: Clock) -> None:
        self._namespace = namespace
        self._access = access
        self._meter = meter
        self._entities = EntityAdministration(namespace, clock)
        self._rules = RuleAdministration(namespace, clock)

    async def answer(self, request: web.Request, path: str) -> Answer:
        """One operation, charged to its entity, also when the answer is a refusal."""
        claims = self._access.check(request, Right.MANAGE, path)
        charged = self._charged(path)
        gone = self._keys_below(charged) if request.method == "DELETE" else []
        size_bytes = 0
        try:
            answer = await self._operate(request, path, claims)
            size_bytes = len(answer.body)
        finally:
            self._meter.count(charged or self._charged(path), MANAGE, NORMAL, 0, 1, size_bytes)
        for key in gone:
            if self._namespace.catalog.find(key) is None:
                self._meter.forget(key)
        return answer

    def _charged(self, path: str) -> str:
        """The key of the entity that a path is about, if it is there, else "": the namespace."""
        try:
            resource = parse_resource_path(path)
        except (EntityNotFound, InvalidArgument):
            return ""
        entry = self._namespace.catalog.find(resource.entity)
        return entry.key if entry is not None else ""

    def _keys_below(self, key: str) -> list[str]:
        """Whose counters end when this entity does; a topic takes its subscriptions along."""
        if not key:
            return []
        return [key, *[entry.key for entry in self._namespace.catalog.subscriptions(key)]]

    async def _operate(self, request: web.Request, path: str, claims: Claims) -> Answer:
        origin = origin_of(request, self._namespace.name)
        folded = path.lower()
        if folded == "$namespaceinfo":
            allow(request, "GET")
            return await self._entities.describe_namespace(origin)
        if folded == "$resources/queues":
            allow(request, "GET")
            return await self._entities.list_queues(request.query, origin)
        if folded == "$resources/topics":
            allow(request, "GET")
            return await self._entities.list_topics(request.query, origin)
        if folded.startswith("$") or not path:
            raise EntityNotFound(f"There is nothing at '/{path}'.")
        return await self._operate_resource(request, parse_resource_path(path), claims, origin)

    async def _operate_resource(
        self, request: web.Request, path: ResourcePath, claims: Claims, origin: Origin
    ) -> Answer:
        if path.resource is Resource.SUBSCRIPTIONS:
            allow(request, "GET")
            return await self._entities.list_subscriptions(path, request.query, origin)
        if path.resource is Resource.RULES:
            allow(request, "GET")
            return await self._rules.list_rules(path, request.query, origin)
        allow(request, "GET", "PUT", "DELETE")
        if path.resource is Resource.RULE:
            return await self._operate_rule(request, path, origin)
        return await self._operate_entity(request, path, claims, origin)

    async def _operate_entity(self, request: web.Request, path: ResourcePath, claims: Claims, origin: Origin) -> Answer:
        if request.method == "GET":
            return await self._entities.get(path, origin)
        if request.method == "DELETE":
            return await self._entities.delete(path, origin)
        check_is_free(path.name)
        body = await read_xml_body(request, self._namespace.limits)
        check = functools.partial(self._access.check_forwarding, request, claims)
        return await self._entities.put(path, body, is_update(request), check, origin)

    async def _operate_rule(self, request: web.Request, path: ResourcePath, origin: Origin) -> Answer:
        if request.method == "GET":
            return await self._rules.get(path, origin)
        if request.method == "DELETE":
            return await self._rules.delete(path, origin)
        body = await read_xml_body(request, self._namespace.limits)
        return await self._rules.put(path, body, is_update(request), origin)


def check_is_free(name: str) -> None:
    """Raises InvalidArgument where requests to this address mean something else: an entity called so could not be
    deleted again."""
    folded = name.lower()
    if folded == METER_PATH or folded.endswith(HEAD_SUFFIX) or parse_upkeep_path(name) is not None:
        raise InvalidArgument(f"The name '{name[:300]}' is taken by what the namespace itself has at that address.")
