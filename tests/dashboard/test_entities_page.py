"""The list of entities: found among many, created with every setting, changed, emptied and deleted."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Locator, expect

from tests.covers import covers
from tests.dashboard.screens import Screen
from tests.dashboard.stage import Stage

MANY = 300
KINDS = ("queue", "topic", "subscription")
ELSEWHERE = {"name", "topic_name", "authorization_rules"}
"""Not set in a form of settings: where an entity stands, and its keys."""


@pytest.fixture(scope="module", autouse=True)
def many_entities(stage: Stage) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda index: stage.make(f"many/part-{index:03}"), range(MANY)))


def names(shown: Screen) -> list[str]:
    return shown.page.get_by_role("table", name="Entities").locator("tbody tr td:first-child a").all_inner_texts()


def expect_count(shown: Screen, count: int) -> None:
    word = "entity" if count == 1 else "entities"
    expect(shown.panel(f"{count} {word}")).to_be_visible()


def open_form(shown: Screen, kind: str) -> Locator:
    shown.button(f"Create {kind}").click()
    return shown.dialog(f"Create {kind}")


def submit(form: Locator, kind: str) -> None:
    form.get_by_role("button", name=f"Create {kind}").click()
    expect(form).to_have_count(0)


@covers("B4")
def test_a_part_of_a_path_in_any_case_finds_an_entity_among_many(shown: Screen) -> None:
    shown.go("entities")
    shown.page.get_by_label("Search").fill("PART-217")
    expect_count(shown, 1)
    assert names(shown) == ["many/part-217"]
    shown.page.get_by_role("link", name="many/part-217").click()
    shown.expect_title("many/part-217")


@covers("B4")
def test_a_search_stands_in_the_address_and_comes_back_with_it(shown: Screen) -> None:
    shown.go("entities?search=part-29")
    expect_count(shown, 10)
    expect(shown.page.get_by_label("Search")).to_have_value("part-29")
    shown.page.get_by_label("Search").fill("no such thing")
    expect(shown.page.get_by_text("No path has this part.")).to_be_visible()


@covers("B4")
def test_a_long_list_is_shown_part_by_part_and_none_is_left_out(shown: Screen) -> None:
    shown.go("entities?search=many/")
    pager = shown.page.get_by_role("navigation", name="Parts of the list")
    seen: list[str] = []
    for start in range(0, MANY, 50):
        expect(pager).to_contain_text(f"{start + 1} to {start + 50} of {MANY}")
        expect(shown.page.get_by_role("link", name=f"many/part-{start:03}")).to_be_visible()
        seen += names(shown)
        if start + 50 < MANY:
            pager.get_by_role("button", name="Next").click()
    assert seen == [f"many/part-{index:03}" for index in range(MANY)]
    expect(pager.get_by_role("button", name="Next")).to_be_disabled()


@covers("B4", "P8", "P9")
def test_partitioning_is_offered_with_the_size_that_comes_of_it(shown: Screen, stage: Stage) -> None:
    shown.go("entities")
    form = open_form(shown, "queue")
    form.get_by_label("Name", exact=True).fill("parts")
    form.get_by_label(re.compile("^Maximum size")).select_option("2048")
    expect(form.get_by_text("Maximum size: 2 GB", exact=True)).to_be_visible()
    form.get_by_label(re.compile("partitioning", re.IGNORECASE)).check()
    expect(form.get_by_text("Maximum size: 2 GB \u00d7 16 fragments = 32 GB")).to_be_visible()
    shown.shot("create-queue")
    submit(form, "queue")
    found = stage.entity("parts")
    assert (found["partitioned"], found["max_size_bytes"], len(found["fragments"])) == (
        True,
        16 * 2048 * 1024 * 1024,
        16,
    )
    shown.page.get_by_label("Search").fill("parts")
    expect(shown.row("Entities", "parts")).to_contain_text("of 32 GB")
    shown.go("entity?path=parts")
    expect(shown.page.get_by_text("All fragments lie in one messaging store")).to_be_visible()
    expect(shown.page.get_by_text("--brokers N or --stores N")).to_be_visible()


@covers("B4")
@pytest.mark.parametrize("kind", KINDS)
def test_the_form_has_every_setting_of_an_entity(shown: Screen, stage: Stage, kind: str) -> None:
    labels = [one["label"] for one in stage.call("GET", "/$api/settings")[kind] if one["name"] not in ELSEWHERE]
    if kind == "subscription":
        stage.make("to-be-subscribed", "topic")
        shown.go("entity?path=to-be-subscribed&tab=subscriptions")
    else:
        shown.go("entities")
    form = open_form(shown, kind)
    form.get_by_text("More settings").click()
    for label in labels:
        expect(form.get_by_label(label, exact=True)).to_be_visible()


@covers("B4")
def test_settings_of_the_form_arrive_at_the_entity(shown: Screen, stage: Stage) -> None:
    shown.go("entities")
    form = open_form(shown, "queue")
    form.get_by_label("Name", exact=True).fill("special")
    form.get_by_label("Maximum delivery count").fill("3")
    form.get_by_label("Lock duration", exact=True).fill("90")
    form.get_by_label("Unit of Lock duration").select_option("s")
    form.get_by_label("Require sessions").check()
    form.get_by_text("More settings").click()
    form.get_by_label("User metadata").fill("kept by the accountants")
    submit(form, "queue")
    found = stage.entity("special")["settings"]
    told = (found["max_delivery_count"], found["lock_duration_s"], found["requires_session"], found["user_metadata"])
    assert told == (3, 90.0, True, "kept by the accountants")


@covers("B4")
def test_a_name_that_is_not_allowed_is_refused_in_the_form_and_nothing_typed_is_lost(shown: Screen) -> None:
    shown.expected_statuses.update({400, 409})
    shown.go("entities")
    form = open_form(shown, "queue")
    for name in ("/wrong//", "many/part-000"):
        form.get_by_label("Name", exact=True).fill(name)
        form.get_by_role("button", name="Create queue").click()
        expect(form.get_by_role("alert")).to_be_visible()
        expect(form.get_by_label("Name", exact=True)).to_have_value(name)


@covers("B4", "M9")
def test_a_topic_gets_a_subscription_with_a_rule_of_its_own(shown: Screen, stage: Stage) -> None:
    shown.go("entities")
    form = open_form(shown, "topic")
    form.get_by_label("Name", exact=True).fill("events")
    submit(form, "topic")
    shown.page.get_by_label("Search").fill("events")
    shown.button("Subscriptions of events").click()
    form = open_form(shown, "subscription")
    form.get_by_label("Name", exact=True).fill("large")
    form.get_by_label("Only some of the topic's messages").check()
    form.get_by_label("Expression", exact=True).fill("amount > 100")
    submit(form, "subscription")
    expect(shown.page.get_by_role("link", name="large", exact=True)).to_be_visible()
    rules = stage.call("GET", "/$api/rules?path=events/subscriptions/large")["rules"]
    assert [(one["name"], one["filter"]["expression"]) for one in rules] == [("$Default", "amount > 100")]


@covers("B4")
def test_a_setting_is_changed_and_what_was_fixed_at_creation_cannot_be(shown: Screen, stage: Stage) -> None:
    stage.make("changing")
    shown.go("entity?path=changing&tab=settings")
    expect(shown.page.get_by_label("Require sessions")).to_be_disabled()
    expect(shown.button("Save settings")).to_be_disabled()
    shown.page.get_by_label("Maximum delivery count").fill("7")
    shown.button("Save settings").click()
    expect(shown.page.get_by_text("The settings are saved.")).to_be_visible()
    assert stage.entity("changing")["settings"]["max_delivery_count"] == 7
    expect(shown.button("Save settings")).to_be_disabled()


@covers("B4")
def test_an_entity_is_disabled_after_a_question_and_enabled_again(shown: Screen, stage: Stage) -> None:
    stage.make("resting")
    shown.go("entity?path=resting&tab=settings")
    shown.button("Disable").click()
    question = shown.dialog("Disable resting?")
    question.get_by_role("button", name="Cancel").click()
    assert stage.entity("resting")["status"] == "Active"
    shown.button("Disable").click()
    question.get_by_role("button", name="Disable").click()
    expect(shown.page.locator(".title").get_by_text("Disabled", exact=True)).to_be_visible()
    assert stage.entity("resting")["status"] == "Disabled"
    shown.button("Enable").click()
    expect(shown.page.locator(".title").get_by_text("Active", exact=True)).to_be_visible()


@covers("B4")
def test_messages_are_purged_after_a_question_and_the_entity_stays(shown: Screen, stage: Stage) -> None:
    stage.make("full")
    for _ in range(3):
        stage.send("full", "gone soon")
    shown.go("entity?path=full&tab=settings")
    shown.button("Purge messages").click()
    question = shown.dialog("Purge full?")
    question.get_by_role("button", name="Cancel").click()
    assert len(stage.messages("full")) == 3
    shown.button("Purge messages").click()
    question.get_by_role("button", name="Purge messages").click()
    expect(question).to_have_count(0)
    assert stage.messages("full") == []


@covers("B4")
def test_an_entity_is_deleted_only_by_who_types_its_path(shown: Screen, stage: Stage) -> None:
    shown.expected_statuses.add(404)
    stage.make("doomed")
    shown.go("entity?path=doomed&tab=settings")
    shown.button("Delete queue").click()
    question = shown.dialog("Delete doomed?")
    confirm = question.get_by_role("button", name="Delete queue")
    question.get_by_label("Type doomed to confirm").fill("domed")
    expect(confirm).to_be_disabled()
    question.get_by_label("Type doomed to confirm").fill("doomed")
    confirm.click()
    shown.expect_title("Entities")
    assert stage.call("GET", "/$api/entities?search=doomed")["count"] == 0
