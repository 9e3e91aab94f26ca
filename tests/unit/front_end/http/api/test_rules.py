"""Rules as JSON: made, changed, told and tried out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tandembus.amqp.encoding.sections import application_properties_section, data_section
from tandembus.clock import ManualClock
from tandembus.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tests.covers import covers
from tests.unit.front_end.http.api.asking import ask, ask_with, bodies, browse, error, put_in, told
from tests.unit.front_end.http.harness import RunningFrontEnd, running_front_end
from tests.unit.front_end.http.hostile_texts import HOSTILE

PATH = "events/subscriptions/few"


@pytest.fixture
async def events(tmp_path: Path) -> AsyncIterator[RunningFrontEnd]:
    async with running_front_end(tmp_path, clock=ManualClock()) as running:
        await running.namespace.create_topic(TopicDescription("events"))
        await running.namespace.create_subscription(SubscriptionDescription("events", "few"))
        await running.namespace.create_queue(QueueDescription("orders"))
        yield running


def sql(expression: str, *parameters: tuple[str, str, object]) -> dict[str, Any]:
    told = [{"name": name, "type": kind, "value": value} for name, kind, value in parameters]
    return {"kind": "sql", "expression": expression, "parameters": told}


async def check(running: RunningFrontEnd, expression: object, **more: object) -> dict[str, Any]:
    wanted = sql(expression) if isinstance(expression, str) else expression
    return told(await ask(running, "POST", "rules/check", {"filter": wanted, **more}))


def message(**properties: object) -> dict[str, Any]:
    return {"properties": [{"name": name, "type": "string", "value": value} for name, value in properties.items()]}


# Made, changed, told.


@covers("M9", "B4")
async def test_a_rule_is_made_changed_and_deleted(events: RunningFrontEnd) -> None:
    document: dict[str, object] = {"filter": sql("amount > @least", ("@least", "long", "5")), "action": None}
    created = told(await ask(events, "PUT", "rules", document, path=PATH, name="large"), 201)
    assert created["filter"] == document["filter"]
    document["action"] = {"expression": "SET seen = TRUE", "parameters": []}
    changed = told(await ask(events, "PUT", "rules", document, path=PATH, name="large"))
    assert (changed["action"], changed["filter"]) == (document["action"], document["filter"])
    rules = told(await ask(events, "GET", "rules", path=PATH))
    assert [rule["name"] for rule in rules["rules"]] == ["$Default", "large"]
    assert rules["rules"][1] == changed
    assert (rules["rules"][0]["filter"], rules["has_more"]) == ({"kind": "true"}, False)
    reply = await ask(events, "DELETE", "rules", path=PATH, name="$Default")
    assert (reply.status, reply.body) == (204, b"")
    await put_in(events, "events", application_properties_section({"amount": 9}) + data_section(b"9"))
    await put_in(events, "events", application_properties_section({"amount": 5}) + data_section(b"5"))
    found = await browse(events, PATH)
    assert bodies(found) == ["9"]
    assert {"name": "seen", "type": "bool", "value": True} in found[0]["properties"]


@pytest.mark.parametrize(
    "wanted",
    [
        {"kind": "true"},
        {"kind": "false"},
        sql("a = 1 AND [b c] LIKE 'x%'"),
        {"kind": "correlation", "subject": "s", "correlation_id": "c", "properties": []},
        {"kind": "correlation", "properties": [{"name": "a", "type": "long", "value": "9223372036854775807"}]},
    ],
)
async def test_a_filter_is_told_as_it_was_made(events: RunningFrontEnd, wanted: dict[str, object]) -> None:
    created = told(await ask(events, "PUT", "rules", {"filter": wanted}, path=PATH, name="r"), 201)
    given = {key: value for key, value in created["filter"].items() if value is not None}
    assert given == wanted


@covers("M9")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", "x"),
        ("bool", True),
        ("long", "5"),
        ("double", 1.5),
        ("datetime", "2025-01-31T12:00:00.5Z"),
        ("timedelta", "-1.5"),
        ("uuid", "00000000-0000-0000-0000-000000000001"),
        ("bytes", "AP8="),
    ],
)
async def test_values_of_rules_keep_their_types(events: RunningFrontEnd, kind: str, value: object) -> None:
    properties = [{"name": "p", "type": kind, "value": value}]
    wanted = {"kind": "correlation", "properties": properties}
    created = told(await ask(events, "PUT", "rules", {"filter": wanted}, path=PATH, name="r"), 201)
    assert created["filter"]["properties"] == properties
    assert (await check(events, wanted, message={"properties": properties}))["matches"] is True
    assert (await check(events, sql("p = @v", ("v", kind, value)), message={"properties": properties}))["matches"]


@pytest.mark.parametrize(
    ("document", "part"),
    [
        ({}, "needs a filter"),
        ({"filter": {"kind": "sql"}}, "must be a text"),
        ({"filter": {"kind": "odd"}}, "one of sql, correlation, true, false"),
        ({"filter": ["sql"]}, "one of sql"),
        ({"filter": {"kind": "true", "expression": "1=1"}}, "no 'expression'"),
        ({"filter": {"kind": "correlation"}}, "at least one property"),
        ({"filter": {"kind": "correlation", "label": "x"}}, "no 'label'"),
        ({"filter": {"kind": "correlation", "subject": 5}}, "subject"),
        ({"filter": sql("a =")}, "character 4"),
        ({"filter": sql("a" * 1025)}, "1024"),
        ({"filter": sql("a = @p", ("p", "null", None))}, "no value"),
        ({"filter": {"kind": "true"}, "action": "SET a = 1"}, "action is an object"),
        ({"filter": {"kind": "true"}, "more": 1}, "unknown key"),
        ({"filter": sql("a = 1", *[(f"p{number}", "long", "1") for number in range(129)])}, "at most 128"),
    ],
)
async def test_what_is_no_rule_is_refused(events: RunningFrontEnd, document: dict[str, Any], part: str) -> None:
    status, text = error(await ask(events, "PUT", "rules", document, path=PATH, name="r"))
    assert (status, part in text) == (400, True), text


async def test_places_without_rules_are_refused(events: RunningFrontEnd) -> None:
    for path, status in (
        ("orders", 400),
        ("events", 400),
        ("events/subscriptions/no", 404),
        (f"{PATH}/$management", 400),
    ):
        assert error(await ask(events, "GET", "rules", path=path))[0] == status
    assert error(await ask(events, "DELETE", "rules", path=PATH, name="none"))[0] == 404
    assert error(await ask(events, "PUT", "rules", {"filter": {"kind": "true"}}, path=PATH))[0] == 400
    listen = events.token(policy="sender", key="c2VuZA==")
    assert error(await ask_with(events, listen, "GET", "rules", path=PATH))[0] == 401


# Tried out.


@covers("M9", "B4")
async def test_a_mistake_is_told_with_its_place(events: RunningFrontEnd) -> None:
    found = await check(events, "amount > AND x = 1", action={"expression": "SET sys.Sequencenumber = 1"})
    assert found["filter_error"]["position"] == 9
    assert "'AND' is a keyword" in found["filter_error"]["text"]
    assert found["action_error"]["position"] == 4
    assert (found["matches"], found["evaluation_error"], found["after"]) == (None, None, None)
    assert (await check(events, "a = 'x"))["filter_error"]["position"] == 4
    assert (await check(events, "a = @p"))["filter_error"]["position"] == 4
    assert (await check(events, " "))["filter_error"]["position"] is None
    assert (await check(events, {"kind": "correlation"}))["filter_error"]["position"] is None
    assert (await check(events, "a = 1"))["filter_error"] is None


@covers("M9", "B4")
async def test_it_is_told_whether_a_message_matches_and_what_becomes_of_it(events: RunningFrontEnd) -> None:
    action = {"expression": "SET color = 'blue'; REMOVE size; SET sys.Label = 'changed'"}
    given = message(color="red", size="9") | {"subject": "was", "body": {"text": "hello"}}
    found = await check(events, "color = 'red' AND sys.Label = 'was'", action=action, message=given, name="mine")
    assert (found["matches"], found["evaluation_error"]) == (True, None)
    after = found["after"]
    assert (after["subject"], after["body"]["text"]) == ("changed", "hello")
    assert {entry["name"]: entry["value"] for entry in after["properties"]} == {"color": "blue", "RuleName": "mine"}
    found = await check(events, "color = 'green'", action=action, message=given)
    assert (found["matches"], found["after"]) == (False, None)
    found = await check(events, "color = 'red'", message=given)
    assert (found["matches"], found["after"]) == (True, None)


async def test_what_cannot_be_evaluated_says_why(events: RunningFrontEnd) -> None:
    found = await check(events, "color > 5", message=message(color="red"))
    assert (found["matches"], found["filter_error"]) == (False, None)
    assert found["evaluation_error"]
    action = {"expression": "SET sys.TimeToLive = 'x'"}
    found = await check(events, "1 = 1", action=action, message={})
    assert (found["matches"], found["after"]) == (True, None)
    assert "duration" in found["evaluation_error"]


async def test_an_expression_that_costs_too_much_is_cut_off(events: RunningFrontEnd) -> None:
    like = " OR ".join(["a LIKE '%x%x%y%'"] * 40)
    found = await check(events, like, message=message(a="x" * 60_000))
    assert "costs too much" in found["evaluation_error"]


async def test_a_message_that_was_shown_can_be_tried(events: RunningFrontEnd) -> None:
    (number,) = await put_in(
        events, "orders", application_properties_section({"a": 5, "m": {"x": 1}}) + data_section(b"x" * 10_000)
    )
    (listed,) = await browse(events, "orders")
    assert listed["body"]["is_truncated"]
    assert (await check(events, f"a = 5 AND sys.SequenceNumber = {number}", message=listed))["matches"] is True


async def test_anybody_with_a_claim_may_try(events: RunningFrontEnd) -> None:
    document = {"filter": {"kind": "true"}, "message": {}}
    token = events.token("orders", policy="sender", key="c2VuZA==")
    assert told(await ask_with(events, token, "POST", "rules/check", document))["matches"] is True
    assert error(await ask_with(events, None, "POST", "rules/check", document))[0] == 401
    bad = events.token(policy="sender", key="d3Jvbmc=")
    assert error(await ask_with(events, bad, "POST", "rules/check", document))[0] == 401


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"filter": None},
        {"filter": {"kind": "true"}, "message": []},
        {"filter": {"kind": "true"}, "message": {"sequence_number": "x"}},
        {"filter": {"kind": "true"}, "message": {"properties": [{"name": "a", "type": "x"}]}},
        {"filter": {"kind": "true"}, "name": 5},
        {"filter": {"kind": "true"}, "rule": 5},
    ],
)
async def test_what_is_no_trial_is_refused(events: RunningFrontEnd, document: object) -> None:
    assert error(await ask(events, "POST", "rules/check", document))[0] == 400


async def test_hostile_texts_do_no_harm_in_rules(events: RunningFrontEnd) -> None:
    for text in HOSTILE:
        wanted = {"kind": "correlation", "properties": [{"name": text, "type": "string", "value": text}]}
        created = told(await ask(events, "PUT", "rules", {"filter": wanted}, path=PATH, name="r"), 201)
        assert created["filter"]["properties"] == wanted["properties"]
        assert (await check(events, wanted, message=message(**{text: text})))["matches"] is True
        assert (await check(events, text))["matches"] is None
        assert (await ask(events, "DELETE", "rules", path=PATH, name="r")).status == 204
