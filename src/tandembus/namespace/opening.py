"""Entities in use, on the front end's side: opened when somebody comes, found again while somebody is there, let go of
when nobody is. Their fragments are the business of whoever owns the stores."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import randrange

from tandembus.clock import Clock
from tandembus.errors import EntityNotFound
from tandembus.interconnect.requests import Requests
from tandembus.interconnect.traffic import Traffic
from tandembus.limits import Limits
from tandembus.namespace.cached_traffic import CachedTraffic
from tandembus.namespace.catalog_change import CatalogEvent, EntityChanged, EntityCreated, EntityEnded
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.entity import Entity
from tandembus.namespace.entries import Entry, SubscriptionEntry, TopicEntry
from tandembus.namespace.fragment_settings import partition_settings
from tandembus.namespace.fragment_source import FragmentSource
from tandembus.namespace.partitioned_requests import PartitionedRequests
from tandembus.namespace.partitioned_traffic import PartitionedTraffic
from tandembus.namespace.partitioning import PartitionSettings
from tandembus.namespace.placement import turns_by_store
from tandembus.security.scopes import fold


def not_found(namespace: str, path: str) -> EntityNotFound:
    # JS recognises an unknown entity by this wording alone (wire contract 2.1).
    return EntityNotFound(
        f"The messaging entity 'sb://{namespace}/{path}' could not be found. Check the name, or create it first."
    )


class OpenEntities:
    def __init__(self, name: str, view: CatalogView, source: FragmentSource, limits: Limits, clock: Clock) -> None:
        self._name = name
        self._view = view
        self._source = source
        self._limits = limits
        self._clock = clock
        self._entities: dict[str, Entity] = {}
        self._opening: dict[int, asyncio.Task[Entity]] = {}
        """By fragment key: who comes while an entity is being opened gets the same one."""

    def find(self, path: str) -> Entity | None:
        """The entity, if it is in use."""
        return self._entities.get(fold(path))

    def all(self) -> Sequence[Entity]:
        return list(self._entities.values())

    async def open(self, path: str) -> Entity:
        """The entity of this path with its fragments. Raises EntityNotFound."""
        entity = self._entities.get(fold(path)) or await self._open(path)
        # Who has asked for it comes to use it: it must not be let go of before that.
        entity.found_at = self._clock.now()
        return entity

    def not_found(self, path: str) -> EntityNotFound:
        return not_found(self._name, path)

    async def _open(self, path: str) -> Entity:
        entry = self._view.find(path)
        if entry is None:
            raise self.not_found(path)
        task = self._opening.get(entry.fragment_key)
        if task is None:
            task = asyncio.create_task(self._open_entry(entry))
            self._opening[entry.fragment_key] = task
            task.add_done_callback(lambda _: self._opening.pop(entry.fragment_key, None))
        try:
            return await asyncio.shield(task)
        except EntityNotFound:
            raise self.not_found(path) from None

    async def _open_entry(self, entry: Entry) -> Entity:
        """What was opened may have been deleted or changed while it was being read."""
        opened = await self._open_fragments(entry)
        current = self._view.find(entry.key)
        if current is None or current.incarnation != entry.incarnation:
            self._close(entry)
            raise self.not_found(entry.description.path)
        traffic, requests = self._assembled(current, [one for one, _ in opened], [one for _, one in opened])
        entity = Entity(current, traffic, requests, self._view.accessed_at(entry.key), opened)
        self._entities[entry.key] = entity
        return entity

    async def _open_fragments(self, entry: Entry) -> list[tuple[Traffic, Requests]]:
        """All of them, or none stays open."""
        opening = [self._source.open(entry, index) for index in range(len(entry.stores))]
        outcomes = await asyncio.gather(*opening, return_exceptions=True)
        opened: list[tuple[Traffic, Requests]] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                self._close(entry)
                raise outcome
            opened.append(outcome)
        return opened

    def _assembled(self, entry: Entry, traffic: list[Traffic], requests: list[Requests]) -> tuple[Traffic, Requests]:
        if entry.is_partitioned:
            settings = self._partition_settings(entry)
            first_turn = randrange(len(traffic))
            order = turns_by_store(entry.stores)
            whole = PartitionedTraffic(traffic, settings, self._clock, first_turn=first_turn, order=order)
            return whole, PartitionedRequests(requests, whole)
        return traffic[0], requests[0]

    def _partition_settings(self, entry: Entry) -> PartitionSettings:
        subscriptions = self._view.subscriptions(entry.key) if isinstance(entry, TopicEntry) else ()
        return partition_settings(entry, self._limits, subscriptions)

    def _close(self, entry: Entry) -> None:
        for index in range(len(entry.stores)):
            self._source.close(entry, index)

    # Changes, once they are durable.

    def apply(self, events: Sequence[CatalogEvent]) -> None:
        for event in events:
            if isinstance(event, EntityChanged):
                entity = self._entities.get(event.entry.key)
                if entity is not None:
                    self._changed(entity, event.entry)
            elif isinstance(event, EntityEnded):
                self._ended(event.entry)
            if isinstance(event, EntityCreated | EntityEnded) and isinstance(event.entry, SubscriptionEntry):
                topic = self._entities.get(event.entry.topic_key)
                if topic is not None:
                    self._settings_changed(topic)

    def _changed(self, entity: Entity, entry: Entry) -> None:
        entity.changed(entry)
        self._settings_changed(entity)

    def _settings_changed(self, entity: Entity) -> None:
        if isinstance(entity.traffic, CachedTraffic):
            entity.traffic.changed(self._partition_settings(entity.entry))

    def _ended(self, entry: Entry) -> None:
        """It was deleted: nobody finds it any more, and its links are cut."""
        entity = self._entities.pop(entry.key, None)
        if entity is not None:
            entity.ended(self.not_found(entry.description.path))
            self._close(entry)

    # Letting go.

    def let_go_of_unused(self, now: float) -> None:
        """What nobody has used for a while."""
        for entity in self.all():
            if entity.is_unused() and now - entity.last_needed_at >= self._limits.fragment_idle_s:
                del self._entities[entity.entry.key]
                self._close(entity.entry)
