"""`tandembus dashboard`, and the links that other commands print."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.cli.up import Side
from tandembus.config import load_settings
from tandembus.security.key_file import ensure_key
from tandembus.security.one_time_codes import OneTimeCodes
from tests.covers import covers

LINK = re.compile(r"http://localhost:(\d+)/#sign-in=([A-Za-z0-9_-]{43})")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data folder whose namespace has its port open."""
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        data = tmp_path / "tandembus-data"
        data.mkdir()
        facts = {"name": "shop", "host": "localhost", "amqp_port": 9, "amqps_port": 8, "http_port": port, "pid": 1}
        (data / "namespace.json").write_text(json.dumps(facts))
        yield data


def code_in(link: str) -> str:
    found = LINK.fullmatch(link)
    assert found is not None, link
    return found[2]


@covers("B4")
def test_each_link_is_a_new_one_and_good_once(served: Path) -> None:
    links = [CliRunner().invoke(main, ["dashboard"]).stdout.strip() for _ in range(2)]
    links.append(json.loads(CliRunner().invoke(main, ["dashboard", "--json", "--data", str(served)]).stdout)["link"])
    codes = OneTimeCodes(served)
    assert len(set(links)) == 3
    for link in links:
        assert codes.redeem(code_in(link), time.time())
        assert not codes.redeem(code_in(link), time.time())


@covers("B4")
def test_a_browser_is_opened_with_a_page_that_only_its_owner_reads_and_that_leads_to_it(
    served: Path, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o755)
    # In a process of its own: `webbrowser` looks for browsers once.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "BROWSER": f"{browser} %s"}
    command = [sys.executable, "-m", "tandembus", "dashboard", "--open"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    page = served / "run" / "sign-in.html"
    assert seen.read_text().strip() == page.as_uri()
    assert page.stat().st_mode & 0o777 == 0o600
    assert f'content="0;url={done.stdout.strip()}"' in page.read_text()


@covers("B4")
def test_of_a_namespace_that_does_not_run_there_is_no_link(served: Path) -> None:
    facts = json.loads((served / "namespace.json").read_text())
    with socket.create_server(("127.0.0.1", 0)) as door:
        facts["http_port"] = door.getsockname()[1]
    (served / "namespace.json").write_text(json.dumps(facts))
    result = CliRunner().invoke(main, ["dashboard"])
    assert (result.exit_code, result.stdout) == (5, "")
    assert "tandembus serve" in result.stderr
    assert not (served / "run").exists()
    assert CliRunner().invoke(main, ["dashboard", "--data", "elsewhere"]).exit_code == 3


@covers("B4")
def test_a_namespace_that_was_restored_and_not_served_since_is_told_as_such(tmp_path: Path) -> None:
    ensure_key(tmp_path)
    result = CliRunner().invoke(main, ["dashboard", "--data", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (3, "")
    assert "was restored, and not served since" in result.stderr
    assert "tandembus serve --data" in result.stderr


@covers("B4")
def test_each_side_of_a_pair_is_told_where_the_other_is(served: Path) -> None:
    one = Side("primary", "shop", served, 1, "2", 3, None)
    other = Side("secondary", "spare", Path("b"), 4, "5", 6, None)
    words = one.serve_command(other, None, 2)
    assert words[words.index("--partner-data") + 1] == "b"
    link = one.link()
    assert link is not None
    assert OneTimeCodes(served).redeem(code_in(link), time.time())
    assert other.link() is None


@covers("B4")
@pytest.mark.parametrize("text", ["nonsense", "Endpoint=sb://a/", "Endpoint=sb://a/;SharedAccessKey=c2VjcmV0"])
def test_a_partner_that_cannot_be_asked_is_wrong_usage_and_no_key_is_repeated(tmp_path: Path, text: str) -> None:
    result = CliRunner().invoke(main, ["serve", "--data", str(tmp_path / "data"), "--partner", text])
    assert result.exit_code == 2
    assert "partner" in result.stderr
    assert "c2VjcmV0" not in result.stderr
    assert not (tmp_path / "data").exists()


@covers("B4")
def test_of_a_partner_in_the_environment_and_one_in_a_flag_the_flag_counts(tmp_path: Path) -> None:
    environment = {"TANDEMBUS_PARTNER": "Endpoint=sb://a/;SharedAccessKeyName=n;SharedAccessKey=k"}
    settings = load_settings(None, environment, {"partner_data": tmp_path})
    assert (settings.partner, settings.partner_data) == (None, tmp_path)
