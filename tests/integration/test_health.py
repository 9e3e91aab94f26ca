"""`tandembus health`, as health checks of containers and services run it."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path

from click.testing import CliRunner

from tandembus.cli import main
from tests.covers import covers
from tests.integration.serving import serving


def health(data: Path) -> tuple[int, str]:
    result = CliRunner(env={"TANDEMBUS_DATA": str(data)}).invoke(main, ["health"])
    return result.exit_code, result.output


@covers("M13")
def test_a_namespace_is_ready_until_it_stops(tmp_path: Path) -> None:
    assert health(tmp_path / "data")[0] == 3
    with serving(tmp_path / "data") as running:
        assert health(running.data) == (0, f"tandembus on localhost:{running.http_port} is ready\n")
    code, told = health(running.data)
    assert code == 5
    assert "does not answer" in told
    assert "Try:" in told


class _Starting(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(503)

    def log_message(self, format: str, *args: object) -> None:
        pass


@covers("M13")
def test_a_namespace_that_answers_503_is_not_ready(tmp_path: Path) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), _Starting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
        facts = {"name": "shop", "host": "localhost", "amqp_port": 9, "amqps_port": 8, "http_port": port}
        (tmp_path / "namespace.json").write_text(json.dumps(facts))
        assert health(tmp_path)[0] == 7
        server.shutdown()
