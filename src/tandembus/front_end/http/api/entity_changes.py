"""Creating, changing and deleting queues, topics and subscriptions, described in JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from tandembus.descriptions import (
    EntityDescription,
    EntityKind,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.descriptions.names import DEFAULT_RULE_NAME
from tandembus.errors import InvalidArgument
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.administration import check_is_free
from tandembus.front_end.http.api.entities import found
from tandembus.front_end.http.api.entity_documents import EntityDocuments
from tandembus.front_end.http.api.routes import Document, Route, asked, read_document, told
from tandembus.front_end.http.api.rule_json import read_rule
from tandembus.front_end.http.api.setting_fields import read_settings
from tandembus.metering import NAMESPACE_ENTITY, Meter
from tandembus.metering.slot import MANAGE, NORMAL
from tandembus.namespace.entries import Entry
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.paths import split_subscription
from tandembus.security.claims import Claims, Right

_KINDS: Final = {kind.value: kind for kind in EntityKind}


class EntityChanges:
    def __init__(
        self,
        namespace: Namespace,
        access: Access,
        meter: Meter,
        documents: EntityDocuments,
    ) -> None:
        self._namespace = namespace
        self._access = access
        self._meter = meter
        self._documents = documents

    def routes(self) -> list[Route]:
        return [
            Route("PUT", "entity", self._create),
            Route("PATCH", "entity", self._update),
            Route("DELETE", "entity", self._delete),
        ]

    async def _create(self, request: web.Request) -> web.Response:
        path, claims = await self._begin(request)
        document = await self._read(request, ("kind", "settings", "default_rule"))
        wanted = described(path, document)
        rule = self._default_rule(wanted, document.get("default_rule"))
        self._access.check_forwarding(request, claims, wanted, None)
        try:
            entry = await self._made(wanted, rule)
        finally:
            self._charge(path)
        return told(await self._documents.whole(entry, claims), 201)

    async def _update(self, request: web.Request) -> web.Response:
        path, claims = await self._begin(request)
        document = await self._read(request, ("settings",))
        self._charge(path)
        async with self._namespace.describing:
            known = found(self._namespace, path).description
            changes = read_settings(known.kind, document.get("settings"))
            entry = await self._changed(request, claims, known, changes)
        return told(await self._documents.whole(entry, claims))

    async def _delete(self, request: web.Request) -> web.Response:
        path, _ = await self._begin(request)
        self._charge(path)
        known = found(self._namespace, path).description
        if isinstance(known, QueueDescription):
            await self._namespace.delete_queue(known.name)
        elif isinstance(known, TopicDescription):
            await self._namespace.delete_topic(known.name)
        else:
            await self._namespace.delete_subscription(known.topic_name, known.name)
        return web.Response(status=204)

    async def _begin(self, request: web.Request) -> tuple[str, Claims]:
        path = asked(request, "path")
        if not {".", ".."}.isdisjoint(path.split("/")):
            self._access.check_any(request)
            raise InvalidArgument(f"'{path[:64]}': no part of a path can be '.' or '..'.")
        claims = self._access.check(request, Right.MANAGE, path)
        await self._namespace.faults.hit_namespace(grows=request.method == "PUT")
        await self._namespace.refresh()
        return path, claims

    async def _read(self, request: web.Request, names: tuple[str, ...]) -> Document:
        document = await read_document(request, self._namespace.limits.max_management_body_bytes)
        unknown = sorted(set(document) - set(names))
        if unknown:
            raise InvalidArgument(f"The body has '{unknown[0][:64]}'; it may have {', '.join(names)}.")
        return document

    def _default_rule(self, wanted: EntityDescription, document: object) -> RuleDescription | None:
        """None: the one that takes everything."""
        if document is None:
            return None
        if not isinstance(wanted, SubscriptionDescription) or not isinstance(document, dict):
            raise InvalidArgument("Only a subscription has a 'default_rule', and it is a JSON object.")
        name = document.get("name", DEFAULT_RULE_NAME)
        if not isinstance(name, str):
            raise InvalidArgument("The name of a rule must be a text.")
        return read_rule(document, name, self._namespace.limits.max_rule_values)

    async def _made(self, wanted: EntityDescription, rule: RuleDescription | None) -> Entry:
        if isinstance(wanted, QueueDescription):
            return await self._namespace.create_queue(wanted)
        if isinstance(wanted, TopicDescription):
            return await self._namespace.create_topic(wanted)
        return await self._namespace.create_subscription(wanted, rule)

    async def _changed(
        self, request: web.Request, claims: Claims, known: EntityDescription, changes: dict[str, Any]
    ) -> Entry:
        wanted = replace(known, **changes)
        self._access.check_forwarding(request, claims, wanted, known)
        if isinstance(wanted, QueueDescription):
            return await self._namespace.update_queue(wanted)
        if isinstance(wanted, TopicDescription):
            return await self._namespace.update_topic(wanted)
        return await self._namespace.update_subscription(wanted)

    def _charge(self, path: str) -> None:
        """One operation of management, as over every other way."""
        entry = self._namespace.catalog.find(path)
        self._meter.count(NAMESPACE_ENTITY if entry is None else entry.key, MANAGE, NORMAL, 0, 1, 0)


def described(path: str, document: Document) -> EntityDescription:
    """What is to be created. Raises InvalidArgument; whether names and values are right is checked where it is made."""
    word = document.get("kind")
    kind = _KINDS.get(word) if isinstance(word, str) else None
    if kind is None:
        raise InvalidArgument(f"'kind' must be one of {', '.join(_KINDS)}.")
    settings = read_settings(kind, document.get("settings", {}))
    parts = split_subscription(path)
    if (kind is EntityKind.SUBSCRIPTION) != (parts is not None):
        raise InvalidArgument(f"A {kind.value} cannot be called '{path[:300]}'.")
    if parts is not None:
        return SubscriptionDescription(*parts, **settings)
    check_is_free(path)
    return QueueDescription(path, **settings) if kind is EntityKind.QUEUE else TopicDescription(path, **settings)
