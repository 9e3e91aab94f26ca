"""A whole namespace in one process: catalog, administration, stores with their brokers, and what front ends need."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import final

from tandembus.broker.message_broker import MessageBroker
from tandembus.clock import Clock
from tandembus.errors import BusError, StoreUnavailable
from tandembus.faults.board import FaultBoard
from tandembus.faults.fault import Topology
from tandembus.limits import Limits
from tandembus.namespace.administration import Administration
from tandembus.namespace.catalog import Catalog, Tombstone
from tandembus.namespace.catalog_change import CatalogChange, CatalogEvent
from tandembus.namespace.catalog_namespace import CatalogNamespace
from tandembus.namespace.compiled_rules import CompiledRules
from tandembus.namespace.faulty_fragments import FaultyStorePort
from tandembus.namespace.following import Followers
from tandembus.namespace.hosting import FragmentHost
from tandembus.namespace.local_source import LocalSource, LocalStorePort
from tandembus.namespace.transfers import Transfers
from tandembus.tasks import essential

log = logging.getLogger("tandembus.namespace")


class LocalNamespace(CatalogNamespace):
    def __init__(
        self,
        name: str,
        catalog: Catalog,
        brokers: Sequence[MessageBroker],
        limits: Limits,
        clock: Clock,
        new_stores: int | None = None,
        faults: FaultBoard | None = None,
    ) -> None:
        """`brokers`: one for each store, in their order. `new_stores`: how many of them, from the first one on, new
        entities are spread over; else all."""
        board = faults or FaultBoard(clock, Topology(len(brokers), len(brokers)), max_faults=limits.max_faults)
        compiled = CompiledRules(catalog)
        self.hosts = [
            FragmentHost(store, broker, catalog, limits, clock, compiled) for store, broker in enumerate(brokers)
        ]
        self.followers = Followers(catalog)
        within_s = limits.operation_timeout_s
        ports = {host.store: FaultyStorePort(LocalStorePort(host), board, within_s) for host in self.hosts}
        for_new = range(len(self.hosts) if new_stores is None else new_stores)
        administration = Administration(name, catalog, ports, for_new, self.followers, limits, clock)
        source = LocalSource({host.store: host for host in self.hosts})
        super().__init__(name, catalog, source, administration, limits, clock, board)
        self.brokers = list(brokers)
        self._following = HostsFollowing(self.hosts, self._hosts_lost_track)
        self.followers.add(self._following, None)
        catalog.listeners.append(self._catalog_changed)
        between = LocalSource({host.store: host for host in self.hosts}, is_pinning=False)
        self._transfers = [Transfers(name, catalog, host, between, limits, clock, board) for host in self.hosts]
        self.resuming: list[asyncio.Task[None]] = []
        self._waiting: set[FragmentHost] = set()
        """Hosts whose store could not be opened at the start."""
        for broker, transfers in zip(brokers, self._transfers, strict=True):
            broker.budget.large = self.large_messages
            broker.forwarding.port = transfers
            broker.forwarding.max_hops = limits.max_forward_hops
            broker.on_turn_end = self.turn_ended
            broker.is_known_fragment = self._is_known_fragment
            broker.on_reopened.append(self._retry_forwarding)
            board.listen(broker.forwarding.retry_all)
        for host in self.hosts:
            host.dropper.on_dropped = self._forget

    def _catalog_changed(self, change: CatalogChange, events: Sequence[CatalogEvent]) -> None:
        self.apply(events)
        self._following.heard(events)
        self.followers.publish(change)

    def _hosts_lost_track(self, reason: BusError) -> None:
        """Nothing that is answered from now on would be true of them: better to begin anew."""
        log.critical("a change of the catalog is not in effect: %s", reason)
        self.when_broken(reason)

    def _is_known_fragment(self, fragment_key: int) -> bool:
        return self.catalog.find_by_fragment(fragment_key) is not None

    def _retry_forwarding(self) -> None:
        """A store is back: what waits for entities there need not wait any longer."""
        for broker in self.brokers:
            broker.forwarding.retry_all()

    async def _forget(self, tombstones: Sequence[Tombstone]) -> None:
        await self._catalog.forget(tombstones, self.clock.now())

    async def start(self) -> None:
        """Finish what an earlier life left undone, and keep house from now on."""
        for damaged in self.catalog.damaged:
            log.error(
                "the catalog holds a damaged record, its entity is not served and its messages are kept: %s", damaged
            )
        for host in self.hosts:
            if host.broker.failure is None:
                await host.start()
            else:
                self._waiting.add(host)
                host.broker.on_reopened.append(functools.partial(self._start_later, host))
        await self._skip_known_keys()
        await super().start()
        self.resuming += [essential(one.resume(), "resuming transfers", self.when_broken) for one in self._transfers]

    async def _skip_known_keys(self) -> None:
        """A catalog older than the stores (from a backup, say) must not give out numbers of fragments that are there:
        an entity's messages would come up in another."""
        newest = max(host.newest_key for host in self.hosts)
        await self._catalog.skip_fragment_keys(newest + 1, self.clock.now())

    def _start_later(self, host: FragmentHost) -> None:
        if host in self._waiting:
            self._waiting.discard(host)
            self.resuming.append(essential(self._start_host(host), f"starting store {host.store}", self.when_broken))

    async def _start_host(self, host: FragmentHost) -> None:
        """Start hosting a store that could not be opened at the start and is open now."""
        try:
            await host.start()
            await self._skip_known_keys()
        except StoreUnavailable as error:
            log.error("messaging store %d cannot be served yet: %s", host.store, error)
            self._waiting.add(host)

    async def stop(self) -> None:
        for task in self.resuming:
            task.cancel()
        await asyncio.gather(*self.resuming, return_exceptions=True)
        for host in self.hosts:
            await host.stop()
        try:
            await super().stop()
        finally:
            self.followers.stop()
            self._catalog.listeners.remove(self._catalog_changed)

    async def keep_house(self) -> None:
        await super().keep_house()
        now = self.clock.now()
        for host in self.hosts:
            host.let_go_of_unused(now)

    def accessed_at(self, path: str) -> float:
        """Who forwards to an entity uses it, too."""
        entry = self.catalog.find(path)
        forwarded = [one.accessed_at(entry.key) for one in self._transfers] if entry is not None else []
        return max(super().accessed_at(path), *forwarded)

    def accesses(self) -> dict[str, float]:
        times = super().accesses()
        for transfers in self._transfers:
            for key, at in transfers.take_accesses().items():
                times[key] = max(at, times.get(key, 0.0))
        return times


@final
class HostsFollowing:
    """The hosts of the process that has the catalog itself. Implements `CatalogFollower`: they are told what a change
    means, since the catalog has taken it in already."""

    name = "the message brokers of this process"

    def __init__(self, hosts: Sequence[FragmentHost], when_lost: Callable[[BusError], None]) -> None:
        self._hosts = hosts
        self._when_lost = when_lost
        self._heard: deque[Sequence[CatalogEvent]] = deque()

    def heard(self, events: Sequence[CatalogEvent]) -> None:
        self._heard.append(events)

    async def take(self, change: CatalogChange) -> None:
        while self._heard:
            events = self._heard.popleft()
            for host in self._hosts:
                await _tell(host, events)

    def cut_off(self, reason: BusError) -> None:
        self._when_lost(reason)


async def _tell(host: FragmentHost, events: Sequence[CatalogEvent]) -> None:
    """One that fails to do what a change means does what the catalog says as a whole, before anybody is told that the
    change is made: nobody would tell it a second time."""
    try:
        await host.apply(events)
    except Exception:
        log.exception("store %d could not follow a change of the catalog, and is compared with it", host.store)
        await host.catch_up()
