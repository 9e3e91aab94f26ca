"""`tandembus doctor` against namespaces that run, that are stopped, and that have something wrong."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tests.integration.serving import RunningNamespace, serving


def doctor(*options: object, environment: dict[str, str] | None = None) -> tuple[int, dict[tuple[str, str], Any]]:
    """The exit code, and what was found, by area and subject."""
    result = CliRunner(env=environment).invoke(main, ["doctor", "--json", *map(str, options)])
    document = json.loads(result.stdout)
    levels = {"ok": 0, "warning": 9, "problem": 1}
    assert result.exit_code == levels[document["level"]], result.output
    assert all((one["advice"] is None) == (one["level"] == "ok") for one in document["findings"])
    return result.exit_code, {(one["area"], one["subject"]): one for one in document["findings"]}


def only_the_build_is_told(found: dict[tuple[str, str], Any]) -> bool:
    """Interpreted, it is told so."""
    return {place for place, one in found.items() if one["level"] != "ok"} <= {("installation", "build")}


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


def test_of_a_running_namespace_it_knows_the_processes_behind_each_port(brokers: RunningNamespace) -> None:
    _, found = doctor("--data", brokers.data)
    assert only_the_build_is_told(found), found
    text = found["ports", "amqp"]["text"]
    assert str(brokers.port) in text
    assert f"tandembus serve (process {brokers.process.pid})" in text
    assert "front-end 1" in text
    running = found["stores", "namespace"]["text"]
    assert f"process {brokers.process.pid}" in running
    assert "broker 0, broker 1" in running
    assert {"stores/0", "stores/1", "catalog"} <= {subject for area, subject in found if area == "stores"}
    assert "agrees" in found["clock", "namespace"]["text"]


def test_every_record_is_verified_when_asked_for(brokers: RunningNamespace) -> None:
    _, found = doctor("--data", brokers.data, "--deep")
    assert "every one verified" in found["stores", "stores/1"]["text"]


def test_of_a_stopped_namespace_everything_is_looked_at_too(stopped: Path) -> None:
    _, found = doctor("--data", stopped, *free_ports())
    assert only_the_build_is_told(found), found
    assert found["stores", "namespace"]["text"] == "not running"
    assert "ms" in found["disk", "sync"]["text"]
    assert {area for area, _ in found} == {
        "configuration", "ports", "disk", "clock", "limits", "stores", "installation"
    }  # fmt: skip


def test_before_the_first_start_nothing_is_made(tmp_path: Path) -> None:
    _, found = doctor("--data", tmp_path / "data", *free_ports())
    assert only_the_build_is_told(found), found
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_a_problem_and_names_who_has_it(stopped: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, found = doctor("--data", stopped, *free_ports("--amqp-port", port))
    assert code == 1
    assert f"{port}: taken by" in found["ports", "amqp"]["text"]
    assert f"process {os.getpid()}" in found["ports", "amqp"]["text"]


def test_keys_that_others_can_read_are_a_problem(stopped: Path) -> None:
    key = stopped / "key"
    key.chmod(0o644)
    try:
        code, found = doctor("--data", stopped, *free_ports())
    finally:
        key.chmod(0o600)
    assert code == 1
    assert f"chmod 600 {key}" in found["configuration", "keys"]["advice"]


@pytest.mark.parametrize(
    ("content", "text"),
    [("colour = 'red'", "colour: no such setting"), ("amqp_port = ", "not a TOML file"), ("brokers = 1000", "brokers")],
)
def test_settings_that_cannot_be_used_are_a_problem(tmp_path: Path, content: str, text: str) -> None:
    config = tmp_path / "tandembus.toml"
    config.write_text(content)
    code, found = doctor("--config", config)
    assert code == 1
    assert text in found["configuration", "settings"]["text"]


def test_a_variable_that_looks_like_a_slip_is_told(stopped: Path) -> None:
    code, found = doctor("--data", stopped, *free_ports(), environment={"TANDEMBUS_AMQP_PROT": "7"})
    assert code == 9
    assert found["configuration", "environment"]["advice"] == "Is TANDEMBUS_AMQP_PORT meant?"


def test_damage_is_a_problem(tmp_path: Path, stopped: Path) -> None:
    damaged = tmp_path / "data"
    for path in (Path("catalog", "data.mdb"), Path("stores", "0", "data.mdb")):
        (damaged / path).parent.mkdir(parents=True)
        (damaged / path).write_bytes((stopped / path).read_bytes())
    os.truncate(damaged / "stores" / "0" / "data.mdb", 5_000)
    code, found = doctor("--data", damaged, "--deep", *free_ports())
    assert code == 1
    assert "cut short" in found["stores", "stores/0"]["text"]
    assert found["stores", "catalog"]["level"] == "ok"
    code, found = doctor("--data", damaged, *free_ports())
    assert code == 1
    assert "cut short" in found["stores", "stores/0"]["text"]


def test_it_reads_well_without_json(stopped: Path) -> None:
    result = CliRunner().invoke(main, ["doctor", "--data", str(stopped), *map(str, free_ports())])
    assert result.exit_code in (0, 9)
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["area", "subject", "what", "was", "found"]
    assert any(line.split()[:3] == ["disk", "sync", "ok"] for line in lines)
