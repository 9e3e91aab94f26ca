"""Prometheus itself reads what a namespace tells, set up as the documents say, and answers what the Grafana dashboard
asks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tests.covers import covers
from tests.integration.serving import RunningNamespace, serving
from tests.integration.syphons import wait_until
from tests.integration.test_metrics import fetch, token_of
from tests.ports import HOST, free_port
from tests.unit.node.metrics.test_documented import DOCS, expressions

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
NEEDS_PROMETHEUS = "prometheus is not installed: `make install` says why"
YAML = re.compile(r"^```yaml\n(# prometheus\.yml\n.*?)^```", re.MULTILINE | re.DOTALL)
VARIABLE = re.compile(r"\$\{?(\w+)\}?")
VALUES = {"__rate_interval": "1m", "job": ".*", "instance": ".*", "entity": ".*"}

pytestmark = pytest.mark.skipif(PROMETHEUS is None or PROMTOOL is None, reason=NEEDS_PROMETHEUS)


def documented_settings(running: RunningNamespace, token_file: Path) -> str:
    """The first example of docs/metrics.md, for this namespace."""
    text: str = YAML.findall((DOCS / "metrics.md").read_text())[0]
    for place, own in (
        ("/etc/prometheus/tandembus.token", str(token_file)),
        ("bus.example.com:5300", running.http_url.removeprefix("http://")),
        ("15s", "1s"),
    ):
        assert place in text
        text = text.replace(place, own)
    return text


def dashboard_queries() -> list[str]:
    """Of its panels; Grafana itself asks for the values of variables."""
    found = expressions(json.loads((DOCS / "grafana-dashboard.json").read_text()))
    return [VARIABLE.sub(lambda one: VALUES[one[1]], query) for query in found if "label_values" not in query]


class Prometheus:
    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, call: str, **parameters: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/api/v1/{call}?{urllib.parse.urlencode(parameters)}") as answer:
            return json.load(answer)["data"]

    def is_scraping(self) -> bool:
        try:
            targets = self.ask("targets")["activeTargets"]
        except OSError:
            return False  # it is starting
        assert all(target["lastError"] == "" for target in targets)
        return [target["health"] for target in targets] == ["up"]


@contextmanager
def prometheus(settings: Path, folder: Path) -> Iterator[Prometheus]:
    assert PROMETHEUS is not None
    address = f"{HOST}:{free_port()}"
    command = [PROMETHEUS, f"--config.file={settings}", f"--storage.tsdb.path={folder}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait()


def complaints(text: str) -> str:
    assert PROMTOOL is not None
    checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    return checked.stdout + checked.stderr or ("" if checked.returncode == 0 else f"exit {checked.returncode}")


@covers("B5")
async def test_a_scrape_is_what_prometheus_asks_for(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as running:
        async with Administration(running.connection_string, ca_path=str(running.ca_path)) as administration:
            await administration.create_queue("parts", QueueSettings(partitioning=True))
        _, _, text = await fetch(running, token_of(running))
    assert complaints(text) == ""


@covers("B5")
def test_prometheus_scrapes_with_the_documented_settings_and_answers_the_grafana_dashboard(tmp_path: Path) -> None:
    queries = dashboard_queries()
    with serving(tmp_path / "data") as running:
        token, settings = tmp_path / "token", tmp_path / "prometheus.yml"
        token.write_text(token_of(running))
        settings.write_text(documented_settings(running, token))
        with prometheus(settings, tmp_path) as watcher:
            wait_until(watcher.is_scraping)
            assert watcher.ask("query", query="tandembus_process_up")["result"][0]["value"][1] == "1"
            assert len(queries) > 40
            for query in queries:
                watcher.ask("query", query=query)  # raises where Prometheus does not understand it
