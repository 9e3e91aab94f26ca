"""F23: the processes of a query are killed, one after the other: nothing is lost, doubled, stranded or out of order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tandembus.client import OutgoingMessage, ReceivedMessage, ServiceBus, connect
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tests.covers import covers
from tests.integration.serving import RunningNamespace, die_with_the_tests, serving
from tests.scale import scaled
from tests.spark.killing import BILLING, DRIVER, EXECUTOR, READING, RESERVED, SENT, WORKER

ROOT = Path(__file__).parent.parent.parent
ROUNDS = scaled(ci=1, nightly=7, release=25)
"""Of eight kills each."""
MESSAGES = scaled(ci=600, nightly=3_000, release=8_000)
RECORDS = 40_000
SESSIONS = 20
WITHIN_S = 280
"""Spark is started on whatever machine there is."""


def _python_path() -> list[str]:
    return [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]


class Copying:
    """The query, started again and again on one checkpoint."""

    def __init__(self, namespace: RunningNamespace, folder: Path) -> None:
        self.namespace = namespace
        self._folder = folder
        (folder / "killed").mkdir()
        self.metered = folder / "meter"
        """The files of a meter, if a bill is to be made."""

    def run(self, kills: str, master: str) -> int:
        """The exit code of the driver."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *map(os.path.abspath, _python_path())]),
            "BUS": self.namespace.connection_string,
            "MASTER": master,
            "KILLS": kills,
            "KILLED_FOLDER": str(self._folder / "killed"),
            "CHECKPOINT": str(self._folder / "checkpoint"),
            "BATCH": str(MESSAGES // 6),
            **({"METERED": str(self.metered)} if self.metered.exists() else {}),
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
                return done.wait()
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


async def everywhere(namespace: RunningNamespace) -> set[int]:
    """What is in the backlog still, or home already."""
    async with await connect(namespace.connection_string) as bus:
        found = await all_of(bus, "backlog") + await all_of(bus, "copies")
        return {int(str(message.message_id)[1:]) for message in found}


async def check(namespace: RunningNamespace) -> None:
    async with await connect(namespace.connection_string) as bus:
        copies = await all_of(bus, "copies")
        numbers = [int(str(message.message_id)[1:]) for message in copies]
        assert sorted(numbers) == list(range(MESSAGES))
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


def meter(folder: Path) -> dict[str, int]:
    """Writes what a meter would have; returns the operations by entity."""
    folder.mkdir()
    names = {"namespace": "contoso", "operation": "send", "reason": "normal"}
    figures = {"calls": 1, "messages": 1, "bytes": 100}
    records = [
        {"second": 1_794_830_400 + n, "entity": f"q{n % 5}", "operations": n, **names, **figures}
        for n in range(RECORDS)
    ]
    (folder / "00000001.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return {f"q{queue}": sum(range(queue, RECORDS, 5)) for queue in range(5)}


@pytest.fixture(scope="module", params=range(ROUNDS))
def copying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copying]:
    """One query for all kills of a round: each goes on where the one before has left it."""
    folder = tmp_path_factory.mktemp("kills")
    with serving(folder / "data") as namespace:
        asyncio.run(create_queues(namespace))
        asyncio.run(send(namespace, 0, MESSAGES))
        yield Copying(namespace, folder)


@covers("F23", "D1")
@pytest.mark.chaos
@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize("moment", [RESERVED, READING, SENT])
def test_a_driver_that_is_killed_loses_nothing(copying: Copying, moment: str) -> None:
    assert copying.run(f"{DRIVER}@{moment}", "local[2]") == -signal.SIGKILL, copying.log
    assert asyncio.run(everywhere(copying.namespace)) == set(range(MESSAGES))


@covers("F23", "D1", "D4")
@pytest.mark.chaos
@pytest.mark.timeout(WITHIN_S)
def test_after_all_kills_every_message_is_home_once_and_in_order_and_the_bill_is_right(
    copying: Copying, tell: Callable[[str], None]
) -> None:
    operations = meter(copying.metered)
    kills = ",".join(f"{victim}@{moment}" for moment in (READING, SENT) for victim in (WORKER, EXECUTOR))
    assert copying.run(kills, "local-cluster[2,1,1024]") == 0, copying.log
    assert {*kills.split(","), f"{EXECUTOR}@{BILLING}"} <= copying.killed
    asyncio.run(check(copying.namespace))
    assert json.loads(copying.metered.with_name("bill.json").read_text()) == [RECORDS, 0, operations]
    tell(
        f"{MESSAGES} messages, {SESSIONS} sessions, {len(copying.killed)} kills: none lost, doubled, stranded or "
        "swapped, the bill unchanged"
    )
