"""A namespace in the process that has the catalog itself: it also deletes what nobody uses any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from tandembus.clock import Clock
from tandembus.errors import EntityNotFound
from tandembus.faults.board import FaultBoard
from tandembus.limits import Limits
from tandembus.namespace.administration import Administration
from tandembus.namespace.catalog import Catalog, Entry, SubscriptionEntry, TopicEntry
from tandembus.namespace.fragment_source import FragmentSource
from tandembus.namespace.namespace import Namespace

log = logging.getLogger("tandembus.namespace")


class CatalogNamespace(Namespace):
    def __init__(
        self,
        name: str,
        catalog: Catalog,
        source: FragmentSource,
        administration: Administration,
        limits: Limits,
        clock: Clock,
        faults: FaultBoard | None = None,
    ) -> None:
        super().__init__(name, catalog, source, administration, limits, clock, faults)
        self.describing_lock = asyncio.Lock()
        self.describing = self.describing_lock
        self.on_deleted: Callable[[str], None] = _nothing
        """Told when an entity goes on its own; who deletes one otherwise knows already."""
        self.gather_accesses: Callable[[], Awaitable[Mapping[str, float]]] = _nobody_else
        """When entities were last used in other processes of the namespace."""
        self._catalog = catalog
        self._own_administration = administration

    async def keep_house(self) -> None:
        """Also: what nobody has used for its idle time is deleted."""
        await self._own_administration.keep_house()
        await super().keep_house()
        idle = self._idle({})
        if idle:
            for entry in self._idle(await self.gather_accesses()):
                idle_s = entry.description.auto_delete_on_idle_s
                log.info("'%s' was not used for %.0f s and is deleted", entry.description.path, idle_s)
                await self._delete_idle(entry)

    def _idle(self, elsewhere: Mapping[str, float]) -> list[Entry]:
        now = self.clock.now()
        return [
            entry
            for entry in self.catalog.entries_with_idle_time()
            if entry.description.auto_delete_on_idle_s is not None
            and now - self._used_at(entry, elsewhere) >= entry.description.auto_delete_on_idle_s
        ]

    def _used_at(self, entry: Entry, elsewhere: Mapping[str, float]) -> float:
        """Who uses a subscription uses its topic, too."""
        subscriptions = self.catalog.subscriptions(entry.key) if isinstance(entry, TopicEntry) else []
        keys = [entry.key, *(one.key for one in subscriptions)]
        return max(max(self.accessed_at(key), elsewhere.get(key, 0.0)) for key in keys)

    async def _delete_idle(self, entry: Entry) -> None:
        subscriptions = self.catalog.subscriptions(entry.key) if isinstance(entry, TopicEntry) else []
        try:
            if isinstance(entry, SubscriptionEntry):
                await self.delete_subscription(entry.topic_key, entry.name_key)
            elif isinstance(entry, TopicEntry):
                await self.delete_topic(entry.key)
            else:
                await self.delete_queue(entry.key)
        except EntityNotFound:
            return  # with its topic, or by somebody else
        for one in (entry, *subscriptions):
            self.on_deleted(one.key)


def _nothing(_key: str) -> None:
    return


async def _nobody_else() -> Mapping[str, float]:
    return {}
