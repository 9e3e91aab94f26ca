"""Rules of a subscription: mistakes told while somebody types, and tried on a message before they count."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Locator, expect

from tests.covers import covers
from tests.dashboard.screens import Screen
from tests.dashboard.stage import Stage

PLACE = "entity?path=events/subscriptions/large&tab=rules"


@pytest.fixture(scope="module", autouse=True)
def subscription(stage: Stage) -> None:
    stage.make("events", "topic")
    stage.make("events/subscriptions/large", "subscription")
    properties = [
        {"name": "amount", "type": "long", "value": "250"},
        {"name": "region", "type": "string", "value": "eu"},
    ]
    stage.send("events", "peek at me", subject="order.created", message_id="peeked", properties=properties)


@pytest.fixture
def editor(shown: Screen) -> Locator:
    shown.go(PLACE)
    shown.button("Create rule").click()
    return shown.dialog("Create rule")


def expression(editor: Locator) -> Locator:
    return editor.get_by_label("Expression", exact=True)


@covers("B4", "M9")
def test_a_mistake_is_told_with_its_place_while_it_is_typed(editor: Locator) -> None:
    editor.get_by_label("Name", exact=True).fill("wrong")
    expression(editor).fill("amount > 100 AND AND region = 'eu'")
    mistake = editor.locator(".mistake")
    expect(mistake.locator("mark")).to_have_text("A")
    expect(mistake.get_by_label("The place of the mistake")).to_have_text("amount > 100 AND AND region = 'eu'")
    expect(expression(editor)).to_have_attribute("aria-invalid", "true")
    expect(editor.get_by_role("button", name="Create rule")).to_be_disabled()
    expression(editor).fill("amount > 100 AND region = 'eu'")
    expect(mistake).to_have_count(0)
    expect(editor.get_by_role("button", name="Create rule")).to_be_enabled()


@covers("B4", "M9")
def test_a_mistake_behind_letters_of_two_halves_has_its_right_place(editor: Locator) -> None:
    expression(editor).fill("name = '🐑🐑' ? 1")
    expect(editor.locator(".mistake mark")).to_have_text("?")


@covers("B4", "M9")
def test_a_message_written_here_tells_whether_it_would_match(editor: Locator) -> None:
    expression(editor).fill("amount > 100")
    trial = editor.get_by_role("region", name="Would this message match?")
    message = trial.get_by_label("Message as JSON")
    message.fill(json.dumps({"properties": {"amount": 120}}))
    expect(trial.get_by_text("It matches", exact=True)).to_be_visible()
    message.fill(json.dumps({"properties": {"amount": 80}}))
    expect(trial.get_by_text("It does not match", exact=True)).to_be_visible()
    expression(editor).fill("amount > 10")
    expect(trial.get_by_text("It matches", exact=True)).to_be_visible()
    message.fill("{ no JSON")
    expect(trial.get_by_role("alert")).to_be_visible()
    expect(trial.get_by_text("It matches", exact=True)).to_have_count(0)


@covers("B4", "M9")
def test_a_message_that_waits_in_a_subscription_is_tried_with_the_action(shown: Screen, editor: Locator) -> None:
    expression(editor).fill("sys.Label = 'order.created' AND amount > 200")
    editor.get_by_label("Change the messages with an action").check()
    editor.get_by_label("Action", exact=True).fill("SET priority = 'high'; REMOVE region")
    editor.locator(".choice label").filter(has_text="From a subscription").click()
    trial = editor.get_by_role("region", name="Would this message match?")
    expect(trial.get_by_text("It matches", exact=True)).to_be_visible()
    after = trial.get_by_role("region", name="After the action")
    expect(after.get_by_role("row").filter(has_text="priority")).to_have_text("prioritynonehigh")
    expect(after.get_by_role("row").filter(has_text="region")).to_have_text("regioneunone")
    shown.shot("rule")


@covers("B4", "M9")
def test_a_rule_is_created_changed_and_deleted(shown: Screen, stage: Stage, editor: Locator) -> None:
    def rules() -> dict[str, str]:
        found = stage.call("GET", "/$api/rules?path=events/subscriptions/large")["rules"]
        return {one["name"]: one["filter"].get("expression", one["filter"]["kind"]) for one in found}

    editor.get_by_label("Name", exact=True).fill("european")
    expression(editor).fill("region = 'eu'")
    editor.get_by_role("button", name="Create rule").click()
    expect(editor).to_have_count(0)
    expect(shown.row("List of rules", "european")).to_contain_text("region = 'eu'")
    assert rules()["european"] == "region = 'eu'"
    told = shown.page.get_by_text("The rule $Default takes all messages")
    expect(told).to_be_visible()
    shown.button("Edit rule european").click()
    change = shown.dialog("Rule european")
    expression(change).fill("region = 'us'")
    change.get_by_role("button", name="Save rule").click()
    expect(change).to_have_count(0)
    assert rules()["european"] == "region = 'us'"
    shown.button("Delete rule european").click()
    shown.dialog("Delete the rule european?").get_by_role("button", name="Delete rule").click()
    expect(shown.row("List of rules", "european")).to_have_count(0)
    assert "european" not in rules()
    expect(told).to_have_count(0)


@covers("B4", "M9")
def test_a_rule_of_equal_values_is_made_without_an_expression(shown: Screen, stage: Stage, editor: Locator) -> None:
    editor.get_by_label("Name", exact=True).fill("equal")
    editor.get_by_label("Filter", exact=True).select_option("correlation")
    editor.get_by_label("Subject", exact=True).fill("order.created")
    editor.get_by_role("button", name="Create rule").click()
    expect(shown.row("List of rules", "equal")).to_contain_text("subject = order.created")
    found = stage.call("GET", "/$api/rules?path=events/subscriptions/large")["rules"]
    assert next(one["filter"]["subject"] for one in found if one["name"] == "equal") == "order.created"
