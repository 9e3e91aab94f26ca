"""The program between namespaces in processes of their own, which are killed under it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tandembus.client import ReceiveMode, connect
from tandembus.client.administration import Administration
from tandembus.client.messages import payload_of
from tandembus.clock import SystemClock
from tandembus.pairing.aliases import backlog_path
from tandembus.pairing.client_ports import ClientBacklog, ClientPrimary, SharedConnection
from tandembus.pairing.payloads import to_backlog
from tandembus.pairing.runtime import Runtime
from tandembus.pairing.syphon import Syphon
from tandembus.pairing.syphon_observer import SyphonFigures
from tandembus.pairing.syphon_rules import SyphonSettings
from tests.covers import covers
from tests.integration.serving import RunningNamespace, start_namespace
from tests.integration.syphons import PATIENCE_S, at_work, bodies, numbered, until

COUNT = 1500
QUEUE = backlog_path("contoso", 0)
IN_HAND = 500


class Namespaces:
    """A primary and a secondary that can die and come back at the same place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.primary = start_namespace(folder / "primary", "--name", "contoso")
        self.secondary = start_namespace(folder / "secondary", "--name", "secondary")

    async def fill(self, count: int = COUNT) -> None:
        async with Administration(self.primary.connection_string) as primary:
            await primary.create_queue("orders")
        async with Administration(self.secondary.connection_string) as secondary:
            await secondary.create_queue(QUEUE)
        async with await connect(self.secondary.connection_string) as bus:
            payloads = [to_backlog(payload_of(each), "orders") for each in numbered(count)]
            await (await bus.sender(QUEUE)).send_batches(payloads, 100)

    async def syphon(self) -> Process:
        command = [sys.executable, "-m", "tandembus", "syphon", "--primary", self.primary.connection_string]
        command += ["--secondary", self.secondary.connection_string, "--backlog-queues", "1"]
        command += ["--primary-name", "contoso"]
        return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL, env=dict(os.environ))

    @asynccontextmanager
    async def syphoning(self) -> AsyncIterator[Syphon]:
        """One in this process, stopped in order at the end."""
        runtime = Runtime(SystemClock())
        secondary, primary = [
            SharedConnection(partial(connect, each.connection_string, timeout_s=5.0))
            for each in (self.secondary, self.primary)
        ]
        backlog, settings = ClientBacklog(secondary, QUEUE), SyphonSettings(quiet_s=0.1)
        syphon = Syphon([backlog], ClientPrimary(primary), settings, SyphonFigures(runtime.clock), runtime)
        try:
            async with at_work(syphon):
                yield syphon
        finally:
            await secondary.close()

    def restart(self, name: str) -> None:
        dead: RunningNamespace = getattr(self, name)
        setattr(self, name, start_namespace(self._folder / name, "--name", name, port=dead.port))

    async def home_count(self) -> int:
        async with Administration(self.primary.connection_string) as primary:
            return (await primary.get_queue("orders")).counts.active or 0

    async def are_home(self, count: int) -> bool:
        return await self.home_count() >= count

    async def all_home(self) -> list[int]:
        found: list[int] = []
        async with await connect(self.primary.connection_string) as bus:
            receiver = await bus.receiver("orders", mode=ReceiveMode.RECEIVE_AND_DELETE)
            while some := await receiver.receive(1000, 0.5):
                found += bodies(some)
        return found


@covers("N11", "N12")
@pytest.mark.timeout(120)
async def test_namespaces_that_are_killed_lose_nothing_on_the_way(tmp_path: Path) -> None:
    both = Namespaces(tmp_path)
    await both.fill()
    process = await both.syphon()
    try:
        await until(lambda: both.are_home(1))
        both.primary.kill()
        both.restart("primary")
        await until(lambda: both.are_home(1))
        both.secondary.kill()
        both.restart("secondary")
        await until(lambda: both.are_home(COUNT), patience_s=90.0)
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.communicate(), PATIENCE_S)
        found = await both.all_home()
    finally:
        if process.returncode is None:
            process.kill()
    assert set(found) == set(range(COUNT))
    repeated = [number for number, count in Counter(found).items() if count > 1]
    assert len(repeated) <= 2 * IN_HAND
    both.primary.stop()
    both.secondary.stop()


async def has_dead(syphon: Syphon) -> bool:
    return bool(syphon.dead_destinations)


async def has_none_dead(*syphons: Syphon) -> bool:
    return not any(each.dead_destinations for each in syphons)


@covers("N11", "N12")
@pytest.mark.timeout(120)
async def test_a_lead_arrives_once_though_the_secondary_is_restarted_under_two_syphons(tmp_path: Path) -> None:
    """The first one holds it, and has nothing to ask the secondary while the primary is away; the other one waits for
    messages, and gets it unless the first one is as quick."""
    both = Namespaces(tmp_path)
    await both.fill(1)
    both.primary.kill()
    async with both.syphoning() as first:
        await until(partial(has_dead, first))
        async with both.syphoning() as other:
            both.secondary.kill()
            await asyncio.to_thread(both.restart, "secondary")
            await asyncio.to_thread(both.restart, "primary")
            await until(partial(both.are_home, 1))
            await until(partial(has_none_dead, first, other))
    assert await both.all_home() == [0]
    both.primary.stop()
    both.secondary.stop()
