"""The unmodified JavaScript SDK: other habits than Python's, over one connection for all its links."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.shapes import on_every_shape

JS = Path(__file__).parent / "js"
NODE = shutil.which("node")

pytestmark = [
    on_every_shape,
    pytest.mark.skipif(
        NODE is None or not (JS / "node_modules" / "@azure" / "service-bus").exists(),
        reason="needs node and @azure/service-bus: `make install` brings them where npm is",
    ),
]

SCENARIOS: dict[str, dict[str, Any]] = {
    "properties": {},
    "bodiesOfAllKinds": {},
    "sections": {},
    "anIdForEachMessage": {},
    "batches": {},
    "tooLarge": {},
    "unknownQueue": {},
    "receiveAndDelete": {},
    "batchesOfAReceiver": {},
    "subscription": {},
    "iteration": {},
    "deadLetters": {},
    "complete": {},
    "abandon": {},
    "defer": {},
    "deferredInVain": {"max_delivery_count": 1},
    "renew": {},
    "lapse": {"lock_duration": timedelta(seconds=1)},
    "peek": {},
    "schedule": {},
    "due": {},
}
"""By name, with what is special about its queue."""


class Seen:
    """What the scenarios saw, and what they left behind. One run for all: starting Node costs more than they do."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._prefix = f"javascript-{uuid.uuid4().hex[:8]}-"
        for name, settings in SCENARIOS.items():
            bus.admin.create_queue(self._prefix + name, **settings)
        environment = {
            **os.environ,
            "CONNECTION_STRING": bus.connection_string,
            "QUEUE_PREFIX": self._prefix,
            "SCENARIOS": ",".join(SCENARIOS),
        }
        assert NODE is not None
        run = subprocess.run(
            [NODE, "messaging.mjs"], cwd=JS, env=environment, capture_output=True, text=True, timeout=120
        )
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


@covers("B1")
def test_every_property_of_a_message_comes_back(seen: Seen) -> None:
    found = seen["properties"]
    assert found == {
        "body": {"json": [1, "two", None]},
        "messageId": "id-1",
        "correlationId": "correlation-1",
        "subject": "subject",
        "to": "destination",
        "replyTo": "answers",
        "replyToSessionId": "session of the answer",
        "contentType": "application/json",
        "partitionKey": "key",
        "timeToLive": 420_000,
        "applicationProperties": {
            "text": "t\u00e9xt",
            "int": 5,
            "long": 2**40,
            "double": 1.5,
            "true": True,
            "false": False,
            "date": 1_700_000_000_123,
            "none": None,
        },
        "deliveryCount": 0,
        "sequenceNumber": "1",
        "state": "active",
        "life": 420_000,
        "lock": True,
    }


@covers("B1", "M12")
def test_bodies_of_every_kind_and_size_arrive(seen: Seen) -> None:
    assert seen["bodiesOfAllKinds"] == [
        {"type": "data", "body": "00ff"},
        {"type": "data", "body": ""},
        {"type": "data", "body": None},
        {"type": "value", "body": "a value"},
        {"type": "sequence", "body": [1, "two"]},
        {"type": "data", "body": 200_000},
    ]


@covers("B1")
def test_the_sections_of_a_message_arrive_as_they_were_sent_with_the_lock_token(seen: Seen) -> None:
    found = sorted(seen["sections"], key=lambda one: len(one["own"]))
    for one in found:
        assert one.pop("token") == one.pop("lockToken").replace("-", "")
    assert found == [
        {"header": {}, "own": {}},
        {
            "header": {"durable": True, "priority": 7, "firstAcquirer": True},
            "own": {"x-hop": "first"},
            "footer": {"x-foot": "note"},
        },
    ]


@covers("P12", "B1")
def test_a_message_without_an_id_gets_one_and_can_be_settled(seen: Seen) -> None:
    first, second = seen["anIdForEachMessage"]
    assert re.fullmatch("[0-9a-f]{32}", first)
    assert re.fullmatch("[0-9a-f]{32}", second)
    assert first != second
    assert seen.counts("anIdForEachMessage") == Counts(0)


@covers("M12")
def test_a_batch_holds_what_fits(seen: Seen) -> None:
    assert seen["batches"] == {"limit": 262_144, "added": 5}
    assert seen.counts("batches") == Counts(5)


@covers("M12", "M13")
def test_a_message_too_large_is_refused_by_its_code(seen: Seen) -> None:
    assert seen["tooLarge"]["code"] == "MessageSizeExceeded"
    assert seen.counts("tooLarge") == Counts(1)


@covers("B1")
@pytest.mark.parametrize("who", ["sender", "receiver", "peek"])
def test_an_unknown_queue_is_recognised(seen: Seen, who: str) -> None:
    assert seen["unknownQueue"][who]["code"] == "MessagingEntityNotFound"


@covers("M2")
def test_receive_and_delete_takes_messages_for_good(seen: Seen) -> None:
    assert seen["receiveAndDelete"] == [f"message {number}" for number in range(3)]
    assert seen.counts("receiveAndDelete") == Counts(2)


@covers("M12")
def test_batch_receives_are_drained_and_go_on_over_the_same_link(seen: Seen) -> None:
    found = seen["batchesOfAReceiver"]
    assert found["empty"] == []
    assert found["parts"] == [[f"message {number}" for number in range(4)]] * 3
    assert found["sameLink"] is True


@covers("M1", "B1")
def test_a_subscription_gets_what_is_there_and_what_comes(seen: Seen) -> None:
    expected = [*(f"message {number}" for number in range(5)), "sent while subscribed"]
    assert sorted(seen["subscription"]) == sorted(expected)
    assert seen.counts("subscription") == Counts(0)


@covers("M12")
def test_messages_can_be_iterated_over(seen: Seen) -> None:
    assert seen["iteration"] == [f"message {number}" for number in range(4)]
    assert seen.counts("iteration") == Counts(0)


@covers("M3")
def test_dead_letters_tell_why_they_are_there(seen: Seen) -> None:
    first, second = seen["deadLetters"]
    assert (first["body"], first["reason"], first["description"]) == ("message 0", "tried", "in vain")
    assert first["properties"]["added"] == 7
    assert second["body"] == "message 1"
    assert "reason" not in second
    assert seen.counts("deadLetters") == Counts(0, dead=1)


@covers("M2", "M3")
def test_completed_messages_are_gone(seen: Seen) -> None:
    assert seen["complete"] == []
    assert seen.counts("complete") == Counts(0)


@covers("M3")
def test_an_abandoned_message_comes_back_with_changed_properties(seen: Seen) -> None:
    assert seen["abandon"] == {"count": 1, "properties": {"kept": "so", "changed": 7, "added": True}}


@covers("M3")
def test_deferred_messages_are_fetched_by_number_and_settled(seen: Seen) -> None:
    found = seen["defer"]
    assert found["fetched"] == [
        {
            "body": f"message {number}",
            "state": "deferred",
            "deliveryCount": 1,
            "applicationProperties": {"why": "later"},
        }
        for number in range(2)
    ]
    assert found["completed"]["code"] == "MessageNotFound"
    assert found["abandoned"] == 2
    assert seen.counts("defer") == Counts(1)


@covers("M2", "M3")
def test_a_defer_that_was_the_last_delivery_makes_a_dead_letter_with_the_changes_asked_for(seen: Seen) -> None:
    assert seen["deferredInVain"] == {
        "reason": "MaxDeliveryCountExceeded",
        "description": "Message could not be consumed after 1 delivery attempts.",
        "count": 1,
        "why": "later",
    }
    assert seen.counts("deferredInVain") == Counts(0, dead=1)


@covers("M2")
def test_a_lock_is_renewed_as_long_as_it_is_held(seen: Seen) -> None:
    found = seen["renew"]
    assert (found["isLater"], found["isKept"]) == (True, True)
    assert found["afterwards"]["code"] in ("MessageLockLost", "GeneralError")


@covers("M2")
def test_a_lapsed_lock_is_lost_and_the_message_comes_again(seen: Seen) -> None:
    assert seen["lapse"]["count"] == 1
    assert seen["lapse"]["lost"]["code"] == "MessageLockLost"
    assert seen.counts("lapse") == Counts(0)


@covers("M4")
def test_peeking_goes_on_from_where_it_was(seen: Seen) -> None:
    found = seen["peek"]
    assert found["first"] + found["next"] == [f"message {number}" for number in range(6)]
    assert found["from"] == ["message 5", "message 6"]
    assert found["behind"] == []
    assert found["withoutBody"] == 1
    assert seen.counts("peek") == Counts(7)


@covers("M5")
def test_messages_are_scheduled_and_cancelled(seen: Seen) -> None:
    found = seen["schedule"]
    assert (found["many"], found["states"], found["left"]) == (3, ["scheduled"] * 4, [])
    assert found["again"]["code"] == "MessageNotFound"
    assert seen.counts("schedule") == Counts(0)


@covers("M5")
def test_scheduled_messages_come_when_they_are_due(seen: Seen) -> None:
    assert seen["due"] == {
        "bodies": ["annotated", "scheduled"],
        "states": ["scheduled", "scheduled"],
        "inTime": True,
        "told": True,
    }
