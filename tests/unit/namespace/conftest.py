"""What the tests of a namespace share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandembus.broker import message_broker


@pytest.fixture(autouse=True)
def _reopens_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed store is opened again without the seconds that are waited in earnest."""
    monkeypatch.setattr(message_broker, "FIRST_REOPEN_S", 0.005)
    monkeypatch.setattr(message_broker, "LAST_REOPEN_S", 0.005)


@pytest.fixture
def run_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket's."""
    with tempfile.TemporaryDirectory(prefix="tb") as folder:
        yield Path(folder)
