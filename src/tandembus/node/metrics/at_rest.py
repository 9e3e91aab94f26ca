"""Entities that nobody has used since the process began: looked at beside everything else, once anybody scrapes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from tandembus.broker.at_rest import look_at_rest
from tandembus.broker.message_broker import MessageBroker
from tandembus.errors import StoreUnavailable
from tandembus.limits import Limits
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.entries import Entry, SubscriptionEntry, TopicEntry
from tandembus.namespace.fragment_settings import fragment_settings
from tandembus.node.metrics.patience import patiently

log = logging.getLogger("tandembus.metrics")

MAX_KNOWN: Final = 20_000
"""Fragments of one store that are kept in mind, open or not: none beyond are looked at."""
SLICE: Final = 200
"""Entities looked at before others have their turn, though all may be known."""


@final
class EntitiesAtRest:
    def __init__(
        self,
        view: CatalogView,
        brokers: Callable[[], Mapping[int, MessageBroker]],
        limits: Limits,
        max_known: int = MAX_KNOWN,
    ) -> None:
        self._max_known = max_known
        self._view = view
        self._brokers = brokers
        self._limits = limits
        self._looked_at = -1
        """The version of the catalog of which all are known."""

    async def look(self) -> None:
        """They are known when this returns, if there are few of them and their stores are fast; else after some more
        scrapes."""
        version = self._view.version
        if self._looked_at == version:
            return
        entries = sorted(self._view.entries(), key=lambda entry: entry.fragment_key)
        stores = self._brokers().items()
        if all(await asyncio.gather(*[patiently(self._look(entries, store, broker)) for store, broker in stores])):
            self._looked_at = version

    async def _look(self, entries: Sequence[Entry], store: int, broker: MessageBroker) -> bool:
        """Whether all could be looked at."""
        is_complete = True
        for number, entry in enumerate(entries, 1):
            try:
                await self._look_at(entry, store, broker)
            except StoreUnavailable:
                return False  # it is told as such, and asked again
            except Exception:
                is_complete = False
                log.exception("looking at what '%s' holds in store %d", entry.description.path, store)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return is_complete

    async def _look_at(self, entry: Entry, store: int, broker: MessageBroker) -> None:
        known = broker.figures.by_key
        head = self._view.find_topic(entry.topic_key) if isinstance(entry, SubscriptionEntry) else entry
        for index in entry.indexes_in(store):
            key = entry.fragment_key + index
            if (
                key in known
                or len(known) >= self._max_known
                or head is None
                or self._view.find_by_fragment(key) is None
            ):
                continue
            topic_key = head.fragment_key + index if isinstance(head, TopicEntry) else None
            settings = fragment_settings(entry, self._limits)
            await look_at_rest(broker, key, int(settings.block_size), topic_key)
            await asyncio.sleep(0)
