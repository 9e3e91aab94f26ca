"""Breaking a part of the namespace on purpose, and healing it, by hand."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tests.covers import covers
from tests.dashboard.screens import Screen
from tests.dashboard.stage import Refused, Stage


@pytest.fixture(scope="module", autouse=True)
def queue(stage: Stage) -> None:
    stage.make("orders")


@pytest.fixture
def form(shown: Screen, stage: Stage) -> Locator:
    stage.call("DELETE", "/$faults")
    shown.go("faults")
    expect(shown.page.get_by_text("Nothing is broken on purpose.")).to_be_visible()
    shown.button("Inject a fault").click()
    return shown.dialog("Inject a fault")


def inject(form: Locator) -> None:
    form.get_by_role("button", name="Inject", exact=True).click()
    expect(form).to_have_count(0)


@covers("B4", "B3")
def test_an_entity_is_broken_and_healed_and_clients_feel_it(shown: Screen, stage: Stage, form: Locator) -> None:
    form.get_by_label("What fails").select_option("entity")
    expect(form.get_by_role("button", name="Inject", exact=True)).to_be_disabled()
    form.get_by_label("Entity", exact=True).fill("orders")
    inject(form)
    fault = shown.row("Injected faults", "entity/orders")
    expect(fault).to_contain_text("unavailable")
    expect(fault).to_contain_text("active")
    with pytest.raises(Refused) as refused:
        stage.send("orders", "x")
    assert refused.value.status >= 500
    shown.go("overview")
    expect(shown.panel("contoso").get_by_text("1 injected")).to_be_visible()
    shown.go("faults")
    shown.row("Injected faults", "unavailable").get_by_role("button").click()
    expect(shown.page.get_by_text("Nothing is broken on purpose.")).to_be_visible()
    stage.send("orders", "y")


@covers("B4", "B3")
def test_a_fault_is_told_with_how_how_often_and_how_long(shown: Screen, stage: Stage, form: Locator) -> None:
    form.get_by_label("What fails").select_option("store")
    form.get_by_label("How", exact=True).select_option("slow")
    form.get_by_label("Milliseconds more").fill("5")
    form.get_by_label("Of 100 operations hit").fill("12.5")
    form.get_by_label("After seconds").fill("300")
    inject(form)
    fault = shown.row("Injected faults", "store/0")
    for told in ("slow 5 ms", "12.5 %", "in 5 min"):
        expect(fault).to_contain_text(told)
    (found,) = stage.call("GET", "/$faults")["faults"]
    assert (found["target"], found["kind"], found["latency_ms"], found["probability"]) == ("store/0", "slow", 5, 0.125)


@covers("B4", "B3")
def test_everything_is_healed_at_once_after_a_question(shown: Screen, stage: Stage, form: Locator) -> None:
    form.get_by_role("button", name="Cancel").click()
    for name in ("a", "b"):
        stage.call("PUT", f"/$faults/{name}", {"target": f"entity/{name}", "kind": "throttled"})
    expect(shown.row("Injected faults", "entity/")).to_have_count(2)
    expect(shown.row("Injected faults", "entity/a")).to_contain_text("pending")
    shown.button("Heal everything").click()
    shown.dialog("Heal everything").get_by_role("button", name="Heal everything").click()
    expect(shown.page.get_by_text("Nothing is broken on purpose.")).to_be_visible()
    assert stage.call("GET", "/$faults")["faults"] == []


@covers("B4", "B3")
def test_a_fault_that_cannot_be_is_refused_in_the_form(shown: Screen, form: Locator) -> None:
    shown.expected_statuses.add(400)
    form.get_by_label("What fails").select_option("fragment")
    form.get_by_label("Entity", exact=True).fill("orders")
    form.get_by_label("Fragment", exact=True).select_option("9")
    form.get_by_role("button", name="Inject", exact=True).click()
    expect(form.get_by_role("alert")).to_be_visible()


@covers("B4", "B3")
def test_with_the_whole_namespace_out_the_dashboard_can_still_heal_it(
    shown: Screen, stage: Stage, form: Locator
) -> None:
    shown.expected_statuses.update({500, 503})
    inject(form)
    expect(shown.row("Injected faults", "namespace")).to_contain_text("active")
    shown.go("overview")
    shown.go("faults")
    shown.row("Injected faults", "unavailable").get_by_role("button").click()
    expect(shown.page.get_by_text("Nothing is broken on purpose.")).to_be_visible()
    stage.send("orders", "again")
