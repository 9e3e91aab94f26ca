"""A message broker in a process of its own: its stores, their fragments, and the socket that front ends come to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, final

from tandembus.broker.message_broker import MessageBroker
from tandembus.clock import SystemClock
from tandembus.errors import BusError, FragmentUnavailable, MalformedData, StoreUnavailable, anew
from tandembus.interconnect.channel import Channel
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.handshake import Agreement, Party
from tandembus.interconnect.peer import Peer
from tandembus.interconnect.server import ChannelServer, ServedStore
from tandembus.metering.meter import Meter
from tandembus.metering.slot import FORWARD, NORMAL
from tandembus.namespace.catalog_change import CatalogEvent
from tandembus.namespace.compiled_rules import CompiledRules
from tandembus.namespace.entries import Tombstone
from tandembus.namespace.hosting import FragmentHost
from tandembus.namespace.local_source import LocalSource
from tandembus.namespace.transfers import Transfers
from tandembus.node.catalog_copy import CatalogCopies, DurableCopies
from tandembus.node.catalog_wire import entry_from_wire
from tandembus.node.channels import Channels
from tandembus.node.control_link import ControlLink
from tandembus.node.fault_wire import FAULTS, take_faults
from tandembus.node.metering import METER, forget_ended, meter_settings, meter_to_wire
from tandembus.node.metrics.entity_metrics import EntityMetrics
from tandembus.node.metrics.front_end_metrics import tell_meter
from tandembus.node.metrics.gathering import METRICS, ProcessScrape, Teller, process_label
from tandembus.node.metrics.process_metrics import ProcessMetrics
from tandembus.node.metrics.store_metrics import tell_stores
from tandembus.node.near_source import NearSource
from tandembus.node.orders import Orders
from tandembus.node.owned_store import OwnedStore, until_free
from tandembus.node.remote_store import CHECK, MAKE
from tandembus.node.store_folders import store_folder
from tandembus.node.stores import build_broker, build_budget, build_faults
from tandembus.node.supervisor import Role
from tandembus.node.tracing import start_tracing, trace
from tandembus.node.waiting import first_of
from tandembus.security.scopes import fold
from tandembus.tasks import essential

log = logging.getLogger("tandembus.node")

HOUSEKEEPING_S: Final = 10.0


@final
class BrokerProcess:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._settings = orders.settings
        self._clock = SystemClock()
        self.broken = asyncio.Event()
        self._served: dict[int, ServedStore] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_listening = False
        self._is_caught_up = False
        """With the catalog: only then can a store be hosted."""
        self._hosting = asyncio.Lock()

    def _when_broken(self, _error: BaseException) -> None:
        self.broken.set()

    async def run(self) -> int:
        """Returns the exit code, once it was asked to stop or has broken down."""
        orders = self._orders
        folders = [store_folder(self._settings.data, store) for store in orders.stores]
        await asyncio.gather(*[until_free(folder) for folder in folders])
        map_size_bytes = self._settings.limits.catalog_map_size_bytes
        self._copies = CatalogCopies(lambda: DurableCopies(folders, map_size_bytes))
        self._meter = Meter(
            self._clock,
            self._settings.data / "meter" / f"broker-{orders.index}",
            self._settings.name,
            meter_settings(self._settings.limits),
        )
        self._copies.on_changed = self._changed
        self._stores = self._build_stores()
        self._tracing = start_tracing(self._settings, process_label(Role.BROKER, orders.index))
        if self._tracing is not None:
            trace(self._tracing.spans, brokers=self._brokers_by_store().values())
        self._link = self._build_link()
        self._server = ChannelServer(
            orders.install_key,
            Party(Role.BROKER.value, {"index": orders.index}),
            self._served,
            self._admit,
            max_frame_bytes=ChannelSettings.of(self._settings.limits).max_frame_bytes,
        )
        self._server.when_broken = self._when_broken
        self._meter_stop = asyncio.Event()
        self._build_metrics()
        await self._open_stores()
        self._tasks += [
            essential(self._link.run(), "control connection", self._when_broken),
            essential(self._keep_house(), "housekeeping", self._when_broken),
            essential(self._meter.run(self._meter_stop), "meter", self._when_broken),
            essential(self._faults.run(), "faults", self._when_broken),
        ]
        await first_of(self._link.stop_asked, self.broken)
        await self._stop()
        return 1 if self.broken.is_set() else 0

    # Its parts.

    def _build_stores(self) -> dict[int, OwnedStore]:
        settings, limits, view = self._settings, self._settings.limits, self._copies.view
        budget = build_budget(limits, self._clock)
        faults = self._faults = build_faults(settings, self._orders.store_count, self._clock)
        compiled = CompiledRules(view)
        hosts: dict[int, FragmentHost] = {}
        source = self._open_channels(hosts)
        stores: dict[int, OwnedStore] = {}
        for index in self._orders.stores:
            broker = build_broker(settings, index, self._clock, budget, faults, is_suspect=self._orders.is_suspect)
            broker.when_broken = self._when_broken
            host = FragmentHost(index, broker, view, limits, self._clock, compiled)
            hosts[index] = host
            transfers = Transfers(settings.name, view, host, source, limits, self._clock, faults)
            faults.listen(broker.forwarding.retry_all)
            broker.forwarding.port = transfers
            broker.forwarding.max_hops = limits.max_forward_hops
            broker.forwarding.on_forwarded = self._count_forwarded
            host.dropper.on_dropped = self._dropped
            broker.is_known_fragment = self._is_known_fragment
            broker.on_failed.append(self._store_failed)
            broker.on_reopened.append(self._store_reopened)
            stores[index] = OwnedStore(index, broker, host, transfers)
        return stores

    def _open_channels(self, hosts: Mapping[int, FragmentHost]) -> NearSource:
        """For what is forwarded to stores of other brokers."""
        orders, own = self._orders, frozenset(self._orders.stores)
        party = Party(Role.BROKER.value, {"index": orders.index})
        self._channels = Channels(orders.run, orders.install_key, party, self._settings, self._clock)
        others = [store for store in range(orders.store_count) if store not in own]
        far = self._channels.open(others, self._when_broken)
        for channel in self._channels.by_store.values():
            channel.on_state = self._channel_changed
        return NearSource(LocalSource(hosts, is_pinning=False), own, far)

    def _is_known_fragment(self, fragment_key: int) -> bool:
        return self._copies.view.find_by_fragment(fragment_key) is not None

    def _build_link(self) -> ControlLink:
        orders = self._orders
        link = ControlLink(
            orders.run.control_socket,
            orders.install_key,
            Role.BROKER,
            orders.index,
            self._copies,
            self._settings.heartbeat_timeout_s,
        )
        link.on_told = self._hear
        link.on_serving = self._serve
        link.on_cut_off = self._cut_off
        link.status = self._status
        link.handlers.calls.update(
            {
                MAKE: self._make,
                CHECK: self._check,
                METER: self._tell_meter,
                METRICS: self._tell_metrics,
                "accesses": self._tell_accesses,
            }
        )
        return link

    def _build_metrics(self) -> None:
        process, limits = ProcessMetrics(self._clock), self._settings.limits
        self._tasks.append(essential(process.watch(), "metrics", self._when_broken))
        entities = EntityMetrics(self._copies.view, self._brokers_by_store, self._clock, limits)
        parts: list[Teller] = [
            process.tell,
            lambda out: tell_meter(self._meter, out),
            lambda out: tell_stores(self._brokers_by_store, out),
            entities.tell,
        ]
        self._scrape = ProcessScrape(process_label(Role.BROKER, self._orders.index), parts)

    def _brokers_by_store(self) -> Mapping[int, MessageBroker]:
        return {store.index: store.broker for store in self._stores.values()}

    def _count_forwarded(self, path: str, messages: int, operations: int, size_bytes: int) -> None:
        self._meter.count(fold(path), FORWARD, NORMAL, messages, operations, size_bytes)

    # Stores.

    async def _open_stores(self) -> None:
        """Those that cannot be opened keep nobody waiting."""
        for store in self._stores.values():
            # Reading all pages may take long, and this process has to be heard meanwhile.
            if not self._orders.is_suspect and await store.try_to_open():
                continue
            name = f"opening store {store.index}"
            self._tasks.append(essential(store.open_at_last(self._store_opened), name, self._when_broken))

    def _store_opened(self, store: OwnedStore) -> None:
        log.info("messaging store %d is open at last", store.index)
        self._host_later(store)

    def _host_later(self, store: OwnedStore) -> None:
        """At once or, while the catalog is not what it must be, when it is."""
        if self._is_caught_up:
            self._tasks.append(essential(self._host([store]), f"hosting store {store.index}", self._when_broken))

    async def _host(self, stores: Iterable[OwnedStore]) -> None:
        """A store that fails meanwhile takes out its share only, and is tried again."""
        async with self._hosting:
            for store in stores:
                try:
                    if store.is_open:
                        await self._host_one(store)
                except BusError as error:
                    log.error("messaging store %d cannot be served: %s", store.index, error)

    async def _host_one(self, store: OwnedStore) -> None:
        await store.start_hosting(self._when_broken)
        if store.index not in self._served:
            settings = ChannelSettings.of(self._settings.limits)
            self._served[store.index] = ServedStore(store.broker, store.host.open_by_key, self._clock, settings)
        self._link.tell_status()

    def _store_failed(self, _error: StoreUnavailable) -> None:
        self._link.tell_status()

    def _store_reopened(self) -> None:
        """One that was out when it was to be hosted is hosted now."""
        for store in self._stores.values():
            if store.is_open and not store.is_hosting:
                self._host_later(store)
        self._link.tell_status()
        self._forward_on()

    def _channel_changed(self, channel: Channel) -> None:
        if channel.is_up:
            self._forward_on()

    def _forward_on(self) -> None:
        """What waits for a store that is back need not wait for the next try."""
        for store in self._stores.values():
            store.broker.forwarding.retry_all()

    def _status(self) -> dict[object, object]:
        return {"stores": {store.index: store.status() for store in self._stores.values()}}

    # Serving.

    async def _serve(self) -> None:
        """A store that opens meanwhile is hosted by whoever opened it."""
        self._is_caught_up = self._copies.is_relied_on = True
        await self._host(self._stores.values())
        if not self._is_listening:
            await self._server.start(self._orders.run.broker_socket(self._orders.index))
            self._is_listening = True
            log.debug("listening for front ends")

    def _cut_off(self) -> None:
        self._is_caught_up = False
        self._server.cut_off(FragmentUnavailable("The message broker has to catch up with the catalog first."))

    def _admit(self, _agreement: Agreement) -> dict[str, object]:
        if not self._link.is_serving:
            raise FragmentUnavailable("The message broker has to catch up with the catalog first.")
        return {}

    async def _changed(self, events: Sequence[CatalogEvent]) -> None:
        forget_ended(self._meter, events)
        for store in self._stores.values():
            if store.is_hosting:
                await store.host.apply(events)

    async def _dropped(self, tombstones: Sequence[Tombstone]) -> None:
        await self._link.call("dropped", [one.fragment_key for one in tombstones])

    # What the supervisor says and asks.

    async def _hear(self, name: str, value: object) -> None:
        if name == FAULTS:
            take_faults(self._faults, value)

    async def _make(self, _peer: Peer, value: object) -> object:
        store, entry = self._asked(value)
        await store.host.make(entry_from_wire(entry))
        return None

    async def _check(self, _peer: Peer, value: object) -> object:
        store, _ = self._asked(value)
        failure = store.failure
        if failure is not None:
            raise anew(failure)
        return None

    def _asked(self, value: object) -> tuple[OwnedStore, object]:
        if not isinstance(value, list) or len(value) != 2:
            raise MalformedData("a request without its store or entry")
        store = self._stores.get(value[0])
        if store is None:
            raise StoreUnavailable(f"Messaging store {value[0]} does not belong to this message broker.")
        if store.failure is not None:
            raise anew(store.failure)
        return store, value[1]

    async def _tell_meter(self, _peer: Peer, _value: object) -> object:
        return await asyncio.to_thread(meter_to_wire, await self._meter.look())

    async def _tell_metrics(self, _peer: Peer, _value: object) -> object:
        return await self._scrape.blocks()

    async def _tell_accesses(self, _peer: Peer, _value: object) -> object:
        return self._take_accesses()

    def _take_accesses(self) -> dict[object, object]:
        times: dict[object, object] = {}
        for store in self._stores.values():
            times.update(store.transfers.take_accesses())
        return times

    # Upkeep.

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            now = self._clock.now()
            for store in self._stores.values():
                if store.is_hosting:
                    store.host.let_go_of_unused(now)
            if self._link.is_serving:
                await self._host([store for store in self._stores.values() if store.is_waiting])
                await self._catch_up()

    async def _catch_up(self) -> None:
        try:
            if self._copies.is_behind():
                await self._link.take_snapshot()
            times = self._take_accesses()
            if times:
                await self._link.call("accessed", times)
        except BusError as error:
            log.warning("housekeeping is put off: %s", error)

    async def _stop(self) -> None:
        """Front ends are gone by now: what they have begun is committed, then all is closed."""
        self._link.stop_serving()
        self._faults.clear()  # what was accepted must be stored, whatever people were playing
        for store in self._stores.values():
            if store.is_open:
                await store.broker.stop_forwarding()
                await store.broker.finish_staged()
        await self._server.stop()
        await self._channels.stop()
        self._meter_stop.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for store in self._stores.values():
            await store.stop()
        self._meter.close()
        self._copies.close()
        if self._tracing is not None:
            await self._tracing.stop()
