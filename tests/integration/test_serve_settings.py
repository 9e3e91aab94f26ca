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


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--brokers", "-1"], "flag --brokers: -1 is below the least allowed value, 0"),
        (["--brokers", "65"], "flag --brokers: 65 is above the largest allowed value, 64"),
        (["--front-ends", "2"], "brokers must be 1 or more"),
    ],
)
@covers("M13", "P1")
def test_processes_that_cannot_be_are_refused_before_anything_is_made(
    data_folder: Path, flags: list[str], said: str
) -> None:
    result = CliRunner().invoke(main, ["serve", "--data", str(data_folder), *flags])
    assert result.exit_code != 0
    assert said in " ".join(result.output.split())
    assert not data_folder.exists()
