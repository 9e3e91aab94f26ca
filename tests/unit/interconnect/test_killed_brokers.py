"""A broker in a process of its own, killed while it is sent to and received from."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tandembus.broker.locks import COMPLETE
from tandembus.clock import SystemClock
from tandembus.errors import BusError, FragmentUnavailable, MessageLockLost
from tandembus.interconnect.channel_settings import ChannelSettings
from tests.covers import covers
from tests.unit.broker.one_queue import Answer, body_of, message
from tests.unit.interconnect.broker_child import KEYS
from tests.unit.interconnect.two_ends import FrontEnd, Receiver, settle, stage, turns, until

ROOT = Path(__file__).resolve().parents[3]


class Child:
    def __init__(self, data: Path, path: Path) -> None:
        self._data = data
        self._path = path
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> Child:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.unit.interconnect.broker_child",
            str(self._data),
            str(self._path),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])},
        )
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"ready\n"
        return self

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def is_stopped(self) -> bool:
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    async def kill(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


@pytest.fixture
async def child(run_folder: Path) -> AsyncIterator[Child]:
    child = await Child(run_folder / "data", run_folder / "socket").start()
    yield child
    await child.kill()


@pytest.fixture
async def front_end(child: Child, run_folder: Path) -> AsyncIterator[FrontEnd]:
    # A busy machine takes its time to start a process again.
    patient = ChannelSettings(in_doubt_wait_s=60.0, fragment_timeout_s=120.0)
    front_end = await FrontEnd(run_folder / "socket", SystemClock(), patient).start()
    yield front_end
    await front_end.stop()


class RoundRobin:
    """Sends each message to one fragment after the other until one takes it."""

    def __init__(self, front_end: FrontEnd) -> None:
        self.channel = front_end.channel
        self.traffics = [front_end.traffic(key, key - KEYS[0]) for key in KEYS]
        self.turn = 0
        self.failures: list[BusError] = []

    async def send(self, body: str) -> None:
        while True:
            self.turn += 1
            error = await stage(self.traffics[self.turn % len(self.traffics)], message(body)).wait()
            if error is None:
                return
            if not isinstance(error, FragmentUnavailable):
                self.failures.append(error)
                return
            assert await self.channel.until_up(30.0)


async def receive_all(front_end: FrontEnd, expected: int) -> list[str]:
    found: list[str] = []
    assert await front_end.channel.until_up(30.0), "what is down has nothing, and says so at once"
    for key in KEYS:
        receiver = Receiver(front_end.traffic(key)).attach()
        receiver.want(100_000, True)
        await until(lambda receiver=receiver: receiver.drain_count == 1, 30.0)  # type: ignore[misc]
        found += receiver.bodies
    assert len(found) >= expected
    return found


@covers("P3", "P13", "P15")
async def test_a_broker_killed_under_load_loses_nothing_and_doubles_nothing(child: Child, front_end: FrontEnd) -> None:
    chance = random.Random(5)
    robin = RoundRobin(front_end)
    bodies = [f"m{number}" for number in range(1000)]
    left = iter(bodies)

    async def sender() -> None:
        for body in left:
            await robin.send(body)

    senders = asyncio.gather(*[sender() for _ in range(40)])
    for _ in range(3):
        kill_at = robin.turn + chance.randrange(50, 250)
        await until(lambda kill_at=kill_at: robin.turn >= kill_at, 30.0)  # type: ignore[misc]
        await child.kill()
        await child.start()
    await senders
    assert robin.failures == []
    assert sorted(await receive_all(front_end, len(bodies))) == sorted(bodies)


@covers("P6")
async def test_a_broker_killed_while_it_is_received_from_loses_nothing(child: Child, front_end: FrontEnd) -> None:
    traffic = front_end.traffic()
    bodies = {f"m{number}" for number in range(400)}
    answers = [stage(traffic, message(body)) for body in bodies]
    assert [await answer.wait() for answer in answers] == [None] * len(bodies)
    receiver = Receiver(traffic).attach()
    done: list[str] = []
    seen = 0
    for round_number in range(1000):
        if len(done) == len(bodies):
            break
        receiver.want(50)
        await until(lambda: len(receiver.messages) > seen, 30.0)  # noqa: B023
        settled: dict[str, Answer] = {}
        while seen < len(receiver.messages):
            body, lock = body_of(receiver.messages[seen]), receiver.locks[seen]
            seen += 1
            try:
                settled[body] = settle(traffic, lock, COMPLETE)
            except MessageLockLost:
                continue  # of an earlier life
        if round_number in (1, 4):
            await child.kill()
            await child.start()
            assert await front_end.channel.until_up(30.0)
        for body, answer in settled.items():
            error = await answer.wait()
            assert error is None or isinstance(error, MessageLockLost)
            if error is None:
                done.append(body)
    assert sorted(done) == sorted(bodies), "each is completed once"


@covers("P15")
async def test_a_stopped_broker_goes_on_where_it_was(child: Child, front_end: FrontEnd) -> None:
    traffic = front_end.traffic()
    assert await stage(traffic, message("a")).wait() is None
    child.signal(signal.SIGSTOP)
    await until(child.is_stopped)
    answers = [stage(traffic, message(f"b{number}", padding=100)) for number in range(200)]
    await turns()
    assert not any(answer.is_given for answer in answers)
    child.signal(signal.SIGCONT)
    assert [await answer.wait() for answer in answers] == [None] * 200
