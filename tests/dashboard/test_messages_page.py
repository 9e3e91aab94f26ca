"""The message browser: looking at messages without taking them, and doing something with them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusReceiver
from playwright.sync_api import Locator, expect

from tests.covers import covers
from tests.dashboard.screens import Screen
from tests.dashboard.stage import Stage

LATER = "2099-01-31T12:00:00Z"
BINARY = bytes(range(256))


@pytest.fixture(scope="module", autouse=True)
def many_kinds_of_messages(stage: Stage) -> None:
    stage.make("kinds")
    stage.send("kinds", "put aside", message_id="deferred-one")
    stage.take("kinds", 1, ServiceBusReceiver.defer_message)
    stage.send("kinds", "for later", message_id="scheduled-one", scheduled_for=LATER)
    stage.send("kinds", '{"big": 12345678901234567890, "list": [1, {}]}', message_id="json-one")
    stage.send("kinds", BINARY, message_id="binary-one")
    properties = [
        {"name": "amount", "type": "long", "value": "17"},
        {"name": "when", "type": "datetime", "value": LATER},
    ]
    stage.send("kinds", "plain words", message_id="text-one", subject="greeting", properties=properties)


def browse(shown: Screen, path: str, view: str = "active") -> None:
    shown.go(f"entity?path={path}&tab=messages&view={view}")
    expect(shown.panel("Messages")).to_be_visible()


def open_message(shown: Screen, text: str) -> Locator:
    shown.page.get_by_role("row").filter(has_text=text).get_by_role("button", name="Open message").click()
    detail = shown.page.get_by_role("dialog")
    expect(detail.get_by_role("heading", name="Body")).to_be_visible()
    return detail


def body(detail: Locator) -> Locator:
    return detail.get_by_role("region", name="Body")


def choose(place: Screen | Locator, label: str) -> None:
    """One of a few that stand side by side."""
    (place.page if isinstance(place, Screen) else place).locator(".choice label").filter(has_text=label).click()


@covers("B4", "M4")
@pytest.mark.parametrize(
    ("choice", "ids"),
    [
        ("Active", ["json-one", "binary-one", "text-one"]),
        ("Scheduled", ["scheduled-one"]),
        ("Deferred", ["deferred-one"]),
    ],
)
def test_messages_are_shown_by_their_state_and_stay_as_they_are(
    shown: Screen, stage: Stage, choice: str, ids: list[str]
) -> None:
    before = stage.messages("kinds")
    browse(shown, "kinds")
    choose(shown, choice)
    rows = shown.page.get_by_role("table", name=choice).locator("tbody tr")
    expect(rows).to_have_count(len(ids))
    for row, name in zip(rows.all(), ids, strict=True):
        expect(row).to_contain_text(name)
    expect(shown.page.locator(".choice label").filter(has_text=choice)).to_have_text(f"{choice} ({len(ids)})")
    assert stage.messages("kinds") == before


@covers("B4", "M4")
def test_a_list_starts_at_a_sequence_number_and_goes_on_where_it_ended(shown: Screen, stage: Stage) -> None:
    stage.make("long")
    numbers = [stage.send("long", f"number {index}") for index in range(60)]
    browse(shown, "long")
    rows = shown.page.get_by_role("table", name="Active").locator("tbody tr")
    expect(rows).to_have_count(50)
    shown.button("Next").click()
    expect(rows).to_have_count(10)
    expect(rows.first).to_contain_text("number 50")
    shown.page.get_by_label("From sequence number").fill(numbers[57])
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("number 57")
    shown.button("From the start").click()
    expect(rows.first).to_contain_text("number 0")


@covers("B4", "M4")
def test_messages_of_one_session_are_picked_out(shown: Screen, stage: Stage) -> None:
    stage.make("sessions", requires_session=True)
    for name in ("anna", "bert", "anna"):
        stage.send("sessions", f"for {name}", session_id=name)
    browse(shown, "sessions")
    rows = shown.page.get_by_role("table", name="Active").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(shown.page.locator("datalist option")).to_have_count(2)
    shown.page.get_by_label("Session").fill("anna")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="for bert")).to_have_count(0)


@covers("B4")
def test_a_body_is_shown_as_text_as_json_and_byte_by_byte(shown: Screen) -> None:
    browse(shown, "kinds")
    detail = open_message(shown, "json-one")
    expect(body(detail)).to_have_text('{\n  "big": 12345678901234567890,\n  "list": [\n    1,\n    {}\n  ]\n}')
    choose(detail, "Text")
    expect(body(detail)).to_have_text('{"big": 12345678901234567890, "list": [1, {}]}')
    choose(detail, "Hex")
    expect(body(detail)).to_contain_text("00000000  7b 22 62 69 67 22 3a 20 31 32")


@covers("B4")
def test_a_body_that_is_no_text_is_shown_byte_by_byte_alone(shown: Screen) -> None:
    browse(shown, "kinds")
    detail = open_message(shown, "binary-one")
    expect(body(detail)).to_contain_text("000000f0  f0 f1 f2 f3 f4 f5 f6 f7 f8 f9 fa fb fc fd fe ff")
    assert detail.locator(".choice label").all_inner_texts() == ["Hex"]


@covers("B4")
def test_a_message_is_shown_with_all_its_properties_and_their_types(shown: Screen) -> None:
    browse(shown, "kinds")
    detail = open_message(shown, "text-one")
    expect(detail.locator("dl").first).to_contain_text("text-one")
    table = detail.get_by_role("table", name="Application properties")
    expect(table.get_by_role("row").filter(has_text="amount")).to_contain_text("long17")
    expect(table.get_by_role("row").filter(has_text="when")).to_contain_text("datetime2099-01-31T12:00:00Z")
    shown.shot("message")
    detail.get_by_role("button", name="Close").last.click()
    expect(shown.page.get_by_role("dialog")).to_have_count(0)


@covers("B4")
def test_a_body_that_is_large_is_shown_only_so_far(shown: Screen, stage: Stage) -> None:
    stage.make("large")
    stage.send("large", "y" * 200_000, message_id="large-one")
    browse(shown, "large")
    detail = open_message(shown, "large-one")
    assert len(body(detail).inner_text()) == 64 * 1024
    detail.get_by_role("button", name="Show more").click()
    expect(detail.get_by_role("button", name="Show more")).to_have_count(0)
    assert len(body(detail).inner_text()) == 200_000


@covers("B4")
def test_a_message_is_sent_as_it_is_written(shown: Screen, stage: Stage) -> None:
    stage.make("written")
    shown.go("entity?path=written")
    shown.button("Send message").click()
    form = shown.dialog("Send to written")
    form.get_by_label("Body", exact=True).fill("grüße 🐑")
    form.get_by_label("Message id").fill("mine")
    form.get_by_label("Subject").fill("hello")
    form.get_by_role("button", name="Add a property").click()
    form.get_by_label("Name of property 1").fill("amount")
    form.get_by_label("Type of property 1").select_option("double")
    form.get_by_label("Value of property 1").fill("1.5")
    form.get_by_role("button", name="Send", exact=True).click()
    expect(form).to_have_count(0)
    (sent,) = stage.messages("written")
    assert (sent["body"]["text"], sent["message_id"], sent["subject"]) == ("grüße 🐑", "mine", "hello")
    assert sent["properties"] == [{"name": "amount", "type": "double", "value": 1.5}]
    expect(shown.figure("Active")).to_have_text("1")


@covers("B4")
def test_a_message_is_sent_for_later(shown: Screen, stage: Stage) -> None:
    stage.make("for-later")
    shown.go("entity?path=for-later")
    shown.button("Send message").click()
    form = shown.dialog("Send to for-later")
    form.get_by_label("Body", exact=True).fill("in due time")
    form.get_by_text("More", exact=True).click()
    form.get_by_label("Scheduled for (UTC)").fill("2099-01-31T12:00")
    form.get_by_role("button", name="Send", exact=True).click()
    expect(form).to_have_count(0)
    (sent,) = stage.messages("for-later")
    assert (sent["state"], sent["scheduled_for"]) == ("scheduled", LATER)


@covers("B4", "M3")
def test_a_dead_letter_is_edited_and_takes_the_place_of_the_original(shown: Screen, stage: Stage) -> None:
    stage.make("edited")
    stage.bury("edited", TooLarge=1)
    browse(shown, "edited", "dead-letter")
    open_message(shown, "dead-0").get_by_role("button", name="Resend…").click()
    form = shown.page.get_by_role("dialog").filter(has_text="Resend message")
    form.get_by_label("Body", exact=True).fill("smaller now")
    form.get_by_label("Delete the original").check()
    form.get_by_role("button", name="Resend", exact=True).click()
    expect(shown.page.get_by_role("dialog")).to_have_count(0)
    (sent,) = stage.messages("edited")
    assert (sent["body"]["text"], sent["message_id"], sent["dead_letter_reason"]) == ("smaller now", "dead-0", None)
    assert stage.messages("edited", "dead-letter") == []


def dead_letters(shown: Screen) -> Locator:
    return shown.page.get_by_role("table", name="Dead letters").locator("tbody tr")


def act(shown: Screen, button: str, confirm: str) -> None:
    shown.button(button).click()
    dialog = shown.page.get_by_role("dialog")
    dialog.get_by_role("button", name=confirm, exact=True).click()


def expect_done(shown: Screen, text: str) -> None:
    dialog = shown.page.get_by_role("dialog")
    expect(dialog.get_by_text(text)).to_be_visible()
    expect(dialog.get_by_role("progressbar")).to_be_visible()
    dialog.get_by_role("button", name="Close").last.click()
    expect(dialog).to_have_count(0)


@covers("B4", "M3")
def test_dead_letters_are_filtered_by_reason_and_resubmitted_one_many_and_all(shown: Screen, stage: Stage) -> None:
    stage.make("drive")
    stage.bury("drive", BadAddress=4, TooOld=3)
    browse(shown, "drive", "dead-letter")
    expect(dead_letters(shown)).to_have_count(7)
    shown.page.get_by_label("Reason").select_option(label="TooOld (3)")
    expect(dead_letters(shown)).to_have_count(3)
    dead_letters(shown).first.get_by_role("checkbox").check()
    act(shown, "Resubmit selected (1)", "Resubmit")
    expect_done(shown, "1 message resubmitted.")
    expect(dead_letters(shown)).to_have_count(2)
    act(shown, "Resubmit all with this reason", "Resubmit")
    expect_done(shown, "2 messages resubmitted.")
    shown.page.get_by_label("Reason").select_option(label="Any reason")
    expect(dead_letters(shown)).to_have_count(4)
    for row in dead_letters(shown).all()[:2]:
        row.get_by_role("checkbox").check()
    act(shown, "Resubmit selected (2)", "Resubmit")
    expect_done(shown, "2 messages resubmitted.")
    expect(dead_letters(shown)).to_have_count(2)
    act(shown, "Resubmit all", "Resubmit")
    expect_done(shown, "2 messages resubmitted.")
    expect(shown.page.get_by_text("There are none.")).to_be_visible()
    assert sorted(one["message_id"] for one in stage.messages("drive")) == [f"dead-{index}" for index in range(7)]


@covers("B4", "M3")
def test_dead_letters_are_moved_elsewhere_and_deleted(shown: Screen, stage: Stage) -> None:
    stage.make("from-here")
    stage.make("to-there")
    stage.bury("from-here", BadAddress=2, TooOld=1)
    browse(shown, "from-here", "dead-letter")
    shown.page.get_by_label("Reason").select_option(label="BadAddress (2)")
    expect(dead_letters(shown)).to_have_count(2)
    shown.button("Move all with this reason").click()
    dialog = shown.page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Move", exact=True)).to_be_disabled()
    dialog.get_by_label("Move to").fill("to-there")
    dialog.get_by_role("button", name="Move", exact=True).click()
    expect_done(shown, "2 messages moved.")
    assert len(stage.messages("to-there")) == 2
    shown.page.get_by_label("Reason").select_option(label="Any reason")
    expect(dead_letters(shown)).to_have_count(1)
    dead_letters(shown).first.get_by_role("checkbox").check()
    act(shown, "Delete selected (1)", "Delete")
    expect_done(shown, "1 message deleted.")
    assert stage.messages("from-here", "dead-letter") == []


@covers("B4", "M3")
def test_what_cannot_be_moved_is_told_and_stays_where_it_is(shown: Screen, stage: Stage) -> None:
    stage.make("staying")
    stage.bury("staying", BadAddress=1)
    shown.expected_statuses.add(404)
    browse(shown, "staying", "dead-letter")
    shown.button("Move all").click()
    dialog = shown.page.get_by_role("dialog")
    dialog.get_by_label("Move to").fill("no-such-queue")
    dialog.get_by_role("button", name="Move", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("no-such-queue")
    assert len(stage.messages("staying", "dead-letter")) == 1


@covers("B4")
def test_an_export_holds_every_message_with_its_whole_body(shown: Screen, stage: Stage, tmp_path: Path) -> None:
    stage.make("exported")
    bodies = [f"{index} " + "z" * 5_000 for index in range(20)]
    for one in bodies:
        stage.send("exported", one)
    browse(shown, "exported")
    shown.button("Export").click()
    dialog = shown.dialog("Export as JSON lines")
    with shown.page.expect_download() as download:
        dialog.get_by_role("button", name="Export", exact=True).click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    expect(dialog.get_by_text("Saved")).to_be_visible()
    assert file.name == "exported-main.jsonl"
    assert [json.loads(line)["body"]["text"] for line in file.read_text().splitlines()] == bodies


KEPT = """async () => {
    const found = [];
    for await (const [name, handle] of (await navigator.storage.getDirectory()).entries()) {
        if (name.startsWith("tandembus-export-")) found.push((await handle.getFile()).size);
    }
    return found;
}"""
MADE_OF = """(() => {
    const Plain = Blob;
    window.made = [];
    window.Blob = class extends Plain {
        constructor(parts, options) {
            super(parts, options);
            window.made.push(parts.filter((one) => !(one instanceof Plain)).reduce((sum, one) => sum + one.length, 0));
        }
    };
})()"""
MANY_BYTES = 12 * 1024 * 1024
LARGE = 200_000


def export(shown: Screen, file: Path) -> list[str]:
    """The bodies in it."""
    browse(shown, "much")
    shown.button("Export").click()
    dialog = shown.dialog("Export as JSON lines")
    with shown.page.expect_download() as download:
        dialog.get_by_role("button", name="Export", exact=True).click()
    download.value.save_as(file)
    expect(dialog.get_by_text("Saved")).to_be_visible()
    return [json.loads(line)["body"]["text"] for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def much(stage: Stage) -> list[str]:
    stage.make("much")
    bodies = [f"{index} ".ljust(LARGE, "z") for index in range(MANY_BYTES // LARGE)]
    for one in bodies:
        stage.send("much", one)
    return bodies


@covers("B4")
def test_an_export_grows_on_the_disk_and_not_in_the_page(shown: Screen, much: list[str], tmp_path: Path) -> None:
    shown.page.add_init_script(MADE_OF)
    shown.page.reload()
    assert export(shown, tmp_path / "file") == much
    assert shown.page.evaluate("window.made") == []
    (size,) = shown.page.evaluate(KEPT)
    assert size == (tmp_path / "file").stat().st_size


@covers("B4")
def test_an_export_is_handed_over_in_parts_where_a_page_has_no_disk(
    shown: Screen, much: list[str], tmp_path: Path
) -> None:
    shown.page.add_init_script(f"{MADE_OF}; delete StorageManager.prototype.getDirectory;")
    shown.page.reload()
    assert export(shown, tmp_path / "file") == much
    made = shown.page.evaluate("window.made")
    assert sum(made) == (tmp_path / "file").stat().st_size
    assert max(made) < MANY_BYTES / 2


@covers("B4")
def test_what_an_export_kept_is_gone_when_it_is_old(shown: Screen, much: list[str], tmp_path: Path) -> None:
    assert export(shown, tmp_path / "file") == much
    shown.page.reload()
    expect(shown.panel("Messages")).to_be_visible()
    assert len(shown.page.evaluate(KEPT)) == 1
    shown.page.clock.install(time=time.time() + 3600.0)
    shown.page.reload()
    expect(shown.panel("Messages")).to_be_visible()
    shown.page.wait_for_function(f"async () => (await ({KEPT})()).length === 0")


@covers("B4")
def test_an_export_that_ends_early_says_so_and_leaves_no_file(shown: Screen, much: list[str]) -> None:
    broken = json.dumps({"body": {"text": much[0]}}) + "\n" + json.dumps({"error": "a store is out"}) + "\n"
    shown.page.route("**/$api/messages/export?*", lambda route: route.fulfill(body=broken))
    browse(shown, "much")
    shown.button("Export").click()
    dialog = shown.dialog("Export as JSON lines")
    dialog.get_by_role("button", name="Export", exact=True).click()
    expect(dialog.get_by_role("alert")).to_have_text("The export ended early: a store is out")
    assert shown.page.evaluate(KEPT) == []
