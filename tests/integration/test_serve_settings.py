"""Where `serve` takes its settings from, and which it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tests.covers import covers
from tests.integration.serving import start_namespace


@covers("M13")
def test_environment_variables_reach_the_server(data_folder: Path) -> None:
    running = start_namespace(data_folder, environment={"TANDEMBUS_NAME": "from-the-environment"})
    try:
        assert json.loads((data_folder / "namespace.json").read_text())["name"] == "from-the-environment"
    finally:
        running.stop_in_peace()


@covers("M13")
def test_a_broken_environment_variable_is_refused_by_name(data_folder: Path) -> None:
    environment = {"TANDEMBUS_AMQP_PORT": "many"}
    result = CliRunner(env=environment).invoke(main, ["serve", "--data", str(data_folder)])
    assert result.exit_code != 0
    assert "TANDEMBUS_AMQP_PORT" in result.output


@pytest.mark.parametrize("count", ["1", "2"])
@covers("M13")
def test_broker_processes_are_refused_with_a_clear_message(data_folder: Path, count: str) -> None:
    result = CliRunner().invoke(main, ["serve", "--data", str(data_folder), "--brokers", count])
    assert result.exit_code != 0
    assert "--brokers must be 0" in result.output
    assert not data_folder.exists()
