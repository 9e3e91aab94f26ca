"""A namespace: its catalog of entities and the message broker that holds their fragments.

Create, update and delete run here, in steps that a crash can interrupt anywhere: the catalog's record says what was
meant, and the next start finishes or undoes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tandembus.broker import browsing
from tandembus.broker.fragment import Fragment
from tandembus.broker.message_broker import MessageBroker
from tandembus.clock import Clock
from tandembus.descriptions import QueueDescription, check_supported, check_update
from tandembus.errors import BusError, EntityNotFound, StoreUnavailable
from tandembus.limits import Limits
from tandembus.namespace.catalog import Catalog, QueueEntry, Tombstone
from tandembus.namespace.entity import Entity, EntityCounts
from tandembus.namespace.fragment_settings import fragment_settings
from tandembus.namespace.paths import SubQueue
from tandembus.security.scopes import fold
from tandembus.tasks import WhenBroken, carry_on, essential

log = logging.getLogger("tandembus.namespace")

HOUSEKEEPING_S = 10.0
ACCESS_RECORD_S = 60.0
PURGE_SLICE = 4000


class Namespace:
    def __init__(self, name: str, catalog: Catalog, broker: MessageBroker, limits: Limits, clock: Clock) -> None:
        self.name = name
        self.catalog = catalog
        self.broker = broker
        self.limits = limits
        self.clock = clock
        self._entities: dict[str, Entity] = {}
        self._by_fragment: dict[int, str] = {}
        self._dropping: dict[int, asyncio.Task[None]] = {}
        self._housekeeper: asyncio.Task[None] | None = None
        self._accesses_recorded_at = 0.0
        broker.open_by_key = self._open_by_key
        self.when_broken: WhenBroken = carry_on
        self.on_deleted: Callable[[str], None] = _nothing
        """Told when a queue goes on its own; who deletes one otherwise knows already."""

    @property
    def created_at(self) -> float:
        return self.catalog.created_at

    async def start(self) -> None:
        """Finish what an earlier life left undone, and keep house from now on."""
        self._by_fragment = {entry.fragment_key: entry.key for entry in self.catalog.queues()}
        await self._compare_with_store()
        for tombstone in self.catalog.tombstones():
            self._start_dropping(tombstone)
        self._housekeeper = essential(self._keep_house(), "housekeeping", self.when_broken)

    async def _compare_with_store(self) -> None:
        """A catalog older than the store (from a backup, say) must not give out numbers of fragments that are there: a
        queue's messages would come up in another. What it does not know is kept, and reported."""
        for damaged in self.catalog.damaged:
            log.error(
                "the catalog holds a damaged record, its queue is not served and its messages are kept: %s", damaged
            )
        buried = {tombstone.fragment_key for tombstone in self.catalog.tombstones()}
        heads = await self.broker.store.heads()
        for head in heads:
            if head.fragment not in self._by_fragment and head.fragment not in buried:
                log.warning("the store holds fragment %d, which the catalog does not know; it is kept", head.fragment)
        if heads:
            newest = max(head.fragment for head in heads)
            await self.catalog.skip_fragment_keys(newest + 1, self.clock.now())

    async def stop(self) -> None:
        tasks = [*self._dropping.values()]
        if self._housekeeper is not None:
            tasks.append(self._housekeeper)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._record_accesses()

    # Entities in use.

    async def entity(self, path: str) -> Entity:
        """The entity of this path, its fragment open. Raises EntityNotFound."""
        entity = self._entities.get(fold(path))
        if entity is not None:
            return entity
        entry = self.catalog.find_queue(path)
        if entry is None:
            raise self.not_found(path)
        fragment = await self.broker.open_fragment(
            entry.fragment_key, 0, fragment_settings(entry.description, self.limits)
        )
        current = self.catalog.find_queue(path)
        if current is None or current.incarnation != entry.incarnation:
            raise self.not_found(path)
        return self._entities.setdefault(entry.key, Entity(current, fragment, self.catalog.accessed_at(path)))

    def not_found(self, path: str) -> EntityNotFound:
        # JS recognises an unknown entity by this wording alone (wire contract 2.1).
        return EntityNotFound(
            f"The messaging entity 'sb://{self.name}/{path}' could not be found. Check the name, or create it first."
        )

    async def _open_by_key(self, key: int) -> Fragment | None:
        name = self._by_fragment.get(key)
        if name is None:
            return None
        try:
            return (await self.entity(name)).fragment
        except EntityNotFound:
            return None

    # Administration.

    async def create_queue(self, description: QueueDescription) -> QueueEntry:
        description = description.validated(self.limits)
        check_supported(description)
        entry = await self.catalog.begin_create(description, self.limits, self.clock.now())
        try:
            await self.broker.make_fragment(entry.fragment_key, entry.incarnation, 0)
            entry = await self.catalog.finish_create(entry, self.clock.now())
        except BaseException:
            tombstone = await self.catalog.abandon_create(entry, self.clock.now())
            if tombstone is not None:
                self._start_dropping(tombstone)
            raise
        self._by_fragment[entry.fragment_key] = entry.key
        return entry

    async def update_queue(self, description: QueueDescription) -> QueueEntry:
        description = description.validated(self.limits)
        old = self.catalog.find_queue(description.name)
        if old is None:
            raise self.not_found(description.name)
        check_update(old.description, description)
        check_supported(description)
        entry = await self.catalog.update_queue(description, self.clock.now())
        entity = self._entities.get(entry.key)
        if entity is not None:
            entity.changed(entry, self.limits)
        return entry

    async def delete_queue(self, name: str) -> None:
        entry = self.catalog.find_queue(name)
        if entry is None:
            raise self.not_found(name)
        if self.broker.failure is not None:
            raise self.broker.failure
        tombstone = await self.catalog.delete_queue(name, self.clock.now())
        self._by_fragment.pop(entry.fragment_key, None)
        entity = self._entities.pop(entry.key, None)
        if entity is not None:
            entity.ended(self.not_found(name))
        self._start_dropping(tombstone)

    async def counts(self, name: str) -> EntityCounts:
        return (await self.entity(name)).counts()

    def accessed_at(self, name: str) -> float:
        entity = self._entities.get(fold(name))
        recorded = self.catalog.accessed_at(name)
        return recorded if entity is None else max(recorded, entity.accessed_at)

    async def purge(self, name: str, sub_queue: SubQueue) -> int:
        """Delete everything that waits in a queue or its dead letters; locked, deferred and scheduled messages stay."""
        entity = await self.entity(name)
        lane = sub_queue.lane
        before_ms = self.clock.now_ms() + 1
        deleted = 0
        with entity.in_use():
            while True:
                part = await browsing.delete_batch(self.broker, entity.fragment, lane, PURGE_SLICE, before_ms)
                deleted += part
                if part < PURGE_SLICE:
                    return deleted

    # Dropping what was deleted.

    def _start_dropping(self, tombstone: Tombstone) -> None:
        task = asyncio.create_task(self._drop(tombstone), name=f"dropping {tombstone.path}")
        self._dropping[tombstone.fragment_key] = task
        task.add_done_callback(lambda _: self._dropping.pop(tombstone.fragment_key, None))

    async def _drop(self, tombstone: Tombstone) -> None:
        while True:
            try:
                await self.broker.drop_fragment(tombstone.fragment_key)
                await self.catalog.forget(tombstone, self.clock.now())
                return
            except StoreUnavailable as error:
                log.warning("dropping '%s' is put off: %s", tombstone.path, error)
                await asyncio.sleep(HOUSEKEEPING_S)

    # Housekeeping.

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            try:
                await self.keep_house()
            except BusError as error:
                log.warning("housekeeping is put off: %s", error)

    async def keep_house(self) -> None:
        """One pass: what nobody uses leaves the memory, and what nobody has used for its idle time is deleted."""
        now = self.clock.now()
        for entity in list(self._entities.values()):
            if entity.links:
                entity.accessed_at = now
        if now - self._accesses_recorded_at >= ACCESS_RECORD_S:
            await self._record_accesses()
        for entry in self.catalog.queues():
            idle_s = entry.description.auto_delete_on_idle_s
            if idle_s is not None and now - self.accessed_at(entry.key) >= idle_s:
                log.info("'%s' was not used for %.0f s and is deleted", entry.description.name, idle_s)
                await self.delete_queue(entry.key)
                self.on_deleted(entry.key)
        for entity in list(self._entities.values()):
            if entity.is_unused() and now - entity.accessed_at >= self.limits.fragment_idle_s:
                del self._entities[entity.entry.key]
                self.broker.close_fragment(entity.entry.fragment_key)

    async def _record_accesses(self) -> None:
        self._accesses_recorded_at = self.clock.now()
        times = {entity.name: entity.accessed_at for entity in self._entities.values()}
        if times:
            await self.catalog.record_accesses(times, self.clock.now())


def _nothing(_key: str) -> None:
    return
