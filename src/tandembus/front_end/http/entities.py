"""Administration of queues: what each request means, in terms of the namespace.

Nothing here knows HTTP beyond the answer's status and bytes; tokens, limits and refusals are the server's.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tandembus.clock import Clock
from tandembus.descriptions import AuthorizationRule, QueueDescription
from tandembus.errors import BusError, EntityNotFound, InvalidArgument, NotSupported
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
from tandembus.front_end.http.queue_xml import NOTHING, QueueState, read_queue, write_queue
from tandembus.front_end.http.values import format_time, parse_integer
from tandembus.front_end.http.xml_reader import Element, read_xml
from tandembus.namespace.catalog import QueueEntry
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.paths import SubQueue

FIRST_VERSION_WITH_PARTITIONING: Final = "2013-10"
STANDARD_MESSAGE_BYTES: Final = 256 * 1024
SUBSCRIPTIONS: Final = "subscriptions"
GENERATED_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back; `entity` is whose operation it was, "" when it was the namespace's."""

    status: int
    content_type: str = ""
    body: bytes = b""
    entity: str = ""


class EntityAdministration:
    """Create, read, update, delete and list."""

    def __init__(self, namespace: Namespace, clock: Clock) -> None:
        self._namespace = namespace
        self._clock = clock

    async def describe_namespace(self, origin: Origin) -> Answer:
        name, at = self._namespace.name, self._namespace.created_at
        is_standard = self._namespace.limits.max_message_size_bytes <= STANDARD_MESSAGE_BYTES
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

    async def list_queues(self, query: Mapping[str, str], origin: Origin) -> Answer:
        skip, top = self._slice(query)
        # One more than asked for tells whether there is a next page.
        found = self._namespace.catalog.queues(skip, top + 1)
        states = await asyncio.gather(*[self._state_on_page(queue) for queue in found[:top]])
        entries = [self._entry(state, origin) for state in states]
        page = Page(entries, skip, top, len(found) > top)
        body = feed_document("$Resources/queues", "Queues", page, origin, self._clock.now())
        return Answer(200, FEED_CONTENT_TYPE, body)

    async def list_topics(self, query: Mapping[str, str], origin: Origin) -> Answer:
        """Always empty in a version without topics: clients that list everything need an answer."""
        skip, top = self._slice(query)
        page = Page((), skip, top, False)
        body = feed_document("$Resources/topics", "Topics", page, origin, self._clock.now())
        return Answer(200, FEED_CONTENT_TYPE, body)

    async def get(self, path: str, origin: Origin) -> Answer:
        return self._told(200, await self._state(self._found(path, origin)), origin)

    async def put(self, path: str, body: bytes, is_update: bool, origin: Origin) -> Answer:
        """Create the queue, or update it when the request says that it expects one."""
        _refuse_subscription(path)
        limits = self._namespace.limits
        root = read_xml(body, limits.max_management_body_bytes, limits.max_xml_depth)
        if is_update:
            return await self._update(root, self._found(path, origin).description, origin)
        wanted = self._completed(_read(root, path, (), origin), ())
        queue = await self._namespace.create_queue(wanted)
        return self._told(201, self._state_without_counts(queue), origin)

    async def _update(self, root: Element, known: QueueDescription, origin: Origin) -> Answer:
        # The name stays as it was written when the queue was made.
        described = _read(root, known.name, known.authorization_rules, origin)
        queue = await self._namespace.update_queue(self._completed(described, known.authorization_rules))
        return self._told(200, await self._state_after_change(queue), origin)

    async def delete(self, path: str, origin: Origin) -> Answer:
        name = self._found(path, origin).description.name
        await self._namespace.delete_queue(name)
        return Answer(200, entity=name)

    async def purge(self, path: str, sub_queue: SubQueue, origin: Origin) -> tuple[str, int]:
        """The queue's name and how many messages it lost."""
        name = self._found(path, origin).description.name
        return name, await self._namespace.purge(name, sub_queue)

    def name_of(self, path: str) -> str:
        """The queue's own name if there is one at this path, else "": who is charged for a request."""
        queue = self._namespace.catalog.find_queue(path)
        return queue.description.name if queue is not None else ""

    def _found(self, path: str, origin: Origin) -> QueueEntry:
        queue = self._namespace.catalog.find_queue(path)
        if queue is None:
            raise EntityNotFound(f"The messaging entity 'sb://{origin.host}/{path}' could not be found.")
        return queue

    def _slice(self, query: Mapping[str, str]) -> tuple[int, int]:
        largest = self._namespace.limits.max_page_size
        skip = parse_integer(query.get("$skip", "0"), "$skip")
        top = parse_integer(query.get("$top", str(largest)), "$top")
        if skip < 0 or top < 1:
            raise InvalidArgument("$skip must not be negative, and $top must be at least 1.")
        return skip, min(top, largest)

    def _told(self, status: int, state: QueueState, origin: Origin) -> Answer:
        body = entry_document(self._entry(state, origin), origin)
        return Answer(status, ENTRY_CONTENT_TYPE, body, state.description.name)

    async def _state(self, queue: QueueEntry) -> QueueState:
        name = queue.description.name
        counts = await self._namespace.counts(name)
        accessed_at = self._namespace.accessed_at(name)
        return QueueState(queue.description, counts, queue.created_at, queue.updated_at, accessed_at)

    def _state_without_counts(self, queue: QueueEntry) -> QueueState:
        return QueueState(queue.description, NOTHING, queue.created_at, queue.updated_at, queue.created_at)

    async def _state_on_page(self, queue: QueueEntry) -> QueueState:
        """A list is no snapshot: a queue deleted while its page is made is still on it, and empty.

        Leaving it out would make a full page look like the last one.
        """
        try:
            return await self._state(queue)
        except EntityNotFound:
            return self._state_without_counts(queue)

    async def _state_after_change(self, queue: QueueEntry) -> QueueState:
        """The change is durable: that the messages cannot be counted right now must not make it look undone."""
        try:
            return await self._state(queue)
        except BusError:
            return self._state_without_counts(queue)

    def _entry(self, state: QueueState, origin: Origin) -> Entry:
        name = state.description.name
        content = write_queue(state, origin, self._namespace.limits)
        return Entry(name, name, state.created_at, state.updated_at, content)

    def _completed(self, description: QueueDescription, known: tuple[AuthorizationRule, ...]) -> QueueDescription:
        by_name = {rule.key_name: rule for rule in known}
        now = self._clock.now()
        rules = [_completed_rule(rule, by_name.get(rule.key_name), now) for rule in description.authorization_rules]
        return replace(description, authorization_rules=tuple(rules))


def _completed_rule(rule: AuthorizationRule, known: AuthorizationRule | None, now: float) -> AuthorizationRule:
    """A rule gets its times from us, not from the client, and the keys that it came without."""
    completed = replace(
        rule,
        primary_key=rule.primary_key or _generated_key(),
        secondary_key=rule.secondary_key or _generated_key(),
        created_at=known.created_at if known is not None else now,
        modified_at=now,
    )
    if known is not None and replace(completed, modified_at=known.modified_at) == known:
        return known
    return completed


def _read(root: Element, name: str, rules: tuple[AuthorizationRule, ...], origin: Origin) -> QueueDescription:
    description = read_queue(root, name, rules)
    if description.enable_partitioning and origin.api_version < FIRST_VERSION_WITH_PARTITIONING:
        raise InvalidArgument(
            f"EnablePartitioning needs api-version {FIRST_VERSION_WITH_PARTITIONING} or later; "
            f"the request has {origin.api_version}."
        )
    return description


def is_subscription_path(path: str) -> bool:
    return SUBSCRIPTIONS in path.lower().split("/")[1:]


def _refuse_subscription(path: str) -> None:
    if is_subscription_path(path):
        raise NotSupported(f"'{path}': this version has queues, and no topics or subscriptions yet.")


def _generated_key() -> str:
    return base64.b64encode(secrets.token_bytes(GENERATED_KEY_BYTES)).decode()
