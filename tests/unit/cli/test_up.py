"""`tandembus up`: what cannot be a pair is refused before anything is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandembus.cli.processes import described
from tandembus.cli.up import Side


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
