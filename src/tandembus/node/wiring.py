"""A namespace in one process: settings in, a running namespace out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tandembus.broker.budget import Budget
from tandembus.broker.message_broker import MessageBroker
from tandembus.clock import Clock, SystemClock
from tandembus.config import ServeSettings
from tandembus.descriptions import AuthorizationRule
from tandembus.errors import BusError, StoreDamaged
from tandembus.faults.board import FaultBoard
from tandembus.front_end.amqp.front_end import AmqpFrontEnd
from tandembus.front_end.http.surroundings import Surroundings
from tandembus.front_end.http.topology import TopologyQuery
from tandembus.metering.meter import Meter
from tandembus.metering.slot import FORWARD, NORMAL
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.local_namespace import LocalNamespace
from tandembus.namespace.policies import warn_of_short_keys
from tandembus.node.catalog_copy import CopiesFollowing, DurableCopies
from tandembus.node.doors import ListeningSockets, Ports, bind_first
from tandembus.node.facts import bring_about, connection_string_of, write_facts
from tandembus.node.front_door import FrontDoor
from tandembus.node.lives import Lives
from tandembus.node.metering import meter_settings
from tandembus.node.metrics.entity_metrics import EntityMetrics, tell_catalog
from tandembus.node.metrics.front_end_metrics import tell_front_end, tell_meter
from tandembus.node.metrics.gathering import ProcessScrape, Scrapes, Teller, told_by
from tandembus.node.metrics.process_metrics import ProcessMetrics
from tandembus.node.metrics.store_metrics import tell_stores
from tandembus.node.run_folder import private_folder
from tandembus.node.store_folders import require_whole, store_count, store_folder, stores_for_new_entities
from tandembus.node.stores import build_broker, build_budget, build_faults, open_namespace_catalog
from tandembus.node.supervision import ProcessState
from tandembus.node.topology import Failures, FrontEndFacts, Parts, ProcessFacts, StoreFacts, topology_document
from tandembus.node.tracing import start_tracing, trace
from tandembus.security.key_file import ensure_key, renew_key
from tandembus.security.scopes import fold
from tandembus.security.tls import TlsFiles, certificate_names, ensure_certificate
from tandembus.store.memory import MemoryDisk
from tandembus.store.memory_records import MemoryRecords
from tandembus.tasks import essential

if TYPE_CHECKING:
    from tandembus.node.emulator import EmulatorConfig


log = logging.getLogger("tandembus.node")

THE_ONLY_PROCESS: Final = "main"


class NamespaceNode:
    """One namespace in one process: started, ready, stopped."""

    def __init__(
        self,
        settings: ServeSettings,
        clock: Clock | None = None,
        emulator: EmulatorConfig | None = None,
        *,
        connection_clock: Clock | None = None,
        is_in_memory: bool = False,
    ) -> None:
        """`emulator`: what its Config.json asks for, read already. `connection_clock`: for tokens and time-outs of
        connections, where `clock` is moved and the clients' clocks are not. `is_in_memory`: no message and no entity
        outlives this object."""
        self.settings = settings
        self._emulator = emulator
        self.clock: Clock = clock or SystemClock()
        self._connection_clock = connection_clock or self.clock
        self._is_in_memory = is_in_memory
        self._disks: dict[int, MemoryDisk] = {}
        self.key = ""
        self.tls: TlsFiles
        self.namespace: LocalNamespace
        self.brokers: list[MessageBroker] = []
        """One for each store."""
        self.faults: FaultBoard
        self.meter: Meter
        self.ports = Ports(0, 0, None)
        self._catalog: Catalog
        self._door: FrontDoor
        self._meter_stop = asyncio.Event()
        self._meter_task: asyncio.Task[None] | None = None
        self._fault_task: asyncio.Task[None] | None = None
        self.broken = asyncio.Event()
        """Set when a part ended that must not: the process cannot be relied on any more and should stop."""

    def _when_broken(self, _error: BaseException) -> None:
        self.broken.set()

    @property
    def connection_string(self) -> str:
        return connection_string_of(self.settings, self.ports, self.key)

    @property
    def front_end(self) -> AmqpFrontEnd:
        return self._door.front_end

    async def start(self) -> None:
        """Or, if that fails, nothing of it remains."""
        # First what fails most often, and before anything is opened that would have to be closed again.
        sockets = await bind_first(self.settings)
        self.ports = sockets.ports
        async with contextlib.AsyncExitStack() as opened:
            opened.callback(sockets.close)
            await self._start(sockets, opened)
            opened.pop_all()

    async def _start(self, sockets: ListeningSockets, opened: contextlib.AsyncExitStack) -> None:
        settings = self.settings
        private_folder(settings.data)
        require_whole(settings.data)
        self.key = ensure_key(settings.data, settings.key, accepts_emulator_key=settings.accepts_emulator_key)
        names = certificate_names(settings.host, (*settings.hosts, *settings.tls_names))
        self.tls = ensure_certificate(
            settings.data / "tls", names, self.clock.now(), settings.tls_certificate, settings.tls_private_key
        )
        self._catalog = self._open_catalog()
        opened.callback(self._catalog.close)
        warn_of_short_keys(self.key, self._catalog, accepts_emulator_key=settings.accepts_emulator_key)
        await self._start_brokers(opened, self._begin_life(opened))
        self.meter = Meter(self.clock, settings.data / "meter", settings.name, meter_settings(settings.limits))
        opened.callback(self.meter.close)
        self._build_namespace()
        opened.push_async_callback(self.namespace.stop)
        await self.namespace.start()
        await self._keep_copies(opened)
        if self._emulator is not None:
            await bring_about(self.namespace, self._emulator)
        await self._open_doors(sockets)
        self._meter_task = essential(self.meter.run(self._meter_stop), "meter", self._when_broken)
        self._fault_task = essential(self.faults.run(), "faults", self._when_broken)
        if not self._is_in_memory:
            self._lives_task = essential(self._lives.run(), "signs of life", self._when_broken)
        write_facts(settings, self.ports)
        self._door.is_ready = True

    def _begin_life(self, opened: contextlib.AsyncExitStack) -> bool:
        """Returns whether the stores are suspect."""
        if self._is_in_memory:
            return False
        self._lives = Lives(self.settings.data, self.clock)
        opened.callback(self._lives.take_back)
        return self._lives.begin()

    async def _start_brokers(self, opened: contextlib.AsyncExitStack, is_suspect: bool) -> None:
        """A store that is damaged keeps no other from being served."""
        stores = store_count(self.settings)
        budget = build_budget(self.settings.limits, self.clock)
        self.faults = build_faults(self.settings, stores, self.clock)
        self.brokers = [self._build_broker(store, budget, is_suspect) for store in range(stores)]
        for broker in self.brokers:
            broker.when_broken = self._when_broken
            try:
                await broker.start()
            except StoreDamaged as error:
                log.error("a messaging store cannot be served: %s", error)
                broker.start_without_store(error)
            opened.push_async_callback(broker.stop)

    def _build_namespace(self) -> None:
        settings, new_stores = self.settings, stores_for_new_entities(self.settings)
        self.namespace = LocalNamespace(
            settings.name, self._catalog, self.brokers, settings.limits, self.clock, new_stores, self.faults
        )
        self.namespace.on_deleted = self.meter.forget
        self.namespace.when_broken = self._when_broken
        for broker in self.brokers:
            broker.forwarding.on_forwarded = self._count_forwarded

    def _open_catalog(self) -> Catalog:
        if self._is_in_memory:
            return Catalog(MemoryRecords(), self.clock.now())
        return open_namespace_catalog(self.settings, self.clock.now())

    async def _keep_copies(self, opened: contextlib.AsyncExitStack) -> None:
        """Of the catalog, beside each store: no folder is the only one that knows which entities there are."""
        if self._is_in_memory:
            return
        folders = [store_folder(self.settings.data, store) for store in range(len(self.brokers))]
        self._copies = DurableCopies(folders, self.settings.limits.catalog_map_size_bytes)
        opened.callback(self._copies.close)
        following = CopiesFollowing(self._catalog, self._copies, self.namespace.followers)
        opened.push_async_callback(following.stop)
        self._copies_following = following
        await following.start()

    def _count_forwarded(self, path: str, messages: int, operations: int, size_bytes: int) -> None:
        self.meter.count(fold(path), FORWARD, NORMAL, messages, operations, size_bytes)

    def _build_broker(self, store: int, budget: Budget, is_suspect: bool) -> MessageBroker:
        disk = self._disks.setdefault(store, MemoryDisk()) if self._is_in_memory else None
        return build_broker(self.settings, store, self.clock, budget, self.faults, disk, is_suspect)

    async def between_commits(self, act: Callable[[], None]) -> None:
        """Something that no commit of any broker may see happen."""
        async with contextlib.AsyncExitStack() as held:
            for broker in self.brokers:
                await held.enter_async_context(broker.commit_lock)
            act()

    async def catch_up(self) -> None:
        """Returns when all that is due by the clock as it is now is done; what one broker does may be another's to go
        on with, so twice."""
        self.faults.tick()
        for _ in range(2 if len(self.brokers) > 1 else 1):
            for broker in self.brokers:
                await broker.catch_up()

    async def _open_doors(self, sockets: ListeningSockets) -> None:
        surroundings = Surroundings(
            self.topology,
            metrics=Scrapes(self._metrics).text,
            has_open_metrics=self.settings.open_metrics,
            serves_a_store=lambda: any(broker.failure is None for broker in self.brokers),
        )
        self._door = FrontDoor(
            self.settings,
            self.namespace,
            self.meter,
            self.key,
            self._connection_clock,
            surroundings,
            self._when_broken,
        )
        if self.settings.key is None:
            self.namespace.renew_root_key = self._renew_root_key
        await self._door.start(self.tls)
        self._build_metrics()
        self._tracing = start_tracing(self.settings, THE_ONLY_PROCESS)
        if self._tracing is not None:
            trace(self._tracing.spans, self.front_end, self.brokers)
        self._door.open(sockets)

    def _build_metrics(self) -> None:
        process = ProcessMetrics(self.clock)
        self._lag_task = essential(process.watch(), "metrics", self._when_broken)
        entities = EntityMetrics(self._catalog, self._brokers_by_store, self.clock, self.settings.limits)
        parts: list[Teller] = [
            process.tell,
            lambda out: tell_front_end(self._door, self.meter, out),
            lambda out: tell_meter(self.meter, out),
            lambda out: tell_catalog(self._catalog, out),
            lambda out: tell_stores(self._brokers_by_store, out),
            entities.tell,
        ]
        self._scrape = ProcessScrape(THE_ONLY_PROCESS, parts)

    def _brokers_by_store(self) -> Mapping[int, MessageBroker]:
        return dict(enumerate(self.brokers))

    async def _metrics(self) -> str:
        return told_by([await self._scrape.blocks()])

    async def _renew_root_key(self) -> Sequence[AuthorizationRule]:
        self.key = renew_key(self.settings.data)
        return self._door.take_key(self.key)

    async def topology(self, query: TopologyQuery) -> Mapping[str, object]:
        """Each store has a message broker of its own, all of them in this process."""
        pid, state = os.getpid(), ProcessState.READY.value
        stores = range(len(self.brokers))
        parts = Parts(
            self.settings.name,
            [ProcessFacts(store, pid, state) for store in stores],
            [self._store_facts(store) for store in stores],
            [FrontEndFacts(0, pid, state, connections=self._door.connection_count)],
        )
        receivers = self.namespace.receiver_count(query.entity or "")
        return topology_document(parts, self._catalog, Failures(self._store_failure, self.faults), query, receivers)

    def _store_facts(self, store: int) -> StoreFacts:
        failure = self._store_failure(store)
        if failure is not None:
            return StoreFacts(store, store, "unavailable", None, str(failure))
        broker = self.brokers[store]
        audited = None if broker.audit is None else broker.audit.last_number
        return StoreFacts(store, store, "available", broker.store.epoch, audited=audited)

    def _store_failure(self, store: int) -> BusError | None:
        return self.brokers[store].failure if store < len(self.brokers) else None

    async def stop(self) -> None:
        """Commit what was accepted, tell the clients, close."""
        self._door.close()
        self._lag_task.cancel()
        if self._fault_task is not None:
            self._fault_task.cancel()
        self.faults.clear()  # what was accepted must be stored, whatever people were playing
        for broker in self.brokers:
            await broker.stop_forwarding()
        for broker in self.brokers:
            await broker.finish_staged()
        await self._door.stop()
        await self.namespace.stop()
        for broker in self.brokers:
            await broker.stop()
        self._meter_stop.set()
        if self._meter_task is not None:
            await asyncio.gather(self._meter_task, return_exceptions=True)
        self.meter.close()
        if not self._is_in_memory:
            await self._copies_following.stop()
            self._copies.close()
        if self._tracing is not None:
            await self._tracing.stop()
        await self._catalog.settled()
        self._catalog.close()
        if not self._is_in_memory:
            self._lives_task.cancel()
            self._lives.end()
