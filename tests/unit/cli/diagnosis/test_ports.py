"""Ports that are free, taken, served, and said to be served."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tandembus.cli.data_folder import ServedNamespace
from tandembus.cli.diagnosis.finding import Level
from tandembus.cli.diagnosis.ports import examine, served_port
from tandembus.cli.diagnosis.served import Served
from tandembus.config import ServeSettings
from tests.unit.cli.diagnosis.told import about, assert_ok, assert_told

HOST = "127.0.0.1"
STOPPED = Served(None, None)
SEES_PROCESSES = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who listens")


def settings_for(port: int, host: str = HOST) -> ServeSettings:
    return ServeSettings(host=host, amqp_port=port, http_port=0, amqps_port=None)


def running(port: int, pid: int | None = None) -> Served:
    return Served(pid or os.getpid(), ServedNamespace("bus", HOST, port, None, 0))


@pytest.fixture
def served() -> Iterator[int]:
    """A port on which this process listens."""
    with socket.create_server((HOST, 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that nobody else can have, and where nobody listens."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield bound.getsockname()[1]


@contextlib.contextmanager
def child(program: str) -> Iterator[int]:
    """A process that says when it is ready, and ends with the test."""
    command = [sys.executable, "-c", f"{program}\nprint(flush=True)\ninput()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_any_free_port_is_fine() -> None:
    findings = list(examine(settings_for(0), STOPPED))
    assert [one.subject for one in findings] == ["amqp", "http"]
    assert_ok(findings[0], "amqp", "any free port")


def test_a_port_that_is_free_is_fine() -> None:
    with socket.create_server((HOST, 0)) as listening:
        port = listening.getsockname()[1]
    assert_ok(about("amqp", examine(settings_for(port), STOPPED)), "amqp", f"{port}: free")


@SEES_PROCESSES
def test_a_port_that_is_taken_is_a_problem_that_names_who_has_it(served: int) -> None:
    finding = about("amqp", examine(settings_for(served), STOPPED))
    assert_told(finding, Level.PROBLEM, "amqp", f"(process {os.getpid()})", "another port with --amqp-port")


def test_a_port_that_is_taken_by_nobody_who_can_be_seen_is_a_problem(silent: int) -> None:
    finding = about("amqp", examine(settings_for(silent), STOPPED))
    assert_told(finding, Level.PROBLEM, "amqp", f"{HOST} port {silent} cannot be", "Choose another with --amqp-port")


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_of_an_address_that_is_not_this_machine_s_nobody_is_blamed(served: int, host: str) -> None:
    finding = about("amqp", examine(settings_for(served, host), STOPPED))
    assert_told(finding, Level.PROBLEM, "amqp", f"{host} port {served} cannot be listened on", "another --host")


def test_the_port_for_tls_is_looked_at_where_it_is_not_off(silent: int) -> None:
    settings = ServeSettings(host=HOST, amqp_port=0, http_port=0, amqps_port=silent)
    assert_told(about("amqps", examine(settings, STOPPED)), Level.PROBLEM, "amqps", str(silent), "--amqps-port")


@SEES_PROCESSES
def test_a_port_that_the_namespace_serves_is_fine_and_counts_before_the_one_asked_for(served: int) -> None:
    finding = about("amqp", examine(settings_for(1), running(served)))
    assert_ok(finding, "amqp", f"{served}: served by")
    assert f"(process {os.getpid()})" in finding.text


@SEES_PROCESSES
def test_a_port_that_another_process_has_while_the_namespace_runs_is_a_problem(served: int) -> None:
    with child("") as pid:
        finding = about("amqp", examine(settings_for(0), running(served, pid)))
    assert_told(finding, Level.PROBLEM, "amqp", f"{served}: taken by", "Stop it, or choose another port")


def test_a_port_where_nobody_listens_while_the_namespace_runs_is_told(silent: int) -> None:
    finding = about("amqp", examine(settings_for(0), running(silent)))
    assert_told(finding, Level.WARNING, "amqp", f"{silent}: the namespace is running, and nobody", "Look at its log")


def test_a_port_that_is_served_by_a_process_nobody_can_see_is_fine(served: int) -> None:
    finding = served_port("amqp", HOST, served, os.getpid(), pids=[])
    assert_ok(finding, "amqp", f"{served}: served; by which process cannot be told")


@SEES_PROCESSES
def test_a_process_with_a_name_that_is_no_text_is_named_all_the_same() -> None:
    program = (
        "import socket\n"
        "open('/proc/self/comm', 'wb').write(b'caf\\xc3')\n"
        "listening = socket.create_server(('127.0.0.1', 47311))"
    )
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    with child(program.replace("47311", str(port))) as pid:
        finding = about("amqp", examine(settings_for(port), STOPPED))
        assert_told(finding, Level.PROBLEM, "amqp", f"taken by caf\ufffd (process {pid})", "Stop it")
        finding = about("amqp", examine(settings_for(0), running(port)))
        assert_ok(finding, "amqp", f"(process {pid})")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "bus.example.com"])
def test_an_address_that_other_machines_reach_is_told(host: str) -> None:
    finding = about("address", examine(settings_for(0, host), STOPPED))
    assert_told(finding, Level.WARNING, "address", f"{host} is reached from other machines", "Let a firewall pass only")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_an_address_of_this_machine_alone_is_fine(host: str) -> None:
    assert "address" not in [one.subject for one in examine(settings_for(0, host), STOPPED)]
