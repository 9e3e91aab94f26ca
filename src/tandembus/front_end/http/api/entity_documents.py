"""An entity as JSON: what it is, how it is at the moment, and as much of that as who asks may know."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from tandembus.descriptions import EntityDescription, SubscriptionDescription, TopicDescription
from tandembus.descriptions.changes import shown_size_in_megabytes
from tandembus.descriptions.records import to_record
from tandembus.errors import BusError
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.api.counters import Counters, of_entity
from tandembus.front_end.http.topology import TopologyQuery, TopologySource
from tandembus.front_end.http.values import format_time
from tandembus.interconnect.requests import Counts
from tandembus.namespace.entries import Entry
from tandembus.namespace.fragment_counts import fragment_counts, total_of
from tandembus.namespace.namespace import Namespace
from tandembus.security.claims import Claims, Right

COUNTED_WITHIN_S: Final = 2.0
"""A fragment that takes longer than this has no counts for now."""
MIB: Final = 1024 * 1024


class EntityDocuments:
    def __init__(
        self, namespace: Namespace, access: Access, counters: Counters, topology: TopologySource | None
    ) -> None:
        self._namespace = namespace
        self._access = access
        self._counters = counters
        self._topology = topology

    async def summaries(self, entries: Sequence[Entry], claims: Claims) -> list[dict[str, object]]:
        counted = await self._counters.now()
        counts = await asyncio.gather(*[self.counts_of(entry) for entry in entries])
        return [
            self._summary(entry, claims, one, of_entity(counted.by_entity, entry.key))
            for entry, one in zip(entries, counts, strict=True)
        ]

    async def whole(self, entry: Entry, claims: Claims) -> dict[str, object]:
        counted = await self._counters.now()
        counts = await self.counts_of(entry)
        path = entry.description.path
        receivers, places = await self._places(entry)
        is_counted = self._may_count(entry, claims)
        is_managed = self._access.allows(claims, Right.MANAGE, entry.key)
        return {
            **self._summary(entry, claims, counts, of_entity(counted.by_entity, entry.key)),
            "settings": settings_document(entry.description) if is_managed else {},
            "created_at": format_time(entry.created_at),
            "modified_at": format_time(entry.updated_at),
            "accessed_at": format_time(self._namespace.accessed_at(path)),
            "receivers": receivers,
            "fragments": [
                {
                    **place,
                    "reason": place.get("reason") if is_managed else None,
                    **_figures(one if is_counted else None),
                }
                for place, one in zip(places, counts, strict=True)
            ],
        }

    async def counts_of(self, entry: Entry) -> list[Counts | None]:
        """Of each fragment; None for those that cannot be asked."""
        try:
            opening = self._namespace.entity(entry.description.path)
            entity = await asyncio.wait_for(opening, COUNTED_WITHIN_S)
            with entity.in_use():
                return await fragment_counts(entity, COUNTED_WITHIN_S)
        except (TimeoutError, BusError):
            # Also one that was deleted since, or is damaged: the others on the page are shown all the same.
            return [None] * len(entry.stores)

    def _may_count(self, entry: Entry, claims: Claims) -> bool:
        return self._access.allows(claims, Right.LISTEN, entry.key)

    def _summary(
        self, entry: Entry, claims: Claims, counts: list[Counts | None], counters: Mapping[str, object]
    ) -> dict[str, object]:
        description = entry.description
        is_topic = isinstance(description, TopicDescription)
        total = total_of(counts) if self._may_count(entry, claims) else None
        is_managed = self._access.allows(claims, Right.MANAGE, entry.key)
        figures = _figures(total)
        return {
            "path": description.path,
            "kind": entry.kind.value,
            "status": description.status.value,
            "partitioned": entry.is_partitioned,
            "requires_session": not isinstance(description, TopicDescription) and description.requires_session,
            "availability": "Limited" if None in counts else "Available",
            **figures,
            "deferred": None if total is None else total.deferred,
            "transfer_dead_letter": None if total is None else total.transfer_dead_letter,
            "max_size_bytes": _max_size_bytes(description),
            "subscriptions": self._namespace.catalog.subscription_count(entry.key) if is_topic else None,
            "forward_to": _forward_to(description) if is_managed else None,
            "rights": sorted(right.value for right in Right if self._access.allows(claims, right, entry.key)),
            "counters": counters,
        }

    async def _places(self, entry: Entry) -> tuple[int, list[dict[str, object]]]:
        """How many receive from it, and where each of its fragments is, and how."""
        places: list[dict[str, object]] = [
            {"index": index, "store": store, "broker": None, "state": "available", "reason": None}
            for index, store in enumerate(entry.stores)
        ]
        receivers = self._namespace.receiver_count(entry.description.path)
        if self._topology is None:
            return receivers, places
        document = await self._topology(TopologyQuery(entry.description.path, top=1))
        entities = document.get("entities")
        found = entities[0] if isinstance(entities, list) and entities else {}
        told, count = found.get("fragments"), found.get("receivers")
        if isinstance(told, list) and len(told) == len(places):
            places = told
        return count if isinstance(count, int) else receivers, places


def settings_document(description: EntityDescription) -> dict[str, object]:
    """Every setting, and no key."""
    record = to_record(description)
    record.pop("authorization_rules", None)
    return record


def _figures(counts: Counts | None) -> dict[str, object]:
    if counts is None:
        return {"active": None, "scheduled": None, "dead_letter": None, "size_bytes": None}
    return {
        "active": counts.active,
        "scheduled": counts.scheduled,
        "dead_letter": counts.dead_letter,
        "size_bytes": counts.size_bytes,
    }


def _max_size_bytes(description: EntityDescription) -> int | None:
    """A subscription has none: its topic's is what is limited."""
    if isinstance(description, SubscriptionDescription):
        return None
    return shown_size_in_megabytes(description) * MIB


def _forward_to(description: EntityDescription) -> str | None:
    return None if isinstance(description, TopicDescription) else description.forward_to
