"""What `tandembus serve` says when it cannot start."""

from __future__ import annotations

import socket
from pathlib import Path

from click.testing import CliRunner

from tandembus.cli import main


def refused(data: Path, port: int) -> str:
    options = ["--data", str(data), "--amqp-port", str(port), "--http-port", "0", "--amqps-port", "off"]
    result = CliRunner().invoke(main, ["serve", *options])
    assert result.exit_code == 1
    return result.stderr


def test_a_data_folder_that_cannot_be_is_not_blamed_on_the_ports(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = refused(tmp_path / "file" / "data", 0)
    assert "--data" in told
    assert "--amqp-port" not in told


def test_a_port_that_is_taken_is_told_with_the_options_for_others(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told = refused(tmp_path / "data", taken.getsockname()[1])
    assert "--amqp-port" in told
    assert "--data" not in told
