"""Spares of a whole namespace: what becomes of it when they die or hang."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tandembus.config import ServeSettings
from tandembus.node import supervisor_node
from tandembus.node.launching import Launch
from tandembus.node.supervision import START_TIMEOUT_S, ProcessState
from tandembus.node.supervisor import ProcessId, Role
from tandembus.node.supervisor_node import SupervisorNode
from tandembus.node.waiting import comes_true
from tests.covers import covers

BROKER = ProcessId(Role.BROKER, 0)
COMES_WITHIN_S = START_TIMEOUT_S / 2


class Serving:
    """One broker, and one spare."""

    def __init__(self, folder: Path) -> None:
        settings = ServeSettings(
            data=folder, amqp_port=0, amqps_port=None, http_port=0, brokers=1, spare_brokers=1, heartbeat_timeout_s=2.0
        )
        self.launch = Launch(settings)
        self.launch.start_brokers()
        self.node = SupervisorNode(settings, self.launch)

    async def loaded_spare(self) -> int:
        """Its process."""
        assert await comes_true(lambda: bool(self.launch._spares), COMES_WITHIN_S)
        (spare,) = self.launch._spares
        assert await comes_true(spare.is_loaded, COMES_WITHIN_S)
        return spare.pid

    async def is_served_by_another(self, *ended: int) -> bool:
        lives = self.node.supervisor.processes[BROKER].lives
        return await comes_true(
            lambda: lives.state is ProcessState.READY and lives.pid not in ended, within_s=COMES_WITHIN_S
        )


@pytest.fixture
async def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serving]:
    monkeypatch.setattr(supervisor_node, "LOOK_AFTER_SPARES_S", 0.05)
    serving = Serving(tmp_path)
    await serving.node.start()
    yield serving
    await serving.node.stop()
    assert serving.launch._spares == []


@covers("P3")
async def test_a_spare_that_dies_by_itself_is_replaced(serving: Serving) -> None:
    first = await serving.loaded_spare()
    os.kill(first, signal.SIGKILL)
    assert await comes_true(lambda: [one.pid for one in serving.launch._spares] != [first], COMES_WITHIN_S)
    second = await serving.loaded_spare()
    broker = serving.node.supervisor.processes[BROKER].lives.pid
    assert broker is not None
    os.kill(broker, signal.SIGKILL)
    assert await serving.is_served_by_another(broker)
    assert serving.node.supervisor.processes[BROKER].lives.pid == second


@covers("P3")
async def test_a_spare_that_hangs_keeps_the_stores_out_for_the_heartbeat_timeout_only(serving: Serving) -> None:
    spare = await serving.loaded_spare()
    os.kill(spare, signal.SIGSTOP)
    process = serving.node.supervisor.processes[BROKER]
    broker = process.lives.pid
    assert broker is not None
    os.kill(broker, signal.SIGKILL)
    assert await serving.is_served_by_another(broker, spare)
    assert process.lives.restart_count == 2, "the spare was tried, and given up"
