"""Rules as applications use them: filters and actions on what goes through a topic, with the Python SDK."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import with_sync_client
from tests.integration.python_sdk import PythonSdk, body_of, receive
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
Filter = SqlRuleFilter | CorrelationRuleFilter | TrueRuleFilter | FalseRuleFilter


def make_subscription(bus: Bus, topic: str, rules: Mapping[str, tuple[Filter, str | None]], **settings: Any) -> str:
    """With these rules only."""
    name = f"subscription-{uuid.uuid4().hex[:8]}"
    bus.admin.create_subscription(topic, name, **settings)
    bus.admin.delete_rule(topic, name, "$Default")
    for rule, (wanted, action) in rules.items():
        bus.admin.create_rule(
            topic, name, rule, filter=wanted, action=None if action is None else SqlRuleAction(action)
        )
    return name


def filtered(bus: Bus, topic: str, wanted: Filter, **settings: Any) -> str:
    return make_subscription(bus, topic, {"only": (wanted, None)}, **settings)


def texts(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [body_of(message).decode() for message in messages]


def properties_of(message: ServiceBusReceivedMessage) -> dict[str, object]:
    """Keys as text: the SDK gives them as the bytes that came."""
    found = message.application_properties or {}
    return {
        key.decode() if isinstance(key, bytes) else key: value.decode() if isinstance(value, bytes) else value
        for key, value in found.items()
    }


@covers("M9", "B1")
def test_each_subscription_gets_what_its_filter_selects(bus: Bus, sdk: PythonSdk) -> None:
    topic = bus.make_topic("all")
    filters: dict[str, Filter] = {
        "large": SqlRuleFilter("quantity > 10"),
        "red": SqlRuleFilter("color = 'red' AND sys.Label LIKE 'order-%'"),
        "by label": CorrelationRuleFilter(label="order-2"),
        "by property": CorrelationRuleFilter(properties={"color": "red", "quantity": 5}),
        "none": FalseRuleFilter(),
        "all too": TrueRuleFilter(),
        "odd": SqlRuleFilter("color NOT IN ('red', 'blue') OR quantity IS NULL"),
    }
    subscriptions = {name: filtered(bus, topic, wanted) for name, wanted in filters.items()}
    sdk.topic_sender(topic).send_messages(
        [
            ServiceBusMessage("one", subject="order-1", application_properties={"color": "red", "quantity": 5}),
            ServiceBusMessage("two", subject="order-2", application_properties={"color": "red", "quantity": 50}),
            ServiceBusMessage("three", subject="offer", application_properties={"color": "red", "quantity": 500}),
            ServiceBusMessage("four", subject="order-4"),
        ]
    )
    expected = {
        "large": ["two", "three"],
        "red": ["one", "two"],
        "by label": ["two"],
        "by property": ["one"],
        "none": [],
        "all too": ["one", "two", "three", "four"],
        "odd": ["four"],
    }
    assert bus.counts_of_subscription(topic, "all") == Counts(4)
    for name, bodies in expected.items():
        assert bus.counts_of_subscription(topic, subscriptions[name]) == Counts(len(bodies))
        if bodies:
            receiver = sdk.subscription_receiver(topic, subscriptions[name])
            assert texts(receive(receiver, len(bodies))) == bodies


@covers("M9", "B1")
@with_sync_client
def test_values_of_every_type_that_the_sdk_sends_can_be_compared(bus: Bus, sdk: PythonSdk) -> None:
    guid = uuid.uuid4()
    properties: dict[str | bytes, Any] = {
        "text": "tëxt",
        "int": 5,
        "long": 2**31 - 1,
        "double": 1.5,
        "true": True,
        "time": NOON,
        "guid": guid,
        "bytes": b"bytes",
    }
    parameters: dict[str, Any] = {
        "@time": NOON,
        "@long": 2**31 - 1,
        "@text": "tëxt",
        "@wait": timedelta(hours=1),
        "@yes": True,
    }
    expressions = [
        "text = @text AND text LIKE 't_xt'",
        "int = 5 AND int + 0.5 = 5.5",
        "long = @long",
        "double > 1 AND double < 2",
        "[true] = @yes",
        "time = @time AND time + @wait > @time",
        "guid <> newid() AND bytes = 'bytes'",
        "sys.EnqueuedTimeUtc > @time OR sys.EnqueuedTimeUtc <= @time",
    ]
    topic = bus.make_topic()
    names = [filtered(bus, topic, SqlRuleFilter(one, parameters=parameters)) for one in expressions]
    names.append(filtered(bus, topic, CorrelationRuleFilter(properties={"text": "tëxt", "int": 5, "time": NOON})))
    sdk.topic_sender(topic).send_messages(ServiceBusMessage("one", application_properties=properties))
    assert [bus.counts_of_subscription(topic, name) for name in names] == [Counts(1)] * len(names)


@covers("M9", "B1")
def test_a_message_has_one_copy_for_each_matching_rule_with_an_action(bus: Bus, sdk: PythonSdk) -> None:
    topic = bus.make_topic("untouched")
    rules: dict[str, tuple[Filter, str | None]] = {
        "plain": (TrueRuleFilter(), None),
        "plain too": (SqlRuleFilter("color = 'red'"), None),
        "halve": (SqlRuleFilter("color = 'red'"), "SET quantity = quantity / 2; REMOVE priority"),
        "relabel": (CorrelationRuleFilter(label="order"), "SET sys.Label = 'again'; SET sys.CorrelationId = 'low'"),
        "no match": (SqlRuleFilter("color = 'blue'"), "SET quantity = 0"),
    }
    subscription = make_subscription(bus, topic, rules)
    sent: dict[str | bytes, Any] = {"color": "red", "quantity": 10, "priority": "high"}
    sdk.topic_sender(topic).send_messages(
        ServiceBusMessage("one", subject="order", correlation_id="c", application_properties=dict(sent))
    )
    copies = receive(sdk.subscription_receiver(topic, subscription), 3)
    seen = {properties_of(one).get("RuleName"): one for one in copies}
    assert texts(copies) == ["one"] * 3
    assert {name: properties_of(one) for name, one in seen.items()} == {
        None: sent,
        "halve": {"color": "red", "quantity": 5, "RuleName": "halve"},
        "relabel": {**sent, "RuleName": "relabel"},
    }
    assert {name: (one.subject, one.correlation_id) for name, one in seen.items()} == {
        None: ("order", "c"),
        "halve": ("order", "c"),
        "relabel": ("again", "low"),
    }
    (untouched,) = receive(sdk.subscription_receiver(topic, "untouched"), 1)
    assert (properties_of(untouched), untouched.subject) == (sent, "order")
    assert bus.counts_of_subscription(topic, subscription) == Counts(3)


@covers("M9", "F15", "B1")
def test_a_message_that_a_filter_fails_on_is_a_dead_letter_that_says_why(bus: Bus, sdk: PythonSdk) -> None:
    topic = bus.make_topic("others")
    strict = filtered(bus, topic, SqlRuleFilter("color > 5"))
    lenient = filtered(bus, topic, SqlRuleFilter("color > 5"), dead_lettering_on_filter_evaluation_exceptions=False)
    sdk.topic_sender(topic).send_messages(ServiceBusMessage("one", application_properties={"color": "red"}))
    sdk.topic_sender(topic).send_messages(ServiceBusMessage("two", application_properties={"color": 7}))
    assert bus.counts_of_subscription(topic, "others") == Counts(2)
    assert bus.counts_of_subscription(topic, lenient) == Counts(1)
    assert bus.counts_of_subscription(topic, strict) == Counts(1, dead=1)
    dead = sdk.subscription_receiver(topic, strict, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    (letter,) = receive(dead, 1)
    assert body_of(letter) == b"one"
    assert letter.dead_letter_error_description is not None
    assert "Rule 'only': a string and an integer do not go together" in letter.dead_letter_error_description


@covers("M9", "B1")
@with_sync_client
def test_rules_hold_from_when_they_are_made_until_they_are_gone(bus: Bus, sdk: PythonSdk) -> None:
    topic = bus.make_topic("sub")
    sender = sdk.topic_sender(topic)
    sender.send_messages(ServiceBusMessage("default"))
    bus.admin.delete_rule(topic, "sub", "$Default")
    sender.send_messages(ServiceBusMessage("no rules"))
    bus.admin.create_rule(topic, "sub", "big", filter=SqlRuleFilter("size > 1"))
    sender.send_messages([ServiceBusMessage(f"{n}", application_properties={"size": n}) for n in (1, 2)])
    rule = bus.admin.get_rule(topic, "sub", "big")
    rule.filter = SqlRuleFilter("size < 2")
    bus.admin.update_rule(topic, "sub", rule)
    sender.send_messages([ServiceBusMessage(f"now {n}", application_properties={"size": n}) for n in (1, 2)])
    found = texts(receive(sdk.subscription_receiver(topic, "sub"), 3))
    assert bus.shape.as_sent(found, ["default", "2", "now 1"].index) == ["default", "2", "now 1"]
    assert bus.counts_of_subscription(topic, "sub") == Counts(3)


@covers("M9", "B1")
@with_sync_client
def test_a_batch_is_filtered_message_by_message(bus: Bus, sdk: PythonSdk) -> None:
    topic = bus.make_topic("all")
    even = filtered(bus, topic, SqlRuleFilter("number % 2 = 0"))
    sender = sdk.topic_sender(topic)
    batch = sender.create_message_batch()
    for number in range(20):
        batch.add_message(ServiceBusMessage(str(number), application_properties={"number": number}))
    sender.send_messages(batch)
    assert texts(receive(sdk.subscription_receiver(topic, even), 10)) == [str(number) for number in range(0, 20, 2)]
    assert bus.counts_of_subscription(topic, "all") == Counts(20)


@covers("M9", "B1")
@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("color =", "at character 8: expected a value, found the end"),
        ("upper(color) = 'RED'", "there is no function upper()"),
        ("sys.Nothing = 1", "there is no system property sys.Nothing"),
        ("color = @missing", "the parameter @missing has no value"),
        ("(" * 500 + "color = 'red'" + ")" * 500, "nested deeper"),
        ("color = '" + "x" * 1_024 + "'", "1024"),
    ],
    ids=["syntax", "function", "system", "parameter", "depth", "length"],
)
def test_a_wrong_filter_is_refused_and_nothing_is_made(bus: Bus, expression: str, reason: str) -> None:
    topic = bus.make_topic("sub")
    with pytest.raises(HttpResponseError) as refusal:
        bus.admin.create_rule(topic, "sub", "wrong", filter=SqlRuleFilter(expression))
    assert refusal.value.status_code == 400
    assert reason in str(refusal.value.message)
    assert [rule.name for rule in bus.admin.list_rules(topic, "sub")] == ["$Default"]


@covers("M9", "B1")
def test_a_rules_name_is_taken_once_and_gone_once(bus: Bus) -> None:
    topic = bus.make_topic("sub")
    with pytest.raises(ResourceExistsError):
        bus.admin.create_rule(topic, "sub", "$default", filter=TrueRuleFilter())
    bus.admin.delete_rule(topic, "sub", "$Default")
    with pytest.raises(ResourceNotFoundError):
        bus.admin.delete_rule(topic, "sub", "$Default")
