"""What callers must know is told where they look, and every name that is public is explained there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tandembus import pairing
from tandembus.pairing import sync
from tests.covers import covers

PAGE = " ".join((Path(__file__).parents[3] / "docs" / "pairing.md").read_text().split())


@covers("N15")
@pytest.mark.parametrize(
    "truth",
    [
        "Received is from the primary only",
        "Order may change, also within a session",
        "the primary may take new messages before the backlog is empty",
        "Session state lives on the primary",
        "Time to live starts anew there",
        "the message exists twice, with the same `message_id`",
    ],
)
def test_callers_are_told_the_truth(truth: str) -> None:
    assert truth in PAGE


@covers("N16", "N17")
@pytest.mark.parametrize("name", [name for name in pairing.__all__ if not name.startswith("Paired")])
def test_every_public_name_is_explained(name: str) -> None:
    assert name == "PairingEvent" or f"`{name}" in PAGE


def test_the_blocking_twin_has_the_same_names() -> None:
    assert sorted(sync.__all__) == sorted(pairing.__all__)
    for name in pairing.__all__:
        assert getattr(sync, name).__name__ == getattr(pairing, name).__name__


@covers("N17")
def test_without_the_sdk_it_is_said_what_to_install() -> None:
    lines = ["import sys", "sys.modules['azure'] = None", "import tandembus.pairing.aliases"]
    lines.append("from tandembus.pairing import pair_namespace")
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install tandembus[pairing]" in done.stderr
