"""What the tests of the broker share."""

from __future__ import annotations

import pytest

from tandembus.broker import message_broker


@pytest.fixture(autouse=True)
def _reopens_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed store is opened again without the second that is waited in earnest."""
    monkeypatch.setattr(message_broker, "FIRST_REOPEN_S", 0.0)
