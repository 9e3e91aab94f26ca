"""Characters that turn text around or hide a part of it are shown wherever a text stands, and copied as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiver
from playwright.sync_api import Locator, expect

from tests.covers import covers
from tests.dashboard.screens import Screen
from tests.dashboard.stage import Stage

TURNED = "invoice\u202efdp.exe"
UNSEEN = [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)] + [
    "\u200b",
    "\u200d",
    "\ufeff",
    "\u00ad",
    "\u2060",
    "\u3164",
    "\U000e0041",
]
CONTROLS = ["\x01", "\x07", "\x1b", "\x7f", "\x9b"]
"""In ids and the like: with them a body is no text."""
FITTING = ["👩‍👩‍👧‍👦", "❤\ufe0f", "👨🏽‍💻", "می‌خواهم", "क्‍ष", "one\r\n\ttwo", "e\u0301", "שלום"]
"""With characters that are no more than a part of a letter."""


@pytest.fixture(scope="module", autouse=True)
def turned_messages(stage: Stage) -> None:
    for queue in ("orders", "dead"):
        stage.make(queue, user_metadata=TURNED)
        properties = [{"name": TURNED, "type": "string", "value": TURNED}]
        stage.send(queue, TURNED, message_id=TURNED, session_id=TURNED, subject=TURNED, properties=properties)

    def bury(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
        receiver.dead_letter_message(message, reason=TURNED, error_description=TURNED)

    stage.take("dead", 1, bury)
    stage.send(
        "orders",
        "".join(f"<{one}>" for one in UNSEEN),
        message_id="all",
        subject="".join(f"<{one}>" for one in CONTROLS),
    )
    stage.send("orders", "|".join(FITTING), message_id="fitting")
    stage.make("events", "topic")
    rule = {"name": "turned", "filter": {"kind": "sql", "expression": f"a = '{TURNED}'", "parameters": []}}
    stage.make("events/subscriptions/all", "subscription", {**rule, "action": None})


def marks(place: Locator) -> list[str]:
    """What is drawn in place of each character that is not seen."""
    found: list[str] = place.locator(".unseen").evaluate_all(
        "(all) => all.map((one) => getComputedStyle(one, '::before').content.replaceAll('\"', ''))"
    )
    return found


def body(shown: Screen, stage: Stage, message_id: str) -> Locator:
    number = next(one["sequence_number"] for one in stage.messages("orders") if one["message_id"] == message_id)
    shown.go(f"entity?path=orders&tab=messages&message={number}")
    found = shown.dialog(f"Message {number}").get_by_role("region", name="Body")
    expect(found).to_be_visible()
    return found


@covers("B4")
def test_every_character_that_is_not_seen_is_shown_by_its_code(shown: Screen, stage: Stage) -> None:
    found = body(shown, stage, "all")
    assert marks(found) == [f"U+{ord(one):04X}" for one in UNSEEN]
    subject = shown.page.get_by_role("dialog").locator("dl.facts").first
    assert marks(subject) == [f"U+{ord(one):04X}" for one in CONTROLS]
    assert found.evaluate("(one) => one.textContent") == "".join(f"<{one}>" for one in UNSEEN)
    shown.shot("unseen")


@covers("B4")
def test_what_belongs_to_its_letters_stays_with_them(shown: Screen, stage: Stage) -> None:
    found = body(shown, stage, "fitting")
    assert marks(found) == []
    assert found.evaluate("(one) => one.textContent") == "|".join(FITTING)


RIGHT_OF = """(one) => {
    const place = (letter) => {
        const walk = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
        for (let node = walk.nextNode(); node; node = walk.nextNode()) {
            const at = node.data.lastIndexOf(letter);
            if (at < 0) continue;
            const range = document.createRange();
            range.setStart(node, at);
            range.setEnd(node, at + 1);
            return range.getBoundingClientRect().left;
        }
        return NaN;
    };
    return place("f") < place("x");
}"""


@covers("B4")
def test_letters_stand_in_their_order_and_are_copied_as_they_came(shown: Screen, stage: Stage) -> None:
    found = body(shown, stage, TURNED)
    assert marks(found) == ["U+202E"]
    assert found.evaluate(RIGHT_OF)
    found.evaluate("(one) => getSelection().selectAllChildren(one)")
    assert shown.page.evaluate("getSelection().toString()") == TURNED


@covers("B4")
@pytest.mark.parametrize(
    ("place", "count"),
    [
        ("entity?path=orders&tab=messages", 4),
        ("entity?path=orders&tab=messages&message=1", 4 + 6),
        ("entity?path=dead&tab=messages&view=dead-letter", 5),
        ("entity?path=orders", 1),
        ("entity?path=events/subscriptions/all&tab=rules", 1),
    ],
)
def test_texts_of_strangers_are_marked_wherever_they_stand(shown: Screen, place: str, count: int) -> None:
    shown.go(place)
    expect(shown.page.locator(".unseen[data-codes='U+202E']").nth(count - 1)).to_be_attached()
    strays = shown.page.evaluate("""() => {
        const walk = document.createTreeWalker(document.getElementById("app"), NodeFilter.SHOW_TEXT);
        const found = [];
        for (let node = walk.nextNode(); node; node = walk.nextNode()) {
            if (node.data.includes("\\u202e") && !node.parentElement.matches(".unseen")) found.push(node.data);
        }
        for (const one of document.querySelectorAll("#app [title], #app [aria-label]")) {
            if (`${one.title}${one.ariaLabel}`.includes("\\u202e")) found.push(one.outerHTML);
        }
        return found;
    }""")
    assert strays == []


@covers("B4")
def test_an_address_with_such_characters_is_told_with_them_also_as_the_title(shown: Screen) -> None:
    shown.expected_statuses.update({400, 404})
    shown.page.evaluate("(path) => { location.hash = `#/entity?path=${encodeURIComponent(path)}`; }", TURNED)
    heading = shown.page.get_by_role("heading", level=1)
    expect(heading.locator(".unseen")).to_have_count(1)
    expect(shown.page).to_have_title("invoice⟨U+202E⟩fdp.exe · tandembus")
    shown.go("overview")


@covers("B4", "M3")
def test_a_reason_is_spelled_in_the_list_and_picked_as_it_is(shown: Screen) -> None:
    shown.go("entity?path=dead&tab=messages&view=dead-letter")
    shown.page.get_by_label("Reason").select_option(label="invoice⟨U+202E⟩fdp.exe (1)")
    expect(shown.page).to_have_url(
        f"{shown.address}#/entity?path=dead&tab=messages&view=dead-letter&reason=invoice%E2%80%AEfdp.exe"
    )
    expect(shown.page.get_by_role("table", name="Dead letters").locator("tbody tr")).to_have_count(1)


@covers("B4")
def test_a_form_tells_them_and_sends_them_again(shown: Screen, stage: Stage) -> None:
    stage.make("again")
    body(shown, stage, TURNED)
    shown.button("Resend…").click()
    form = shown.page.get_by_role("dialog").filter(has_text="Resend message")
    expect(form.get_by_label("Body", exact=True)).to_have_value(TURNED)
    expect(form.get_by_text("Has characters that are not seen: U+202E.")).to_have_count(4)
    form.get_by_label("Send to").fill("again")
    form.get_by_role("button", name="Resend", exact=True).click()
    expect(form).to_have_count(0)
    (sent,) = stage.messages("again")
    assert (sent["body"]["text"], sent["message_id"], sent["subject"]) == (TURNED,) * 3


@covers("B4")
def test_an_export_holds_them_as_they_are(shown: Screen, tmp_path: Path) -> None:
    shown.go("entity?path=dead&tab=messages&view=dead-letter")
    shown.button("Export").click()
    with shown.page.expect_download() as download:
        shown.dialog("Export as JSON lines").get_by_role("button", name="Export", exact=True).click()
    download.value.save_as(tmp_path / "file")
    exported = json.loads((tmp_path / "file").read_text())
    assert (exported["body"]["text"], exported["dead_letter_reason"]) == (TURNED, TURNED)


@covers("B4")
def test_a_body_of_nothing_else_is_shown_all_the_same(shown: Screen, stage: Stage) -> None:
    stage.make("flood")
    stage.send("flood", "\u202e" * 60_000)
    number = stage.send("flood", "a\u202e" * 30_000)
    shown.go("entity?path=flood&tab=messages&message=1")
    expect(shown.dialog("Message 1").get_by_role("region", name="Body").locator(".unseen")).to_have_count(1)
    shown.go(f"entity?path=flood&tab=messages&message={number}")
    expect(shown.dialog(f"Message {number}").get_by_role("region", name="Body").locator(".unseen")).to_have_count(
        30_000
    )
