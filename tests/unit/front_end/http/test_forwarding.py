"""Who makes an entity forward its messages must be allowed to send to where they go."""

from __future__ import annotations

import pytest

from tandembus.descriptions import AuthorizationRule, QueueDescription, SubscriptionDescription, TopicDescription
from tests.covers import covers
from tests.unit.front_end.http.harness import RunningFrontEnd
from tests.unit.front_end.http.test_server import queue_body, refusal
from tests.unit.front_end.http.test_topics import body

HEADERS = {
    "ForwardTo": "ServiceBusSupplementaryAuthorization",
    "ForwardDeadLetteredMessagesTo": "ServiceBusDlqSupplementaryAuthorization",
}
OWNER, SENDER, LISTENER = "b3duZXIga2V5IG8=", "c2VuZGVyIGtleSBz", "bGlzdGVuZXIga2V5"


@pytest.fixture
async def entities(front_end: RunningFrontEnd) -> RunningFrontEnd:
    """A queue and a topic that somebody owns, and a target that others do."""
    namespace = front_end.namespace
    await namespace.create_queue(QueueDescription("orders"))
    await namespace.create_queue(QueueDescription("target"))
    await namespace.create_topic(TopicDescription("events"))
    await namespace.create_subscription(SubscriptionDescription("events", "audit"))
    for path in ("orders", "events"):
        await namespace.put_policy(AuthorizationRule("owner", OWNER, "", frozenset(["Manage"])), path)
    await namespace.put_policy(AuthorizationRule("sender", SENDER, "", frozenset(["Send"])), "target")
    await namespace.put_policy(AuthorizationRule("listener", LISTENER, "", frozenset(["Listen"])), "target")
    return front_end


def document(path: str, element: str, target: str = "sb://anywhere/target") -> str:
    inner = f"<{element}>{target}</{element}>"
    return body("Subscription", inner) if "subscriptions" in path else queue_body(inner)


@covers("M10", "M15")
@pytest.mark.parametrize("element", HEADERS)
@pytest.mark.parametrize(("path", "owned"), [("/orders", "orders"), ("/events/subscriptions/audit", "events")])
async def test_forwarding_needs_a_token_for_the_target(
    entities: RunningFrontEnd, element: str, path: str, owned: str
) -> None:
    owner = entities.token(owned, "owner", OWNER)
    version = entities.namespace.catalog.version
    wrong: list[dict[str, str]] = [
        {},
        {HEADERS[element]: entities.token("target", "listener", LISTENER)},
        {HEADERS[element]: entities.token("target", "sender", OWNER)},
        {HEADERS[element]: entities.token("target", "sender", SENDER, lifetime_s=-1.0)},
        {HEADERS[element]: entities.token("targe", "sender", SENDER)},
        {HEADERS[element]: owner},
        {HEADERS[element]: "garbage"},
        {HEADERS[element]: ""},
        {next(name for name in HEADERS.values() if name != HEADERS[element]): entities.token("target")},
    ]
    for headers in wrong:
        reply = await entities.request("PUT", path, document(path, element), {"If-Match": "*", **headers}, owner)
        status, detail = refusal(reply)
        assert status == 401
        assert SENDER not in detail
        assert "grants Send on 'target'" in detail
    assert entities.namespace.catalog.version == version
    for headers, token in (
        ({HEADERS[element]: entities.token("target", "sender", SENDER)}, owner),
        ({}, entities.token()),
        ({HEADERS[element]: "Bearer " + entities.token("target", "sender", SENDER)}, owner),
    ):
        reply = await entities.request("PUT", path, document(path, element), {"If-Match": "*", **headers}, token)
        assert (reply.status, f"/target</{element}>" in reply.text) == (200, True)


@covers("M10", "M15")
async def test_creating_needs_it_as_well(entities: RunningFrontEnd) -> None:
    owner = entities.token("events", "owner", OWNER)
    path = "/events/subscriptions/new"
    assert refusal(await entities.request("PUT", path, document(path, "ForwardTo"), token=owner))[0] == 401
    assert entities.namespace.catalog.find_subscription("events", "new") is None
    headers = {HEADERS["ForwardTo"]: entities.token("target", "sender", SENDER)}
    assert (await entities.request("PUT", path, document(path, "ForwardTo"), headers, owner)).status == 201


@covers("M10")
async def test_what_stays_as_it_is_needs_no_new_token(entities: RunningFrontEnd) -> None:
    await entities.namespace.update_queue(QueueDescription("orders", forward_to="target"))
    await entities.namespace.put_policy(AuthorizationRule("owner", OWNER, "", frozenset(["Manage"])), "orders")
    owner = entities.token("orders", "owner", OWNER)
    again = document("/orders", "ForwardTo", "TARGET")
    assert (await entities.request("PUT", "/orders", again, {"If-Match": "*"}, owner)).status == 200
    headers = {"If-Match": "*", HEADERS["ForwardTo"]: "garbage"}
    assert refusal(await entities.request("PUT", "/orders", again, headers, owner))[0] == 401
    other = document("/orders", "ForwardTo", "events")
    assert refusal(await entities.request("PUT", "/orders", other, {"If-Match": "*"}, owner))[0] == 401
    assert (await entities.request("PUT", "/orders", queue_body(), {"If-Match": "*"}, owner)).status == 200
    queue = entities.namespace.catalog.get_queue("orders")
    assert queue.description.forward_to is None


@covers("M10")
@pytest.mark.parametrize("target", ["nobody", "events/subscriptions/audit", "a b", "sb://h/nobody"])
async def test_a_target_that_makes_no_sense_is_refused(entities: RunningFrontEnd, target: str) -> None:
    for element in HEADERS:
        reply = await entities.request("PUT", "/orders", document("/orders", element, target), {"If-Match": "*"})
        assert refusal(reply)[0] == 400
