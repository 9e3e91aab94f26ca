"""F23: the processes of a query are killed, one after the other: nothing is lost, doubled, stranded or out of order."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tandembus.client import OutgoingMessage, ReceivedMessage, ServiceBus, connect
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tests.covers import covers
from tests.integration.serving import RunningNamespace, die_with_the_tests, serving
from tests.scale import scaled

ROOT = Path(__file__).parent.parent.parent
MESSAGES = scaled(ci=600, nightly=20_000, release=200_000)
SESSIONS = 20
RUN_WITHIN_S = 300
DRIVER_KILLS = ("driver@reserved", "driver@reading", "driver@sent")


def _python_path() -> list[str]:
    return [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]


class Copying:
    """The query, started again and again on one checkpoint."""

    def __init__(self, namespace: RunningNamespace, folder: Path) -> None:
        self._namespace = namespace
        self._folder = folder
        (folder / "killed").mkdir()

    def run(self, kills: str, master: str) -> int:
        """The exit code of the driver."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *map(os.path.abspath, _python_path())]),
            "BUS": self._namespace.connection_string,
            "MASTER": master,
            "KILLS": kills,
            "KILLED_FOLDER": str(self._folder / "killed"),
            "CHECKPOINT": str(self._folder / "checkpoint"),
            "BATCH": str(MESSAGES // 6),
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_WORKER_DIR": str(self._folder / "work"),
        }
        command = [sys.executable, "-c", "from tests.spark.killing import main; main()"]
        log = self._folder / "log"
        with log.open("w") as output:
            done = subprocess.Popen(
                command,
                cwd=self._folder,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=die_with_the_tests,
            )
            try:
                return done.wait(RUN_WITHIN_S)
            finally:
                if done.poll() is None:
                    os.killpg(done.pid, signal.SIGKILL)

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    @property
    def killed(self) -> set[str]:
        return {each.name for each in (self._folder / "killed").iterdir()}


async def send(namespace: RunningNamespace, first: int, last: int) -> None:
    async with await connect(namespace.connection_string) as bus:
        sender = await bus.sender("backlog")
        await sender.send_many(
            [OutgoingMessage(str(n), message_id=f"m{n}", session_id=f"s{n % SESSIONS}") for n in range(first, last)]
        )


async def all_of(bus: ServiceBus, entity: str) -> list[ReceivedMessage]:
    node = await bus.management(entity)
    found: list[ReceivedMessage] = []
    while page := await node.peek(found[-1].sequence_number + 1 if found else 1, 1000):
        found += page
    return found


async def check(namespace: RunningNamespace, count: int) -> None:
    async with await connect(namespace.connection_string) as bus:
        copies = await all_of(bus, "copies")
        numbers = [int(str(message.message_id)[1:]) for message in copies]
        assert sorted(numbers) == list(range(count))
        for session in range(SESSIONS):
            arrived = [number for number in numbers if number % SESSIONS == session]
            assert arrived == sorted(arrived), f"session {session} is out of order"
        assert await all_of(bus, "backlog") == []
        owners = await (await bus.reservations("backlog")).owners()
        assert sum(one.message_count for one in owners) == 0


async def create_queues(namespace: RunningNamespace) -> None:
    async with Administration(namespace.connection_string) as administration:
        await administration.create_queue("backlog", QueueSettings(requires_session=True, partitioning=True))
        await administration.create_queue("copies", QueueSettings(requires_duplicate_detection=True))


@covers("F23", "D1")
@pytest.mark.chaos
@pytest.mark.timeout(900)  # five starts of Spark, on whatever machine there is
def test_killed_drivers_workers_and_executors_lose_nothing(tmp_path: Path, tell: Callable[[str], None]) -> None:
    with serving(tmp_path / "data") as namespace:
        asyncio.run(create_queues(namespace))
        copying = Copying(namespace, tmp_path)
        asyncio.run(send(namespace, 0, MESSAGES // 2))
        for kill in DRIVER_KILLS:
            assert copying.run(kill, "local[2]") == -signal.SIGKILL, copying.log
        assert copying.run("worker@reading,worker@sent", "local[2,4]") == 0, copying.log
        asyncio.run(send(namespace, MESSAGES // 2, MESSAGES))
        assert copying.run("executor@reading,executor@sent", "local-cluster[2,1,1024]") == 0, copying.log
        assert len(copying.killed) == 7, copying.killed
        asyncio.run(check(namespace, MESSAGES))
    tell(f"{MESSAGES} messages in {SESSIONS} sessions, 7 kills: none lost, doubled, stranded or out of order")
