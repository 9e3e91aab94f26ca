"""What `tandembus serve` says when it cannot start."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.node import launching
from tandembus.node.child_process import ChildProcess
from tandembus.store.folder_lock import FolderLock
from tests.covers import covers


def refused(data: Path, port: int) -> str:
    options = ["--data", str(data), "--amqp-port", str(port), "--http-port", "0", "--amqps-port", "off"]
    result = CliRunner().invoke(main, ["serve", *options])
    assert result.exit_code == 1
    return result.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--brokers", "-1"], "flag --brokers: -1 is below the least allowed value, 0"),
        (["--brokers", "65"], "flag --brokers: 65 is above the largest allowed value, 64"),
        (["--brokers", "two"], "'two' is not a valid integer"),
        (["--stores", "0"], "flag --stores: 0 is below the least allowed value, 1"),
        (["--front-ends", "2"], "brokers must be 1 or more"),
        (["--brokers", "1", "--front-ends", "0"], "flag --front-ends: 0 is below the least allowed value, 1"),
        (["--brokers", "1", "--restart-delay", "-1"], "flag --restart-delay: -1.0 is below the least allowed value"),
        (["--brokers", "1", "--heartbeat-timeout", "0"], "flag --heartbeat-timeout: 0.0 is below the least allowed"),
    ],
)
@covers("P1")
def test_a_topology_that_cannot_be_is_refused_before_anything_is_started(
    tmp_path: Path, options: list[str], told: str
) -> None:
    result = CliRunner().invoke(main, ["serve", "--data", str(tmp_path / "data"), *options])
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())
    assert not (tmp_path / "data").exists()


@covers("P1")
def test_a_data_folder_that_cannot_hold_several_processes_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    result = CliRunner().invoke(main, ["serve", "--data", str(tmp_path / "data"), "--brokers", "2"])
    assert result.exit_code == 1
    assert "--data chooses another data folder" in result.stderr


@covers("P1")
def test_a_data_folder_that_is_served_already_is_refused_before_any_process_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, ...]] = []

    def start_child(*names: str) -> ChildProcess:
        started.append(names)
        raise OSError("none is to be started")

    for name in ("start_child", "fork_child"):
        monkeypatch.setattr(launching, name, start_child)
    (tmp_path / "catalog").mkdir()
    lock = FolderLock(tmp_path / "catalog")
    result = CliRunner().invoke(main, ["serve", "--data", str(tmp_path), "--brokers", "2"])
    lock.release()
    assert result.exit_code == 1
    assert f"is in use by process {os.getpid()}" in result.stderr
    assert started == []


def test_a_data_folder_that_cannot_be_is_not_blamed_on_the_ports(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = refused(tmp_path / "file" / "data", 0)
    assert "--data" in told
    assert "--amqp-port" not in told


def test_a_port_that_is_taken_is_told_with_the_options_for_others(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refused(tmp_path / "data", port)
    assert re.search(rf"port {port}: taken by \S.* \(process {os.getpid()}\)", told)
    assert "--amqp-port 0 --http-port 0 --amqps-port 0" in told
    assert "--data" not in told
