"""Who gets in, what a key is good for on the screen, and that nothing works without one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.covers import covers
from tests.dashboard.screens import Screen, screen
from tests.dashboard.stage import Stage
from tests.integration.serving import RunningNamespace

NOT_SIGNED_IN = 401
FORBIDDEN = 403
MESSAGE = {"body": {"text": "hello"}}


@pytest.fixture(scope="module", autouse=True)
def entities(stage: Stage) -> None:
    stage.make("orders")
    stage.make("bills")
    stage.make("events", "topic")
    stage.send("orders", "a secret of orders")


@pytest.fixture
def door(browser: Browser, namespace: RunningNamespace) -> Iterator[Screen]:
    """Before anybody has signed in."""
    with screen(browser, namespace) as one:
        yield one


def link_to(namespace: RunningNamespace) -> str:
    command = [sys.executable, "-m", "tandembus", "dashboard", "--data", str(namespace.data), "--json"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    link: str = json.loads(printed)["link"]
    return link


@covers("B4")
def test_a_connection_string_opens_the_overview_and_stays_nowhere_in_the_page(
    door: Screen, namespace: RunningNamespace
) -> None:
    door.sign_in(namespace.connection_string)
    expect(door.page.get_by_role("region", name="Namespace")).to_contain_text(
        "RootManageSharedAccessKey: Listen, Manage, Send"
    )
    kept = "JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]) + document.body.innerHTML"
    assert namespace.key not in door.page.evaluate(kept)


@covers("B4")
def test_a_session_outlives_a_reload_of_the_page(door: Screen, namespace: RunningNamespace) -> None:
    door.sign_in(namespace.connection_string)
    door.page.reload()
    door.expect_title("Overview")


@covers("B4")
def test_a_printed_link_signs_in_once_and_its_code_leaves_the_address(
    door: Screen, namespace: RunningNamespace
) -> None:
    door.page.goto(link_to(namespace))
    door.expect_title("Overview")
    assert "sign-in" not in door.page.url


@covers("B4")
def test_a_printed_link_that_was_used_is_refused_with_a_way_out(
    browser: Browser, door: Screen, namespace: RunningNamespace
) -> None:
    link = link_to(namespace)
    door.page.goto(link)
    door.expect_title("Overview")
    with screen(browser, namespace) as late:
        late.expected_statuses.add(NOT_SIGNED_IN)
        late.page.goto(link)
        expect(late.page.get_by_role("status")).to_contain_text("tandembus dashboard")
        expect(late.page.get_by_label("Connection string")).to_be_visible()


@covers("B4")
def test_a_wrong_key_is_refused_and_the_form_can_be_tried_again(door: Screen, namespace: RunningNamespace) -> None:
    door.expected_statuses.add(NOT_SIGNED_IN)
    door.page.goto(door.address)
    field = door.page.get_by_label("Connection string")
    for wrong in (namespace.connection_string.replace(namespace.key, "d3Jvbmc="), "not a connection string"):
        field.fill(wrong)
        door.expected_statuses.add(400)
        door.button("Sign in").click()
        expect(door.page.get_by_role("alert")).to_be_visible()
    field.fill(namespace.connection_string)
    door.button("Sign in").click()
    door.expect_title("Overview")


@covers("B4")
def test_nothing_is_shown_or_answered_before_signing_in(door: Screen) -> None:
    door.expected_statuses.add(NOT_SIGNED_IN)
    for place in ("", "entities", "entity?path=orders&tab=messages", "pair", "faults", "cost"):
        door.go(place)
        expect(door.page.get_by_label("Connection string")).to_be_visible()
        assert "orders" not in door.page.inner_text("body")
    for route in ("overview", "entities", "entity?path=orders", "messages?path=orders", "pair", "cost", "settings"):
        assert door.status_of("GET", f"/$api/{route}") == NOT_SIGNED_IN
    assert door.status_of("POST", "/$api/messages?path=orders", MESSAGE) == NOT_SIGNED_IN


@covers("B4")
def test_after_signing_out_the_page_can_do_nothing_more(shown: Screen) -> None:
    shown.expected_statuses.add(NOT_SIGNED_IN)
    shown.button("Sign out").click()
    expect(shown.page.get_by_label("Connection string")).to_be_visible()
    assert shown.status_of("GET", "/$api/overview") == NOT_SIGNED_IN
    shown.page.reload()
    expect(shown.page.get_by_label("Connection string")).to_be_visible()


@covers("B4")
def test_a_cookie_is_worth_nothing_in_a_request_that_another_site_could_make(shown: Screen) -> None:
    shown.expected_statuses.add(NOT_SIGNED_IN)
    assert shown.page.evaluate("fetch('/$api/overview').then((answer) => answer.status)") == NOT_SIGNED_IN
    assert shown.page.evaluate("document.cookie") == ""


@covers("B4")
def test_a_key_for_listening_shows_messages_and_no_way_to_send_or_change(door: Screen, stage: Stage) -> None:
    door.sign_in(stage.policy("listens", ["Listen"]))
    pages = door.page.get_by_role("navigation", name="Pages")
    assert pages.get_by_role("link").all_inner_texts() == ["Overview", "Entities"]
    door.go("entity?path=orders&tab=messages")
    expect(door.row("Active", "a secret of orders")).to_be_visible()
    for absent in ("Send message", "Create queue"):
        expect(door.button(absent)).to_have_count(0)
    expect(door.page.get_by_role("link", name="Settings")).to_have_count(0)
    door.page.get_by_role("button", name="Open message").click()
    expect(door.page.get_by_role("region", name="Body")).to_have_text("a secret of orders")
    expect(door.button("Resend…")).to_have_count(0)


@covers("B4")
def test_a_key_for_listening_is_refused_what_the_page_does_not_offer(door: Screen, stage: Stage) -> None:
    door.expected_statuses.add(FORBIDDEN)
    door.sign_in(stage.policy("listens-too", ["Listen"]))
    refused = [
        ("POST", "/$api/messages?path=orders", MESSAGE),
        ("PUT", "/$api/entity?path=new", {"kind": "queue", "settings": {}}),
        ("PATCH", "/$api/entity?path=orders", {"settings": {"max_delivery_count": 3}}),
        ("DELETE", "/$api/entity?path=orders", None),
        ("GET", "/$api/pair", None),
        ("GET", "/$api/cost", None),
        ("GET", "/$faults", None),
        ("GET", "/$policies", None),
    ]
    assert [door.status_of(*one) for one in refused] == [FORBIDDEN] * len(refused)


@covers("B4")
def test_a_key_for_sending_sends_and_sees_no_messages(door: Screen, stage: Stage) -> None:
    door.expected_statuses.add(FORBIDDEN)
    door.sign_in(stage.policy("sends", ["Send"]))
    door.go("entity?path=bills")
    door.button("Send message").click()
    sending = door.dialog("Send to bills")
    sending.get_by_label("Body", exact=True).fill("from somebody who may only send")
    sending.get_by_role("button", name="Send", exact=True).click()
    expect(sending).to_have_count(0)
    assert [one["body"]["text"] for one in stage.messages("bills")] == ["from somebody who may only send"]
    expect(door.page.get_by_role("link", name="Messages")).to_have_count(0)
    assert door.status_of("GET", "/$api/messages?path=bills") == FORBIDDEN
    assert door.status_of("POST", "/bills/$purge") == FORBIDDEN


@covers("B4")
def test_the_key_of_one_entity_shows_that_entity_and_no_other(door: Screen, stage: Stage) -> None:
    door.expected_statuses.update({NOT_SIGNED_IN, FORBIDDEN, 404})
    door.sign_in(stage.policy("one", ["Listen", "Send"], entity="orders"), title="orders")
    expect(door.page.get_by_role("navigation", name="Pages").get_by_role("link")).to_have_count(0)
    for place in ("entities", "overview", "faults"):
        door.go(place)
        door.expect_title("orders")
    listed = "fetch('/$api/entities', {headers: {'X-Tandembus': '1'}}).then((answer) => answer.json())"
    assert [one["path"] for one in door.page.evaluate(listed)["entities"]] == ["orders"]
    assert door.status_of("GET", "/$api/messages?path=bills") == FORBIDDEN
    assert door.status_of("POST", "/$api/messages?path=bills", MESSAGE) == FORBIDDEN


@covers("B4")
def test_a_session_ends_when_its_key_is_made_anew(door: Screen, stage: Stage) -> None:
    door.expected_statuses.add(NOT_SIGNED_IN)
    door.sign_in(stage.policy("leaver", ["Listen"]))
    for key in ("primary", "secondary"):
        stage.call("POST", f"/$policies/leaver/regenerate?key={key}")
    expect(door.page.get_by_label("Connection string")).to_be_visible()


INJECT = """() => {
    const make = (tag, parts) => document.body.append(Object.assign(document.createElement(tag), parts));
    make("script", { textContent: "window.hit = 1" });
    make("div", { innerHTML: "<img src=data:, onerror='window.hit = 2'>" });
    make("script", { src: "data:text/javascript,window.hit = 3" });
    make("iframe", { src: "data:text/html,hello" });
}"""
COUNT = """addEventListener("securitypolicyviolation", () => {
    const { dataset } = document.documentElement;
    dataset.refused = String(Number(dataset.refused ?? 0) + 1);
});"""


@covers("B4")
def test_what_gets_into_the_page_by_some_other_way_is_not_run(door: Screen, namespace: RunningNamespace) -> None:
    door.page.add_init_script(COUNT)
    door.sign_in(namespace.connection_string)
    page = door.page.locator("html")
    assert page.get_attribute("data-refused") is None, "what the page itself does is allowed"
    door.page.evaluate(INJECT)
    expect(page).to_have_attribute("data-refused", "4")
    assert door.page.evaluate("window.hit") is None
    told, door.troubles[:] = list(door.troubles), []
    assert all("Content Security Policy" in one for one in told), told
