"""Mistakes with the jobs on Spark that are told before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers

NOBODY = "Endpoint=sb://127.0.0.1:9/;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"


def told(arguments: list[str]) -> str:
    result = CliRunner().invoke(main, ["spark", *arguments])
    assert result.exit_code != 0
    return " ".join(result.output.split())


@covers("D3")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["capture", "orders"], "Missing option '--output'"),
        (["capture", "--output", "x"], "What is to be captured?"),
        (["capture", "orders", "--topic", "events", "--output", "x"], "What is to be captured?"),
        (["capture", "orders", "--create-subscription", "--output", "x"], "--create-subscription goes with --topic."),
        (["capture", "orders", "--compact", "x", "--output", "y"], "--compact takes what was captured, and no entity."),
    ],
)
def test_a_capture_that_makes_no_sense_is_refused(arguments: list[str], text: str) -> None:
    assert text in told([*arguments, "--connection-string", NOBODY])


@covers("D2")
def test_a_syphon_needs_a_checkpoint_and_two_namespaces() -> None:
    pytest.importorskip("pyspark")
    assert "Missing option '--checkpoint'" in told(["syphon", "--primary", NOBODY, "--secondary", NOBODY])
    assert "cannot be its own secondary" in told(
        ["syphon", "--primary", NOBODY, "--secondary", NOBODY, "--checkpoint", "x"]
    )


@covers("D2")
def test_a_syphon_without_backlog_queues_says_so(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    with EmbeddedNamespace(name="contoso") as primary, EmbeddedNamespace(name="secondary") as secondary:
        namespaces = ["--primary", primary.connection_string, "--secondary", secondary.connection_string]
        text = told(["syphon", *namespaces, "--checkpoint", str(tmp_path)])
    assert "There are no backlog queues of 'contoso' on the secondary." in text
    assert "SharedAccessKey" not in text
