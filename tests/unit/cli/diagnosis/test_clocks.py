"""The clock by itself, beside the stores, and beside a namespace that runs."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import formatdate
from pathlib import Path

import pytest

from tandembus.cli.data_folder import ServedNamespace
from tandembus.cli.diagnosis.clocks import examine
from tandembus.cli.diagnosis.finding import Finding, Level
from tandembus.cli.diagnosis.served import Served
from tandembus.clock import ManualClock
from tests.unit.cli.diagnosis.told import about, assert_ok, assert_told

NOW = datetime(2030, 6, 1, tzinfo=timezone.utc).timestamp()
STOPPED = Served(None, None)


@dataclass
class WaitingClock:
    """Of a process that has to wait for the processor after some looks."""

    waits_s: list[float]
    at: float = field(default=0.0)

    def now(self) -> float:
        return NOW + self._look()

    def now_ms(self) -> int:
        return int(self.now() * 1000)

    def monotonic(self) -> float:
        return self._look()

    def _look(self) -> float:
        seen = self.at
        self.at += self.waits_s.pop(0) if self.waits_s else 0.0
        return seen


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A port where the first who comes is answered with this."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_answer, args=(listening, answer))
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def _answer(listening: socket.socket, answer: bytes) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(65_536)
        connection.sendall(answer)


def dated(date: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n".encode()


def namespace_clock(data: Path, answer: bytes) -> Finding:
    with answering(answer) as port:
        running = Served(os.getpid(), ServedNamespace("bus", "127.0.0.1", 1, None, port))
        return about("namespace", examine(data, running, ManualClock(NOW)))


def write_store(data: Path, written_at: float) -> None:
    folder = data / "stores" / "0"
    folder.mkdir(parents=True)
    (folder / "data.mdb").write_bytes(b"")
    os.utime(folder / "data.mdb", (written_at, written_at))


@pytest.mark.parametrize(
    ("now", "shown"),
    [
        (0.0, "1970-01-01"),
        (datetime(2024, 12, 31, tzinfo=timezone.utc).timestamp(), "2024-12-31"),
        (datetime(2100, 1, 2, tzinfo=timezone.utc).timestamp(), "2100-01-02"),
        (-5.0, "-5.0"),
        (1e15, "1000000000000000.0"),
    ],
)
def test_a_time_that_cannot_be_is_a_problem(tmp_path: Path, now: float, shown: str) -> None:
    finding = about("time", examine(tmp_path, STOPPED, ManualClock(now)))
    assert_told(finding, Level.PROBLEM, "time", f"it is {shown}", "Set the clock")


def test_a_clock_behind_the_newest_store_is_a_problem(tmp_path: Path) -> None:
    write_store(tmp_path, NOW + 3_600)
    finding = about("time", examine(tmp_path, STOPPED, ManualClock(NOW)))
    assert_told(finding, Level.PROBLEM, "time", "a store was written 3,600 s later", "Set the clock")


@pytest.mark.parametrize("ahead_s", [-86_400, 0, 59])
def test_a_clock_that_fits_the_stores_is_fine(tmp_path: Path, ahead_s: int) -> None:
    write_store(tmp_path, NOW + ahead_s)
    findings = list(examine(tmp_path, STOPPED, ManualClock(NOW)))
    assert_ok(about("time", findings), "time", "2030-06-01T00:00:00+00:00")
    assert_ok(about("steps", findings), "steps")
    assert len(findings) == 2


@pytest.mark.parametrize(("step_s", "text"), [(0.06, "+0.060 s"), (-7_200.0, "-7200.000 s")])
def test_a_wall_clock_that_is_set_meanwhile_is_told(tmp_path: Path, step_s: float, text: str) -> None:
    clock = ManualClock(NOW)
    findings = examine(tmp_path, STOPPED, clock)
    next(findings)
    clock.shift_wall(step_s)
    assert_told(next(findings), Level.WARNING, "steps", f"was set by {text}", "a time service slew the clock")


def test_time_that_passes_and_a_clock_that_is_slewed_are_no_step(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    findings = examine(tmp_path, STOPPED, clock)
    next(findings)
    clock.advance(3.0)
    clock.shift_wall(0.04)
    assert_ok(next(findings), "steps")


@pytest.mark.parametrize("looks", range(8))
def test_waiting_for_the_processor_between_two_looks_is_no_step(tmp_path: Path, looks: int) -> None:
    clock = WaitingClock([0.0] * looks + [0.5])
    assert_ok(about("steps", examine(tmp_path, STOPPED, clock)), "steps")


@pytest.mark.parametrize(("ahead_s", "text"), [(100, "+100 s from this one"), (-3, "-3 s from this one")])
def test_a_namespace_with_another_time_is_told(tmp_path: Path, ahead_s: int, text: str) -> None:
    finding = namespace_clock(tmp_path, dated(formatdate(NOW + ahead_s, usegmt=True)))
    assert_told(finding, Level.WARNING, "namespace", text, "Set both by a time service")


@pytest.mark.parametrize("ahead_s", [-2, 0, 2])
def test_a_namespace_whose_whole_seconds_are_near_agrees(tmp_path: Path, ahead_s: int) -> None:
    assert_ok(namespace_clock(tmp_path, dated(formatdate(NOW + ahead_s, usegmt=True))), "namespace", "agrees")


@pytest.mark.parametrize("answer", [dated("yesterday"), b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"])
def test_an_answer_without_a_time_is_told(tmp_path: Path, answer: bytes) -> None:
    finding = namespace_clock(tmp_path, answer)
    assert_told(finding, Level.WARNING, "namespace", "does not tell the time", "Is it really a namespace?")


@pytest.mark.parametrize("answer", [b"", b"AMQP\x00\x01\x00\x00", b"\r\n"])
def test_an_answer_that_is_no_http_is_a_problem(tmp_path: Path, answer: bytes) -> None:
    finding = namespace_clock(tmp_path, answer)
    assert_told(finding, Level.PROBLEM, "namespace", "of 127.0.0.1 does not answer", "Look at its log")


def test_a_namespace_that_nobody_reaches_is_a_problem_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        facts = ServedNamespace("bus", "127.0.0.1", 1, None, closed.getsockname()[1])
        findings = list(examine(tmp_path, Served(os.getpid(), facts), ManualClock(NOW)))
    assert_told(about("namespace", findings), Level.PROBLEM, "namespace", "does not answer", "tandembus topology")
    assert_ok(about("steps", findings), "steps")


def test_a_namespace_that_has_left_no_facts_is_not_asked(tmp_path: Path) -> None:
    findings = list(examine(tmp_path, Served(os.getpid(), None), ManualClock(NOW)))
    assert [one.subject for one in findings] == ["time", "steps"]
