"""Administration of rules: what feeds a subscription."""

from __future__ import annotations

from collections.abc import Mapping

from tandembus.clock import Clock
from tandembus.descriptions import RuleDescription
from tandembus.front_end.http.atom import (
    ENTRY_CONTENT_TYPE,
    FEED_CONTENT_TYPE,
    Entry,
    Origin,
    Page,
    entry_document,
    feed_document,
)
from tandembus.front_end.http.entities import Answer, not_found, slice_of
from tandembus.front_end.http.resource_paths import ResourcePath
from tandembus.front_end.http.rule_xml import read_rule, write_rule
from tandembus.front_end.http.xml_reader import read_xml
from tandembus.namespace.entries import SubscriptionEntry
from tandembus.namespace.namespace import Namespace


class RuleAdministration:
    """Create, read, update, delete and list."""

    def __init__(self, namespace: Namespace, clock: Clock) -> None:
        self._namespace = namespace
        self._clock = clock

    async def list_rules(self, path: ResourcePath, query: Mapping[str, str], origin: Origin) -> Answer:
        skip, top = slice_of(query, self._namespace.limits)
        subscription = self._subscription(path, origin)
        found = self._namespace.catalog.rules(path.name, path.subscription, skip, top + 1)
        entries = [_entry(subscription, rule) for rule in found[:top]]
        page = Page(entries, skip, top, len(found) > top)
        body = feed_document(f"{subscription.description.path}/Rules", "Rules", page, origin, self._clock.now())
        return Answer(200, FEED_CONTENT_TYPE, body)

    async def get(self, path: ResourcePath, origin: Origin) -> Answer:
        return self._told(200, path, self._found(path, origin), origin)

    async def put(self, path: ResourcePath, body: bytes, is_update: bool, origin: Origin) -> Answer:
        limits = self._namespace.limits
        rule = read_rule(read_xml(body, limits.max_management_body_bytes, limits.max_xml_depth), path.rule)
        self._subscription(path, origin)
        if is_update:
            self._found(path, origin)
            updated = await self._namespace.update_rule(path.name, path.subscription, rule)
            return self._told(200, path, updated, origin)
        created = await self._namespace.create_rule(path.name, path.subscription, rule)
        return self._told(201, path, created, origin)

    async def delete(self, path: ResourcePath, origin: Origin) -> Answer:
        self._found(path, origin)
        await self._namespace.delete_rule(path.name, path.subscription, path.rule)
        return Answer(200)

    def _subscription(self, path: ResourcePath, origin: Origin) -> SubscriptionEntry:
        entry = self._namespace.catalog.find_subscription(path.name, path.subscription)
        if entry is None:
            raise not_found(path.entity, origin)
        return entry

    def _found(self, path: ResourcePath, origin: Origin) -> RuleDescription:
        rule = self._namespace.catalog.find_rule(path.name, path.subscription, path.rule)
        if rule is None:
            raise not_found(f"{path.entity}/Rules/{path.rule}", origin)
        return rule

    def _told(self, status: int, path: ResourcePath, rule: RuleDescription, origin: Origin) -> Answer:
        entry = _entry(self._subscription(path, origin), rule)
        return Answer(status, ENTRY_CONTENT_TYPE, entry_document(entry, origin))


def _entry(subscription: SubscriptionEntry, rule: RuleDescription) -> Entry:
    path = f"{subscription.description.path}/Rules/{rule.name}"
    return Entry(path, rule.name, rule.created_at, rule.created_at, write_rule(rule))
