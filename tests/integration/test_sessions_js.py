"""Sessions with the unmodified JavaScript SDK: many sessions over one connection."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.shapes import Shape, on_every_shape

JS = Path(__file__).parent / "js"
NODE = shutil.which("node")

pytestmark = [
    on_every_shape,
    pytest.mark.skipif(
        NODE is None or not (JS / "node_modules" / "@azure" / "service-bus").exists(),
        reason="needs node and @azure/service-bus: `make install` brings them where npm is",
    ),
]

SHORT = {"lock_duration": timedelta(seconds=2)}
SCENARIOS: dict[str, dict[str, Any]] = {
    "named": {},
    "next": {},
    "waiting": {},
    "none": {},
    "taken": {},
    "state": {},
    "settling": {},
    "renew": SHORT,
    "lost": SHORT,
    "quiet": SHORT,
    "subscribing": {},
    "receiveAndDelete": {},
    "mismatches": {},
}
"""By name, with what is special about its queue."""


class Seen:
    """One run for all: starting Node costs more than everything it does."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._prefix = f"sessions-{uuid.uuid4().hex[:8]}-"
        for name, settings in SCENARIOS.items():
            bus.admin.create_queue(self._prefix + name, requires_session=True, **settings)
        bus.admin.create_queue(self._prefix + "plain")
        environment = {**os.environ, "CONNECTION_STRING": bus.connection_string, "QUEUE_PREFIX": self._prefix}
        assert NODE is not None
        command = [NODE, "sessions.mjs"]
        run = subprocess.run(command, cwd=JS, env=environment, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stderr
        self._results: dict[str, Any] = json.loads(run.stdout)
        assert self._results.keys() == SCENARIOS.keys()

    def __getitem__(self, name: str) -> Any:
        result = self._results[name]
        assert not (isinstance(result, dict) and "failed" in result), result["failed"]
        return result

    def counts(self, name: str) -> Counts:
        return self._bus.counts(self._prefix + name)


@pytest.fixture(scope="module")
def seen(small_bus: Bus) -> Seen:
    return Seen(small_bus)


@covers("M7", "B1")
def test_a_named_session_gives_its_messages_and_says_until_when(seen: Seen) -> None:
    found = seen["named"]
    assert (found["sessionId"], found["bodies"], found["ids"]) == ("a", ["a1", "a2"], ["a", "a"])
    assert 50_000 < found["isLockedForAMinute"] <= 60_500
    assert seen.counts("named") == Counts(active=1)


@covers("M7", "B1")
def test_the_next_session_is_the_oldest_one_that_is_free(seen: Seen, shape: Shape) -> None:
    assert shape.as_sent(seen["next"]) == [["first", "1"], ["second", "2"]]


@covers("M7", "B1")
def test_a_waiting_accept_gets_a_session_that_comes_later(seen: Seen) -> None:
    assert seen["waiting"] == "late"


@covers("M7", "B1")
def test_an_accept_in_vain_is_a_time_out_and_a_held_session_cannot_be_locked(seen: Seen) -> None:
    assert seen["none"]["code"] == "ServiceTimeout"
    assert seen["taken"]["code"] == "SessionCannotBeLocked"


@covers("M7", "B1")
def test_a_session_keeps_its_state_beyond_its_receiver(seen: Seen) -> None:
    assert seen["state"] == {"before": None, "set": {"step": 5}, "kept": {"step": 5}, "cleared": None}


@covers("M7", "B1")
def test_every_settlement_works_in_a_session(seen: Seen) -> None:
    found = seen["settling"]
    assert found["again"] == ["1", 1, {"tried": True}]
    assert found["deferred"] == ["2", "deferred"]
    assert found["peeked"] == ["1", "2"]
    assert found["dead"] == ["3", "a", "enough"]
    assert seen.counts("settling") == Counts(active=0)


@covers("M7", "B1")
def test_a_renewed_session_is_kept_with_its_messages(seen: Seen) -> None:
    assert seen["renew"] is True
    assert seen.counts("renew") == Counts(active=0)


@covers("M7", "B1")
def test_a_lost_session_goes_to_the_next_with_its_messages(seen: Seen) -> None:
    found = seen["lost"]
    assert found["deliveryCount"] == 1
    assert found["settling"]["code"] == "SessionLockLost"
    assert found["state"]["code"] == "SessionLockLost"


@covers("M7", "B1")
def test_a_receiver_that_waits_longer_than_its_lock_ends_quietly(seen: Seen) -> None:
    assert seen["quiet"] == []


@covers("M7", "B1")
def test_a_subscribed_session_is_received_in_order(seen: Seen) -> None:
    assert seen["subscribing"] == list(range(20))
    assert seen.counts("subscribing") == Counts(active=0)


@covers("M7", "B1")
def test_receive_and_delete_in_a_session(seen: Seen) -> None:
    assert seen["receiveAndDelete"] == ["0", "1"]
    assert seen.counts("receiveAndDelete") == Counts(active=0)


@covers("M7", "B1")
def test_what_does_not_go_together_is_said_so(seen: Seen) -> None:
    found = seen["mismatches"]
    assert "SessionId" in found["noSession"]["message"]
    assert "requires sessions" in found["plainReceiver"]["message"]
    assert "Failed to create a receiver" in found["sessionReceiver"]["message"], "the SDK's own words for any refusal"
