"""What strangers write is shown as they wrote it, and does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiver
from playwright.sync_api import Locator, expect

from tests.covers import covers
from tests.dashboard.payloads import NAMES, PAYLOADS
from tests.dashboard.screens import Screen
from tests.dashboard.stage import Stage

MAX_ID = 128
SHOWN = 50
"""Rows of a list."""


@pytest.fixture(scope="module", autouse=True)
def hostile_messages(stage: Stage) -> None:
    """Two queues, where each payload is the body, an id, a session, a subject, and a property's name and value."""
    for queue in ("active", "dead"):
        stage.make(queue)
        for payload in PAYLOADS:
            stage.send(queue, payload, **parts(payload))
    by_body = {payload: payload for payload in PAYLOADS}

    def bury(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
        text = by_body[str(message)]
        receiver.dead_letter_message(message, reason=text[:1000], error_description=text[:1000])

    stage.take("dead", len(PAYLOADS), bury)


def parts(payload: str) -> dict[str, Any]:
    properties = [{"name": payload[:100], "type": "string", "value": payload}]
    short = payload[:MAX_ID]
    return {
        "message_id": short,
        "session_id": short,
        "subject": payload,
        "properties": properties,
        "correlation_id": payload,
    }


@pytest.fixture(autouse=True)
def nothing_happened(shown: Screen) -> Iterator[None]:
    """Whatever the test looks at: no script ran, nobody was asked, nothing was called or drawn over. The screen itself
    fails on dialogs, on requests to elsewhere, and on errors in the console."""
    yield
    assert shown.page.evaluate("[window.hit, ({}).hit]") == [None, None]
    assert (
        shown.page.evaluate("document.querySelectorAll('#app script, #app iframe, #app object, #app base').length") == 0
    )
    assert shown.page.evaluate("document.cookie") == ""
    expect(shown.page.get_by_role("heading", level=1)).to_be_visible()


def texts(cells: Locator) -> list[str]:
    """What stands in them, to the letter: what is drawn leaves out spaces."""
    found: list[str] = cells.evaluate_all("(all) => all.map((one) => one.textContent)")
    return found


@covers("B4")
def test_there_are_fifty_payloads_at_least() -> None:
    assert len(set(PAYLOADS)) >= 50


@covers("B4", "M4")
def test_a_list_of_messages_shows_each_payload_to_the_letter(shown: Screen) -> None:
    shown.go("entity?path=active&tab=messages")
    rows = shown.page.get_by_role("table", name="Active").locator("tbody tr")
    expect(rows).to_have_count(SHOWN)
    ids = texts(rows.locator("td:nth-child(4) .cut.short"))
    assert ids == [payload[:MAX_ID] for payload in PAYLOADS[:SHOWN]]
    bodies = texts(rows.locator(".preview"))
    assert bodies == [payload[:120] for payload in PAYLOADS[:SHOWN]]
    shown.shot("hostile-list")


@covers("B4", "M4")
def test_a_message_shows_each_payload_to_the_letter_wherever_it_stands(shown: Screen, stage: Stage) -> None:
    for one, payload in zip(stage.messages("active"), PAYLOADS, strict=True):
        shown.go(f"entity?path=active&tab=messages&message={one['sequence_number']}")
        detail = shown.dialog(f"Message {one['sequence_number']}")
        body = detail.get_by_role("region", name="Body")
        expect(body).to_be_visible()
        if detail.locator(".choice label").filter(has_text="JSON").count():
            detail.locator(".choice label").filter(has_text="Text").click()
        assert texts(body) == [payload]
        table = detail.get_by_role("table", name="Application properties").locator("tbody td .mono")
        assert texts(table) == [payload[:100], payload]
        facts = texts(detail.locator("dl.facts .mono"))
        assert facts.count(payload) + facts.count(payload[:MAX_ID]) >= 4


@covers("B4", "M3")
def test_reasons_of_dead_letters_are_shown_and_picked_to_the_letter(shown: Screen) -> None:
    shown.go("entity?path=dead&tab=messages&view=dead-letter")
    rows = shown.page.get_by_role("table", name="Dead letters").locator("tbody tr")
    expect(rows).to_have_count(SHOWN)
    assert texts(rows.locator("td:nth-child(3) .cut:first-child")) == [one[:1000] for one in PAYLOADS[:SHOWN]]
    reason = shown.page.get_by_label("Reason")
    expect(reason.locator("option")).to_have_count(len(PAYLOADS) + 1)
    for payload in islice(PAYLOADS, 0, None, 7):
        reason.select_option(label=f"{payload} (1)")
        expect(rows).to_have_count(1)
        expect(rows.locator("td:nth-child(3) .cut:first-child")).to_have_text(payload)
        assert texts(rows.locator("td:nth-child(3) .cut:first-child")) == [payload]


@covers("B4")
def test_a_payload_is_edited_and_sent_again_without_a_letter_changed(shown: Screen, stage: Stage) -> None:
    stage.make("again")
    for payload in (PAYLOADS[0], PAYLOADS[24], "zero\u200bwidth\u200d\ufeff"):
        number = next(one["sequence_number"] for one in stage.messages("active") if one["body"]["text"] == payload)
        shown.go(f"entity?path=active&tab=messages&message={number}")
        shown.button("Resend…").click()
        form = shown.dialog(f"Resend message {number}")
        form.get_by_label("Send to").fill("again")
        expect(form.get_by_label("Body", exact=True)).to_have_value(payload)
        form.get_by_role("button", name="Resend", exact=True).click()
        expect(form).to_have_count(0)
        sent = stage.messages("again")[-1]
        assert (sent["body"]["text"], sent["subject"], sent["properties"][0]["value"]) == (payload,) * 3


@covers("B4")
def test_names_that_mean_something_to_scripts_are_entities_like_others(shown: Screen, stage: Stage) -> None:
    for name in NAMES:
        stage.make(f"names/{name}", "topic")
        stage.make(f"names/{name}/subscriptions/{name}", "subscription")
    shown.go("entities?search=names/")
    links = shown.page.get_by_role("table", name="Entities").locator("tbody td:first-child a")
    expect(links).to_have_count(len(NAMES))
    assert sorted(texts(links)) == sorted(f"names/{name}" for name in NAMES)
    for name in NAMES:
        shown.button(f"Subscriptions of names/{name}").click()
        expect(shown.page.get_by_role("link", name=name, exact=True)).to_be_visible()


@covers("B4")
def test_an_address_that_somebody_made_up_is_a_path_and_nothing_else(shown: Screen) -> None:
    shown.expected_statuses.update({400, 404})
    for page, payload in product(("entity?path", "entities?search", "faults?target"), PAYLOADS[::6]):
        shown.page.evaluate(
            "([page, text]) => { location.hash = `#/${page}=${encodeURIComponent(text)}`; }", [page, payload]
        )
        expect(shown.page.get_by_role("heading", level=1)).to_be_visible()
    shown.page.evaluate("location.hash = '#/__proto__'")
    expect(shown.page.get_by_text("There is no such page")).to_be_visible()
    shown.go("overview")


@covers("B4")
def test_user_metadata_is_shown_to_the_letter_in_facts_and_settings(shown: Screen, stage: Stage) -> None:
    whole = "\n".join(PAYLOADS)[:1000]
    stage.make("described", user_metadata=whole)
    shown.go("entity?path=described")
    expect(shown.panel("Facts")).to_be_visible()
    assert whole in texts(shown.panel("Facts").locator("dd"))
    shown.go("entity?path=described&tab=settings")
    shown.page.get_by_text("More settings").click()
    expect(shown.page.get_by_label("User metadata")).to_be_visible()


@covers("B4", "M9")
def test_expressions_of_rules_are_shown_to_the_letter(shown: Screen, stage: Stage) -> None:
    stage.make("ruled", "topic")
    stage.make("ruled/subscriptions/all", "subscription")
    expressions = []
    for index, payload in enumerate(PAYLOADS):
        expression = "text = '" + payload[:300].replace("'", "''") + "'"
        document = {"filter": {"kind": "sql", "expression": expression, "parameters": []}, "action": None}
        stage.call("PUT", f"/$api/rules?path=ruled/subscriptions/all&name=rule-{index:02}", document)
        expressions.append(expression)
    shown.go("entity?path=ruled/subscriptions/all&tab=rules")
    rows = shown.page.get_by_role("table", name="List of rules").locator("tbody tr")
    expect(rows).to_have_count(len(PAYLOADS) + 1)
    assert texts(rows.locator("td:nth-child(2) code"))[1:] == expressions
    shown.button("Edit rule rule-03").click()
    expect(shown.dialog("Rule rule-03").get_by_label("Expression", exact=True)).to_have_value(expressions[3])


@covers("B4", "M9")
def test_a_mistake_in_an_expression_is_told_to_the_letter(shown: Screen, stage: Stage) -> None:
    stage.make("mistaken", "topic")
    stage.make("mistaken/subscriptions/all", "subscription")
    shown.go("entity?path=mistaken/subscriptions/all&tab=rules")
    shown.button("Create rule").click()
    editor = shown.dialog("Create rule")
    for payload in PAYLOADS[:30:6]:
        editor.get_by_label("Expression", exact=True).fill(f"1 = {payload}")
        expect(editor.get_by_label("The place of the mistake")).to_be_visible()
    expect(editor.locator(".mistake img, .mistake script, .mistake svg")).to_have_count(0)
