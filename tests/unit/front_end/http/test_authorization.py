"""Who may ask: over HTTP every operation needs a token that proves Manage for its path."""

from __future__ import annotations

import json
from pathlib import Path

from tandembus.clock import ManualClock
from tandembus.descriptions import QueueDescription
from tandembus.security.claims import Policy, Right
from tests.covers import covers
from tests.unit.front_end.http.harness import KEY, RunningFrontEnd, running_front_end
from tests.unit.front_end.http.test_server import queue_body, refusal


@covers("M15")
async def test_without_a_valid_manage_claim_nothing_is_told_or_done(front_end: RunningFrontEnd) -> None:
    await front_end.namespace.create_queue(QueueDescription("orders"))
    bad_tokens = {
        "none": None,
        "empty": " ",
        "garbage": "SharedAccessSignature",
        "other scheme": "Basic " + KEY,
        "wrong key": front_end.token(key="d3Jvbmc="),
        "unknown policy": front_end.token(policy="nobody"),
        "expired": front_end.token(lifetime_s=-1.0),
        "sender's": front_end.token(policy="sender", key="c2VuZA=="),
        "another queue's": front_end.token("invoices"),
        "a prefix of the name": front_end.token("order"),
        "jwt": "Bearer eyJhbGciOiJub25lIn0.eyJleHAiOjk5OTk5OTk5OTl9.",
    }
    for name, token in bad_tokens.items():
        for method, path in (
            ("GET", "/orders"),
            ("PUT", "/new"),
            ("DELETE", "/orders"),
            ("GET", "/$Resources/queues"),
        ):
            body = queue_body() if method == "PUT" else None
            reply = await front_end.request(method, path, body, token=token)
            assert refusal(reply)[0] == 401, (name, method)
            assert reply.headers["WWW-Authenticate"] == "SharedAccessSignature"
            assert KEY.encode() not in reply.body
    assert [queue.key for queue in front_end.namespace.catalog.queues()] == ["orders"]
    assert front_end.claims_shown == 0
    assert front_end.meter.totals().since_start == []


@covers("M15")
async def test_a_refusal_does_not_tell_whether_the_queue_is_there(front_end: RunningFrontEnd) -> None:
    await front_end.namespace.create_queue(QueueDescription("orders"))
    there = refusal(await front_end.request("GET", "/orders", token=None))[1]
    absent = refusal(await front_end.request("GET", "/nobody", token=None))[1]
    assert there.partition("TrackingId")[0] == absent.partition("TrackingId")[0]


@covers("M15")
async def test_tokens_are_good_for_their_scope_whoever_made_them(front_end: RunningFrontEnd) -> None:
    await front_end.namespace.create_queue(QueueDescription("orders"))
    for token in (
        front_end.token(),
        front_end.token("orders"),
        front_end.token("orders?api-version=2021-05"),
        "Bearer " + front_end.token(),
    ):
        assert (await front_end.request("GET", "/Orders", token=token)).status == 200
    assert (
        await front_end.request("GET", "/$Resources/queues", token=front_end.token("$resources/queues"))
    ).status == 200


@covers("M15")
async def test_an_entity_s_own_policy_manages_that_entity_only(front_end: RunningFrontEnd) -> None:
    manage = frozenset([Right.MANAGE])
    for name in ("orders", "tandembus"):
        await front_end.namespace.create_queue(QueueDescription(name))
        front_end.authorizer.set_policies(name, [Policy("owner", "b3duZXIga2V5IG8=", "", manage)])
    orders = front_end.token("orders", "owner", "b3duZXIga2V5IG8=")
    assert (await front_end.request("GET", "/orders", token=orders)).status == 200
    assert (await front_end.request("GET", "/tandembus", token=orders)).status == 401
    tandembus = front_end.token("tandembus", "owner", "b3duZXIga2V5IG8=")
    assert (await front_end.request("GET", "/tandembus", token=tandembus)).status == 200
    for method, path in (("GET", "/tandembus/meter"), ("POST", "/orders/$purge")):
        assert (await front_end.request(method, path, token=tandembus)).status == 401


@covers("M15", "F16")
async def test_an_entitys_own_policy_neither_opens_nor_creates_nor_shows_entities_below_its_path(
    front_end: RunningFrontEnd,
) -> None:
    for name in ("orders", "orders/sub"):
        await front_end.namespace.create_queue(QueueDescription(name))
    front_end.authorizer.set_policies("orders", [Policy("owner", "b3duZXIga2V5IG8=", "", frozenset([Right.MANAGE]))])
    for scope in ("orders", "orders/sub", "orders/x-servicebus-transfer/0"):
        token = front_end.token(scope, "owner", "b3duZXIga2V5IG8=")
        for method, path in (("GET", "/orders/sub"), ("DELETE", "/orders/sub"), ("POST", "/orders/sub/messages")):
            assert (await front_end.request(method, path, token=token)).status == 401
        created = await front_end.request("PUT", "/orders/x-servicebus-transfer/0", queue_body(), token=token)
        assert created.status == 401
    token = front_end.token("orders", "owner", "b3duZXIga2V5IG8=")
    listed = json.loads((await front_end.request("GET", "/$api/entities", token=token)).text)
    assert [one["path"] for one in listed["entities"]] == ["orders"]
    sent = await front_end.request(
        "POST", "/orders/messages", "hello", token=front_end.token("orders/messages", "owner", "b3duZXIga2V5IG8=")
    )
    assert sent.status == 201


@covers("M15")
async def test_the_rules_of_a_queue_are_policies_until_they_are_taken_back(front_end: RunningFrontEnd) -> None:
    rule = (
        "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Manage</AccessRights></Rights>"
        "<KeyName>owner</KeyName><PrimaryKey>b3duZXIga2V5IG8=</PrimaryKey></AuthorizationRule></AuthorizationRules>"
    )
    token = front_end.token("orders", "owner", "b3duZXIga2V5IG8=")
    assert (await front_end.request("GET", "/orders", token=token)).status == 401
    await front_end.request("PUT", "/orders", queue_body(rule))
    assert (await front_end.request("GET", "/orders", token=token)).status == 200
    await front_end.request("PUT", "/orders", queue_body("<AuthorizationRules/>"), {"If-Match": "*"})
    assert (await front_end.request("GET", "/orders", token=token)).status == 401
    await front_end.request("PUT", "/orders", queue_body(rule), {"If-Match": "*"})
    assert (await front_end.request("DELETE", "/orders", token=token)).status == 200
    assert (await front_end.request("GET", "/orders", token=token)).status == 401


@covers("M15")
async def test_a_token_is_refused_as_soon_as_it_has_expired(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_front_end(tmp_path, clock=clock) as running:
        token = running.token(lifetime_s=60.0)
        assert (await running.request("GET", "/$namespaceinfo", token=token)).status == 200
        clock.advance(60.0)
        assert (await running.request("GET", "/$namespaceinfo", token=token)).status == 401


async def test_two_authorization_headers_are_none(front_end: RunningFrontEnd) -> None:
    token = front_end.token()
    head = f"GET /$namespaceinfo HTTP/1.1\r\nHost: h\r\nAuthorization: {token}\r\nAuthorization: x\r\n"
    answer = await front_end.raw((head + "Connection: close\r\n\r\n").encode())
    assert answer.startswith(b"HTTP/1.1 401 ")
