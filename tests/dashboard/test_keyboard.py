"""Without a mouse: everything that somebody does in a first minute, by keys alone."""

from __future__ import annotations

from playwright.sync_api import Browser, Locator, expect

from tests.covers import covers
from tests.dashboard.screens import Screen, screen
from tests.dashboard.stage import Stage
from tests.integration.serving import RunningNamespace

MAX_TABS = 60
FOCUSED = """() => {
    const one = document.activeElement;
    const style = getComputedStyle(one.matches("input[type=radio]") ? one.nextElementSibling : one);
    const box = one.getBoundingClientRect();
    return {
        name: one.getAttribute("aria-label") ?? one.labels?.[0]?.innerText ?? one.innerText ?? "",
        kind: one.tagName.toLowerCase(),
        isSeen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
        isInside: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
        top: box.top + scrollY, inDialog: Boolean(one.closest("dialog")),
    };
}"""


def press(shown: Screen, *keys: str) -> None:
    for key in keys:
        shown.page.keyboard.press(key)


def tab_to(shown: Screen, name: str, kind: str | None = None) -> None:
    """With Tab alone, as often as it takes; on the way every stop can be seen."""
    passed = []
    for _ in range(MAX_TABS):
        press(shown, "Tab")
        focused = shown.page.evaluate(FOCUSED)
        passed.append(focused["name"])
        if focused["kind"] != "body":
            assert focused["isSeen"], f"nobody sees that the focus is on {focused}"
            assert focused["isInside"], f"out of sight: {focused}"
        if focused["name"].strip() == name and kind in (None, focused["kind"]):
            return
    raise AssertionError(f"no way to {name}: {passed}")


def expect_arrived(shown: Screen, title: str) -> None:
    """The next Tab starts at the page, not at the link that led to it."""
    expect(shown.page.get_by_role("heading", level=1, name=title, exact=True)).to_be_focused()


def has_focus(place: Locator) -> bool:
    found: bool = place.evaluate("(one) => one.contains(document.activeElement)")
    return found


@covers("B4")
def test_a_first_message_is_sent_and_looked_at_without_a_mouse(
    browser: Browser, namespace: RunningNamespace, stage: Stage
) -> None:
    with screen(browser, namespace) as shown:
        keyboard = shown.page.keyboard
        shown.page.goto(shown.address)
        expect(shown.page.get_by_label("Connection string")).to_be_focused()
        keyboard.insert_text(namespace.connection_string)
        press(shown, "Enter")
        expect_arrived(shown, "Overview")

        tab_to(shown, "Entities", "a")
        press(shown, "Enter")
        expect_arrived(shown, "Entities")
        tab_to(shown, "Create queue")
        press(shown, "Enter")
        expect(shown.dialog("Create queue").get_by_label("Name", exact=True)).to_be_focused()
        keyboard.type("by-keys")
        press(shown, "Enter")
        expect(shown.dialog("Create queue")).to_have_count(0)
        expect(shown.page.get_by_role("link", name="by-keys")).to_be_visible()

        tab_to(shown, "by-keys", "a")
        press(shown, "Enter")
        expect_arrived(shown, "by-keys")
        tab_to(shown, "Send message")
        press(shown, "Enter")
        expect(shown.dialog("Send to by-keys").get_by_label("Body", exact=True)).to_be_focused()
        keyboard.type("typed")
        tab_to(shown, "Send", "button")
        press(shown, "Enter")
        expect(shown.dialog("Send to by-keys")).to_have_count(0)
        assert [one["body"]["text"] for one in stage.messages("by-keys")] == ["typed"]

        tab_to(shown, "Messages", "a")
        press(shown, "Enter")
        expect(shown.page.get_by_role("table", name="Active")).to_be_visible()
        tab_to(shown, "Open message 1")
        press(shown, "Enter")
        detail = shown.dialog("Message 1")
        expect(detail.get_by_role("region", name="Body")).to_have_text("typed")
        press(shown, "Escape")
        expect(detail).to_have_count(0)
        expect(shown.button("Open message 1")).to_be_focused()


@covers("B4")
def test_escape_closes_every_dialog_and_gives_the_focus_back(shown: Screen, stage: Stage) -> None:
    stage.make("dialogs")
    for place, button in [
        ("entities", "Create queue"),
        ("entities", "Create topic"),
        ("entity?path=dialogs", "Send message"),
        ("entity?path=dialogs&tab=settings", "Delete queue"),
        ("entity?path=dialogs&tab=settings", "Disable"),
        ("faults", "Inject a fault"),
    ]:
        shown.go(place)
        shown.button(button).focus()
        press(shown, "Enter")
        dialog = shown.page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        assert has_focus(dialog), f"the focus is not in the dialog of {button}"
        press(shown, "Escape")
        expect(dialog).to_have_count(0)
        expect(shown.button(button)).to_be_focused()


@covers("B4")
def test_the_focus_does_not_leave_a_dialog_while_it_is_open(shown: Screen) -> None:
    shown.go("entities")
    shown.button("Create queue").click()
    form = shown.dialog("Create queue")
    expect(form.get_by_text("More settings")).to_be_visible()
    for _ in range(40):
        press(shown, "Tab")
        focused = shown.page.evaluate(FOCUSED)
        assert focused["inDialog"] or focused["kind"] == "body", focused


@covers("B4")
def test_what_comes_before_the_page_can_be_skipped_and_the_order_is_that_of_reading(
    shown: Screen, stage: Stage
) -> None:
    stage.make("ordered")
    shown.go("entity?path=ordered")
    expect_arrived(shown, "ordered")
    skip = shown.page.get_by_role("link", name="Skip to the page")
    skip.focus()
    assert (skip.bounding_box() or {"width": 0.0})["width"] > 40
    press(shown, "Enter")
    expect_arrived(shown, "ordered")
    tops = []
    for _ in range(4):
        press(shown, "Tab")
        tops.append(round(shown.page.evaluate(FOCUSED)["top"] / 40))
    assert tops == sorted(tops)


@covers("B4")
def test_views_side_by_side_are_chosen_with_the_arrows(shown: Screen, stage: Stage) -> None:
    stage.make("arrows")
    shown.go("entity?path=arrows&tab=messages")
    shown.page.get_by_role("radio", name="Active").focus()
    press(shown, "ArrowRight")
    expect(shown.page.get_by_role("radio", name="Scheduled")).to_be_checked()
    press(shown, "ArrowRight")
    expect(shown.page.get_by_role("radio", name="Deferred")).to_be_checked()
    expect(shown.page.get_by_role("radio", name="Deferred")).to_be_focused()
