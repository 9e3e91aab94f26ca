"""Administration of queues, topics and subscriptions: what each request means, in terms of the namespace.

Nothing here knows HTTP beyond the answer's status and bytes; tokens, limits and refusals are the server's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from tandembus.clock import Clock
from tandembus.descriptions import (
    AuthorizationRule,
    EntityDescription,
    EntityKind,
    QueueDescription,
    TopicDescription,
    check_new_keys,
)
from tandembus.errors import BusError, EntityNotFound, InvalidArgument, StoreDamaged
from tandembus.front_end.http.atom import (
    ENTRY_CONTENT_TYPE,
    FEED_CONTENT_TYPE,
    Entry,
    Origin,
    Page,
    described,
    element,
    entry_document,
    feed_document,
)
from tandembus.front_end.http.entity_xml import EntityRequest, EntityView, read_entity, write_entity
from tandembus.front_end.http.request import HttpRefusal
from tandembus.front_end.http.resource_paths import ResourcePath
from tandembus.front_end.http.values import format_time, parse_integer
from tandembus.front_end.http.xml_reader import read_xml
from tandembus.limits import Limits
from tandembus.namespace.entity import EntityCounts
from tandembus.namespace.entries import Entry as CatalogEntry
from tandembus.namespace.namespace import Namespace
from tandembus.security.key_file import random_key

FIRST_VERSION_WITH_PARTITIONING: Final = "2013-10"
STANDARD_MESSAGE_BYTES: Final = 256 * 1024

Described = TypeVar("Described", QueueDescription, TopicDescription)


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back."""

    status: int
    content_type: str = ""
    body: bytes = b""


Checked = Callable[[EntityDescription, EntityDescription | None], None]
"""Called with what is wanted and what is there before anything is changed; raises what forbids it."""


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
        if request.kind is EntityKind.QUEUE:
            queue = self._completed(request.queue(path.name), ())
            _check_version(queue.enable_partitioning, origin)
            check(queue, None)
            return await self._namespace.create_queue(queue)
        if request.kind is EntityKind.TOPIC:
            topic = self._completed(request.topic(path.name), ())
            _check_version(topic.enable_partitioning, origin)
            return await self._namespace.create_topic(topic)
        subscription = request.subscription(path.name, path.subscription)
        check(subscription, None)
        return await self._namespace.create_subscription(subscription, request.default_rule)

    async def _update(
        self, request: EntityRequest, entry: CatalogEntry, check: Checked, origin: Origin
    ) -> CatalogEntry:
        """Names stay as they were written when the entity was made."""
        known = entry.description
        if request.kind is not known.kind:
            raise InvalidArgument(f"'{known.path}' is a {known.kind.value}, and no {request.kind.value}.")
        if isinstance(known, QueueDescription):
            queue = self._completed(request.queue(known.name, known.authorization_rules), known.authorization_rules)
            _check_version(queue.enable_partitioning, origin)
            check(queue, known)
            return await self._namespace.update_queue(queue)
        if isinstance(known, TopicDescription):
            topic = self._completed(request.topic(known.name, known.authorization_rules), known.authorization_rules)
            _check_version(topic.enable_partitioning, origin)
            return await self._namespace.update_topic(topic)
        subscription = request.subscription(known.topic_name, known.name)
        check(subscription, known)
        return await self._namespace.update_subscription(subscription)

    async def delete(self, path: ResourcePath, origin: Origin) -> Answer:
        known = self._found(path, origin).description
        if isinstance(known, QueueDescription):
            await self._namespace.delete_queue(known.name)
        elif isinstance(known, TopicDescription):
            await self._namespace.delete_topic(known.name)
        else:
            await self._namespace.delete_subscription(known.topic_name, known.name)
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

    def _completed(self, description: Described, known: tuple[AuthorizationRule, ...]) -> Described:
        by_name = {rule.key_name: rule for rule in known}
        now = self._clock.now()
        rules = [_completed_rule(rule, by_name.get(rule.key_name), now) for rule in description.authorization_rules]
        return replace(description, authorization_rules=tuple(rules))


def not_found(path: str, origin: Origin) -> EntityNotFound:
    return EntityNotFound(f"The messaging entity 'sb://{origin.host}/{path}' could not be found.")


def slice_of(query: Mapping[str, str], limits: Limits) -> tuple[int, int]:
    """Which page of a list is asked for."""
    largest = limits.max_page_size
    skip = parse_integer(query.get("$skip", "0"), "$skip")
    top = parse_integer(query.get("$top", str(largest)), "$top")
    if skip < 0 or top < 1:
        raise InvalidArgument("$skip must not be negative, and $top must be at least 1.")
    return skip, min(top, largest)


def _completed_rule(rule: AuthorizationRule, known: AuthorizationRule | None, now: float) -> AuthorizationRule:
    """A rule gets its times from us, not from the client, and the keys that it came without."""
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


def _check_version(enable_partitioning: bool, origin: Origin) -> None:
    if enable_partitioning and origin.api_version < FIRST_VERSION_WITH_PARTITIONING:
        raise InvalidArgument(
            f"EnablePartitioning needs api-version {FIRST_VERSION_WITH_PARTITIONING} or later; "
            f"the request has {origin.api_version}."
        )
