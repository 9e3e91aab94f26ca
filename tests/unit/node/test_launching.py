"""Processes that are started when they are needed, or were loaded before."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tandembus.config import ServeSettings
from tandembus.node import launching
from tandembus.node.child_process import ChildProcess
from tandembus.node.launching import Launch
from tandembus.node.supervisor import ProcessId, Role
from tandembus.node.waiting import comes_true
from tests.covers import covers

BROKER = ProcessId(Role.BROKER, 0)
FRONT_END = ProcessId(Role.FRONT_END, 1)


@pytest.fixture
async def launch(tmp_path: Path) -> AsyncIterator[Launch]:
    launch = Launch(ServeSettings(data=tmp_path, brokers=2, front_ends=2, spare_brokers=2))
    yield launch
    await launch.end_spares()


def spare_pids(launch: Launch) -> list[int]:
    return [spare.pid for spare in launch._spares]


async def end(child: ChildProcess) -> None:
    child.kill()
    await asyncio.wait_for(child.wait(), 20)


@covers("P3")
async def test_a_loaded_spare_takes_the_place_of_a_broker_and_of_nobody_else(launch: Launch) -> None:
    launch.keep_spares()
    first, second = spare_pids(launch)
    front_end = launch._start_child(FRONT_END)
    assert front_end.pid not in (first, second)
    brokers = [launch._start_child(BROKER) for _ in range(3)]
    assert {child.pid for child in brokers[:2]} == {first, second}
    assert brokers[2].pid not in (first, second)
    assert spare_pids(launch) == []
    launch.keep_spares()
    assert len(spare_pids(launch)) == 2
    for child in (front_end, *brokers):
        await end(child)


async def test_a_spare_that_has_ended_takes_nobodys_place(launch: Launch) -> None:
    launch.keep_spares()
    await end(launch._spares[1])
    alive, ended = spare_pids(launch)
    launch.keep_spares()
    assert alive in spare_pids(launch)
    assert ended not in spare_pids(launch)
    assert len(spare_pids(launch)) == 2


@covers("P3")
async def test_a_spare_that_ends_by_itself_is_replaced_when_nothing_is_more_urgent(launch: Launch) -> None:
    launch.keep_spares()
    alive, ended = spare_pids(launch)
    is_urgent = True
    asked: list[bool] = []

    def may_start() -> bool:
        asked.append(is_urgent)
        return not is_urgent

    looking = asyncio.ensure_future(launch.look_after_spares(0.01, may_start))
    await end(launch._spares[1])
    before = len(asked)
    assert await comes_true(lambda: len(asked) > before + 1, 20)
    assert spare_pids(launch) == [alive, ended]
    is_urgent = False
    assert await comes_true(lambda: ended not in spare_pids(launch), 20)
    assert (len(spare_pids(launch)), spare_pids(launch)[0]) == (2, alive)
    looking.cancel()


async def test_spares_end_with_the_namespace(launch: Launch) -> None:
    launch.keep_spares()
    spares = list(launch._spares)
    await asyncio.wait_for(launch.end_spares(), 20)
    assert not any(spare.is_alive() for spare in spares)


@covers("P3")
async def test_a_machine_without_a_process_to_spare_keeps_none(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: str) -> ChildProcess:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    with monkeypatch.context() as machine:
        machine.setattr(launching, "start_child", refuse)
        launch.keep_spares()
        assert spare_pids(launch) == []
    launch.keep_spares()
    assert len(spare_pids(launch)) == 2
