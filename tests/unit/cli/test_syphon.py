"""`tandembus syphon`: what it does not even try."""

from __future__ import annotations

import json
import socket

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tests.covers import covers

ONE = "Endpoint=sb://one.example;SharedAccessKeyName=x;SharedAccessKey=eA=="
OTHER = "Endpoint=sb://other.example;SharedAccessKeyName=x;SharedAccessKey=eA=="


@covers("N11", "N12")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--primary", ONE, "--secondary", ONE], "cannot be its own secondary"),
        (["--primary", ONE, "--secondary", OTHER, "--primary-name", "../x"], "cannot be the name of a namespace"),
        (["--primary", ONE, "--secondary", OTHER, "--primary-name", "a/b"], "cannot be the name of a namespace"),
        (["--primary", ONE, "--secondary", OTHER, "--retry-interval", "5m"], "1 s to 2 min"),
        (["--primary", ONE, "--secondary", OTHER, "--retry-interval", "0s"], "1 s to 2 min"),
        (["--primary", ONE, "--secondary", OTHER, "--backlog-queues", "0"], "--backlog-queues"),
        (["--primary", ONE, "--secondary", "nonsense"], "connection string"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_asked(options: list[str], told: str) -> None:
    result = CliRunner().invoke(main, ["syphon", "--once", *options])
    assert result.exit_code == 2, result.output
    assert told in result.output


def test_a_port_for_metrics_that_is_taken_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ["--primary", ONE, "--secondary", OTHER, "--metrics-port", str(port), "--json"]
        result = CliRunner().invoke(main, ["syphon", "--once", *options])
    assert result.exit_code == 1, result.output
    error = json.loads(result.stderr.splitlines()[-1])["error"]
    assert f"port {port} of 127.0.0.1: Address already in use" in error["message"]
    assert "--metrics-port chooses another port" in error["advice"]
    assert json.loads(result.stdout)["moved"] == 0
