"""Every page on wide and narrow screens, light and dark: nothing sticks out, all can be read, nothing flickers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, StorageState, expect

from tests.covers import covers
from tests.dashboard.contrast import offenders
from tests.dashboard.screens import NARROW, WIDE, Screen, screen
from tests.dashboard.stage import Stage
from tests.integration.serving import RunningNamespace, serving

LONG = "a-rather-long-name/of-an-entity/that-somebody-made-up-in-a-hurry-and-never-changed-again"
PLACES = {
    "overview": "overview",
    "entities": "entities",
    "entity": "entity?path=orders",
    "topic": "entity?path=events&tab=subscriptions",
    "messages": "entity?path=orders&tab=messages",
    "message": "entity?path=orders&tab=messages&message=1",
    "dead-letters": "entity?path=dead&tab=messages&view=dead-letter",
    "rules": "entity?path=events/subscriptions/large&tab=rules",
    "settings": "entity?path=orders&tab=settings",
    "long-name": f"entity?path={LONG}",
    "pair": "pair",
    "faults": "faults",
    "cost": "cost",
}
DIALOGS = {
    "create-queue": ("entities", "Create queue"),
    "send": ("entity?path=orders", "Send message"),
    "create-rule": ("entity?path=events/subscriptions/large&tab=rules", "Create rule"),
    "inject": ("faults", "Inject a fault"),
    "delete": ("entity?path=orders&tab=settings", "Delete queue"),
}


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    folder: Path = tmp_path_factory.mktemp("namespace")
    with serving(folder, "--name", "contoso", "--stores", "2") as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def something_of_everything(stage: Stage) -> None:
    stage.make("orders", max_delivery_count=7, user_metadata="x" * 200)
    stage.make("parts", enable_partitioning=True)
    stage.make("resting", status="Disabled")
    stage.make(LONG)
    stage.make("events", "topic")
    rule = {
        "name": "$Default",
        "filter": {"kind": "sql", "expression": "amount > 100", "parameters": []},
        "action": None,
    }
    stage.make("events/subscriptions/large", "subscription", rule)
    stage.send("orders", '{"order": 17, "lines": [{"what": "' + "w" * 300 + '"}]}', subject="order.created")
    stage.send("orders", "w" * 500, message_id="m" * 100, session_id="s" * 100)
    stage.make("dead")
    stage.bury("dead", MessageTooLargeForWhoeverShouldHaveTakenIt=2)
    stage.call("PUT", "/$faults/drill", {"target": "fragment/parts/3", "kind": "slow", "latency_ms": 1})


@pytest.fixture(scope="module", params=[WIDE, NARROW], ids=["wide", "narrow"])
def looked_at(
    request: pytest.FixtureRequest, browser: Browser, namespace: RunningNamespace, signed_in: StorageState
) -> Iterator[Screen]:
    with screen(browser, namespace, request.param, kept=signed_in) as shown:
        yield shown


def width_of(shown: Screen) -> str:
    size = shown.page.viewport_size
    assert size is not None
    return "wide" if size["width"] == WIDE[0] else "narrow"


def look_at(shown: Screen, name: str) -> None:
    """In both themes; the pictures are kept."""
    width = width_of(shown)
    assert shown.overflow() <= 0, f"{name} is {shown.overflow()} pixels wider than a {width} window"
    for scheme in ("light", "dark"):
        shown.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        shown.shot(f"{name}-{width}-{scheme}")
        assert offenders(shown.page) == []
    assert shown.troubles == []


def test_a_text_that_is_hard_to_read_is_found(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content(
        "<p>well<p>well<p>well<p style='color:#888'>hardly<div style='background:#333'><p style='color:#000'>not</div>"
    )
    assert [one.split(" ")[1] for one in offenders(page)] == ["hardly", "not"]
    page.close()


@covers("B4")
@pytest.mark.parametrize("name", PLACES)
def test_a_page_fits_its_window_and_can_be_read(looked_at: Screen, name: str) -> None:
    shown = looked_at
    shown.page.goto("about:blank")
    shown.go(PLACES[name])
    expect(shown.page.get_by_role("heading", level=1)).to_be_visible()
    expect(shown.page.locator(".panel").first).to_be_visible()
    for waiting in ("Asking the namespace…", "Asking both namespaces…", "Reading the meter…", "Reading…"):
        expect(shown.page.get_by_text(waiting)).to_have_count(0)
    look_at(shown, name)


@covers("B4")
@pytest.mark.parametrize("name", DIALOGS)
def test_a_dialog_fits_its_window_and_can_be_read(looked_at: Screen, name: str) -> None:
    shown = looked_at
    place, button = DIALOGS[name]
    shown.page.goto("about:blank")
    shown.go(place)
    shown.button(button).click()
    dialog = shown.page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    width, height = WIDE if width_of(shown) == "wide" else NARROW
    box = dialog.bounding_box()
    assert box is not None
    assert (box["x"] >= 0, box["y"] >= 0) == (True, True)
    assert (box["x"] + box["width"] <= width, box["y"] + box["height"] <= height) == (True, True)
    inside = dialog.locator(".inside").first
    assert inside.evaluate("(one) => one.scrollWidth - one.clientWidth") <= 0
    expect(dialog.get_by_role("button", name="Cancel")).to_be_in_viewport()
    look_at(shown, f"dialog-{name}")


@covers("B4")
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_door_fits_its_window_and_can_be_read(
    browser: Browser, namespace: RunningNamespace, size: tuple[int, int]
) -> None:
    with screen(browser, namespace, size) as shown:
        shown.page.goto(shown.address)
        expect(shown.page.get_by_label("Connection string")).to_be_visible()
        look_at(shown, "sign-in")


@covers("B4")
def test_the_theme_that_was_chosen_is_kept_and_is_there_from_the_first_moment(shown: Screen) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = shown.page.evaluate(ground)
    shown.page.emulate_media(color_scheme="dark")
    expect(shown.button("Light theme")).to_be_visible()
    shown.page.emulate_media(color_scheme="light")
    shown.button("Dark theme").click()
    dark = shown.page.evaluate(ground)
    assert dark != light
    shown.page.reload()
    expect(shown.button("Light theme")).to_be_visible()
    assert shown.page.evaluate(ground) == dark


FIRST_FIGURES = """new MutationObserver((_changes, watch) => {
    if (document.querySelectorAll(".figure .value").length < 8) return;
    watch.disconnect();
    const { dataset } = document.documentElement;
    requestAnimationFrame(() => { dataset.shownAfter = String(Math.round(performance.now())); });
}).observe(document, { childList: true, subtree: true });"""


@covers("B4")
def test_the_first_view_tells_its_figures_soon(shown: Screen, tell: Callable[[str], None]) -> None:
    """How soon is told, not judged: it depends on what else the machine does."""
    shown.page.add_init_script(FIRST_FIGURES)
    times = []
    for _ in range(5):
        shown.page.goto("about:blank")
        shown.page.goto(shown.address)
        expect(shown.page.locator("html")).to_have_attribute("data-shown-after", re.compile(r"\d+"))
        times.append(int(shown.page.locator("html").get_attribute("data-shown-after") or 0))
    tell(f"first view of the overview, from its address to its figures: {min(times)} to {max(times)} ms")


MARK = """() => {
    window.marked = [...document.querySelectorAll("#app *")].filter((one) => !one.closest(".chart"));
    window.gone = 0;
    new MutationObserver((changes) => {
        for (const change of changes) if (!change.target.closest?.(".chart")) window.gone += change.removedNodes.length;
    }).observe(document.getElementById("app"), { childList: true, subtree: true });
    return window.marked.length;
}"""
POLLS = 60


@covers("B4")
@pytest.mark.parametrize("place", ["overview", "entities", "entity?path=parts", "pair", "faults"])
def test_sixty_updates_leave_every_part_of_the_page_in_its_place(shown: Screen, place: str) -> None:
    """Time runs faster in the page: sixty seconds of updates take a few."""
    shown.page.clock.install()
    shown.page.goto("about:blank")
    shown.go(place)
    expect(shown.page.locator(".panel").first).to_be_visible()
    expect(shown.page.get_by_text("Asking")).to_have_count(0)
    answers: list[str] = []
    shown.page.on("response", lambda response: answers.append(response.url))
    shown.page.clock.run_for(3_000)
    focused = shown.page.get_by_role("region", name="Namespace").get_by_role("button", name="Sign out")
    focused.focus()
    shown.page.evaluate("scrollTo(0, 40)")
    scrolled = shown.page.evaluate("scrollY")
    assert shown.page.evaluate(MARK) > 40
    before = len(answers)
    while len(answers) < before + POLLS:
        with shown.page.expect_response(lambda response: "/$" in response.url):
            shown.page.clock.run_for(2_000)
    assert shown.page.evaluate("window.gone") == 0
    assert shown.page.evaluate("window.marked.every((one) => one.isConnected)")
    assert shown.page.evaluate("scrollY") == scrolled
    expect(focused).to_be_focused()


@covers("B4")
@pytest.mark.parametrize("name", ["faults", "entities", "topic", "messages", "dead-letters", "rules", "cost"])
def test_tables_and_tabs_can_be_read_without_moving_them_sideways(looked_at: Screen, name: str) -> None:
    shown = looked_at
    shown.page.goto("about:blank")
    shown.go(PLACES[name])
    expect(shown.page.locator(".scroll").first).to_be_visible()
    parts = shown.page.locator(".scroll, .tabs")
    assert parts.evaluate_all("(all) => all.map((one) => one.scrollWidth - one.clientWidth)") == [0] * parts.count()


@covers("B4")
def test_all_dead_letters_shown_are_selected_at_once(looked_at: Screen) -> None:
    shown = looked_at
    shown.page.goto("about:blank")
    shown.go(PLACES["dead-letters"])
    everything = shown.page.get_by_label("Select all shown")
    everything.check()
    box = everything.bounding_box()
    assert box is not None
    assert box["width"] >= 12
    expect(shown.button("Delete selected (2)")).to_be_visible()
    shown.shot(f"selected-{width_of(shown)}")
    everything.uncheck()


@covers("B4")
def test_faults_have_every_value_beside_its_name_and_are_healed_by_their_own_button(
    looked_at: Screen, stage: Stage
) -> None:
    shown = looked_at
    fault = {"target": f"entity/{LONG}", "kind": "throttled", "probability": 0.125, "for_s": 3600}
    stage.call("PUT", "/$faults/a-drill-with-a-name-that-is-rather-long", fault)
    shown.page.goto("about:blank")
    shown.go("faults")
    row = shown.row("Injected faults", LONG)
    expect(row.get_by_role("cell")).to_have_count(8)
    if width_of(shown) == "narrow":
        heads = "(all) => all.map((one) => getComputedStyle(one, '::before').content.replaceAll('\"', ''))"
        told = row.get_by_role("cell").evaluate_all(heads)
        assert told == ["Fault", "Of", "What", "Hits", "State", "Since (UTC)", "Ends", "none"]
    for cell in row.get_by_role("cell").all():
        expect(cell).to_be_visible()
        assert cell.evaluate("(one) => one.scrollWidth - one.clientWidth") <= 0
    shown.shot(f"faults-rows-{width_of(shown)}")
    row.get_by_role("button", name="Heal").click()
    expect(row).to_have_count(0)
