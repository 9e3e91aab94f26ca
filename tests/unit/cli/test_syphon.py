"""`tandembus syphon`: what it does not even try."""

from __future__ import annotations

import json
import socket

from click.testing import CliRunner

from tandembus.cli import main

ONE = "Endpoint=sb://one.example;SharedAccessKeyName=x;SharedAccessKey=eA=="
OTHER = "Endpoint=sb://other.example;SharedAccessKeyName=x;SharedAccessKey=eA=="


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
