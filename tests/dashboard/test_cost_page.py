"""What operations cost: figures that are there at once, and grow."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.covers import covers
from tests.dashboard.screens import Screen
from tests.dashboard.stage import Stage


def number(text: str) -> float:
    return float(re.sub(r"[^\d.]", "", text))


@covers("B4")
def test_the_bill_of_today_names_its_prices_and_grows_with_what_is_done(shown: Screen, stage: Stage) -> None:
    stage.make("orders")
    shown.go("cost")
    expect(shown.page.get_by_text("by the price list")).to_contain_text("USD")
    expect(shown.figure("Today")).to_contain_text("USD")
    for _ in range(10):
        stage.send("orders", "x")
    counted = shown.row("Operations counted", "send")
    expect(counted.get_by_role("cell").nth(3)).to_have_text("10")
    expect(
        shown.page.get_by_role("table", name="Bill of today").get_by_role("row", name=re.compile("^send"))
    ).to_contain_text("10")
    before = number(shown.figure("Today").inner_text())
    assert before > 0
    for _ in range(15):
        stage.send("orders", "x" * 100_000)
    expect(counted.get_by_role("cell").nth(3)).to_have_text("25")
    expect(counted.get_by_role("cell").nth(4)).not_to_have_text("25")
    assert number(shown.figure("Today").inner_text()) >= before


@covers("B4")
def test_without_a_failover_nothing_is_said_to_have_been_spent_on_one(shown: Screen) -> None:
    shown.go("cost")
    expect(shown.figure("Failover")).to_have_text("none")
    expect(shown.panel("What the failover cost")).to_have_count(0)
