"""A front-end process beside a real catalog and control server, in one loop."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tandembus.clock import SystemClock
from tandembus.config import ServeSettings
from tandembus.node.child_process import ChildProcess
from tandembus.node.control_server import ControlServer
from tandembus.node.doors import Ports
from tandembus.node.front_door import FrontDoor
from tandembus.node.front_end_process import ROOT_KEY, FrontEndProcess
from tandembus.node.orders import Orders
from tandembus.node.run_folder import RunFolder
from tandembus.node.supervisor import ProcessId, Role, Supervisor
from tandembus.security.tls import TlsFiles
from tests.covers import covers

KEY = secrets.token_bytes(32)
FRONT_END = ProcessId(Role.FRONT_END, 1)
COMES_WITHIN_S = 20.0


async def comes(condition: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + COMES_WITHIN_S
    while not condition():
        assert time.monotonic() < give_up_at, "it did not come"
        await asyncio.sleep(0.005)


def a_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def _start_nothing(_: ProcessId) -> ChildProcess:
    raise AssertionError("nobody is started here")


class Stage:
    """A supervisor that takes this very process for its front end 1."""

    def __init__(self, data: Path) -> None:
        settings = ServeSettings(data=data, brokers=1, front_ends=2, amqps_port=None)
        self.supervisor = Supervisor([FRONT_END], _start_nothing, SystemClock(), 0.0, 5.0)
        self.supervisor.processes[FRONT_END].lives.started(os.getpid(), time.monotonic())
        self.server = ControlServer(KEY, self.supervisor)
        self.path = RunFolder(data).control_socket
        self.process = FrontEndProcess(Orders(settings, KEY, 1, 0, Ports(0, 0, None)))
        self.running: asyncio.Task[int] | None = None

    async def start(self) -> None:
        await self.server.start(self.path)
        self.running = asyncio.create_task(self.process.run())

    async def until_serving(self) -> None:
        await comes(lambda: any(one.is_serving for one in self.server.processes()))

    def root_keys(self) -> set[str | None]:
        return {policy.primary_key for policy in self.process._namespace.fixed_policies}

    async def close(self) -> None:
        await self.server.ask_to_stop([FRONT_END])
        if self.running is not None:
            assert await asyncio.wait_for(self.running, COMES_WITHIN_S) == 0
        await self.server.stop()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="tb") as folder:
        stage = Stage(Path(folder))
        yield stage
        await stage.close()


@covers("P1")
async def test_a_root_key_told_to_a_front_end_that_opens_its_doors_is_the_one_that_counts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, has_begun, may_go_on = FrontDoor.start, asyncio.Event(), asyncio.Event()

    async def slowly(door: FrontDoor, tls: TlsFiles) -> None:
        has_begun.set()
        await may_go_on.wait()
        await start(door, tls)

    monkeypatch.setattr(FrontDoor, "start", slowly)
    old, new = a_key(), a_key()
    await stage.server.tell(ROOT_KEY, old)
    await stage.start()
    await has_begun.wait()
    assert stage.root_keys() == {old}
    await stage.server.tell(ROOT_KEY, new)
    may_go_on.set()
    await stage.until_serving()
    assert stage.root_keys() == {new}
    await stage.server.tell(ROOT_KEY, old)
    assert stage.root_keys() == {old}
