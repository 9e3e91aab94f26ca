"""A namespace of any shape over stores in memory: what outlives its processes, and the processes themselves.

This file and `driver.py` are the only ones in this folder that know how a namespace is put together.
"""

from __future__ import annotations

import json
import tempfile
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tandembus.broker.budget import Budget
from tandembus.broker.message_broker import MessageBroker
from tandembus.errors import BusError, StoreUnavailable
from tandembus.faults.board import FaultBoard
from tandembus.interconnect.channel import Channel
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.handshake import Party
from tandembus.interconnect.server import ChannelServer, ServedStore
from tandembus.large_messages import LargeMemory
from tandembus.limits import Limits
from tandembus.namespace.administration import Administration
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.catalog_change import CatalogChange, CatalogEvent
from tandembus.namespace.catalog_namespace import CatalogNamespace
from tandembus.namespace.entries import Entry, Tombstone
from tandembus.namespace.following import Followers
from tandembus.namespace.hosting import FragmentHost
from tandembus.namespace.local_namespace import LocalNamespace
from tandembus.namespace.local_source import LocalSource
from tandembus.namespace.transfers import Transfers
from tandembus.node.near_source import NearSource
from tandembus.node.remote_source import RemoteSource
from tandembus.store.embedded.catalog_store import DamagedRecord, Document
from tandembus.store.memory import MemoryDisk, MemoryStore
from tandembus.store.messaging_store import MessagingStore
from tests.behaviour.shapes import Shape
from tests.behaviour.still_loop import Process, StillLoop

KEY = bytes(32)
EPOCH_S = 1_700_000_000.0
CONNECTED_WITHIN_S = 0.5
"""Whoever found nobody tries again by then."""


class LoopClock:
    """The loop's time; the wall clock can be set."""

    def __init__(self, loop: StillLoop) -> None:
        self._loop = loop
        self.set_by_s = 0.0

    def now(self) -> float:
        return EPOCH_S + self._loop.time() + self.set_by_s

    def now_ms(self) -> int:
        return int(self.now() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


class Records:
    """The catalog's records."""

    def __init__(self) -> None:
        self.documents: dict[bytes, str] = {}
        self.is_failing = False

    def read_all(self) -> tuple[dict[bytes, Document], list[DamagedRecord]]:
        return {key: json.loads(text) for key, text in self.documents.items()}, []

    def commit(self, puts: Mapping[bytes, Document], drops: Iterable[bytes] = ()) -> None:
        if self.is_failing:
            raise StoreUnavailable("the catalog cannot be written")
        for key in drops:
            self.documents.pop(key, None)
        self.documents.update({key: json.dumps(document) for key, document in puts.items()})

    def reopen(self) -> None:
        return

    def close(self) -> None:
        return


class Installation:
    """What outlives every process, and which processes there are at the moment."""

    def __init__(self, shape: Shape, limits: Limits, loop: StillLoop) -> None:
        self.shape = shape
        self.limits = limits
        self.loop = loop
        self.clock = LoopClock(loop)
        self.records = Records()
        self.disks = [MemoryDisk() for _ in range(shape.stores)]
        self.out: set[int] = set()
        """Stores that cannot be opened."""
        self.folder = Path(tempfile.mkdtemp(prefix="tb"))
        self.brokers: list[BrokerProcess] = []
        self.front_end: Process
        self.channels: dict[int, Channel] = {}
        self.namespace: CatalogNamespace

    def process(self, name: str) -> Process:
        return Process(name)

    async def start(self) -> None:
        self.front_end = Process("front end")
        if self.shape.has_channel:
            await self.front_end.do(self._start_apart())
            await self.loop.advance(CONNECTED_WITHIN_S)
        else:
            await self.front_end.do(self._start_together())
            await self.loop.quiet()

    def kill(self) -> None:
        """The machine loses its power."""
        for process in [self.front_end, *[one.process for one in self.brokers]]:
            process.kill()
        self.brokers = []
        for disk in self.disks:
            seize(disk)

    async def stop(self) -> None:
        """In order: what was accepted is committed."""
        await self.front_end.do(self.namespace.stop())
        for channel in self.channels.values():
            await self.front_end.do(channel.stop())
        for one in self.brokers:
            await one.stop()
        if not self.brokers:
            for broker in self.message_brokers:
                await self.front_end.do(broker.stop())
        self.kill()

    async def open_store(self, number: int) -> MessagingStore:
        if number in self.out:
            raise StoreUnavailable(f"store {number} cannot be opened")
        return MemoryStore(self.disks[number])

    def new_broker(self, number: int, budget: Budget) -> MessageBroker:
        limits = self.limits
        return MessageBroker(
            lambda: self.open_store(number),
            self.clock,
            budget,
            limits.broker_window_bytes,
            limits.commit_outage_s,
        )

    def new_budget(self) -> Budget:
        limits = self.limits
        large = LargeMemory(limits.large_message_memory_bytes)
        return Budget(
            self.clock,
            limits.uncommitted_bytes_limit,
            float(limits.operations_per_second or 0),
            limits.max_duplicate_ids,
            large,
        )

    # One process.

    async def _start_together(self) -> None:
        catalog = Catalog(self.records, self.clock.now())
        budget = self.new_budget()
        brokers = [self.new_broker(number, budget) for number in range(self.shape.stores)]
        for broker in brokers:
            await broker.start()
        self.namespace = LocalNamespace("bus", catalog, brokers, self.limits, self.clock)
        self.message_brokers = brokers
        await self.namespace.start()

    # A process for the front end, and one for each store. All of them read one catalog.

    async def _start_apart(self) -> None:
        self.catalog = Catalog(self.records, self.clock.now())
        self.followers = Followers(self.catalog)
        self.brokers = [BrokerProcess(self, number) for number in range(self.shape.stores)]
        self.message_brokers = [one.broker for one in self.brokers]
        stores = range(self.shape.stores)
        administration = Administration(
            "bus", self.catalog, dict(enumerate(self.brokers)), stores, self.followers, self.limits, self.clock
        )
        self.channels = self.open_channels("front end")
        source = RemoteSource(self.channels, self.limits, self.clock)
        self.namespace = CatalogNamespace("bus", self.catalog, source, administration, self.limits, self.clock)
        for channel in self.channels.values():
            channel.on_turn_end = self.namespace.turn_ended
        self.catalog.listeners.append(self._catalog_changed)
        for broker in self.brokers:
            await broker.start()
        newest = max(one.newest_key for one in self.brokers)
        await self.catalog.skip_fragment_keys(newest + 1, self.clock.now())
        await self.namespace.start()

    def open_channels(self, name: str) -> dict[int, Channel]:
        settings = ChannelSettings.of(self.limits)
        party = Party("front end", {"index": 0, "name": name})
        channels = {
            number: Channel(number, self.path(number), KEY, party, self.clock, settings)
            for number in range(self.shape.stores)
        }
        for channel in channels.values():
            channel.start()
        return channels

    def path(self, number: int) -> Path:
        return self.folder / str(number)

    def _catalog_changed(self, change: CatalogChange, events: Sequence[CatalogEvent]) -> None:
        self.namespace.apply(events)
        for broker in self.brokers:
            broker.heard.append(events)
        self.followers.publish(change)


class BrokerProcess:
    """The process that owns one store, over all its lives. Administration reaches it directly (`StorePort`), and it
    hears of changes of the catalog directly (`CatalogFollower`)."""

    def __init__(self, installation: Installation, number: int) -> None:
        self._installation = installation
        self.index = number
        self.name = f"broker {number}"
        self.heard: deque[Sequence[CatalogEvent]] = deque()
        self._new_life()

    def _new_life(self) -> None:
        one = self._installation
        self.process = Process(self.name)
        self.broker = one.new_broker(self.index, one.new_budget())
        self.is_serving = False

    async def start(self) -> None:
        await self.process.do(self._start())

    async def _start(self) -> None:
        one = self._installation
        limits, clock, catalog, broker = one.limits, one.clock, one.catalog, self.broker
        host = FragmentHost(self.index, broker, catalog, limits, clock)
        far = RemoteSource(one.open_channels(self.name), limits, clock)
        between = NearSource(LocalSource({self.index: host}, is_pinning=False), frozenset({self.index}), far)
        faults = FaultBoard(clock, max_faults=limits.max_faults)
        transfers = Transfers("bus", catalog, host, between, limits, clock, faults)
        broker.forwarding.port = transfers
        broker.forwarding.max_hops = limits.max_forward_hops
        broker.is_known_fragment = lambda key: catalog.find_by_fragment(key) is not None
        host.dropper.on_dropped = self._dropped
        await broker.start()
        await host.start()
        self.host, self.is_serving = host, True
        one.followers.add(self, None)
        served = ServedStore(broker, host.open_by_key, clock, ChannelSettings.of(limits))
        self.server = ChannelServer(KEY, Party("broker", {"index": self.index}), {self.index: served})
        await self.server.start(one.path(self.index))
        await transfers.resume()

    async def _dropped(self, tombstones: Sequence[Tombstone]) -> None:
        await self._installation.catalog.forget(tombstones, self._installation.clock.now())

    def kill(self) -> None:
        self.is_serving = False
        self._installation.followers.leave(self)
        self.heard.clear()
        self.process.kill()
        seize(self._installation.disks[self.index])

    async def stop(self) -> None:
        self._installation.followers.leave(self)
        for work in (self.server.stop(), self.host.stop(), self.broker.stop()):
            await self.process.do(work)

    async def restart(self) -> None:
        self._new_life()
        self._installation.message_brokers[self.index] = self.broker
        await self.start()

    @property
    def newest_key(self) -> int:
        return self.host.newest_key

    def failure(self) -> BusError | None:
        return self.broker.failure if self.is_serving else StoreUnavailable(f"{self.name} is gone")

    async def make(self, entry: Entry) -> None:
        await self.process.do(self.host.make(entry))

    async def check(self, entry: Entry) -> None:
        if (failure := self.failure()) is not None:
            raise failure

    async def take(self, change: CatalogChange) -> None:
        while self.heard:
            await self.process.do(self.host.apply(self.heard.popleft()))

    def cut_off(self, reason: BusError) -> None:
        raise AssertionError(f"{self.name} does not follow the catalog: {reason}")


def seize(disk: MemoryDisk) -> None:
    """Whoever held it holds it no longer, and commits nothing any more."""
    disk.epoch += 1
    disk.is_held = False
    disk.faults.clear()
    disk.go_on.set()
