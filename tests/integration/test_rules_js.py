"""The rule manager of the unmodified JavaScript SDK: the one client that changes rules over AMQP."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.management import CorrelationRuleFilter

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

NO_ACTION: dict[str, str] = {}


class Seen:
    """One run for all: starting Node costs more than everything it does."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.topic = bus.make_topic("managed", "many", "filtered")
        environment = {**os.environ, "CONNECTION_STRING": bus.connection_string, "TOPIC": self.topic}
        assert NODE is not None
        run = subprocess.run([NODE, "rules.mjs"], cwd=JS, env=environment, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stderr
        self._results: dict[str, Any] = json.loads(run.stdout)

    def __getitem__(self, name: str) -> Any:
        result = self._results[name]
        assert "failed" not in result, result["failed"]
        return result


@pytest.fixture(scope="module")
def seen(bus: Bus) -> Seen:
    return Seen(bus)


@covers("M9", "B1")
def test_a_subscription_begins_with_its_default_rule(seen: Seen) -> None:
    found = seen["lifeOfRules"]
    assert found["first"] == [{"name": "$Default", "filter": {"sqlExpression": "1=1"}, "action": NO_ACTION}]
    assert found["none"] == []


@covers("M9", "B1")
def test_rules_come_back_as_they_were_made(seen: Seen) -> None:
    acting, correlation, sql = seen["lifeOfRules"]["listed"]
    assert sql == {"name": "sql", "filter": {"sqlExpression": "color = 'red'"}, "action": NO_ACTION}
    assert acting == {
        "name": "acting",
        "filter": {"sqlExpression": "quantity > 1"},
        "action": {"sqlExpression": "SET quantity = quantity + 1"},
    }
    assert (correlation["name"], correlation["action"]) == ("correlation", NO_ACTION)
    assert correlation["filter"] == {
        "correlationId": "c",
        "messageId": "m",
        "to": "t",
        "replyTo": "r",
        "subject": "s",
        "sessionId": "session",
        "replyToSessionId": "answers",
        "contentType": "text/plain",
        "applicationProperties": {
            "text": "x",
            "number": 5,
            "double": 1.5,
            "yes": True,
            "at": "2023-11-14T22:13:20.000Z",
        },
    }


@covers("M9", "B1")
def test_refusals_are_the_errors_that_the_sdk_has_for_them(seen: Seen) -> None:
    found = seen["lifeOfRules"]
    assert found["again"]["code"] == "MessagingEntityAlreadyExists"
    assert found["absent"]["code"] == "MessagingEntityNotFound"
    assert "at character 9: there is no function upper()" in found["wrong"]["message"]
    assert "system properties cannot be removed" in found["wrongAction"]["message"]
    assert found["left"] == ["acting", "sql"]


@covers("M9", "B1")
def test_many_rules_are_enumerated_in_pages(seen: Seen) -> None:
    found = seen["manyRules"]
    assert found["listed"] == ["$Default", *found["names"]]
    assert found["pages"] == [50, 50, 21]


@covers("M9", "B1")
def test_messages_go_where_the_rules_say(seen: Seen) -> None:
    found = seen["filtering"]
    assert found["bodies"] == ["one", "dated", "double"]
    assert found["last"] == {"quantity": 42, "RuleName": "doubled", "to": "there"}
    assert seen.bus.counts_of_subscription(seen.topic, "filtered") == Counts(3)


@covers("M9", "B1")
def test_rules_of_a_subscription_that_is_not_there_are_not_found(seen: Seen) -> None:
    assert seen["elsewhere"]["topic"]["code"] == "MessagingEntityNotFound"


@covers("M9", "B1")
def test_the_administration_over_http_sees_the_same_rules(seen: Seen) -> None:
    assert seen["lifeOfRules"]["left"] == [rule.name for rule in seen.bus.admin.list_rules(seen.topic, "managed")]
    dated = seen.bus.admin.get_rule(seen.topic, "filtered", "dated")
    assert isinstance(dated.filter, CorrelationRuleFilter)
    assert dated.filter.properties == {"at": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)}
