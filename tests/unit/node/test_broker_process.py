"""A broker process beside a real catalog and control server, in one loop: joining, hosting, catching up."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tandembus.clock import SystemClock
from tandembus.config import ServeSettings
from tandembus.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.errors import FragmentUnavailable, StoreUnavailable
from tandembus.limits import Limits
from tandembus.namespace.administration import Administration
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.following import Followers
from tandembus.namespace.hosting import FragmentHost
from tandembus.node import broker_process, owned_store
from tandembus.node.broker_process import BrokerProcess
from tandembus.node.catalog_wire import SNAPSHOT
from tandembus.node.child_process import ChildProcess
from tandembus.node.control_server import ControlServer
from tandembus.node.orders import Orders
from tandembus.node.remote_store import RemoteStore
from tandembus.node.run_folder import RunFolder
from tandembus.node.store_folders import store_folder
from tandembus.node.supervisor import ProcessId, Role, Supervisor
from tandembus.store.folder_lock import FolderLock
from tandembus.store.memory_records import MemoryRecords
from tests.covers import covers

KEY = secrets.token_bytes(32)
BROKER = ProcessId(Role.BROKER, 0)
COMES_WITHIN_S = 20.0
NOW = 1_700_000_000.0
LIMITS = Limits(catalog_map_size_bytes=16 << 20)
STORES = 2


async def comes(condition: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + COMES_WITHIN_S
    while not condition():
        assert time.monotonic() < give_up_at, "it did not come"
        await asyncio.sleep(0.005)


def _start_nothing(_: ProcessId) -> ChildProcess:
    raise AssertionError("nobody is started here")


class Stage:
    """A supervisor that takes this very process for its broker 0, which owns both stores."""

    def __init__(self, data: Path) -> None:
        self.settings = ServeSettings(data=data, brokers=1, stores=STORES, limits=LIMITS)
        self.catalog = Catalog(MemoryRecords(), NOW)
        self.followers = Followers(self.catalog)
        self.catalog.listeners.append(lambda change, _events: self.followers.publish(change))
        self.supervisor = Supervisor([BROKER], _start_nothing, SystemClock(), 0.0, 5.0)
        self.supervisor.processes[BROKER].lives.started(os.getpid(), time.monotonic())
        self.server = ControlServer(KEY, self.supervisor)
        self.server.follow = self.followers.follow
        self.server.unfollow = self.followers.leave
        self.stores = [RemoteStore(index, 0, self.server) for index in range(STORES)]
        self.administration = Administration(
            "shop", self.catalog, dict(enumerate(self.stores)), range(STORES), self.followers, LIMITS, SystemClock()
        )
        self.process = BrokerProcess(Orders(self.settings, KEY, 0, STORES))
        self.running: asyncio.Task[int] | None = None

    async def start(self) -> None:
        await self.server.start(RunFolder(self.settings.data).control_socket)
        self.running = asyncio.create_task(self.process.run())

    async def until_serving(self) -> None:
        await comes(lambda: any(one.is_serving for one in self.server.processes()))

    def is_available(self, store: int) -> bool:
        """To administration, and to front ends."""
        return self.stores[store].failure() is None and store in self.process._served

    async def close(self) -> None:
        await self.server.ask_to_stop([BROKER])
        if self.running is not None:
            assert await asyncio.wait_for(self.running, COMES_WITHIN_S) == 0
        self.followers.stop()
        await self.server.stop()


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async def look_once(folder: Path) -> None:
        await owned_store.until_free(folder, 0.0)

    monkeypatch.setattr(broker_process, "until_free", look_once)
    with tempfile.TemporaryDirectory(prefix="tb") as folder:
        stage = Stage(Path(folder))
        yield stage
        await stage.close()


def occupied(stage: Stage, store: int) -> FolderLock:
    """Somebody of an earlier life is still there."""
    folder = store_folder(stage.settings.data, store)
    folder.mkdir(parents=True)
    return FolderLock(folder)


@covers("P1", "P18")
async def test_a_subscription_made_while_a_broker_is_cut_off_gets_what_is_sent_from_then_on(stage: Stage) -> None:
    await stage.start()
    await stage.until_serving()
    topic = await stage.administration.create_topic(TopicDescription("news", enable_partitioning=True))
    for index, key in enumerate(topic.fragment_keys):
        assert await stage.process._stores[topic.stores[index]].host.open_by_key(key) is not None
    (process,) = stage.server.processes()

    copies = stage.process._copies
    assert copies._durable is not None
    disk = copies._durable._writing

    async def hang_and_cut_off() -> None:
        """The broker knows of it, and cannot write it down before its connection is gone."""
        async with disk:
            await comes(lambda: copies.version == stage.catalog.version)
            process.cut_off(FragmentUnavailable("not confirmed in time"))
            await comes(lambda: not stage.process._link.is_serving)

    hanging: list[asyncio.Future[None]] = []

    def is_made(_change: object, _events: object) -> None:
        if stage.catalog.find_subscription("news", "audit") is not None and not hanging:
            hanging.append(asyncio.ensure_future(hang_and_cut_off()))

    stage.catalog.listeners.insert(0, is_made)
    entry = await stage.administration.create_subscription(SubscriptionDescription("news", "audit"))
    assert not process.is_serving
    await hanging[0]
    await stage.until_serving()
    for index, key in enumerate(topic.fragment_keys):
        fan_out = stage.process._stores[topic.stores[index]].broker.by_key[key].fan_out
        assert fan_out is not None
        assert list(fan_out.subscriptions) == [entry.fragment_key + index]


@covers("P3")
async def test_a_store_that_opens_while_its_broker_is_joining_is_served(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_process, "HOUSEKEEPING_S", 3_600.0)
    start, has_begun, may_go_on = FragmentHost.start, asyncio.Event(), asyncio.Event()

    async def slowly(host: FragmentHost) -> None:
        if host.store == 1:
            has_begun.set()
            await may_go_on.wait()
        await start(host)

    monkeypatch.setattr(FragmentHost, "start", slowly)
    lock = occupied(stage, 0)
    await stage.start()
    await has_begun.wait()
    lock.release()
    await comes(lambda: stage.process._stores[0].is_open)
    may_go_on.set()
    await stage.until_serving()
    await comes(lambda: stage.is_available(0))
    for name in ("a", "b"):
        await stage.administration.create_queue(QueueDescription(name))
    assert {entry.stores for entry in stage.catalog.queues()} == {(0,), (1,)}


@covers("P3")
async def test_a_store_that_fails_while_it_is_hosted_takes_out_its_share_only_and_is_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_process, "HOUSEKEEPING_S", 0.05)
    start, may_start, tries = FragmentHost.start, asyncio.Event(), 0

    async def failing(host: FragmentHost) -> None:
        nonlocal tries
        if host.store == 0 and not may_start.is_set():
            tries += 1
            raise StoreUnavailable("the disk is gone again")
        await start(host)

    monkeypatch.setattr(FragmentHost, "start", failing)
    lock = occupied(stage, 0)
    await stage.start()
    await stage.until_serving()
    lock.release()
    await comes(lambda: tries >= 2)
    assert not stage.process.broken.is_set()
    assert stage.is_available(1)
    assert not stage.is_available(0)
    assert stage.stores[0].failure() is not None, "nobody is to make an entity there"
    may_start.set()
    await comes(lambda: stage.is_available(0))


@covers("P1", "F6")
async def test_copies_that_could_not_be_written_are_written_whole_by_the_housekeeping(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell_snapshot(peer: object, _value: object) -> object:
        return stage.server.of(peer).hand_out([await stage.catalog.snapshot()])  # type: ignore[arg-type]

    monkeypatch.setattr(broker_process, "HOUSEKEEPING_S", 0.05)
    stage.server.handlers.calls[SNAPSHOT] = tell_snapshot
    await stage.start()
    await stage.until_serving()
    copies = stage.process._copies
    assert copies._durable is not None
    copies._durable.keep_only("another namespace")
    assert copies.is_behind()
    await stage.administration.create_queue(QueueDescription("orders"))
    await comes(lambda: not copies.is_behind() and copies.version == stage.catalog.version)
