"""Where `serve` takes its settings from, and which it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tests.covers import covers
from tests.integration.serving import serving, start_namespace
from tests.integration.test_trust_stores import UNSHARE, needs_mounts


@covers("M13")
def test_environment_variables_reach_the_server(data_folder: Path) -> None:
    running = start_namespace(data_folder, environment={"TANDEMBUS_NAME": "from-the-environment"})
    try:
        assert json.loads((data_folder / "namespace.json").read_text())["name"] == "from-the-environment"
    finally:
        running.stop_in_peace()


@covers("M13")
def test_a_slip_in_the_name_of_a_variable_is_one_warning_and_what_kubernetes_makes_is_none(data_folder: Path) -> None:
    address = "10.0.0.1"
    environment = {
        "TANDEMBUS_AMQP_PROT": "7",
        "TANDEMBUS_PORT": f"tcp://{address}:5672",
        "TANDEMBUS_PORT_5672_TCP_ADDR": address,
        "TANDEMBUS_SERVICE_HOST": address,
        "TANDEMBUS_SERVICE_PORT_AMQP": "5672",
        "TANDEMBUS_BLUE_SERVICE_HOST": address,
    }
    with serving(data_folder, environment=environment) as running:
        warnings = [record["message"] for record in running.told_at("WARNING")]
    told = "environment variable TANDEMBUS_AMQP_PROT has no effect. Is TANDEMBUS_AMQP_PORT meant?"
    assert warnings == [told]


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


@needs_mounts
@pytest.mark.parametrize("options", [[], ["--brokers", "2"]], ids=["one process", "several"])
@pytest.mark.parametrize("is_new", [True, False], ids=["new", "served before"])
@covers("M13")
def test_on_a_read_only_file_system_the_start_says_what_to_do(
    data_folder: Path, options: list[str], is_new: bool
) -> None:
    data_folder.mkdir()
    if not is_new:
        with serving(data_folder):
            pass
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    data = data_folder / "data" if is_new else data_folder
    ports = ["--amqp-port", "0", "--http-port", "0", "--amqps-port", "off"]
    serve = [sys.executable, "-m", "tandembus", "serve", "--data", str(data), *ports, *options]
    ended = subprocess.run(
        [*UNSHARE, "sh", "-c", script, str(data_folder), *serve], capture_output=True, text=True, timeout=60
    )
    said = ended.stderr.splitlines()
    assert (ended.returncode, len(said)) == (1, 2), ended.stderr
    assert said[0].startswith("tandembus cannot start: ")
    assert "Read-only file system" in said[0]
    assert said[1] == "Try: --data chooses another data folder, one that this user may write to."
