"""Administration of queues, topics and subscriptions: what each request means, in terms of the namespace.

Nothing here knows HTTP beyond the answer's status and bytes; tokens, limits and refusals are the server's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tandembus.clock import Clock
from tandembus.descriptions import (
    AuthorizationRule,
    EntityDescription,
    EntityKind,
    SubscriptionDescription,
    check_new_keys,
)
from tandembus.descriptions.atom import SINCE, described, element
from tandembus.descriptions.durations import format_time, parse_integer
from tandembus.descriptions.entities import CLASSES
from tandembus.descriptions.settings import defaults_of
from tandembus.descriptions.xml_reader import read_xml
from tandembus.errors import BusError, EntityNotFound, InvalidArgument, StoreDamaged
from tandembus.front_end.http.atom import (
    ENTRY_CONTENT_TYPE,
    FEED_CONTENT_TYPE,
    Entry,
    Origin,
    Page,
    entry_document,
    feed_document,
)
from tandembus.front_end.http.entity_xml import EntityRequest, EntityView, read_entity, write_entity
from tandembus.front_end.http.request import HttpRefusal
from tandembus.front_end.http.resource_paths import ResourcePath
from tandembus.limits import Limits
from tandembus.namespace.entity import EntityCounts
from tandembus.namespace.entries import Entry as CatalogEntry
from tandembus.namespace.namespace import Namespace
from tandembus.security.key_file import random_key

STANDARD_MESSAGE_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of an answer."""

    status: int
    content_type: str = ""
    body: bytes = b""


Checked = Callable[[EntityDescription, EntityDescription | None], None]
"""Called with the wanted and the present description before anything is changed; raises if that is forbidden."""


class EntityAdministration:
    """Create, read, update, delete and list."""

    def __init__(self, namespace: Namespace, clock: Clock) -> None:
        self._namespace = namespace
        self._clock = clock

    async def describe_namespace(self, origin: Origin) -> Answer:
        name, at = self._namespace.name, self._namespace.created_at
        is_standard = self._namespace.limits.largest_message_bytes <= STANDARD_MESSAGE_BYTES
        content = described(
            "NamespaceInfo",
            [
                element("CreatedTime", format_time(at)),
                element("MessagingSKU", "Standard" if is_standard else "Premium"),
                "" if is_standard else element("MessagingUnits", "1"),
                element("ModifiedTime", format_time(at)),
                element("Name", name),
                element("NamespaceType", "Messaging"),
            ],
        )
        entry = Entry("$namespaceinfo", name, at, at, content)
        return Answer(200, ENTRY_CONTENT_TYPE, entry_document(entry, origin))

    # Lists.

    async def list_queues(self, query: Mapping[str, str], origin: Origin) -> Answer:
        skip, top = slice_of(query, self._namespace.limits)
        # One more than asked for tells whether there is a next page.
        found = self._namespace.catalog.queues(skip, top + 1)
        return await self._list("$Resources/queues", "Queues", found, skip, top, origin)

    async def list_topics(self, query: Mapping[str, str], origin: Origin) -> Answer:
        skip, top = slice_of(query, self._namespace.limits)
        found = self._namespace.catalog.topics(skip, top + 1)
        return await self._list("$Resources/topics", "Topics", found, skip, top, origin)

    async def list_subscriptions(self, path: ResourcePath, query: Mapping[str, str], origin: Origin) -> Answer:
        skip, top = slice_of(query, self._namespace.limits)
        topic = self._namespace.catalog.find_topic(path.name)
        if topic is None:
            raise not_found(path.name, origin)
        found = self._namespace.catalog.subscriptions(topic.key, skip, top + 1)
        name = f"{topic.description.name}/Subscriptions"
        return await self._list(name, "Subscriptions", found, skip, top, origin)

    async def _list(
        self, path: str, title: str, found: Sequence[CatalogEntry], skip: int, top: int, origin: Origin
    ) -> Answer:
        views = await asyncio.gather(*[self._view_on_page(entry) for entry in found[:top]])
        page = Page([self._entry(view, origin) for view in views], skip, top, len(found) > top)
        return Answer(200, FEED_CONTENT_TYPE, feed_document(path, title, page, origin, self._clock.now()))

    # One entity.

    async def get(self, path: ResourcePath, origin: Origin) -> Answer:
        entry = self._found(path, origin)
        view = await self._view(entry)
        if view.counts is None:
            raise HttpRefusal(
                503,
                f"No fragment of '{entry.description.path}' can be reached. Try again in a few seconds. {view.outage}",
            )
        return self._told(200, view, origin)

    async def put(self, path: ResourcePath, body: bytes, is_update: bool, check: Checked, origin: Origin) -> Answer:
        """Create the entity, or update it when the request says that it expects one."""
        limits = self._namespace.limits
        request = read_entity(read_xml(body, limits.max_management_body_bytes, limits.max_xml_depth))
        if (request.kind is EntityKind.SUBSCRIPTION) != bool(path.subscription):
            raise InvalidArgument(f"A description of a {request.kind.value} is not what belongs to '/{path.entity}'.")
        if is_update:
            async with self._namespace.describing:
                updated = await self._update(request, self._found(path, origin), check, origin)
            return self._told(200, await self._view_after_change(updated), origin)
        created = await self._create(request, path, check, origin)
        return self._told(201, self._view_of_empty(created), origin)

    async def _create(self, request: EntityRequest, path: ResourcePath, check: Checked, origin: Origin) -> CatalogEntry:
        names = (path.name, path.subscription) if path.subscription else (path.name,)
        _check_version(request.settings, origin)
        wanted = self._completed(CLASSES[request.kind](*names, **request.settings), None)
        check(wanted, None)
        return await self._namespace.create(wanted, request.default_rule)

    async def _update(
        self, request: EntityRequest, entry: CatalogEntry, check: Checked, origin: Origin
    ) -> CatalogEntry:
        """Names stay as they were written when the entity was made; a setting that is not named gets its default."""
        known = entry.description
        if request.kind is not known.kind:
            raise InvalidArgument(f"'{known.path}' is a {known.kind.value}, not a {request.kind.value}.")
        _check_version(request.settings, origin)
        settings = {**defaults_of(type(known)), **request.settings_beside(known, origin.api_version)}
        wanted = self._completed(replace(known, **settings), known)
        check(wanted, known)
        return await self._namespace.update(wanted)

    async def delete(self, path: ResourcePath, origin: Origin) -> Answer:
        await self._namespace.delete(self._found(path, origin).description)
        return Answer(200)

    def _found(self, path: ResourcePath, origin: Origin) -> CatalogEntry:
        entry = self._namespace.catalog.find(path.entity)
        if entry is None:
            raise not_found(path.entity, origin)
        return entry

    # How it looks.

    def _told(self, status: int, view: EntityView, origin: Origin) -> Answer:
        return Answer(status, ENTRY_CONTENT_TYPE, entry_document(self._entry(view, origin), origin))

    def _entry(self, view: EntityView, origin: Origin) -> Entry:
        description = view.description
        content = write_entity(view, origin, self._namespace.limits)
        return Entry(description.path, description.name, view.created_at, view.updated_at, content)

    async def _view(self, entry: CatalogEntry) -> EntityView:
        path = entry.description.path
        condition = await self._namespace.condition(path)
        return replace(
            self._view_of_empty(entry),
            counts=condition.counts,
            is_limited=condition.is_limited,
            outage=condition.outage,
            accessed_at=self._namespace.accessed_at(path),
        )

    def _view_of_unknown(self, entry: CatalogEntry) -> EntityView:
        return replace(self._view_of_empty(entry), counts=None, is_limited=True)

    def _view_of_empty(self, entry: CatalogEntry) -> EntityView:
        view = EntityView(entry.description, EntityCounts(), entry.created_at, entry.updated_at, entry.created_at)
        if entry.kind is not EntityKind.TOPIC:
            return view
        rules = self._namespace.catalog.rule_counts(entry.key)
        return replace(
            view,
            subscription_count=self._namespace.catalog.subscription_count(entry.key),
            # A true filter is one of SQL for the service: it is told as `1=1`.
            sql_filter_count=rules.sql + rules.plain,
            correlation_filter_count=rules.correlation,
        )

    async def _view_on_page(self, entry: CatalogEntry) -> EntityView:
        """A list is no snapshot: an entity deleted while its page is made is still on it, and empty.

        Leaving it out would make a full page look like the last one. One that is damaged must not hide the others.
        """
        try:
            return await self._view(entry)
        except EntityNotFound:
            return self._view_of_empty(entry)
        except StoreDamaged:
            return self._view_of_unknown(entry)

    async def _view_after_change(self, entry: CatalogEntry) -> EntityView:
        """The change is durable: that the messages cannot be counted right now must not make it look undone."""
        try:
            return await self._view(entry)
        except BusError:
            return self._view_of_unknown(entry)

    def _completed(self, description: EntityDescription, known: EntityDescription | None) -> EntityDescription:
        """Returns the description with the keys and times of its policies."""
        if isinstance(description, SubscriptionDescription):
            return description
        by_name = {rule.key_name: rule for rule in getattr(known, "authorization_rules", ())}
        now = self._clock.now()
        rules = [_completed_rule(rule, by_name.get(rule.key_name), now) for rule in description.authorization_rules]
        return replace(description, authorization_rules=tuple(rules))


def not_found(path: str, origin: Origin) -> EntityNotFound:
    return EntityNotFound(f"The messaging entity 'sb://{origin.host}/{path}' could not be found.")


def slice_of(query: Mapping[str, str], limits: Limits) -> tuple[int, int]:
    """Returns how many entries to skip and how many to return."""
    largest = limits.max_page_size
    skip = parse_integer(query.get("$skip", "0"), "$skip")
    top = parse_integer(query.get("$top", str(largest)), "$top")
    if skip < 0 or top < 1:
        raise InvalidArgument("$skip must not be negative, and $top must be at least 1.")
    return skip, min(top, largest)


def _completed_rule(rule: AuthorizationRule, known: AuthorizationRule | None, now: float) -> AuthorizationRule:
    """Sets a policy's times, which clients cannot choose, and generates the keys that it came without."""
    completed = replace(
        rule,
        primary_key=rule.primary_key or random_key(),
        secondary_key=rule.secondary_key or random_key(),
        created_at=known.created_at if known is not None else now,
        modified_at=now,
    )
    check_new_keys(completed, known)
    if known is not None and replace(completed, modified_at=known.modified_at) == known:
        return known
    return completed


def _check_version(settings: Mapping[str, object], origin: Origin) -> None:
    first = SINCE["EnablePartitioning"]
    if settings.get("enable_partitioning") and origin.api_version < first:
        raise InvalidArgument(
            f"EnablePartitioning needs api-version {first} or later; the request has {origin.api_version}."
        )
