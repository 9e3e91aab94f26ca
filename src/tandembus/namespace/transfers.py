"""Messages on their way between entities: where they go, and who has some left from an earlier life."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from tandembus.broker.fragment import Fragment
from tandembus.broker.message_broker import MessageBroker
from tandembus.clock import Clock
from tandembus.descriptions import TopicDescription
from tandembus.errors import BusError, StoreDamaged, StoreUnavailable
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.entries import Entry
from tandembus.namespace.opening import OpenEntities
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, TRANSFER

log = logging.getLogger("tandembus.namespace")

RESUME_SLICE = 50
"""Entities looked at in a row; then others have their turn."""
RETRY_S = 1.0


class Transfers:
    """The broker's `TransferPort`."""

    def __init__(self, entities: OpenEntities, catalog: CatalogView, broker: MessageBroker, clock: Clock) -> None:
        self._entities = entities
        self._catalog = catalog
        self._broker = broker
        self._clock = clock

    async def find(self, path: str) -> Fragment:
        """Raises EntityNotFound, InvalidOperation for a subscription, EntityDisabled."""
        entity = await self._entities.open(path)
        entity.check_can_send()
        entity.accessed_at = self._clock.now()
        return entity.fragment

    async def resume(self) -> None:
        """Open every entity that has something to forward; opened, it goes on by itself. All others stay closed: what
        each has is read from its block records."""
        for position, entry in enumerate(self._all_entries(), 1):
            await self._resume_one(entry)
            if position % RESUME_SLICE == 0:
                await asyncio.sleep(0)

    def _all_entries(self) -> Iterator[Entry]:
        yield from self._catalog.queues()
        for topic in self._catalog.topics():
            yield topic
            yield from self._catalog.subscriptions(topic.key)

    async def _resume_one(self, entry: Entry) -> None:
        while True:
            try:
                if await self._has_transfers(entry):
                    await self._entities.open(entry.key)
                return
            except BusError as error:
                # What is damaged stays so however often it is asked.
                if not isinstance(error, StoreUnavailable) or isinstance(error, StoreDamaged):
                    log.warning("'%s' does not forward its messages: %s", entry.description.path, error)
                    return
            await asyncio.sleep(RETRY_S)

    async def _has_transfers(self, entry: Entry) -> bool:
        for lane in _leaving(entry):
            if any(block.live_count > 0 for block in await self._broker.store.blocks(entry.fragment_key, lane)):
                return True
        return False


def _leaving(entry: Entry) -> Iterator[int]:
    """The lanes whose messages go to other entities."""
    description = entry.description
    yield TRANSFER
    if isinstance(description, TopicDescription):
        return
    if description.forward_to is not None:
        yield MAIN
    if description.forward_dead_lettered_messages_to is not None:
        yield DEAD_LETTER
