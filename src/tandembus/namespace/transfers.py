"""Messages on their way between entities: where they go, and which fragments have some left from an earlier life."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import final

from tandembus.broker.fragment import Fragment
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.transfer_port import most_for_rules
from tandembus.clock import Clock
from tandembus.descriptions import TopicDescription
from tandembus.errors import BusError, EntityDisabled, InvalidOperation, StoreDamaged, StoreUnavailable
from tandembus.faults.board import FaultBoard
from tandembus.interconnect.traffic import Traffic
from tandembus.limits import Limits
from tandembus.message import Message
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.entries import Entry, QueueEntry, TopicEntry
from tandembus.namespace.faulty_fragments import place_of
from tandembus.namespace.fragment_settings import fragment_settings, partition_settings
from tandembus.namespace.fragment_source import FragmentSource
from tandembus.namespace.hosting import FragmentHost
from tandembus.namespace.opening import not_found
from tandembus.namespace.partitioning import PartitionSettings, fragment_of_key, partition_key_of
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, TRANSFER

log = logging.getLogger("tandembus.namespace")

RESUME_SLICE = 50
"""Entities looked at in a row; then others have their turn."""
RETRY_S = 1.0


class Transfers:
    """The `TransferPort` of one store's broker."""

    def __init__(
        self,
        name: str,
        view: CatalogView,
        host: FragmentHost,
        source: FragmentSource,
        limits: Limits,
        clock: Clock,
        faults: FaultBoard,
    ) -> None:
        """`source`: for fragments in other stores."""
        self._name = name
        self._view = view
        self._host = host
        self._source = source
        self._limits = limits
        self._clock = clock
        self._faults = faults
        self._accessed_at: dict[str, float] = {}

    def accessed_at(self, key: str) -> float:
        """When the entity was last forwarded to, as far as that is not recorded yet: it is use, too."""
        return self._accessed_at.get(key, 0.0)

    def take_accesses(self) -> dict[str, float]:
        """All of it, to be recorded."""
        taken, self._accessed_at = self._accessed_at, {}
        return taken

    async def find(self, path: str) -> EntityDestination:
        """Raises EntityNotFound, InvalidOperation for a subscription, EntityDisabled."""
        entry = self._view.find(path)
        if entry is None:
            raise not_found(self._name, path)
        target = _taking(entry)
        self._view.check_complete(entry.key)
        self._accessed_at[entry.key] = self._clock.now()
        rule_count = self._view.rule_counts(entry.key).total if isinstance(entry, TopicEntry) else 0
        settings = fragment_settings(entry, self._limits)
        subscriptions = self._view.subscriptions(entry.key) if isinstance(entry, TopicEntry) else ()
        spread = partition_settings(entry, self._limits, subscriptions)
        most = most_for_rules(rule_count)
        return EntityDestination(target, settings, spread, most, self._host, self._source, self._faults)

    async def resume(self) -> None:
        """Open every fragment that has something to forward; opened, it goes on by itself. All others stay closed: what
        each has is read from its block records."""
        looked_at = 0
        for entry in list(self._view.entries()):
            for index in entry.indexes_in(self._host.store):
                await self._resume_one(entry, index)
                looked_at += 1
                if looked_at % RESUME_SLICE == 0:
                    await asyncio.sleep(0)

    async def _resume_one(self, entry: Entry, index: int) -> None:
        while True:
            try:
                if await self._has_transfers(entry, index):
                    await self._host.open(entry, index)
                return
            except BusError as error:
                # What is damaged stays so however often it is asked.
                if not isinstance(error, StoreUnavailable) or isinstance(error, StoreDamaged):
                    log.warning("'%s' does not forward its messages: %s", entry.description.path, error)
                    return
            await asyncio.sleep(RETRY_S)

    async def _has_transfers(self, entry: Entry, index: int) -> bool:
        store = self._host.broker.store
        for lane in _leaving(entry):
            if any(block.live_count > 0 for block in await store.blocks(entry.fragment_key + index, lane)):
                return True
        return False


@final
class EntityDestination:
    """A queue or topic as the broker of one store sees it. Implements `Destination`."""

    def __init__(
        self,
        entry: QueueEntry | TopicEntry,
        settings: FragmentSettings,
        spread: PartitionSettings,
        most_at_once: int,
        host: FragmentHost,
        source: FragmentSource,
        faults: FaultBoard,
    ) -> None:
        self._entry = entry
        self.settings = settings
        self._spread = spread
        self.fragment_count = len(entry.stores)
        self.most_at_once = most_at_once
        self._host = host
        self._source = source
        self._faults = faults

    def index_of(self, message: Message, number: int) -> int:
        if not self._entry.is_partitioned:
            return 0
        key = partition_key_of(message, self._spread)
        return int(fragment_of_key(key)) if key is not None else number % self.fragment_count

    def key_of(self, index: int) -> int:
        return self._entry.fragment_key + index

    async def open(self, index: int) -> Fragment | Traffic:
        self._check_reach(index)
        if self._entry.stores[index] == self._host.store:
            return await self._host.open(self._entry, index)
        traffic, _ = await self._source.open(self._entry, index)
        return traffic

    def _check_reach(self, index: int) -> None:
        """Raises when a fault says that this fragment, or our own broker, is out of reach."""
        faults = self._faults
        outage = faults.broker_outage(self._host.store) or faults.outage_of(place_of(self._entry, index))
        if outage is not None:
            raise outage


def _taking(entry: Entry) -> QueueEntry | TopicEntry:
    """Raises InvalidOperation for what cannot be sent to, EntityDisabled for what must not be at the moment."""
    description = entry.description
    if not isinstance(entry, (QueueEntry, TopicEntry)):
        raise InvalidOperation(
            f"The messaging entity '{description.path}' is a subscription: messages are sent to its topic."
        )
    if not description.status.can_send:
        raise EntityDisabled(f"The messaging entity '{description.path}' is disabled for sending.")
    return entry


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
