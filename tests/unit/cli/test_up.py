"""`tandembus up`: what cannot be a pair is refused before anything is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.cli.command_process import described
from tandembus.cli.up import Side


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--secondary-name", "Primary"], "Both namespaces are called 'primary'"),
        (["--secondary-data", "./tandembus-data"], "Both namespaces keep their data"),
        (["--primary-http-port=7000", "--secondary-amqps-port=7000"], "Both namespaces ask for port 7000"),
        (["--secondary-amqp-port=5672"], "Both namespaces ask for port 5672"),
        (["--secondary-amqp-port=70000"], "--secondary-amqp-port"),
        (["--brokers", "-1"], "--brokers"),
    ],
)
def test_two_that_would_be_one_are_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["up", *options])
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [(0, "exit code 0"), (3, "exit code 3"), (-9, "ended by SIGKILL"), (-99, "ended by signal 99")],
)
def test_an_end_is_told_in_words(exit_code: int, words: str) -> None:
    assert described(exit_code) == words


@pytest.mark.parametrize(("amqps_port", "word"), [(8, "8"), (None, "off")])
def test_one_that_took_any_ports_is_started_again_on_the_same(
    tmp_path: Path, amqps_port: int | None, word: str
) -> None:
    facts = {"name": "shop", "host": "localhost", "amqp_port": 9, "amqps_port": amqps_port, "http_port": 7, "pid": 1}
    (tmp_path / "namespace.json").write_text(json.dumps(facts))
    again = Side("primary", "shop", tmp_path, 0, "0", 0, None).where_it_was()
    assert (again.amqp_port, again.amqps_port, again.http_port) == (9, word, 7)


@pytest.mark.parametrize("text", [None, "{"])
def test_a_folder_that_tells_no_ports_any_more_is_no_reason_to_end_the_other(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "namespace.json").write_text(text)
    side = Side("primary", "shop", tmp_path, 0, "off", 0, None)
    assert side.where_it_was() == side
