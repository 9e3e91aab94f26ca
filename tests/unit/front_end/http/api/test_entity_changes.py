"""Creating, changing and deleting entities from the dashboard."""

from __future__ import annotations

from typing import cast
from urllib.parse import quote

import pytest

from tandembus.descriptions import AuthorizationRule, EntityStatus, QueueDescription, SqlFilter, TopicDescription
from tests.covers import covers
from tests.unit.front_end.http.api.browser import Browser, document_of, error_of

SETTINGS = {
    "queue": {
        "lock_duration_s": 30,
        "max_size_in_megabytes": 2048,
        "requires_duplicate_detection": True,
        "requires_session": True,
        "default_message_time_to_live_s": 3600,
        "dead_lettering_on_message_expiration": True,
        "duplicate_detection_history_time_window_s": 60.5,
        "max_delivery_count": 3,
        "enable_batched_operations": False,
        "status": "SendDisabled",
        "support_ordering": False,
        "auto_delete_on_idle_s": 600,
        "enable_partitioning": True,
        "enable_express": True,
        "forward_dead_lettered_messages_to": "other",
        "user_metadata": "what it is for\nin two lines: <é>",
    },
    "topic": {"max_size_in_megabytes": 3072, "enable_partitioning": True, "status": "Disabled"},
    "subscription": {"lock_duration_s": 5, "forward_to": "other", "max_delivery_count": 1},
}
PATHS = {"queue": "new", "topic": "new/topic", "subscription": "events/subscriptions/new"}


@pytest.fixture
async def root(browser: Browser) -> Browser:
    namespace = browser.front_end.namespace
    await namespace.create_queue(QueueDescription("other"))
    await namespace.create_topic(TopicDescription("events"))
    await browser.sign_in()
    return browser


@covers("B4", "P8")
@pytest.mark.parametrize("kind", SETTINGS)
async def test_an_entity_is_created_with_every_setting(root: Browser, kind: str) -> None:
    reply = await root.ask("PUT", f"entity?path={PATHS[kind]}", {"kind": kind, "settings": SETTINGS[kind]})
    assert reply.status == 201, reply.text
    entity = document_of(reply)
    told = cast(dict[str, object], entity["settings"])
    assert {name: told[name] for name in SETTINGS[kind]} == SETTINGS[kind]
    assert document_of(await root.ask("GET", f"entity?path={PATHS[kind]}"))["settings"] == told
    assert (await root.ask("PUT", f"entity?path={PATHS[kind]}", {"kind": kind})).status == 409


@covers("B4")
async def test_a_subscription_begins_with_the_rule_that_is_given(root: Browser) -> None:
    catalog = root.front_end.namespace.catalog
    rule = {"name": "large", "filter": {"kind": "sql", "expression": "amount > 5"}, "action": None}
    document = {"kind": "subscription", "default_rule": rule}
    assert (await root.ask("PUT", "entity?path=events/subscriptions/a", document)).status == 201
    (kept,) = catalog.rules("events", "a")
    assert (kept.name, kept.filter) == ("large", SqlFilter("amount > 5"))
    document = {"kind": "subscription", "default_rule": {"filter": {"kind": "false"}}}
    assert (await root.ask("PUT", "entity?path=events/subscriptions/b", document)).status == 201
    assert [rule.name for rule in catalog.rules("events", "b")] == ["$Default"]


@covers("B4")
async def test_only_what_is_told_changes_and_keys_stay(root: Browser) -> None:
    namespace = root.front_end.namespace
    rule = AuthorizationRule("mine", "c2VjcmV0IGtleQ==", "b3RoZXI=", frozenset(["Listen"]))
    await namespace.create_queue(QueueDescription("q", lock_duration_s=11.0, authorization_rules=(rule,)))
    changes = {"status": "Disabled", "user_metadata": "note", "default_message_time_to_live_s": 5}
    reply = await root.ask("PATCH", "entity?path=Q", {"settings": changes})
    assert (reply.status, document_of(reply)["status"]) == (200, "Disabled")
    known = namespace.catalog.get_queue("q").description
    assert known == QueueDescription(
        "q",
        lock_duration_s=11.0,
        status=EntityStatus.DISABLED,
        user_metadata="note",
        default_message_time_to_live_s=5.0,
        authorization_rules=(rule,),
    )
    reply = await root.ask("PATCH", "entity?path=q", {"settings": {"default_message_time_to_live_s": None}})
    assert namespace.catalog.get_queue("q").description.default_message_time_to_live_s is None


@covers("B4")
async def test_what_was_created_can_be_deleted(root: Browser) -> None:
    for kind, path in PATHS.items():
        assert (await root.ask("PUT", f"entity?path={path}", {"kind": kind})).status == 201
        reply = await root.ask("DELETE", f"entity?path={path}")
        assert (reply.status, reply.body) == (204, b"")
        assert (await root.ask("GET", f"entity?path={path}")).status == 404
        assert (await root.ask("DELETE", f"entity?path={path}")).status == 404


@covers("B4")
@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("new", {}),
        ("new", {"kind": "rule"}),
        ("new", {"kind": ["queue"]}),
        ("new", {"kind": "subscription"}),
        ("events/subscriptions/new", {"kind": "queue"}),
        ("events/subscriptions/new", {"kind": "topic"}),
        ("a//b", {"kind": "queue"}),
        ("<script>", {"kind": "queue"}),
        ("a\0b", {"kind": "queue"}),
        ("n" * 261, {"kind": "queue"}),
        ("tandembus/meter", {"kind": "queue"}),
        ("x/messages/head", {"kind": "topic"}),
        ("new", {"kind": "queue", "settings": []}),
        ("new", {"kind": "queue", "settings": None}),
        ("new", {"kind": "queue", "extra": 1}),
        ("new", {"kind": "queue", "default_rule": {"name": "x"}}),
        ("events/subscriptions/new", {"kind": "subscription", "default_rule": 5}),
        ("events/subscriptions/new", {"kind": "subscription", "default_rule": {"name": "x"}}),
        (
            "events/subscriptions/new",
            {"kind": "subscription", "default_rule": {"name": 5, "filter": {"kind": "true"}}},
        ),
        (
            "events/subscriptions/new",
            {"kind": "subscription", "default_rule": {"filter": {"kind": "sql", "expression": "a >"}}},
        ),
        ("new", {"kind": "queue", "settings": {"name": "other"}}),
        ("new", {"kind": "queue", "settings": {"authorization_rules": []}}),
        ("new", {"kind": "queue", "settings": {"is_anonymous_accessible": True}}),
        ("new", {"kind": "topic", "settings": {"requires_session": True}}),
        ("new", {"kind": "queue", "settings": {"requires_session": "yes"}}),
        ("new", {"kind": "queue", "settings": {"requires_session": 1}}),
        ("new", {"kind": "queue", "settings": {"max_delivery_count": True}}),
        ("new", {"kind": "queue", "settings": {"max_delivery_count": 1.5}}),
        ("new", {"kind": "queue", "settings": {"max_delivery_count": 0}}),
        ("new", {"kind": "queue", "settings": {"max_delivery_count": 10**400}}),
        ("new", {"kind": "queue", "settings": {"lock_duration_s": 10**400}}),
        ("new", {"kind": "queue", "settings": {"lock_duration_s": "60"}}),
        ("new", {"kind": "queue", "settings": {"lock_duration_s": None}}),
        ("new", {"kind": "queue", "settings": {"lock_duration_s": 1e9}}),
        ("new", {"kind": "queue", "settings": {"max_size_in_megabytes": 1}}),
        ("new", {"kind": "queue", "settings": {"max_message_size_in_kilobytes": 1}}),
        ("new", {"kind": "queue", "settings": {"status": "active"}}),
        ("new", {"kind": "queue", "settings": {"status": {}}}),
        ("new", {"kind": "queue", "settings": {"user_metadata": "\x00"}}),
        ("new", {"kind": "queue", "settings": {"user_metadata": "\ud800"}}),
        ("new", {"kind": "queue", "settings": {"user_metadata": "m" * 1025}}),
        ("..", {"kind": "queue"}),
        ("a/../b", {"kind": "topic"}),
        (".", {"kind": "queue"}),
        ("new", {"kind": "queue", "settings": {"forward_to": "a b"}}),
        ("new", {"kind": "queue", "settings": {"forward_to": 5}}),
    ],
    ids=lambda one: ascii(one)[:70],
)
async def test_what_cannot_be_is_refused_and_nothing_is_made(root: Browser, path: str, document: object) -> None:
    before = [entry.key for entry in root.front_end.namespace.catalog.entries()]
    reply = await root.ask("PUT", f"entity?path={quote(path)}", document)
    assert reply.status == 400, reply.text
    assert error_of(reply)
    assert [entry.key for entry in root.front_end.namespace.catalog.entries()] == before


@covers("B4")
@pytest.mark.parametrize(
    "document",
    [
        {},
        {"settings": 1},
        {"settings": {"enable_partitioning": True}},
        {"settings": {"requires_session": True}},
        {"settings": {"nonsense": True}},
        {"settings": {}, "kind": "queue"},
    ],
    ids=str,
)
async def test_what_is_fixed_or_nonsense_cannot_be_changed(root: Browser, document: object) -> None:
    assert (await root.ask("PATCH", "entity?path=other", document)).status == 400
    assert root.front_end.namespace.catalog.get_queue("other").description == QueueDescription("other")


@covers("B4", "M15")
async def test_who_may_manage_an_entity_must_be_allowed_to_send_where_it_forwards(root: Browser) -> None:
    namespace = root.front_end.namespace
    rule = AuthorizationRule("mine", "c2VjcmV0IGtleQ==", "b3RoZXI=", frozenset(["Manage"]))
    await namespace.create_queue(QueueDescription("mine", authorization_rules=(rule,)))
    browser = Browser(root.front_end)
    await browser.sign_in("mine", rule.primary_key, "mine")
    for name in ("forward_to", "forward_dead_lettered_messages_to"):
        reply = await browser.ask("PATCH", "entity?path=mine", {"settings": {name: "other"}})
        assert reply.status == 403
    assert (await browser.ask("PUT", "entity?path=theirs", {"kind": "queue"})).status == 403
    assert (await browser.ask("PUT", "entity?path=mine/more", {"kind": "queue"})).status == 403
    assert (await root.ask("PATCH", "entity?path=mine", {"settings": {"forward_to": "other"}})).status == 200


@covers("B4")
async def test_changes_are_charged_as_management_and_looking_is_not(root: Browser) -> None:
    def charged() -> int:
        rows = root.front_end.meter.totals().since_start
        return sum(row.count.operations for row in rows if row.operation == "manage")

    for route in ("entities", "entity?path=other", "settings", "session"):
        assert (await root.ask("GET", route)).status == 200
    assert charged() == 0
    await root.ask("PUT", "entity?path=new", {"kind": "queue"})
    await root.ask("PATCH", "entity?path=new", {"settings": {"max_delivery_count": 5}})
    await root.ask("DELETE", "entity?path=new")
    assert charged() == 3


@covers("B4", "B3")
async def test_a_namespace_that_is_out_takes_no_changes(root: Browser) -> None:
    await root.request("PUT", "/$faults/all", {"target": "namespace", "kind": "unavailable"})
    for method, document in (("PUT", {"kind": "queue"}), ("PATCH", {"settings": {}}), ("DELETE", None)):
        assert (await root.ask(method, "entity?path=other", document)).status == 500
