"""What takes a while says so, what is quick does not flicker, and no answer comes after a newer one."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Route, expect

from tests.covers import covers
from tests.dashboard.screens import Screen
from tests.dashboard.stage import Stage


@pytest.fixture(scope="module", autouse=True)
def messages(stage: Stage) -> None:
    stage.make("orders")
    stage.bury("orders", TooOld=2, TooLarge=1)
    for session in ("anna", "anna", "bert", "carl"):
        stage.send("orders", f"for {session}", session_id=session)
    stage.make("others")


class Held:
    """Questions with a part in their address wait until they are let go."""

    def __init__(self, shown: Screen, route: str, part: str) -> None:
        self._part = part
        self._is_over = False
        self._waiting: list[Route] = []
        shown.page.route(f"**/$api/{route}?*", self._take)

    def _take(self, route: Route) -> None:
        if self._part in route.request.url and not self._is_over:
            self._waiting.append(route)
        else:
            route.continue_()

    def let_go(self) -> None:
        self._is_over = True
        for route in self._waiting:
            route.continue_()


@pytest.fixture
def browsing(shown: Screen) -> Iterator[Screen]:
    shown.go("entity?path=orders&tab=messages")
    expect(rows(shown, "Active")).to_have_count(4)
    yield shown
    shown.page.unroute_all(behavior="ignoreErrors")


def rows(shown: Screen, table: str) -> Locator:
    return shown.page.get_by_role("table", name=table).locator("tbody tr")


def busy(shown: Screen) -> Locator:
    return shown.page.locator("[aria-busy='true']")


def choose(shown: Screen, label: str) -> None:
    shown.page.locator(".choice label").filter(has_text=re.compile(f"^{label}")).click()


def expect_loading(shown: Screen) -> None:
    expect(busy(shown)).to_have_count(1)
    expect(shown.page.get_by_role("status").get_by_text("Loading…")).to_be_visible()


def expect_loaded(shown: Screen) -> None:
    expect(busy(shown)).to_have_count(0)
    expect(shown.page.get_by_text("Loading…")).to_have_count(0)


@covers("B4")
def test_another_state_says_that_it_is_loading_and_nothing_old_can_be_used_meanwhile(browsing: Screen) -> None:
    held = Held(browsing, "messages", "dead-letter")
    choose(browsing, "Dead letters")
    expect_loading(browsing)
    browsing.shot("loading")
    assert busy(browsing).evaluate("(one) => one.inert")
    held.let_go()
    expect(rows(browsing, "Dead letters")).to_have_count(3)
    expect_loaded(browsing)
    held = Held(browsing, "messages", "TooOld")
    browsing.page.get_by_label("Reason").select_option(label="TooOld (2)")
    expect_loading(browsing)
    held.let_go()
    expect(rows(browsing, "Dead letters")).to_have_count(2)
    expect_loaded(browsing)


@covers("B4")
def test_another_session_and_a_refresh_say_that_they_are_loading(browsing: Screen) -> None:
    held = Held(browsing, "messages", "anna")
    browsing.page.get_by_label("Session").fill("anna")
    expect_loading(browsing)
    held.let_go()
    expect(rows(browsing, "Active")).to_have_count(2)
    expect_loaded(browsing)
    held = Held(browsing, "messages", "anna")
    browsing.button("Refresh").click()
    expect_loading(browsing)
    assert not busy(browsing).evaluate("(one) => one.inert")
    held.let_go()
    expect_loaded(browsing)


@covers("B4")
def test_a_search_says_that_it_is_loading(shown: Screen) -> None:
    shown.go("entities")
    expect(rows(shown, "Entities")).to_have_count(2)
    held = Held(shown, "entities", "search=oth")
    shown.page.get_by_label("Search").fill("oth")
    expect_loading(shown)
    held.let_go()
    expect(rows(shown, "Entities")).to_have_count(1)
    expect_loaded(shown)
    shown.page.unroute_all(behavior="ignoreErrors")


SIGNS = """() => {
    window.signs = 0;
    new MutationObserver(() => { window.signs += document.querySelectorAll(".loading").length; })
        .observe(document.getElementById("app"), { childList: true, subtree: true });
}"""


@covers("B4")
def test_what_is_answered_at_once_shows_no_sign(shown: Screen) -> None:
    """The page's clock goes on by hand: a slow machine has as little time before the answer as a quick one."""
    shown.page.clock.install()
    shown.go("entity?path=orders&tab=messages")
    expect(rows(shown, "Active")).to_have_count(4)
    shown.page.clock.pause_at("2100-01-01")
    shown.page.evaluate(SIGNS)
    choose(shown, "Dead letters")
    expect(shown.page.get_by_role("table", name="Dead letters")).to_be_visible()  # now timers are set
    shown.page.clock.run_for(140)
    expect(rows(shown, "Dead letters")).to_have_count(3)
    shown.page.clock.run_for(1_000)
    expect_loaded(shown)
    assert shown.page.evaluate("window.signs") == 0


@covers("B4")
def test_a_slow_answer_does_not_take_the_place_of_a_newer_one(browsing: Screen) -> None:
    slow = Held(browsing, "messages", "anna")
    browsing.page.get_by_label("Session").fill("anna")
    expect_loading(browsing)
    browsing.page.get_by_label("Session").fill("bert")
    expect(rows(browsing, "Active")).to_have_count(1)
    expect(rows(browsing, "Active")).to_contain_text("for bert")
    slow.let_go()
    browsing.page.get_by_label("Session").fill("")
    expect(rows(browsing, "Active")).to_have_count(4)
    expect_loaded(browsing)


@covers("B4")
def test_a_slow_search_does_not_take_the_place_of_a_newer_one(shown: Screen) -> None:
    shown.go("entities")
    expect(rows(shown, "Entities")).to_have_count(2)
    slow = Held(shown, "entities", "search=ord")
    shown.page.get_by_label("Search").fill("ord")
    expect_loading(shown)
    shown.page.get_by_label("Search").fill("oth")
    expect(rows(shown, "Entities")).to_have_count(1)
    slow.let_go()
    with shown.page.expect_response(lambda response: "search=oth" in response.url):
        pass
    expect(rows(shown, "Entities")).to_have_count(1)
    expect(rows(shown, "Entities")).to_contain_text("others")
    shown.page.unroute_all(behavior="ignoreErrors")
