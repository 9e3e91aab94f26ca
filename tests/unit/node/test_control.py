"""Control connections over real sockets: joining, following, confirming, being cut off and coming back."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tandembus.clock import SystemClock
from tandembus.errors import BusError, FragmentUnavailable, StoreUnavailable, Unauthorized
from tandembus.interconnect.handshake import Party
from tandembus.interconnect.peer import Peer, connect_peer
from tandembus.namespace.catalog_change import CatalogChange
from tandembus.namespace.store_port import CatalogFollower
from tandembus.node import control_server
from tandembus.node.child_process import ChildProcess
from tandembus.node.control_link import ControlLink
from tandembus.node.control_server import ControlServer
from tandembus.node.supervision import ProcessState
from tandembus.node.supervisor import ProcessId, Role, Supervisor
from tests.covers import covers

KEY = secrets.token_bytes(32)
BROKER = ProcessId(Role.BROKER, 1)
COMES_WITHIN_S = 10.0


async def comes(condition: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + COMES_WITHIN_S
    while not condition():
        assert time.monotonic() < give_up_at, "it did not come"
        await asyncio.sleep(0.005)


def change(version: int, is_whole: bool = False) -> CatalogChange:
    return CatalogChange(version, {b"q" + bytes([version]): {"version": version, "text": "ü", "at": 1.5}}, [], is_whole)


class Copy:
    """A copy of the catalog that remembers what it took, and can be made to hang or fail."""

    def __init__(self) -> None:
        self.version = 0
        self.taken: list[CatalogChange] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.failure: BusError | None = None

    def known(self) -> tuple[str, int]:
        return "n", self.version

    async def take(self, change: CatalogChange) -> None:
        await self.may_go_on.wait()
        if self.failure is not None:
            raise self.failure
        self.taken.append(change)
        self.version = change.version


class Stage:
    """A control server whose supervisor takes this very process for its broker 1."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "control.sock"
        self.supervisor = Supervisor([BROKER], _start_nothing, SystemClock(), 0.0, 5.0)
        self.supervisor.processes[BROKER].lives.started(os.getpid(), time.monotonic())
        self.server = ControlServer(KEY, self.supervisor)
        self.server.follow = self.follow
        self.missed: list[CatalogChange] = []
        self.followers: list[CatalogFollower] = []
        self.known: list[tuple[str, int]] = []
        self.server.unfollow = self.followers.remove
        self.copy = Copy()
        self.heard: list[tuple[str, object]] = []
        self.serving_count = 0
        self.cut_off_count = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def follow(self, follower: CatalogFollower, namespace_id: str, version: int) -> list[CatalogChange]:
        self.followers.append(follower)
        self.known.append((namespace_id, version))
        return self.missed

    def link(self, key: bytes = KEY) -> ControlLink:
        link = ControlLink(self.path, key, Role.BROKER, 1, self.copy, 5.0)
        link.on_told = self.hear
        link.on_serving = self.serving
        link.on_cut_off = self.cut_off
        link.status = lambda: {"stores": [1]}
        self.tasks.append(asyncio.create_task(link.run()))
        return link

    async def hear(self, name: str, value: object) -> None:
        await self.copy.may_go_on.wait()
        self.heard.append((name, value))

    async def serving(self) -> None:
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
        await self.server.stop()


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
    stage.missed = [change(3, is_whole=True), change(4)]
    await stage.server.tell("key", "k1")
    stage.link()
    await comes(lambda: stage.state is ProcessState.READY)
    assert stage.known == [("n", 0)]
    assert stage.copy.taken == stage.missed
    assert stage.heard == [("key", "k1")]
    assert stage.serving_count == 1
    process = stage.server.find(BROKER)
    assert process is not None
    assert process.status == {"stores": [1]}


@covers("P1")
async def test_a_link_waits_for_a_supervisor_that_is_not_there_yet(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.link()
    await asyncio.sleep(0.05)
    await stage.server.start(stage.path)
    await comes(lambda: stage.state is ProcessState.READY)
    await stage.close()


@covers("P1")
async def test_what_is_told_has_been_taken_when_the_telling_returns(stage: Stage) -> None:
    stage.link()
    await comes(lambda: stage.state is ProcessState.READY)
    await stage.server.tell("key", "k2")
    assert stage.heard == [("key", "k2")]
    await stage.followers[0].take(change(1))
    assert stage.copy.version == 1


@covers("P1")
async def test_who_does_not_confirm_in_time_is_cut_off_and_must_catch_up_before_it_serves_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "CONFIRM_S", 0.2)
    link = stage.link()
    await comes(lambda: link.is_serving)
    stage.copy.may_go_on.clear()
    stage.missed = [change(7, is_whole=True)]
    first = stage.followers[0]
    await stage.server.tell("key", "k3")
    await comes(lambda: stage.cut_off_count == 1)
    assert not link.is_serving
    assert first not in stage.followers
    await comes(lambda: stage.followers)
    assert not link.is_serving, "it has not taken what it missed"
    stage.copy.may_go_on.set()
    await comes(lambda: link.is_serving)
    assert stage.copy.version == 7
    assert stage.heard[-1] == ("key", "k3")


async def test_a_process_that_cannot_take_what_it_missed_does_not_serve(stage: Stage) -> None:
    stage.missed = [change(1)]
    stage.copy.failure = StoreUnavailable("no")
    stage.link()
    await comes(lambda: len(stage.known) >= 2)
    assert stage.serving_count == 0
    stage.copy.failure = None
    await comes(lambda: stage.serving_count == 1)


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


async def test_who_has_another_key_is_not_let_in(stage: Stage) -> None:
    link = stage.link(secrets.token_bytes(32))
    await asyncio.sleep(0.1)
    assert not link.is_serving
    assert stage.server.processes() == []


async def test_a_second_connection_of_a_process_takes_the_place_of_the_first(stage: Stage) -> None:
    first = stage.link()
    await comes(lambda: first.is_serving)
    peer = await connect_peer(stage.path, KEY, Party("broker", {"index": 1, "pid": os.getpid()}))
    await comes(lambda: stage.cut_off_count == 1)
    assert len(stage.server.processes()) <= 1
    await peer.close()
