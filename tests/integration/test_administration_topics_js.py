"""Topics, subscriptions and rules with the unmodified administration client of the JavaScript SDK."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from typing import Any

import pytest

from tests.covers import covers
from tests.integration.serving import RunningNamespace
from tests.integration.test_administration_js import JS, NODE
from tests.integration.test_administration_js import pytestmark as needs_node

pytestmark = needs_node


@pytest.fixture(scope="module")
def seen(running_namespace: RunningNamespace) -> dict[str, Any]:
    assert NODE is not None
    environment = {
        **os.environ,
        "NODE_EXTRA_CA_CERTS": str(running_namespace.ca_path),
        "CONNECTION_STRING": running_namespace.admin_connection_string,
        "TOPIC_NAME": f"javascript/{uuid.uuid4().hex[:12]}",
    }
    run = subprocess.run([NODE, "topics.mjs"], cwd=JS, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    document: dict[str, Any] = json.loads(run.stdout)
    return document


@covers("B1", "M9")
def test_a_topic_is_created_read_updated_and_deleted(seen: dict[str, Any]) -> None:
    assert (seen["topicExistsBefore"], seen["topicExistsAfter"], seen["topicGone"]) == (False, True, False)
    created = seen["topic"]
    assert (created["maxSizeInMegabytes"], created["defaultMessageTimeToLive"]) == (2048, "P14D")
    assert created["authorizationRules"][0]["accessRights"] == ["Send"]
    assert seen["topicRead"] == created
    assert seen["topicUpdated"] == {**created, "userMetadata": "changed"}


@covers("B1", "M9")
def test_a_subscription_is_created_read_updated_and_deleted(seen: dict[str, Any]) -> None:
    created = seen["subscription"]
    assert (created["subscriptionName"], created["maxDeliveryCount"], created["lockDuration"]) == ("audit", 7, "PT30S")
    assert created["topicName"].startswith("javascript/")
    assert seen["subscriptionRead"] == created
    assert seen["subscriptionUpdated"] == {**created, "maxDeliveryCount": 8}
    assert (seen["subscriptionExists"], seen["subscriptionGone"]) == (True, False)
    assert seen["defaultRules"] == ["mine"]


@covers("B1", "M9")
def test_rules_keep_their_filters_actions_and_typed_values(seen: dict[str, Any]) -> None:
    rules = seen["rules"]
    assert rules["plain"]["filter"]["sqlExpression"] == "1=1"
    assert rules["sql"]["filter"] == {"sqlExpression": "a = @a", "sqlParameters": {"a": 1.5}}
    assert rules["sql"]["action"] == {"sqlExpression": "SET b = @b", "sqlParameters": {"b": "x"}}
    assert rules["correlation"]["filter"] == {
        "correlationId": "c",
        "subject": "l",
        "to": "t",
        "replyTo": "rt",
        "replyToSessionId": "rs",
        "sessionId": "s",
        "messageId": "m",
        "contentType": "ct",
        "applicationProperties": {
            "text": "<x>",
            "number": 5,
            "half": 1.5,
            "yes": True,
            "no": False,
            "moment": "2030-01-31T12:00:00.000Z",
        },
    }
    assert seen["ruleRead"] == rules["correlation"]
    assert (seen["ruleUpdated"]["name"], seen["ruleUpdated"]["action"]) == ("sql", {})
    assert seen["defaultRule"]["name"] == "$Default"
    assert (seen["ruleExists"], seen["ruleGone"]) == (True, False)


@covers("B1", "M10")
def test_forwarding_is_set_kept_and_removed(seen: dict[str, Any]) -> None:
    target = f"/{seen['topic']['name']}-target"
    for made in (seen["forwarding"], seen["forwardingQueue"]):
        assert made["forwardTo"].endswith(target)
        assert made["forwardDeadLetteredMessagesTo"].endswith(target)
    assert seen["forwardingKept"]["forwardTo"] == seen["forwarding"]["forwardTo"]
    assert "forwardTo" not in seen["forwardingGone"]
    assert seen["forwardingGone"]["forwardDeadLetteredMessagesTo"].endswith(target)
    assert seen["forwardingNowhere"]["status"] == 400


@covers("B1")
def test_lists_are_complete_and_paged(seen: dict[str, Any]) -> None:
    assert seen["ruleNames"] == ["$Default", "correlation", "plain", "sql"]
    assert seen["rulePages"] == [3, 1]
    assert seen["subscriptionNames"] == ["audit", *[f"many-{number}" for number in range(7)], "picky"]
    assert seen["subscriptionPages"] == [4, 4, 1]
    assert seen["topicNames"] == sorted(seen["topicNames"], key=str.lower)
    assert sum(seen["topicPages"]) == len(seen["topicNames"])
    assert seen["topicPages"][0] == 4


@covers("B1")
def test_runtime_properties_have_all_counts_and_times(seen: dict[str, Any]) -> None:
    topic, subscription = seen["topicRuntime"], seen["subscriptionRuntime"]
    assert (topic["subscriptionCount"], topic["scheduledMessageCount"], topic["sizeInBytes"]) == (9, 0, 0)
    assert [value for name, value in subscription.items() if name.endswith("Count")] == [0] * 5
    for properties in (topic, subscription):
        assert all(properties[name] > "2020" for name in ("createdAt", "modifiedAt", "accessedAt"))


@covers("B1")
def test_refusals_are_the_errors_that_the_sdk_has_for_them(seen: dict[str, Any]) -> None:
    for refusals, status, code in (
        (seen["conflicts"], 409, "MessageEntityAlreadyExistsError"),
        (seen["absent"], 404, "MessageEntityNotFoundError"),
        (seen["invalid"], 400, "ServiceError"),
    ):
        assert [(one["status"], one["code"]) for one in refusals] == [(status, code)] * len(refusals)
    assert "MaxSizeInMegabytes" in seen["invalid"][2]["message"]
