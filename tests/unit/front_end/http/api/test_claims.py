"""Messages and rules as JSON with every right on every scope: who gets in, judged by the rules and not by the code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tandembus.clock import ManualClock
from tandembus.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.security.claims import Policy, Right
from tests.covers import covers
from tests.unit.front_end.http.api.asking import ask_with, put_in
from tests.unit.front_end.http.api.test_browsing import text
from tests.unit.front_end.http.harness import RunningFrontEnd, running_front_end

KEYS = {right: f"a2V5IG9m{right.value}" for right in Right}
SCOPES = ("", "orders", "order", "other", "orders/$deadletterqueue", "events", "events/subscriptions/all")
SUBSCRIPTION = "events/subscriptions/all"
MOVE = {"action": "move", "to": "other", "sequence_numbers": ["999"]}
DELETE = {"action": "delete", "sequence_numbers": ["999"]}
RULE = {"filter": {"kind": "true"}}


@dataclass(frozen=True)
class Operation:
    method: str
    route: str
    needs: dict[str, Right]
    """By the path that it is needed on."""
    document: object = None
    query: dict[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.method} {self.route} {self.query}"


LISTEN, SEND, MANAGE = {"orders": Right.LISTEN}, {"orders": Right.SEND}, {SUBSCRIPTION: Right.MANAGE}
DEAD: dict[str, object] = {"path": "orders", "sub_queue": "dead-letter"}
OPERATIONS = [
    Operation("GET", "messages", LISTEN, query={"path": "orders"}),
    Operation("GET", "messages", {"orders/$deadletterqueue": Right.LISTEN}, query=DEAD),
    Operation("GET", "messages", {SUBSCRIPTION: Right.LISTEN}, query={"path": SUBSCRIPTION}),
    Operation("GET", "message", LISTEN, query={"path": "orders", "sequence_number": 1}),
    Operation("GET", "messages/reasons", {"orders/$deadletterqueue": Right.LISTEN}, query=DEAD),
    Operation("GET", "messages/export", LISTEN, query={"path": "orders"}),
    Operation("GET", "sessions", {"talks": Right.LISTEN}, query={"path": "talks"}),
    Operation("POST", "messages", SEND, {}, {"path": "orders"}),
    Operation("POST", "messages/act", LISTEN, DELETE, {"path": "orders"}),
    Operation("POST", "messages/act", {**LISTEN, "other": Right.SEND}, MOVE, {"path": "orders"}),
    Operation(
        "POST",
        "messages/resend",
        {**LISTEN, "other": Right.SEND},
        {},
        {"path": "orders", "sequence_number": 1, "to": "other"},
    ),
    Operation("GET", "rules", MANAGE, query={"path": SUBSCRIPTION}),
    Operation("PUT", "rules", MANAGE, RULE, {"path": SUBSCRIPTION, "name": "$Default"}),
    Operation("DELETE", "rules", MANAGE, query={"path": SUBSCRIPTION, "name": "none"}),
]


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[RunningFrontEnd]:
    async with running_front_end(tmp_path, clock=ManualClock()) as running:
        for name in ("orders", "other"):
            await running.namespace.create_queue(QueueDescription(name))
        await running.namespace.create_queue(QueueDescription("talks", requires_session=True))
        await running.namespace.create_topic(TopicDescription("events"))
        await running.namespace.create_subscription(SubscriptionDescription("events", "all"))
        await put_in(running, "orders", text("a"))
        policies = [Policy(right.value, key, "", frozenset([right])) for right, key in KEYS.items()]
        running.authorizer.set_policies("", policies)
        yield running


def may(right: Right, scope: str, needs: dict[str, Right]) -> bool:
    """A claim opens what lies at or below its scope; Manage is as good as both others."""
    return all(
        right in (needed, Right.MANAGE) and (not scope or path == scope or path.startswith(f"{scope}/"))
        for path, needed in needs.items()
    )


@covers("M15", "B4")
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_each_operation_needs_its_right_where_it_works(running: RunningFrontEnd, operation: Operation) -> None:
    for scope in SCOPES:
        for right, key in KEYS.items():
            token = running.token(scope, policy=right.value, key=key)
            reply = await ask_with(
                running, token, operation.method, operation.route, operation.document, **operation.query
            )
            is_in = reply.status != 401
            assert is_in == may(right, scope, operation.needs), f"{right} on '{scope}': {reply.status} {reply.text}"
    nobody = await ask_with(running, None, operation.method, operation.route, operation.document, **operation.query)
    assert nobody.status == 401


async def test_a_second_token_opens_the_target(running: RunningFrontEnd) -> None:
    headers = {"ServiceBusSupplementaryAuthorization": running.token("other", policy="Send", key=KEYS[Right.SEND])}
    token = running.token("orders", policy="Listen", key=KEYS[Right.LISTEN])
    body = '{"action": "move", "to": "other"}'
    headers["Content-Type"] = "application/json"
    reply = await running.request("POST", "/$api/messages/act?path=orders", body, headers, token)
    assert (reply.status, reply.text.splitlines()[-1][:10]) == (200, '{"done": 1')
