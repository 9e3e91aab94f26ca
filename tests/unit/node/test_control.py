"""Control connections over real sockets: joining, following, confirming, being cut off and coming back."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from tandembus.clock import SystemClock
from tandembus.descriptions import QueueDescription, SubscriptionDescription, TopicDescription, default_rule
from tandembus.errors import BusError, FragmentUnavailable, StoreUnavailable, Unauthorized
from tandembus.interconnect.handshake import Party
from tandembus.interconnect.peer import Peer, connect_peer
from tandembus.limits import Limits
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.catalog_change import CatalogChange, CatalogEvent, EntityCreated, EntityEnded
from tandembus.namespace.following import Followers
from tandembus.namespace.store_port import CatalogFollower
from tandembus.node import catalog_wire, control_link, control_server
from tandembus.node.catalog_copy import CatalogCopies, DurableCopies
from tandembus.node.catalog_wire import SNAPSHOT
from tandembus.node.child_process import ChildProcess
from tandembus.node.control_link import ControlLink
from tandembus.node.control_server import ControlServer
from tandembus.node.supervision import ProcessState
from tandembus.node.supervisor import ProcessId, Role, Supervisor
from tandembus.store.memory_records import MemoryRecords
from tests.covers import covers

KEY = secrets.token_bytes(32)
BROKER = ProcessId(Role.BROKER, 1)
COMES_WITHIN_S = 10.0
NOW = 1_700_000_000.0
LIMITS = Limits()
SIZE = 16 << 20


async def comes(condition: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + COMES_WITHIN_S
    while not condition():
        assert time.monotonic() < give_up_at, "it did not come"
        await asyncio.sleep(0.005)


class Stage:
    """A catalog whose control server's supervisor takes this very process for its broker 1, which keeps a copy."""

    def __init__(self, folder: Path) -> None:
        self.catalog = Catalog(MemoryRecords(), NOW)
        self._followers = Followers(self.catalog)
        self.catalog.listeners.append(lambda change, _events: self._followers.publish(change))
        self.path = folder / "control.sock"
        self.supervisor = Supervisor([BROKER], _start_nothing, SystemClock(), 0.0, 5.0)
        self.supervisor.processes[BROKER].lives.started(os.getpid(), time.monotonic())
        self.server = ControlServer(KEY, self.supervisor)
        self.server.follow = self.follow
        self.server.handlers.calls[SNAPSHOT] = self.tell_snapshot
        self.after_snapshot: Callable[[Peer], None] = lambda _peer: None
        self.followers: list[CatalogFollower] = []
        self.known: list[tuple[str, int]] = []
        self.server.unfollow = self.unfollow
        self.copies = CatalogCopies(lambda: DurableCopies([folder / "store"], SIZE))
        self.copies.on_changed = self.changed
        self.events: list[CatalogEvent] = []
        """What has come into effect here."""
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.failure: BusError | None = None
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.heard: list[tuple[str, object]] = []
        self.serving_count = 0
        self.cut_off_count = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def follow(self, follower: CatalogFollower, namespace_id: str, version: int) -> list[CatalogChange]:
        self.followers.append(follower)
        self.known.append((namespace_id, version))
        return await self._followers.follow(follower, namespace_id, version)

    def unfollow(self, follower: CatalogFollower) -> None:
        self.followers.remove(follower)
        self._followers.leave(follower)

    async def tell_snapshot(self, peer: Peer, _value: object) -> object:
        number = self.server.of(peer).hand_out([await self.catalog.snapshot()])
        self.after_snapshot(peer)
        return number

    async def changed(self, events: Sequence[CatalogEvent]) -> None:
        await self.may_go_on.wait()
        if self.failure is not None and events:
            raise self.failure
        self.events += events

    async def create_queue(self, name: str) -> None:
        entry = await self.catalog.begin_create(QueueDescription(name), LIMITS, NOW)
        await self.catalog.finish_create(entry, NOW)
        await self._followers.confirmed()

    def created(self) -> list[str]:
        """In effect here, in this order."""
        return [event.entry.description.path for event in self.events if isinstance(event, EntityCreated)]

    def link(self, key: bytes = KEY) -> ControlLink:
        link = ControlLink(self.path, key, Role.BROKER, 1, self.copies, 5.0)
        link.on_told = self.hear
        link.on_serving = self.serving
        link.on_cut_off = self.cut_off
        link.status = lambda: {"stores": [1]}
        self.tasks.append(asyncio.create_task(link.run()))
        return link

    async def hear(self, name: str, value: object) -> None:
        await self.may_go_on.wait()
        self.heard.append((name, value))

    async def serving(self) -> None:
        await self.may_open.wait()
        self.serving_count += 1

    def cut_off(self) -> None:
        self.cut_off_count += 1

    @property
    def state(self) -> ProcessState:
        return self.supervisor.processes[BROKER].lives.state

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self._followers.stop()
        await self.server.stop()
        self.copies.close()


def _start_nothing(_: ProcessId) -> ChildProcess:
    raise AssertionError("nobody is started here")


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path)
    await stage.server.start(stage.path)
    yield stage
    await stage.close()


@covers("P1")
async def test_a_process_takes_what_it_has_missed_before_it_serves(stage: Stage) -> None:
    await stage.create_queue("orders")
    await stage.server.tell("key", "k1")
    stage.link()
    await comes(lambda: stage.state is ProcessState.READY)
    assert stage.known == [("", -1)]
    assert stage.created() == ["orders"]
    assert stage.copies.version == stage.catalog.version
    assert stage.heard == [("key", "k1")]
    assert stage.serving_count == 1
    process = stage.server.find(BROKER)
    assert process is not None
    assert process.status == {"stores": [1]}


@covers("P1")
async def test_a_link_waits_for_a_supervisor_that_is_not_there_yet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tandembus.node")
    stage = Stage(tmp_path)
    stage.link()
    await comes(lambda: "no control connection" in caplog.text)
    await stage.server.start(stage.path)
    await comes(lambda: stage.state is ProcessState.READY)
    await stage.close()


@covers("P1")
async def test_what_is_told_has_been_taken_when_the_telling_returns(stage: Stage) -> None:
    stage.link()
    await comes(lambda: stage.state is ProcessState.READY)
    await stage.server.tell("key", "k2")
    assert stage.heard == [("key", "k2")]
    await stage.create_queue("orders")
    assert stage.created() == ["orders"]


@covers("P1", "P18")
async def test_who_does_not_confirm_in_time_is_cut_off_and_must_catch_up_before_it_serves_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "CONFIRM_S", 0.2)
    link = stage.link()
    await comes(lambda: link.is_serving)
    stage.may_go_on.clear()
    first = stage.followers[0]
    await stage.create_queue("orders")
    await stage.server.tell("key", "k3")
    await comes(lambda: stage.cut_off_count == 1)
    assert not link.is_serving
    assert first not in stage.followers
    await comes(lambda: stage.server.find(BROKER) is not None)
    assert not link.is_serving, "what it was told is not in effect"
    stage.may_go_on.set()
    await comes(lambda: link.is_serving)
    assert stage.created() == ["orders"], "once"
    assert stage.copies.version == stage.catalog.version
    assert stage.heard[-1] == ("key", "k3")


@covers("P1", "P18")
async def test_a_change_whose_teller_is_gone_at_once_comes_into_effect_all_the_same(stage: Stage) -> None:
    """A process that was paused reads the change and the end of its connection one after the other."""
    link = stage.link()
    await comes(lambda: link.is_serving)
    topic = await stage.catalog.begin_create_topic(TopicDescription("news"), LIMITS, NOW)
    await stage.catalog.finish_create(topic, NOW)
    audit = SubscriptionDescription("news", "audit")
    entry = await stage.catalog.begin_create_subscription(audit, [default_rule()], LIMITS, NOW)
    await stage._followers.confirmed()
    (process,) = stage.server.processes()
    await stage.catalog.finish_create(entry, NOW)
    while not process.peer._asked:  # noqa: ASYNC110 - at once, before the other end has read it
        await asyncio.sleep(0)
    process.peer.connection.flush()
    process.cut_off(FragmentUnavailable("not confirmed in time"))
    await comes(lambda: stage.serving_count == 2)
    assert stage.copies.view.find_subscription("news", "audit") is not None
    assert stage.created() == ["news", audit.path]
    assert stage.known[-1] == (stage.catalog.namespace_id, stage.catalog.version), "nothing was missing any more"


@covers("P1", "P18")
async def test_what_failed_to_come_into_effect_does_so_before_anybody_is_served_again(stage: Stage) -> None:
    link = stage.link()
    await comes(lambda: link.is_serving)
    stage.failure = StoreUnavailable("no")
    await stage.create_queue("orders")
    await comes(lambda: stage.cut_off_count == 1)
    assert stage.copies.view.find_queue("orders") is not None
    await comes(lambda: len(stage.known) >= 3)
    assert stage.serving_count == 1
    stage.failure = None
    await comes(lambda: stage.serving_count == 2)
    assert stage.created() == ["orders"]


@covers("P1")
async def test_who_is_still_joining_keeps_nobody_waiting_and_takes_what_came_before_it_serves(stage: Stage) -> None:
    await stage.create_queue("orders")
    stage.may_go_on.clear()
    link = stage.link()
    await comes(lambda: stage.followers)
    await asyncio.wait_for(stage.create_queue("more"), 1.0)
    await asyncio.wait_for(stage.server.tell("key", "k4"), 1.0)
    assert stage.serving_count == 0
    stage.may_go_on.set()
    await comes(lambda: link.is_serving)
    assert stage.created() == ["orders", "more"]
    assert stage.heard == [("key", "k4")]
    assert len(stage.known) == 1, "it was not cut off meanwhile"


@covers("P1")
async def test_a_snapshot_that_is_older_than_what_was_told_since_undoes_nothing(stage: Stage) -> None:
    link = stage.link()
    await comes(lambda: link.is_serving)
    await stage.create_queue("orders")
    deleting: list[asyncio.Future[object]] = []
    stage.after_snapshot = lambda _peer: deleting.append(
        asyncio.ensure_future(stage.catalog.delete_queue("orders", NOW))
    )
    told: list[CatalogChange] = []
    stage.catalog.listeners.append(lambda change, _events: told.append(change))
    fetch = link._fetch

    async def fetch_slowly(peer: Peer, number: object) -> list[CatalogChange]:
        fetched = await fetch(peer, number)
        await comes(lambda: told and stage.copies.version == told[-1].version)
        return fetched

    link._fetch = fetch_slowly  # type: ignore[method-assign]
    await link.take_snapshot()
    assert stage.copies.version == stage.catalog.version
    assert stage.copies.view.find_queue("orders") is None
    assert [type(event) for event in stage.events if isinstance(event, (EntityCreated, EntityEnded))] == [
        EntityCreated,
        EntityEnded,
    ]


@covers("P1")
async def test_a_catalog_that_fits_no_frame_is_joined_part_by_part(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_wire, "PART_BYTES", 4 * 1024)
    monkeypatch.setattr(control_link, "connect_peer", functools.partial(connect_peer, max_frame_bytes=16 * 1024))
    names = [f"queue-{number:03}" for number in range(100)]
    for name in names:
        await stage.create_queue(name)
    link = stage.link()
    await comes(lambda: link.is_serving)
    assert sorted(stage.created()) == names
    assert [entry.key for entry in stage.copies.view.queues()] == names
    await link.take_snapshot()
    assert stage.copies.version == stage.catalog.version


async def test_a_process_that_cannot_take_what_it_missed_does_not_serve(stage: Stage) -> None:
    await stage.create_queue("orders")
    stage.failure = StoreUnavailable("no")
    stage.link()
    await comes(lambda: len(stage.known) >= 2)
    assert stage.serving_count == 0
    stage.failure = None
    await comes(lambda: stage.serving_count == 1)
    assert stage.created() == ["orders"]


@covers("P3")
async def test_who_loses_its_connection_while_it_opens_its_doors_is_cut_off_at_once(stage: Stage) -> None:
    stage.may_open.clear()
    link = stage.link()
    await comes(lambda: link._may_be_met)
    (process,) = stage.server.processes()
    process.cut_off(FragmentUnavailable("not confirmed in time"))
    await comes(lambda: stage.cut_off_count == 1)
    assert not link.is_serving
    stage.may_open.set()
    await comes(lambda: link.is_serving)
    assert stage.cut_off_count == 1


async def test_who_ends_opens_its_doors_for_nobody_any_more(stage: Stage) -> None:
    link = stage.link()
    await comes(lambda: link.is_serving)
    link.stop_serving()
    (process,) = stage.server.processes()
    process.cut_off(FragmentUnavailable("not confirmed in time"))
    await comes(lambda: len(stage.known) == 2)
    await link.call(SNAPSHOT)
    assert (stage.serving_count, stage.cut_off_count) == (1, 0)
    assert not link.is_serving


@covers("P3")
async def test_a_supervisor_that_is_gone_is_served_for_no_longer_and_waited_for(stage: Stage) -> None:
    link = stage.link()
    await comes(lambda: link.is_serving)
    await stage.server.stop()
    await comes(lambda: not link.is_serving)
    assert stage.cut_off_count == 1
    with pytest.raises(FragmentUnavailable):
        await link.call("anything")
    await stage.server.start(stage.path)
    await comes(lambda: link.is_serving)
    assert stage.serving_count == 2


async def test_calls_reach_the_supervisor_and_its_refusals_come_back(stage: Stage) -> None:
    async def answer(peer: Peer, value: object) -> object:
        assert stage.server.of(peer).id == BROKER
        if value == "bad":
            raise StoreUnavailable("told why")
        return [value, 1]

    stage.server.handlers.calls["ask"] = answer
    link = stage.link()
    await comes(lambda: link.is_serving)
    assert await link.call("ask", "good") == ["good", 1]
    with pytest.raises(StoreUnavailable, match="told why"):
        await link.call("ask", "bad")


async def test_a_process_that_is_asked_to_stop_is_told(stage: Stage) -> None:
    link = stage.link()
    await comes(lambda: link.is_serving)
    await stage.server.ask_to_stop([BROKER, ProcessId(Role.FRONT_END, 1)])
    await asyncio.wait_for(link.stop_asked.wait(), COMES_WITHIN_S)


@pytest.mark.parametrize(
    ("role", "facts"),
    [
        ("broker", {"index": 1, "pid": 1}),
        ("broker", {"index": 2, "pid": os.getpid()}),
        ("front-end", {"index": 1, "pid": os.getpid()}),
        ("stranger", {"index": 1, "pid": os.getpid()}),
        ("broker", {}),
    ],
    ids=["another life", "another index", "another role", "no role", "nobody"],
)
async def test_only_living_processes_of_this_supervisor_are_let_in(
    stage: Stage, role: str, facts: dict[str, object]
) -> None:
    with pytest.raises(Unauthorized):
        await connect_peer(stage.path, KEY, Party(role, facts))


async def test_who_has_another_key_is_not_let_in(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tandembus.node")
    link = stage.link(secrets.token_bytes(32))
    await comes(lambda: "no control connection" in caplog.text)
    assert not link.is_serving
    assert stage.server.processes() == []


async def test_a_second_connection_of_a_process_takes_the_place_of_the_first(stage: Stage) -> None:
    first = stage.link()
    await comes(lambda: first.is_serving)
    peer = await connect_peer(stage.path, KEY, Party("broker", {"index": 1, "pid": os.getpid()}))
    await comes(lambda: stage.cut_off_count == 1)
    assert len(stage.server.processes()) <= 1
    await peer.close()
