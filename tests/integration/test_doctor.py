"""`tandembus doctor` against namespaces that run, that are stopped, and that have something wrong."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tests.integration.serving import RunningNamespace, serving


def doctor(*options: object, environment: dict[str, str] | None = None) -> tuple[int, dict[tuple[str, str], Any]]:
    """Returns the exit code and the findings by area and subject."""
    result = CliRunner(env=environment).invoke(main, ["doctor", "--json", *map(str, options)])
    document = json.loads(result.stdout)
    levels = {"ok": 0, "warning": 9, "problem": 1}
    assert result.exit_code == levels[document["level"]], result.output
    assert all((one["advice"] is None) == (one["level"] == "ok") for one in document["findings"])
    return result.exit_code, {(one["area"], one["subject"]): one for one in document["findings"]}


def is_well(found: dict[tuple[str, str], Any]) -> bool:
    return {place for place, one in found.items() if one["level"] != "ok"} == set()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    with serving(tmp_path_factory.mktemp("doctor") / "data", "--brokers", "2", "--front-ends", "2") as namespace:
        yield namespace


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("stopped") / "data"
    with serving(data):
        pass
    return data


def free_ports(*options: object) -> tuple[object, ...]:
    return ("--amqp-port", 0, "--http-port", 0, "--amqps-port", "off", *options)


def test_a_running_namespace_is_named_with_its_process(brokers: RunningNamespace) -> None:
    _, found = doctor("--data", brokers.data)
    assert is_well(found), found
    assert found["ports", "amqp"]["text"] == f"{brokers.port}: served by this namespace (process {brokers.process.pid})"
    assert found["stores", "namespace"]["text"] == f"running (process {brokers.process.pid})"
    assert {"stores/0", "stores/1", "catalog"} <= {subject for area, subject in found if area == "stores"}


def test_every_record_is_verified_when_asked_for(brokers: RunningNamespace) -> None:
    _, found = doctor("--data", brokers.data, "--deep")
    assert "all verified" in found["stores", "stores/1"]["text"]


def test_a_stopped_namespace_is_well_in_every_area(stopped: Path) -> None:
    _, found = doctor("--data", stopped, *free_ports())
    assert is_well(found), found
    assert found["stores", "namespace"]["text"] == "not running"
    areas = {"configuration", "ports", "disk", "clock", "limits", "stores", "installation"}
    assert {area for area, _ in found} == areas


def test_before_the_first_start_nothing_is_created(tmp_path: Path) -> None:
    _, found = doctor("--data", tmp_path / "data", *free_ports())
    assert is_well(found), found
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_a_problem_and_names_the_process(stopped: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _, found = doctor("--data", stopped, *free_ports("--amqp-port", port))
    assert f"{port}: taken by" in found["ports", "amqp"]["text"]
    assert f"process {os.getpid()}" in found["ports", "amqp"]["text"]


@pytest.mark.parametrize(
    ("content", "text"),
    [("colour = 'red'", "colour: no such setting"), ("amqp_port = ", "not a TOML file"), ("brokers = 1000", "brokers")],
)
def test_settings_that_cannot_be_used_are_a_problem(tmp_path: Path, content: str, text: str) -> None:
    config = tmp_path / "tandembus.toml"
    config.write_text(content)
    _, found = doctor("--config", config)
    assert found["configuration", "settings"]["level"] == "problem"
    assert text in found["configuration", "settings"]["text"]


def test_a_variable_that_looks_like_a_slip_is_a_warning(stopped: Path) -> None:
    _, found = doctor("--data", stopped, *free_ports(), environment={"TANDEMBUS_AMQP_PROT": "7"})
    assert found["configuration", "environment"]["level"] == "warning"
    assert "TANDEMBUS_AMQP_PORT" in found["configuration", "environment"]["advice"]


def open_a_key(data: Path) -> None:
    (data / "key").chmod(0o644)


def lose_the_end_of_a_store(data: Path) -> None:
    os.truncate(data / "stores" / "0" / "data.mdb", 5_000)


def write_a_store_tomorrow(data: Path) -> None:
    tomorrow = (data / "stores" / "0" / "data.mdb").stat().st_mtime + 86_400
    os.utime(data / "stores" / "0" / "data.mdb", (tomorrow, tomorrow))


def break_the_certificate(data: Path) -> None:
    (data / "tls" / "server.pem").write_text("not a certificate")


def leave_a_restore_unfinished(data: Path) -> None:
    (data / "data.partial-1234").mkdir()
    (data / "data.partial-1234" / "catalog").touch()


@pytest.mark.parametrize(
    ("spoil", "area", "subject", "text"),
    [
        (open_a_key, "configuration", "keys", "other users can read"),
        (break_the_certificate, "configuration", "certificate", "cannot be used"),
        (leave_a_restore_unfinished, "disk", "check", "was not finished"),
        (write_a_store_tomorrow, "clock", "time", "a store was written"),
        (lose_the_end_of_a_store, "stores", "stores/0", "cut short"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--deep",)])
def test_a_data_folder_with_something_wrong_is_a_problem_that_is_named(
    tmp_path: Path,
    stopped: Path,
    spoil: Callable[[Path], None],
    area: str,
    subject: str,
    text: str,
    options: tuple[str, ...],
) -> None:
    data = tmp_path / "data"
    shutil.copytree(stopped, data)
    spoil(data)
    code, found = doctor("--data", data, *options, *free_ports())
    assert code == 1
    assert text in found[area, subject]["text"]
    assert found["stores", "catalog"]["level"] == "ok"


@pytest.mark.parametrize(
    ("limit", "subject", "level"),
    [("-n 512", "open files", "warning"), ("-v 4000000", "address space", "warning")],
)
def test_limits_of_the_system_that_are_too_low_are_named(stopped: Path, limit: str, subject: str, level: str) -> None:
    command = [sys.executable, "-m", "tandembus", "doctor", "--json", "--data", str(stopped), *map(str, free_ports())]
    done = subprocess.run(
        ["bash", "-c", f'ulimit {limit} && exec "$@"', "bash", *command], capture_output=True, text=True, check=False
    )
    levels = {one["subject"]: one["level"] for one in json.loads(done.stdout)["findings"]}
    assert levels[subject] == level


def test_it_reads_well_without_json(stopped: Path) -> None:
    result = CliRunner().invoke(main, ["doctor", "--data", str(stopped), *map(str, free_ports())])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["area", "subject", "what", "was", "found"]
    assert lines[-1] == "all is well"
