"""What somebody wrote is not lost without a question, whichever way they leave; and nobody is asked in vain."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.covers import covers
from tests.dashboard.screens import Screen
from tests.dashboard.stage import Stage

SETTINGS = "entity?path=orders&tab=settings"
RULES = "entity?path=events/subscriptions/large&tab=rules"
FORMS = {
    "settings": (SETTINGS, None, "Maximum delivery count"),
    "rule": (RULES, "Create rule", "Expression"),
    "message": ("entity?path=orders", "Send message", "Body"),
    "resend": ("entity?path=orders&tab=messages&message=1", "Resend…", "Subject"),
    "queue": ("entities", "Create queue", "Name"),
    "fault": ("faults", "Inject a fault", "Of 100 operations hit"),
}
"""Where each form is, the button that opens it, and a field of it."""


@pytest.fixture(scope="module", autouse=True)
def entities(stage: Stage) -> None:
    stage.make("orders", max_delivery_count=7)
    stage.send("orders", "once", subject="1")
    stage.make("events", "topic")
    stage.make("events/subscriptions/large", "subscription")


def question(shown: Screen) -> Locator:
    return shown.dialog("Leave without saving?")


def open_form(shown: Screen, name: str) -> Locator:
    """Its field, before anything is written."""
    place, button, label = FORMS[name]
    shown.go("pair")
    shown.expect_title("Pair")
    shown.go(place)
    if button is not None:
        shown.button(button).click()
    field = shown.page.get_by_label(label, exact=True)
    expect(field).to_be_visible()
    return field


def write(field: Locator) -> str:
    """By keys, as people do: a browser asks about a tab only after it was used."""
    field.click()
    field.press("End")
    field.press("5")
    return field.input_value()


@covers("B4")
@pytest.mark.parametrize("name", FORMS)
def test_back_asks_before_something_written_is_lost(shown: Screen, name: str) -> None:
    field = open_form(shown, name)
    written = write(field)
    address = shown.page.url
    shown.page.evaluate("history.back()")
    expect(question(shown).get_by_role("button", name="Stay")).to_be_focused()
    shown.page.keyboard.press("Enter")
    expect(question(shown)).to_have_count(0)
    expect(shown.page).to_have_url(address)
    expect(field).to_have_value(written)
    shown.page.evaluate("history.back()")
    question(shown).get_by_role("button", name="Leave", exact=True).click()
    shown.expect_title("Pair")
    expect(shown.page.get_by_role("dialog")).to_have_count(0)
    expect(shown.page).to_have_url(re.compile("#/pair$"))


@covers("B4")
@pytest.mark.parametrize("name", FORMS)
def test_who_wrote_nothing_is_not_asked(shown: Screen, name: str) -> None:
    field = open_form(shown, name)
    write(field)
    field.press("Backspace")
    shown.page.evaluate("history.back()")
    shown.expect_title("Pair")
    expect(question(shown)).to_have_count(0)


@covers("B4")
@pytest.mark.parametrize("name", FORMS)
def test_a_tab_with_something_written_asks_before_it_is_closed(shown: Screen, name: str) -> None:
    field = open_form(shown, name)
    write(field)
    with shown.page.expect_event("dialog") as asked:
        shown.page.close(run_before_unload=True)
    assert asked.value.type == "beforeunload"
    assert shown.troubles.pop().startswith("dialog: ")
    expect(field).to_be_visible()


@covers("B4")
def test_a_tab_where_all_is_saved_is_closed_at_once(shown: Screen) -> None:
    write(open_form(shown, "settings"))
    shown.button("Undo").click()
    with shown.page.expect_event("close"):
        shown.page.close(run_before_unload=True)


@covers("B4")
def test_a_link_asks_and_leads_on_once_it_is_said(shown: Screen) -> None:
    field = open_form(shown, "settings")
    written = write(field)
    entities = shown.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Entities")
    entities.focus()
    entities.press("Enter")
    expect(question(shown)).to_be_visible()
    shown.page.keyboard.press("Escape")
    expect(question(shown)).to_have_count(0)
    expect(field).to_have_value(written)
    expect(entities).to_be_focused()
    entities.press("Enter")
    question(shown).get_by_role("button", name="Leave", exact=True).press("Enter")
    shown.expect_title("Entities")
    shown.page.go_back()
    expect(shown.page.get_by_label("Maximum delivery count")).to_have_value("7")
    shown.page.go_back()
    shown.expect_title("Pair")


@covers("B4")
def test_who_has_saved_is_not_asked(shown: Screen, stage: Stage) -> None:
    stage.make("saved", max_delivery_count=7)
    shown.go("entity?path=saved&tab=settings")
    shown.page.get_by_label("Maximum delivery count").fill("9")
    shown.button("Save settings").click()
    expect(shown.page.get_by_text("The settings are saved.")).to_be_visible()
    shown.page.get_by_role("link", name="Summary").click()
    expect(shown.panel("Now")).to_be_visible()
    shown.button("Send message").click()
    form = shown.dialog("Send to saved")
    form.get_by_label("Body", exact=True).fill("written")
    form.get_by_role("button", name="Send", exact=True).click()
    expect(form).to_have_count(0)
    shown.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Pair").click()
    shown.expect_title("Pair")
    expect(question(shown)).to_have_count(0)


@covers("B4")
def test_settings_of_a_deleted_entity_are_not_asked_about(shown: Screen, stage: Stage) -> None:
    stage.make("gone", max_delivery_count=7)
    shown.go("entity?path=gone&tab=settings")
    shown.page.get_by_label("Maximum delivery count").fill("9")
    shown.button("Delete queue").click()
    asked = shown.dialog("Delete gone?")
    asked.get_by_label("Type gone to confirm").fill("gone")
    asked.get_by_role("button", name="Delete queue").click()
    shown.expect_title("Entities")
    expect(question(shown)).to_have_count(0)


@covers("B4")
def test_escape_asks_however_often_it_is_pressed_and_cancel_means_it(shown: Screen) -> None:
    field = open_form(shown, "message")
    written = write(field)
    for _ in range(3):
        shown.page.keyboard.press("Escape")
        expect(question(shown)).to_be_visible()
        shown.page.keyboard.press("Escape")
        expect(question(shown)).to_have_count(0)
        expect(field).to_have_value(written)
        expect(field).to_be_focused()
    shown.dialog("Send to orders").get_by_role("button", name="Cancel").click()
    expect(shown.page.get_by_role("dialog")).to_have_count(0)
    shown.page.evaluate("history.back()")
    shown.expect_title("Pair")


@covers("B4")
def test_signing_out_asks_too(shown: Screen) -> None:
    field = open_form(shown, "settings")
    written = write(field)
    shown.page.get_by_role("region", name="Namespace").get_by_role("button", name="Sign out").click()
    question(shown).get_by_role("button", name="Stay").click()
    expect(field).to_have_value(written)


@covers("B4")
def test_back_pressed_again_while_it_is_asked_changes_nothing(shown: Screen) -> None:
    field = open_form(shown, "settings")
    written = write(field)
    address = shown.page.url
    for _ in range(3):
        shown.page.evaluate("history.back()")
        expect(question(shown)).to_have_count(1)
        expect(shown.page).to_have_url(address)
    shown.page.keyboard.press("Escape")
    expect(field).to_have_value(written)
