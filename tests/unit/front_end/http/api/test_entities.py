"""Entities as the dashboard lists and shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from tandembus.descriptions import (
    AuthorizationRule,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.front_end.http.api.entities import MAX_PAGE_SIZE
from tests.covers import covers
from tests.unit.front_end.http.api.browser import Browser, document_of, error_of
from tests.unit.front_end.http.harness import RunningFrontEnd

MIB = 1024 * 1024


async def listed(browser: Browser, query: str = "") -> list[str]:
    reply = await browser.ask("GET", f"entities?{query}")
    assert reply.status == 200, reply.text
    document = document_of(reply)
    entities = cast(list[dict[str, object]], document["entities"])
    return [str(entity["path"]) for entity in entities]


async def shown(browser: Browser, path: str) -> dict[str, object]:
    reply = await browser.ask("GET", f"entity?path={path}")
    assert reply.status == 200, reply.text
    return document_of(reply)


async def send(front_end: RunningFrontEnd, path: str, count: int) -> None:
    for _ in range(count):
        assert (await front_end.request("POST", f"/{path}/messages", "hello")).status == 201


@pytest.fixture
async def some(browser: Browser) -> Browser:
    """Signed in with the root key, before a few entities."""
    namespace = browser.front_end.namespace
    for name in ("Orders", "invoices", "orders/late"):
        await namespace.create_queue(QueueDescription(name))
    for name in ("events", "Order-events"):
        await namespace.create_topic(TopicDescription(name))
    for name in ("audit", "Billing"):
        await namespace.create_subscription(SubscriptionDescription("events", name))
    await namespace.create_subscription(SubscriptionDescription("order-events", "audit"))
    await browser.sign_in()
    return browser


@covers("B4")
async def test_queues_and_topics_are_listed_by_path_and_found_by_a_part_of_it(some: Browser) -> None:
    assert await listed(some) == ["events", "invoices", "Order-events", "Orders", "orders/late"]
    assert await listed(some, "search=ORDER") == ["Order-events", "Orders", "orders/late"]
    assert await listed(some, "search=order&kind=queue") == ["Orders", "orders/late"]
    assert await listed(some, "kind=topic") == ["events", "Order-events"]
    assert await listed(some, "search=%00") == []
    assert await listed(some, "search=.*") == []


@covers("B4")
async def test_subscriptions_are_listed_of_all_topics_or_of_one(some: Browser) -> None:
    assert await listed(some, "kind=subscription") == [
        "events/Subscriptions/audit",
        "events/Subscriptions/Billing",
        "Order-events/Subscriptions/audit",
    ]
    assert await listed(some, "kind=subscription&search=order") == ["Order-events/Subscriptions/audit"]
    assert await listed(some, "topic=EVENTS") == ["events/Subscriptions/audit", "events/Subscriptions/Billing"]
    assert await listed(some, "topic=events&search=event") == []  # of the subscription's own name
    assert (await some.ask("GET", "entities?topic=nobody")).status == 404
    assert (await some.ask("GET", "entities?topic=events&kind=queue")).status == 400


@covers("B4")
async def test_a_page_says_how_many_there_are(some: Browser) -> None:
    document = document_of(await some.ask("GET", "entities?skip=1&top=2"))
    assert (document["count"], document["skip"], document["top"]) == (5, 1, 2)
    assert await listed(some, "skip=1&top=2") == ["invoices", "Order-events"]
    assert await listed(some, "skip=99") == []
    assert await listed(some, "top=0") == []


@covers("B4")
@pytest.mark.parametrize(
    "query",
    [
        "skip=-1",
        "top=-1",
        f"top={MAX_PAGE_SIZE + 1}",
        "skip=x",
        "top=1e3",
        "kind=rule",
        "kind=Queue",
        f"search={'s' * 301}",
        "skip=999999999999999999999999999999",
    ],
)
async def test_what_is_no_page_is_refused(some: Browser, query: str) -> None:
    reply = await some.ask("GET", f"entities?{query}")
    assert reply.status == 400
    assert error_of(reply)


@covers("B4")
async def test_a_summary_tells_what_an_entity_is_and_holds(some: Browser) -> None:
    front_end = some.front_end
    await send(front_end, "orders", 3)
    (orders,) = cast(
        list[dict[str, object]], document_of(await some.ask("GET", "entities?search=orders&top=1"))["entities"]
    )
    size_bytes = cast(int, orders.pop("size_bytes"))
    assert size_bytes > 0
    assert orders == {
        "path": "Orders",
        "kind": "queue",
        "status": "Active",
        "partitioned": False,
        "requires_session": False,
        "availability": "Available",
        "active": 3,
        "scheduled": 0,
        "dead_letter": 0,
        "deferred": 0,
        "transfer_dead_letter": 0,
        "max_size_bytes": 1024 * MIB,
        "subscriptions": None,
        "forward_to": None,
        "rights": ["Listen", "Manage", "Send"],
        "counters": {"sent": 3, "received": 0},
    }


@covers("B4", "P8")
async def test_an_entity_is_shown_with_its_settings_and_each_fragment(some: Browser) -> None:
    key = AuthorizationRule("mine", "c2VjcmV0IGtleQ==", "b3RoZXIgc2VjcmV0", frozenset(["Listen"]))
    await some.front_end.namespace.create_queue(
        QueueDescription("wide", enable_partitioning=True, lock_duration_s=7.5, authorization_rules=(key,))
    )
    await send(some.front_end, "wide", 5)
    reply = await some.ask("GET", "entity?path=WIDE")
    assert key.primary_key not in reply.text
    assert key.secondary_key not in reply.text
    entity = document_of(reply)
    assert (entity["path"], entity["active"], entity["max_size_bytes"]) == ("wide", 5, 16 * 1024 * MIB)
    settings = cast(dict[str, object], entity["settings"])
    assert (settings["lock_duration_s"], settings["max_size_in_megabytes"]) == (7.5, 1024)
    assert "authorization_rules" not in settings
    fragments = cast(list[dict[str, object]], entity["fragments"])
    assert [fragment["index"] for fragment in fragments] == list(range(16))
    assert sum(cast(int, fragment["active"]) for fragment in fragments) == 5
    assert {fragment["state"] for fragment in fragments} == {"available"}
    assert entity["receivers"] == 0
    assert str(entity["created_at"]).endswith("Z")


@covers("B4")
async def test_a_topic_and_a_subscription_are_shown_as_what_they_are(some: Browser) -> None:
    await send(some.front_end, "events", 2)
    topic, audit = await shown(some, "events"), await shown(some, "events/subscriptions/AUDIT")
    assert (topic["kind"], topic["subscriptions"], topic["requires_session"]) == ("topic", 2, False)
    assert (audit["kind"], audit["active"], audit["max_size_bytes"]) == ("subscription", 2, None)
    assert (await some.ask("GET", "entity?path=nobody")).status == 404
    assert (await some.ask("GET", "entity?path=events/subscriptions/nobody")).status == 404
    assert (await some.ask("GET", "entity")).status == 400


@covers("B4", "B3")
async def test_what_is_out_is_limited_and_has_no_counts(some: Browser) -> None:
    await some.front_end.namespace.create_queue(QueueDescription("wide", enable_partitioning=True))
    for target, name in (("entity/orders", "one"), ("fragment/wide/3", "two")):
        fault = {"target": target, "kind": "unavailable"}
        assert (await some.request("PUT", f"/$faults/{name}", fault)).status in (200, 201)
    orders, wide = await shown(some, "orders"), await shown(some, "wide")
    assert (orders["availability"], orders["active"]) == ("Limited", None)
    assert (wide["availability"], wide["active"]) == ("Limited", 0)
    fragments = cast(list[dict[str, object]], wide["fragments"])
    assert [one["index"] for one in fragments if one["active"] is None] == [3]
    await some.request("PUT", "/$faults/all", {"target": "namespace", "kind": "unavailable"})
    assert len(await listed(some)) == 6


@covers("B4", "M15")
async def test_an_entity_s_key_sees_that_entity_only(some: Browser) -> None:
    namespace = some.front_end.namespace
    rule = AuthorizationRule("mine", "c2VjcmV0IGtleQ==", "", frozenset(["Listen"]))
    await namespace.put_policy(rule, "events")
    await namespace.put_policy(rule, "orders")
    browser = Browser(some.front_end)
    await browser.sign_in("mine", rule.primary_key, "orders")
    assert await listed(browser) == ["Orders"]  # 'orders/late' is another queue
    assert document_of(await browser.ask("GET", "entities"))["count"] == 1
    assert (await browser.ask("GET", "entity?path=orders/late")).status == 403
    assert (await browser.ask("GET", "entity?path=invoices")).status == 403
    assert (await browser.ask("GET", "entity?path=nobody")).status == 403
    assert await listed(browser, "topic=events") == []
    assert await listed(browser, "topic=nobody") == []
    await browser.sign_in("mine", rule.primary_key, "events")
    assert await listed(browser) == ["events"]
    assert len(await listed(browser, "topic=events")) == 2
    await browser.sign_in("mine", rule.primary_key, "events/subscriptions/audit")
    assert await listed(browser) == []
    assert await listed(browser, "topic=events") == ["events/Subscriptions/audit"]
    assert (await browser.ask("GET", "entity?path=events")).status == 403


@covers("B4", "M15")
async def test_who_may_not_receive_is_told_no_counts_and_who_may_not_manage_no_settings(some: Browser) -> None:
    namespace = some.front_end.namespace
    await namespace.update_queue(QueueDescription("orders", forward_to="invoices", user_metadata="a secret"))
    for right in ("Send", "Listen", "Manage"):
        rule = AuthorizationRule(right, f"a2V5IG9mIG9uZSBy{right}", "", frozenset([right]))
        await namespace.put_policy(rule)
        browser = Browser(some.front_end)
        await browser.sign_in(right, rule.primary_key)
        entity = await shown(browser, "orders")
        assert (entity["active"] is None) == (right == "Send")
        fragments = cast(list[dict[str, object]], entity["fragments"])
        assert (fragments[0]["active"] is None) == (right == "Send")
        assert (entity["settings"] == {}) == (right != "Manage")
        assert (entity["forward_to"] is None) == (right != "Manage")
        assert entity["availability"] == "Available"
        assert entity["rights"] == (["Listen", "Manage", "Send"] if right == "Manage" else [right])


@covers("B4", "M13")
async def test_of_ten_thousand_entities_only_those_on_the_page_are_opened(browser: Browser) -> None:
    namespace = browser.front_end.namespace
    first = await namespace.create_queue(QueueDescription("queue-00000"))
    for number in range(1, 10_000):
        description = QueueDescription(f"queue-{number:05}")
        entry = replace(first, description=description, incarnation=number + 1, fragment_key=number + 1)
        namespace.catalog._directory.put(entry)  # known, and never made: what is not opened need not be
    await browser.sign_in()
    document = document_of(await browser.ask("GET", "entities?skip=5000&top=50"))
    assert (document["count"], len(cast(list[object], document["entities"]))) == (10_000, 50)
    assert namespace.asked_for == [f"queue-{number:05}" for number in range(5_000, 5_050)]
    namespace.asked_for.clear()
    document = document_of(await browser.ask("GET", "entities?search=EUE-0999&top=200"))
    assert document["count"] == 10
    assert namespace.asked_for == [f"queue-{number:05}" for number in range(9_990, 10_000)]
