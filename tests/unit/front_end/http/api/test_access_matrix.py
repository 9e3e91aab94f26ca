"""Every route below /$api with every right on several scopes: who gets in, judged by a table and not by the code.

The table is compared with the routes there are: one that is added without a row here fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tandembus.descriptions import AuthorizationRule, QueueDescription, TopicDescription
from tandembus.front_end.http.connection import HttpTimings
from tandembus.front_end.http.server import API
from tests.covers import covers
from tests.unit.front_end.http.api.browser import OURS, Browser, document_of
from tests.unit.front_end.http.harness import RunningFrontEnd, running_front_end

RIGHTS = ("Send", "Listen", "Manage")
KEYS = {right: f"a2V5IG9mIG9uZSBy{right}" for right in RIGHTS}
SCOPES = ("", "orders", "order", "events", "orders/$deadletterqueue")
ANYTHING = ("Send", "Listen", "Manage")


@dataclass(frozen=True)
class Need:
    """What one request to a route asks for, and the rights any of which is enough for it."""

    rights: tuple[str, ...]
    """Empty: nobody needs to be signed in."""
    path: str | None = "orders"
    """What the right is needed on: an entity, "" for the whole namespace, None where a claim on anything will do."""
    query: str = ""
    document: object = None


NEEDS = {
    ("POST", "session"): Need((), document={"code": "wrong"}),
    ("GET", "session"): Need(ANYTHING, None),
    ("GET", "overview"): Need(ANYTHING, ""),
    ("DELETE", "session"): Need(()),
    ("GET", "entities"): Need(ANYTHING, None),
    ("GET", "settings"): Need(ANYTHING, None),
    ("GET", "entity"): Need(ANYTHING, query="path=orders"),
    ("PUT", "entity"): Need(("Manage",), query="path=orders", document={"kind": "none"}),
    ("PATCH", "entity"): Need(("Manage",), query="path=orders", document={"settings": None}),
    ("DELETE", "entity"): Need(("Manage",), "orders/gone", "path=orders/gone"),
    ("GET", "messages"): Need(("Listen",), query="path=orders"),
    ("POST", "messages"): Need(("Send",), query="path=orders", document={"body": 5}),
    ("GET", "message"): Need(("Listen",), query="path=orders&sequence_number=1"),
    ("GET", "messages/reasons"): Need(("Listen",), query="path=orders"),
    ("GET", "sessions"): Need(("Listen",), query="path=orders"),
    ("GET", "messages/export"): Need(("Listen",), query="path=orders"),
    ("POST", "messages/act"): Need(("Listen",), query="path=orders", document={"action": "none"}),
    # Listen and Send at once: of the single rights only Manage holds both.
    ("POST", "messages/resend"): Need(("Manage",), query="path=orders&sequence_number=1", document={"body": 5}),
    ("GET", "rules"): Need(("Manage",), "events/subscriptions/all", "path=events/subscriptions/all"),
    ("PUT", "rules"): Need(
        ("Manage",), "events/subscriptions/all", "path=events/subscriptions/all&name=one", {"filter": 5}
    ),
    ("DELETE", "rules"): Need(("Manage",), "events/subscriptions/all", "path=events/subscriptions/all&name=one"),
    ("POST", "rules/check"): Need(ANYTHING, None, document={"filter": 5}),
    ("GET", "pair"): Need(("Manage",), ""),
    ("GET", "pair/view"): Need(("Manage",), ""),
    ("GET", "cost"): Need(("Manage",), ""),
    ("GET", "cost/used"): Need(("Manage",), "", "since=0"),
}
"""By method and name. A request of a row changes nothing: it is done with every right in turn."""


def is_enough(need: Need, right: str, scope: str) -> bool:
    if right not in need.rights and right != "Manage":
        return False
    if need.path is None or scope == "":
        return True
    return need.path == scope or need.path.startswith(f"{scope}/")


@pytest.fixture
async def namespace(tmp_path: Path) -> AsyncIterator[RunningFrontEnd]:
    async with running_front_end(tmp_path, timings=HttpTimings(refused_sign_in_s=0.0)) as running:
        await running.namespace.create_queue(QueueDescription("orders"))
        await running.namespace.create_topic(TopicDescription("events"))
        for right in RIGHTS:
            await running.namespace.put_policy(AuthorizationRule(right, KEYS[right], "", frozenset([right])))
        yield running


@covers("B4", "M15")
async def test_every_route_has_a_row(namespace: RunningFrontEnd) -> None:
    assert {(route.method, route.name) for route in namespace.runner.app[API].all()} == set(NEEDS)


@covers("B4", "M15")
@pytest.mark.parametrize("route", NEEDS, ids=" ".join)
async def test_a_session_opens_what_its_key_may_and_nothing_else(
    namespace: RunningFrontEnd, route: tuple[str, str]
) -> None:
    (method, name), need = route, NEEDS[route]
    for right in RIGHTS:
        for scope in SCOPES:
            browser = Browser(namespace)
            assert (await browser.sign_in(right, KEYS[right], scope)).status == 200
            reply = await browser.ask(method, f"{name}?{need.query}", need.document)
            assert reply.status < 500, reply.text
            if need.rights:
                assert (reply.status != 403) == is_enough(need, right, scope), (right, scope, reply.text)
                assert reply.status != 401
            token = namespace.token(scope, right, KEYS[right])
            reply = await Browser(namespace).ask(
                method, f"{name}?{need.query}", need.document, {**OURS, "Authorization": token}
            )
            if need.rights:
                assert (reply.status != 401) == is_enough(need, right, scope), (right, scope, reply.text)
                assert reply.status != 403


@covers("B4", "M15")
@pytest.mark.parametrize("route", [route for route, need in NEEDS.items() if need.rights], ids=" ".join)
async def test_without_a_session_or_from_another_site_nothing_is_told(
    namespace: RunningFrontEnd, route: tuple[str, str]
) -> None:
    (method, name), need = route, NEEDS[route]
    browser = Browser(namespace)
    await browser.sign_in()
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    tokens = {"wrong": namespace.token(key="d3Jvbmc="), "expired": namespace.token(lifetime_s=-1.0)}
    headers: list[dict[str, str]] = [
        OURS,
        {"Cookie": cookie},
        {**OURS, "Cookie": cookie, "Sec-Fetch-Site": "cross-site"},
        {**OURS, "Cookie": cookie, "Origin": "https://evil.example"},
        {**OURS, "Cookie": cookie[:-1]},
        *[{**OURS, "Authorization": token} for token in tokens.values()],
    ]
    for sent in headers:
        reply = await Browser(namespace).ask(method, f"{name}?{need.query}", need.document, sent)
        if route == ("GET", "session") and "Authorization" not in sent:
            assert (reply.status, reply.body) == (204, b"")
            continue
        assert reply.status == 401, (sent, reply.text)
        assert set(document_of(reply)) == {"error"}


@covers("B4", "M15")
async def test_a_route_that_is_not_there_tells_nothing_either(namespace: RunningFrontEnd) -> None:
    for path, status in (("nothing", 404), ("", 401), ("session/more", 404), ("entity", 405), ("../orders", 404)):
        reply = await Browser(namespace).ask("POST" if status == 405 else "GET", path)
        assert reply.status == status, path
