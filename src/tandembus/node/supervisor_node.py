"""The first process of a namespace with message brokers of its own processes: it has the catalog, administers, keeps
the others running, and is a front end itself."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, final

from tandembus.clock import Clock, SystemClock
from tandembus.config import ServeSettings
from tandembus.descriptions import AuthorizationRule
from tandembus.errors import BusError, MalformedData, StoreUnavailable
from tandembus.faults.desk import LocalDesk
from tandembus.front_end.http.surroundings import Surroundings
from tandembus.front_end.http.topology import TopologyQuery
from tandembus.interconnect.handshake import Party
from tandembus.interconnect.peer import Peer
from tandembus.metering.meter import Meter, MeterTotals
from tandembus.namespace.administration import Administration
from tandembus.namespace.backlogs import Backlogs
from tandembus.namespace.catalog_change import CatalogChange, CatalogEvent
from tandembus.namespace.catalog_namespace import CatalogNamespace
from tandembus.namespace.faulty_fragments import FaultyStorePort
from tandembus.namespace.following import Followers
from tandembus.namespace.fragment_source import FragmentSource
from tandembus.namespace.policies import warn_of_short_keys
from tandembus.namespace.store_port import CatalogFollower
from tandembus.node.catalog_wire import SNAPSHOT
from tandembus.node.channels import Channels
from tandembus.node.control_server import ControlledProcess, ControlServer
from tandembus.node.describing import BEGIN, END, DescribingDesk
from tandembus.node.doors import ListeningSockets, Ports, bind_first
from tandembus.node.facts import bring_about, connection_string_of, write_facts
from tandembus.node.fault_wire import ASK_FAULT, FAULTS, answer_fault, faults_to_wire
from tandembus.node.front_door import FrontDoor
from tandembus.node.front_end_namespace import RENEW_KEY, VERSION
from tandembus.node.front_end_process import PAIR, RECEIVERS, ROOT_KEY, TOPOLOGY
from tandembus.node.launching import Launch
from tandembus.node.metering import METER, forget_ended, meter_from_wire, meter_settings, meter_to_wire, summed
from tandembus.node.metrics.gathering import METRICS
from tandembus.node.metrics.supervised import OWN_LABEL, SupervisedMetrics
from tandembus.node.owned_store import until_free
from tandembus.node.remote_administration import ADMINISTER, AdministrationDesk
from tandembus.node.remote_store import RemoteStore
from tandembus.node.store_folders import COPY_FOLDER, store_folder, stores_for_new_entities
from tandembus.node.stores import build_faults, open_namespace_catalog
from tandembus.node.supervision import ProcessState
from tandembus.node.supervisor import ProcessId, Role
from tandembus.node.topology import Failures, FrontEndFacts, Parts, ProcessFacts, StoreFacts, topology_document
from tandembus.node.tracing import start_tracing, trace
from tandembus.pair_view.view import Seen, seen_from_document, seen_to_document, summed_seen
from tandembus.security.key_file import ensure_key, renew_key
from tandembus.security.tls import TlsFiles, certificate_names, ensure_certificate
from tandembus.tasks import essential

if TYPE_CHECKING:
    from tandembus.node.emulator import EmulatorConfig

log = logging.getLogger("tandembus.node")

SETTLED_WITHIN_S: Final = 60.0
CHANNELS_UP_WITHIN_S: Final = 2.0
ENDS_WITHIN_S: Final = 8.0
FIRST_SPARE_AFTER_S: Final = 1.0
"""Whatever is started beside this namespace, such as the other one of a pair, needs the machine more."""
SPARE_AFTER_S: Final = 0.25
LOOK_AFTER_SPARES_S: Final = 30.0
"""As seldom as a process that ends again and again is started: spares may do so, too."""


@final
class SupervisorNode:
    """Started, ready, stopped: the same from outside as a namespace in one process."""

    def __init__(self, settings: ServeSettings, launch: Launch, emulator: EmulatorConfig | None = None) -> None:
        """`launch`: with the brokers started already."""
        self.settings = settings
        self.clock: Clock = SystemClock()
        self._launch = launch
        self.supervisor = launch.supervisor
        self._emulator = emulator
        self.key = ""
        self.tls: TlsFiles
        self.ports: Ports
        self.broken = asyncio.Event()
        """Set when a part ended that must not: the process cannot be relied on any more and should stop."""
        self._meter_stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._joining: set[asyncio.Task[None]] = set()

    def _when_broken(self, _error: BaseException) -> None:
        self.broken.set()

    @property
    def connection_string(self) -> str:
        return connection_string_of(self.settings, self.ports, self.key)

    # The start.

    async def start(self) -> None:
        """Or, if that fails, nothing of it remains."""
        async with contextlib.AsyncExitStack() as opened:
            opened.callback(self.supervisor.let_go)
            sockets = await bind_first(self.settings)
            opened.callback(sockets.close)
            self.ports = sockets.ports
            self._launch.start_front_ends(self.ports)
            await self._start(sockets, opened)
            opened.pop_all()

    async def _start(self, sockets: ListeningSockets, opened: contextlib.AsyncExitStack) -> None:
        settings = self.settings
        folders = [store_folder(settings.data, store) for store in range(self._launch.store_count)]
        await asyncio.gather(*[until_free(folder / COPY_FOLDER) for folder in folders])
        self._catalog = open_namespace_catalog(settings, self.clock.now())
        opened.callback(self._catalog.close)
        self.key = ensure_key(settings.data, settings.key, accepts_emulator_key=settings.accepts_emulator_key)
        warn_of_short_keys(self.key, self._catalog, accepts_emulator_key=settings.accepts_emulator_key)
        names = certificate_names(settings.host, (*settings.hosts, *settings.tls_names))
        self.tls = ensure_certificate(
            settings.data / "tls", names, self.clock.now(), settings.tls_certificate, settings.tls_private_key
        )
        self.control = ControlServer(self._launch.install_key, self.supervisor)
        await self._build(opened)
        await self.control.start(self._launch.run.control_socket)
        opened.push_async_callback(self.control.stop)
        await self._start_brokers()
        if self._emulator is not None:
            await bring_about(self.namespace, self._emulator)
        await self.door.start(self.tls)
        await self._start_front_ends()
        self.door.open(sockets)
        write_facts(settings, self.ports)
        self.door.is_ready = True
        asyncio.get_running_loop().call_later(FIRST_SPARE_AFTER_S, self._keep_spares)
        looking = self._launch.look_after_spares(LOOK_AFTER_SPARES_S, self._has_all_brokers)
        self._spare_task = essential(looking, "looking after spares", self._when_broken)

    async def _build(self, opened: contextlib.AsyncExitStack) -> None:
        administration = self._build_administration()
        source = self._open_channels(opened)
        self.meter = Meter(
            self.clock, self.settings.data / "meter", self.settings.name, meter_settings(self.settings.limits)
        )
        opened.callback(self.meter.close)
        self.metrics = SupervisedMetrics(self.control, self.supervisor, self._catalog, self.meter, self.clock)
        self._build_namespace(source, administration)
        self._catalog.listeners.append(self._catalog_changed)
        self._serve_control(administration)
        self._build_door()
        await self.namespace.start()
        opened.push_async_callback(self.namespace.stop)
        self._tasks.append(essential(self.meter.run(self._meter_stop), "meter", self._when_broken))
        self._fault_task = essential(self.faults.run(), "faults", self._when_broken)
        self._lag_task = essential(self.metrics.process.watch(), "metrics", self._when_broken)

    def _build_administration(self) -> Administration:
        settings, control = self.settings, self.control
        self.followers = Followers(self._catalog)
        self.stores = {
            store: RemoteStore(store, store % settings.brokers, control) for store in range(self._launch.store_count)
        }
        self.faults = build_faults(settings, self._launch.store_count, self.clock)
        timeout_s = settings.limits.operation_timeout_s
        return Administration(
            settings.name,
            self._catalog,
            {index: FaultyStorePort(store, self.faults, timeout_s) for index, store in self.stores.items()},
            range(stores_for_new_entities(settings)),
            self.followers,
            settings.limits,
            self.clock,
        )

    def _open_channels(self, opened: contextlib.AsyncExitStack) -> FragmentSource:
        launch, party = self._launch, Party(Role.FRONT_END.value, {"index": 0})
        self._channels = Channels(launch.run, launch.install_key, party, self.settings, self.clock)
        source = self._channels.open(range(launch.store_count), self._when_broken)
        opened.push_async_callback(self._channels.stop)
        return source

    def _build_namespace(self, source: FragmentSource, administration: Administration) -> None:
        settings = self.settings
        self.namespace = CatalogNamespace(
            settings.name, self._catalog, source, administration, settings.limits, self.clock, self.faults
        )
        self._backlogs = Backlogs(self.namespace)
        self.namespace.fault_desk = LocalDesk(self.faults, self._tell_faults)
        self.namespace.when_broken = self._when_broken
        self.namespace.on_deleted = self.meter.forget
        self.namespace.gather_accesses = self._gather_accesses
        self._channels.on_turn_end(self.namespace.turn_ended)

    def _build_door(self) -> None:
        self.door = FrontDoor(
            self.settings,
            self.namespace,
            self.meter,
            self.key,
            self.clock,
            Surroundings(
                self.topology,
                self.meter_totals,
                pair=self.seen_of_pair,
                metrics=self.metrics.scrapes.text,
                has_open_metrics=self.settings.open_metrics,
                serves_a_store=lambda: any(self._store_failure(store) is None for store in self.stores),
            ),
            self._when_broken,
        )
        self.metrics.door = self.door
        self._tracing = start_tracing(self.settings, OWN_LABEL)
        if self._tracing is not None:
            trace(self._tracing.spans, self.door.front_end)
        if self.settings.key is None:
            self.namespace.renew_root_key = self._renew_root_key

    def _serve_control(self, administration: Administration) -> None:
        control, namespace = self.control, self.namespace
        desk = AdministrationDesk(administration)
        describing = DescribingDesk(namespace.describing_lock)
        control.follow = self._follow
        control.unfollow = self.followers.leave
        control.on_serving = self._is_serving
        control.on_left = lambda process: describing.end_of(process.peer)
        control.handlers.calls.update(
            {
                ADMINISTER: lambda _peer, value: desk.answer(value),
                BEGIN: describing.begin,
                END: describing.end,
                VERSION: self._tell_version,
                RENEW_KEY: self._renew_key_for,
                TOPOLOGY: self._tell_topology,
                METER: self._tell_meter,
                METRICS: self._tell_metrics,
                PAIR: self._tell_pair,
                ASK_FAULT: lambda _peer, value: answer_fault(namespace.fault_desk, value),
                "dropped": self._dropped,
                SNAPSHOT: self._tell_snapshot,
                "accessed": functools.partial(self._take_accesses, administration),
            }
        )

    async def _start_brokers(self) -> None:
        await self.control.tell(ROOT_KEY, self.key)
        brokers = self.supervisor.of(Role.BROKER)
        self.supervisor.keep(brokers, self._when_broken)
        await _within(self.supervisor.until_settled(brokers), SETTLED_WITHIN_S)
        await asyncio.gather(*self._joining)
        await self._channels.until_up(CHANNELS_UP_WITHIN_S)

    async def _start_front_ends(self) -> None:
        front_ends = self.supervisor.of(Role.FRONT_END)
        self.supervisor.keep(front_ends, self._when_broken)
        await _within(self.supervisor.until_settled(front_ends), SETTLED_WITHIN_S)

    # The catalog.

    def _catalog_changed(self, change: CatalogChange, events: Sequence[CatalogEvent]) -> None:
        self.namespace.apply(events)
        forget_ended(self.meter, events)
        self.followers.publish(change)

    async def _follow(self, follower: CatalogFollower, namespace_id: str, version: int) -> list[CatalogChange]:
        if namespace_id == self._catalog.namespace_id:
            await self._catalog.skip_versions(version, self.clock.now())
        return await self.followers.follow(follower, namespace_id, version)

    def _is_serving(self, process: ControlledProcess) -> None:
        """A catalog older than the stores (from a backup, say) must not give out numbers of fragments that are there:
        an entity's messages would come up in another."""
        if process.id.role is Role.BROKER:
            task = asyncio.ensure_future(self._skip_known_keys())
            self._joining.add(task)
            task.add_done_callback(self._joining.discard)
            if self.door.is_ready:
                # Who came just now has enough to do at first.
                asyncio.get_running_loop().call_later(SPARE_AFTER_S, self._keep_spares)

    def _keep_spares(self) -> None:
        if self.door.is_ready:
            self._launch.keep_spares()

    def _has_all_brokers(self) -> bool:
        """One that is being started needs the machine more, and sees to the spares when it is there."""
        brokers = [self.supervisor.processes[one] for one in self.supervisor.of(Role.BROKER)]
        return self.door.is_ready and all(one.lives.state is ProcessState.READY for one in brokers)

    async def _skip_known_keys(self) -> None:
        newest = max(store.newest_key for store in self.stores.values())
        await self._catalog.skip_fragment_keys(newest + 1, self.clock.now())

    async def _dropped(self, _peer: Peer, value: object) -> object:
        keys = set(value) if isinstance(value, list) else set()
        tombstones = [one for one in self._catalog.tombstones() if one.fragment_key in keys]
        await self._catalog.forget(tombstones, self.clock.now())
        return None

    async def _tell_snapshot(self, peer: Peer, _value: object) -> object:
        whole = await self._catalog.snapshot()
        return self.control.of(peer).hand_out([whole])

    async def _tell_version(self, _peer: Peer, _value: object) -> object:
        return self._catalog.version

    # Keys and accesses.

    async def _renew_root_key(self) -> Sequence[AuthorizationRule]:
        self.key = renew_key(self.settings.data)
        fixed = self.door.take_key(self.key)
        await self.control.tell(ROOT_KEY, self.key)
        return fixed

    async def _tell_faults(self) -> None:
        await self.control.tell(FAULTS, faults_to_wire(self.faults))

    async def _renew_key_for(self, _peer: Peer, _value: object) -> object:
        await self._renew_root_key()
        return None

    async def _take_accesses(self, administration: Administration, _peer: Peer, value: object) -> object:
        await administration.record_accesses(_times(value))
        return None

    async def _gather_accesses(self) -> Mapping[str, float]:
        """When entities were last used in other processes, as of now."""
        times: dict[str, float] = {}
        for process in self.control.processes():
            try:
                for key, at in _times(await process.peer.call("accesses", None, 2.0)).items():
                    times[key] = max(at, times.get(key, 0.0))
            except BusError as error:
                log.warning("%s does not tell what is in use: %s", process.id, error)
        return times

    # What is told of the whole.

    async def meter_totals(self) -> MeterTotals:
        """Of all processes that live; each has its own files."""
        parts = [await self.meter.look()]
        for process in self.control.processes():
            try:
                answer = await process.peer.call(METER, None, 2.0)
                parts.append(await asyncio.to_thread(meter_from_wire, answer))
            except BusError as error:
                log.warning("%s does not tell what it has counted: %s", process.id, error)
        return await asyncio.to_thread(summed, parts)

    async def _tell_meter(self, _peer: Peer, _value: object) -> object:
        return await asyncio.to_thread(meter_to_wire, await self.meter_totals())

    async def _tell_metrics(self, _peer: Peer, _value: object) -> object:
        return await self.metrics.scrapes.text()

    async def seen_of_pair(self) -> Seen:
        """By all front ends that live."""
        parts = [self._backlogs.seen()]
        for process in self.control.processes(Role.FRONT_END):
            try:
                document = await process.peer.call(PAIR, None, 2.0)
                parts.append(await asyncio.to_thread(seen_from_document, document))
            except BusError as error:
                log.warning("%s does not tell what it has seen of the pair: %s", process.id, error)
                parts.append(Seen(0.0, is_complete=False))
        return await asyncio.to_thread(summed_seen, parts)

    async def _tell_pair(self, _peer: Peer, _value: object) -> object:
        return await asyncio.to_thread(seen_to_document, await self.seen_of_pair())

    async def topology(self, query: TopologyQuery) -> Mapping[str, object]:
        supervisor = self.supervisor
        parts = Parts(
            self.settings.name,
            [self._process_facts(one) for one in supervisor.of(Role.BROKER)],
            [self._store_facts(store) for store in self.stores.values()],
            [
                FrontEndFacts(0, os.getpid(), ProcessState.READY.value, connections=self.door.connection_count),
                *[self._front_end_facts(one) for one in supervisor.of(Role.FRONT_END)],
            ],
        )
        receivers = 0 if query.entity is None else await self._receiver_count(query.entity)
        return topology_document(parts, self._catalog, Failures(self._store_failure, self.faults), query, receivers)

    async def _receiver_count(self, path: str) -> int:
        """Through all front ends that live."""
        count = self.namespace.receiver_count(path)
        for process in self.control.processes(Role.FRONT_END):
            try:
                found = await process.peer.call(RECEIVERS, path, 2.0)
            except BusError as error:
                log.warning("%s does not tell who receives: %s", process.id, error)
            else:
                count += found if isinstance(found, int) else 0
        return count

    def _process_facts(self, process_id: ProcessId) -> ProcessFacts:
        process = self.supervisor.processes[process_id]
        lives = process.lives
        return ProcessFacts(process_id.index, lives.pid, lives.state.value, lives.restart_count, process.last_exit)

    def _front_end_facts(self, process_id: ProcessId) -> FrontEndFacts:
        process = self.control.find(process_id)
        connections = process.status.get("connections") if process is not None else 0
        facts = self._process_facts(process_id)
        return FrontEndFacts(**asdict(facts), connections=connections if isinstance(connections, int) else 0)

    def _store_facts(self, store: RemoteStore) -> StoreFacts:
        failure = self._store_failure(store.index)
        status = store.status()
        epoch, audited = status.get("epoch"), status.get("audited")
        return StoreFacts(
            store.index,
            store.broker.index,
            "available" if failure is None else "unavailable",
            epoch if isinstance(epoch, int) else None,
            None if failure is None else str(failure),
            audited if isinstance(audited, int) else None,
        )

    def _store_failure(self, index: int) -> BusError | None:
        """A broker that is ready is of no use to clients of this process before the channel to it is up again."""
        store = self.stores.get(index)
        if store is None:
            return None
        failure = store.failure()
        if failure is None and not self._channels.by_store[index].is_up:
            return StoreUnavailable(f"Messaging store {index} is out of reach: {store.broker} is not connected to yet.")
        return failure

    async def _tell_topology(self, _peer: Peer, value: object) -> object:
        if not isinstance(value, list) or len(value) != 3:
            raise MalformedData("a question for the topology without its parts")
        return await self.topology(TopologyQuery(*value))

    # The end.

    async def stop(self) -> None:
        """Front ends first, so that nothing new comes; then the brokers commit and close."""
        self.door.close()
        self._spare_task.cancel()
        await self._launch.end_spares()
        self._fault_task.cancel()
        self._lag_task.cancel()
        await self.namespace.fault_desk.clear()  # what was accepted must be stored, whatever people were playing
        await self._end(self.supervisor.of(Role.FRONT_END))
        await self._channels.until_answered()
        await self.door.stop()
        await self.namespace.stop()
        await self.followers.confirmed()
        await self._channels.stop()
        await self._end(self.supervisor.of(Role.BROKER))
        await self.control.stop()
        self.followers.stop()
        self._meter_stop.set()
        await asyncio.gather(*self._tasks, *self._joining, return_exceptions=True)
        self.meter.close()
        if self._tracing is not None:
            await self._tracing.stop()
        await self._catalog.settled()
        self._catalog.close()

    async def _end(self, processes: list[ProcessId]) -> None:
        self.supervisor.expect_stop(processes)
        await self.control.ask_to_stop(processes)
        await self.supervisor.until_stopped(processes, ENDS_WITHIN_S)


async def _within(work: object, seconds: float) -> None:
    """What is not there by then comes later, or never: the others serve."""
    try:
        await asyncio.wait_for(work, seconds)  # type: ignore[arg-type]
    except TimeoutError:
        log.error("not all processes have become ready within %.0f s", seconds)


def _times(value: object) -> dict[str, float]:
    if not isinstance(value, dict):
        raise MalformedData("no times where times must be")
    return {str(key): float(at) for key, at in value.items()}
