"""SAS policies over HTTP: the namespace's, and those of a queue or topic."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tandembus.descriptions import AuthorizationRule, QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.front_end.http.atom import Origin
from tandembus.front_end.http.entities import EntityAdministration
from tandembus.front_end.http.resource_paths import parse_resource_path
from tandembus.namespace.policies import KeyKind
from tests.covers import covers
from tests.unit.front_end.http.harness import KEY, ROOT, Reply, RunningFrontEnd
from tests.unit.front_end.http.test_server import queue_body, refusal

JSON = {"Content-Type": "application/json"}


async def put(front_end: RunningFrontEnd, path: str, document: object, token: str | None = "") -> Reply:
    return await front_end.request("PUT", path, json.dumps(document), JSON, token)


def told(reply: Reply, status: int = 200) -> dict[str, Any]:
    assert (reply.status, reply.headers["Content-Type"]) == (status, "application/json;charset=utf-8")
    document: dict[str, Any] = json.loads(reply.body)
    return document


@pytest.fixture
async def entities(front_end: RunningFrontEnd) -> RunningFrontEnd:
    await front_end.namespace.create_queue(QueueDescription("orders"))
    await front_end.namespace.create_topic(TopicDescription("events/eu"))
    await front_end.namespace.create_subscription(SubscriptionDescription("events/eu", "audit"))
    return front_end


@covers("M15")
@pytest.mark.parametrize("at", ["", "/Orders", "/events/EU", "/events%2Feu"])
async def test_a_policy_is_created_used_changed_and_deleted(entities: RunningFrontEnd, at: str) -> None:
    path = f"{at}/$policies/worker"
    resource = {"": "orders", "/Orders": "orders"}.get(at, "events/eu")
    created = told(await put(entities, path, {"rights": ["Send", "Manage"]}), 201)
    assert (created["name"], created["rights"]) == ("worker", ["Manage", "Send"])
    assert created["primary_key"] != created["secondary_key"]
    assert created["created_at"] == created["modified_at"]
    assert told(await entities.request("GET", path)) == created
    listed = told(await entities.request("GET", f"{at}/$Policies/"))["policies"]
    assert listed[-1] == created
    for key in (created["primary_key"], created["secondary_key"]):
        token = entities.token(resource, "worker", key)
        assert (await entities.request("GET", f"/{resource}", token=token)).status == 200
    changed = told(await put(entities, path, {"rights": ["Send"]}))
    assert (changed["rights"], changed["primary_key"]) == (["Send"], created["primary_key"])
    token = entities.token(resource, "worker", created["primary_key"])
    assert (await entities.request("GET", f"/{resource}", token=token)).status == 401
    assert (await entities.request("DELETE", path)).status == 200
    assert refusal(await entities.request("GET", path))[0] == 404
    assert refusal(await entities.request("DELETE", path))[0] == 404


@covers("M15")
@pytest.mark.parametrize("at", ["", "/orders"])
@pytest.mark.parametrize("kind", ["primary", "secondary", "Primary", ""])
async def test_a_regenerated_key_replaces_one_and_leaves_the_other(
    entities: RunningFrontEnd, at: str, kind: str
) -> None:
    path = f"{at}/$policies/worker"
    before = told(await put(entities, path, {"rights": ["Manage"]}), 201)
    query = f"?key={kind}" if kind else ""
    after = told(await entities.request("POST", f"{path}/Regenerate{query}"))
    name = f"{kind.lower() or 'primary'}_key"
    assert {field for field in before if before[field] != after[field]} <= {name, "modified_at"}
    assert before[name] != after[name]
    for key, status in ((before[name], 401), (after[name], 200)):
        token = entities.token("orders", "worker", key)
        assert (await entities.request("GET", "/orders", token=token)).status == status


@covers("M15")
@pytest.mark.parametrize("is_update_first", [True, False])
async def test_a_key_and_a_setting_changed_at_the_same_time_are_both_changed(
    entities: RunningFrontEnd, is_update_first: bool
) -> None:
    namespace = entities.namespace
    old = await namespace.put_policy(AuthorizationRule("worker", "", "", frozenset(["Send"])), "orders")
    update = EntityAdministration(namespace, entities.clock).put(
        parse_resource_path("orders"),
        queue_body("<LockDuration>PT30S</LockDuration>").encode(),
        True,
        lambda _wanted, _known: None,
        Origin("http", "localhost", "2021-05", "contoso"),
    )
    regenerate = namespace.regenerate_key("worker", KeyKind.PRIMARY, "orders")
    await asyncio.gather(*((update, regenerate) if is_update_first else (regenerate, update)))
    entry = namespace.catalog.find_queue("orders")
    assert entry is not None
    (rule,) = entry.description.authorization_rules
    assert entry.description.lock_duration_s == 30.0
    assert rule.primary_key != old.primary_key


async def test_keys_may_be_given(entities: RunningFrontEnd) -> None:
    wanted = {"rights": ["Listen"], "primary_key": "b25lIG9uZSBvbmUg", "secondary_key": "dHdvIHR3byB0d28g"}
    assert told(await put(entities, "/orders/$policies/p", wanted), 201)["primary_key"] == "b25lIG9uZSBvbmUg"
    again = told(await put(entities, "/orders/$policies/p", told(await entities.request("GET", "/orders/$policies/p"))))
    assert (again["primary_key"], again["secondary_key"]) == ("b25lIG9uZSBvbmUg", "dHdvIHR3byB0d28g")


@covers("M15", "F16")
@pytest.mark.parametrize("at", ["", "/orders"])
async def test_a_new_key_that_is_short_is_refused_and_one_that_is_stored_stays(
    entities: RunningFrontEnd, at: str
) -> None:
    path = f"{at}/$policies/p"
    for field in ("primary_key", "secondary_key"):
        wanted = {"rights": ["Listen"], field: "k" * 15}
        status, text = refusal(await put(entities, path, wanted))
        assert (status, "at least 16 characters" in text) == (400, True)
    # As an earlier version took it.
    stored = AuthorizationRule("p", "short", "brief", frozenset(["Listen"]))
    if at:
        await entities.namespace.update_queue(QueueDescription("orders", authorization_rules=(stored,)))
    else:
        await entities.namespace.administration.put_policy(stored)
    kept = told(await put(entities, path, {"rights": ["Manage"], "primary_key": "short"}))
    assert (kept["primary_key"], kept["rights"]) == ("short", ["Manage"])
    token = entities.token(at.strip("/"), "p", "short")
    assert (await entities.request("GET", f"{at}/$policies", token=token)).status == 200
    assert refusal(await put(entities, path, {"rights": ["Manage"], "primary_key": "other"}))[0] == 400


@covers("M15", "F16")
async def test_rules_in_the_description_of_an_entity_need_long_keys_too(entities: RunningFrontEnd) -> None:
    rule = (
        "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Manage</AccessRights></Rights>"
        "<KeyName>owner</KeyName><PrimaryKey>{}</PrimaryKey></AuthorizationRule></AuthorizationRules>"
    )
    update: dict[str, str] = {"If-Match": "*"}
    for path, headers in (("/new", {}), ("/orders", update)):
        reply = await entities.request("PUT", path, queue_body(rule.format("k" * 15)), headers)
        assert "at least 16 characters" in refusal(reply)[1]
        reply = await entities.request("PUT", path, queue_body(rule.format("k" * 16)), headers)
        assert reply.status in (200, 201)


@covers("M15")
async def test_the_root_policy_is_shown_and_cannot_be_changed(front_end: RunningFrontEnd) -> None:
    (root,) = told(await front_end.request("GET", "/$policies"))["policies"]
    assert (root["name"], root["primary_key"]) == (ROOT, KEY)
    assert refusal(await put(front_end, f"/$policies/{ROOT}", {"rights": ["Send"]}))[0] == 400
    assert refusal(await put(front_end, f"/$policies/{ROOT.lower()}", {"rights": ["Send"]}))[0] == 400
    assert refusal(await front_end.request("DELETE", f"/$policies/{ROOT}"))[0] == 400
    assert (await front_end.request("GET", "/$policies")).status == 200


@covers("M15")
async def test_policies_need_manage_on_what_they_are_of(entities: RunningFrontEnd) -> None:
    rule = AuthorizationRule("owner", "b3duZXIga2V5IG8=", "", frozenset(["Manage"]))
    await entities.namespace.put_policy(rule, "orders")
    await entities.namespace.put_policy(
        AuthorizationRule("reader", "cmVhZGVyIGtleSBy", "", frozenset(["Listen", "Send"]))
    )
    owner = entities.token("orders", "owner", "b3duZXIga2V5IG8=")
    reader = entities.token("", "reader", "cmVhZGVyIGtleSBy")
    document = json.dumps({"rights": ["Send"]})
    for method, rest in (
        ("GET", ""),
        ("GET", "/owner"),
        ("PUT", "/new"),
        ("DELETE", "/owner"),
        ("POST", "/owner/regenerate"),
    ):
        body = document if method == "PUT" else None
        for at, token in (
            ("", owner),
            ("", reader),
            ("", None),
            ("", entities.token("orders")),
            ("/events/eu", owner),
            ("/orders", reader),
            ("/orders", None),
            ("/orders", entities.token("events/eu")),
        ):
            assert refusal(await entities.request(method, f"{at}/$policies{rest}", body, JSON, token))[0] == 401
    assert [one.key_name for one in entities.namespace.policies("orders")] == ["owner"]
    assert (await entities.request("GET", "/orders/$policies", token=owner)).status == 200
    assert (await put(entities, "/orders/$policies/new", {"rights": ["Send"]}, owner)).status == 201


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        "{}",
        '{"rights": []}',
        '{"rights": "Send"}',
        '{"rights": ["Everything"]}',
        '{"rights": [1]}',
        '{"rights": ["Send"], "primary_key": 5}',
        '{"rights": ["Send"], "primary_key": "a b"}',
        '{"rights": ["Send"], "primary_key": "a;b"}',
        '{"rights": ["Send"], "primary_key": "' + "k" * 257 + '"}',
        '{"rights": ["Send"], "key": "abc"}',
        '{"rights": ["Send"], "name": "other"}',
        '{"rights": ["Send"], "rights": ["Manage"]}',
        '{"rights": ' + "[" * 100_000,
        '{"rights": NaN}',
    ],
)
@pytest.mark.parametrize("at", ["", "/orders"])
async def test_what_is_no_policy_is_refused_and_leaves_nothing(
    entities: RunningFrontEnd, at: str, document: str
) -> None:
    version = entities.namespace.catalog.version
    assert refusal(await entities.request("PUT", f"{at}/$policies/worker", document, JSON))[0] == 400
    assert entities.namespace.catalog.version == version


async def test_other_bodies_methods_and_addresses_are_refused(entities: RunningFrontEnd) -> None:
    body = json.dumps({"rights": ["Send"]})
    other = {"Content-Type": "application/atom+xml"}
    assert refusal(await entities.request("PUT", "/$policies/p", body, other))[0] == 415
    assert refusal(await entities.request("PUT", "/$policies/p", b" " * 2_000_000, JSON))[0] == 413
    assert refusal(await entities.request("PUT", "/$policies", body, JSON))[0] == 405
    assert refusal(await entities.request("POST", "/$policies/p"))[0] == 405
    assert refusal(await entities.request("GET", "/$policies/p/regenerate"))[0] == 405
    assert refusal(await put(entities, "/$policies/a%20b", {"rights": ["Send"]}))[0] == 400
    for path in ("/nobody/$policies", "/events/eu/subscriptions/audit/$policies", "/$policies/a/b", "/$policies/a/b/c"):
        assert refusal(await entities.request("GET", path))[0] == 404, path
    assert refusal(await entities.request("POST", "/$policies/nobody/regenerate"))[0] == 404
    assert refusal(await entities.request("POST", "/$policies/nobody/regenerate?key=third"))[0] == 400


@covers("M15")
async def test_no_more_policies_are_kept_than_the_service_keeps(entities: RunningFrontEnd) -> None:
    for number in range(12):
        assert (await put(entities, f"/orders/$policies/p{number}", {"rights": ["Send"]})).status == 201
    assert refusal(await put(entities, "/orders/$policies/one-more", {"rights": ["Send"]}))[0] == 400
