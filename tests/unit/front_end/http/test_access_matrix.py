"""Every HTTP operation with every right on every scope: who gets in, judged by the rules and not by the code.

A claim opens what lies at or below its scope. Sending takes Send; receiving, settling, purging and deleting take
Listen; administration takes Manage, which is as good as both others.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from tandembus.descriptions import (
    AuthorizationRule,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tests.covers import covers
from tests.unit.front_end.http.harness import RunningFrontEnd, running_front_end
from tests.unit.front_end.http.test_server import queue_body
from tests.unit.front_end.http.test_topics import body

TOKEN = uuid.UUID(int=7)
RIGHTS = ("Send", "Listen", "Manage")
KEYS = {right: f"a2V5IG9mIG9uZSBy{right}" for right in RIGHTS}
SCOPES = (
    "",
    "orders",
    "ORDERS",
    "orders/$deadletterqueue",
    "orders/$management",
    "orders/messages",
    "orders/messages/head",
    "orders/$policies",
    "order",
    "orders2",
    "events",
    "events/subscriptions",
    "events/subscriptions/audit",
    "events/subscriptions/audit/$deadletterqueue",
    "events/subscriptions/audit/rules/$default",
    "events/subscriptions/aud",
    "$namespaceinfo",
    "$resources",
    "$policies",
    "tandembus",
)


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    right: str
    document: str | None = None
    target: str | None = None
    """Where messages go to: Send on it is needed as well."""


def _operations() -> list[Operation]:
    manage = [
        Operation("GET", path, "Manage")
        for path in (
            "$namespaceinfo",
            "$Resources/queues",
            "$Resources/topics",
            "$policies",
            "$policies/nobody",
            "orders",
            "orders/$policies",
            "events",
            "events/$policies/nobody",
            "events/subscriptions",
            "events/Subscriptions/audit",
            "events/subscriptions/audit/rules",
            "events/subscriptions/audit/Rules/$Default",
            "tandembus/meter",
        )
    ]
    policy = json.dumps({"rights": ["Nonsense"]})
    manage += [
        Operation("PUT", "orders", "Manage", queue_body()),
        Operation("PUT", "events", "Manage", body("Topic")),
        Operation("PUT", "events/subscriptions/audit", "Manage", body("Subscription")),
        Operation("PUT", "events/subscriptions/audit/rules/$Default", "Manage", body("Rule")),
        Operation("PUT", "$policies/new", "Manage", policy),
        Operation("PUT", "orders/$policies/new", "Manage", policy),
        Operation("POST", "$policies/nobody/regenerate", "Manage"),
        Operation("POST", "orders/$policies/nobody/regenerate", "Manage"),
        Operation("DELETE", "$policies/nobody", "Manage"),
        Operation("DELETE", "orders/$policies/nobody", "Manage"),
        Operation("DELETE", "orders2", "Manage"),
        Operation("DELETE", "events/subscriptions/nobody", "Manage"),
        Operation("DELETE", "events/subscriptions/audit/rules/nobody", "Manage"),
    ]
    listen = [
        Operation(method, f"{path}/messages/{rest}", "Listen")
        for path in (
            "orders",
            "orders/$DeadLetterQueue",
            "events/subscriptions/audit",
            "events/subscriptions/audit/$DeadLetterQueue",
        )
        for method, rest in (
            ("POST", "head?timeout=0"),
            ("DELETE", "head?timeout=0"),
            ("DELETE", "77"),
            ("DELETE", f"1/{TOKEN}"),
            ("PUT", f"1/{TOKEN}"),
            ("POST", f"1/{TOKEN}"),
        )
    ]
    listen += [
        Operation("POST", "orders/$purge", "Listen"),
        Operation("POST", "orders/$DeadLetterQueue/$purge", "Listen"),
        Operation("POST", "events/subscriptions/audit/$purge", "Listen"),
        Operation("POST", "orders/$DeadLetterQueue/$resubmit", "Listen", target="orders"),
        Operation("POST", "orders/$DeadLetterQueue/$resubmit?to=events", "Listen", target="events"),
        Operation("POST", "events/subscriptions/audit/$DeadLetterQueue/$resubmit", "Listen", target="events"),
    ]
    send = [Operation("POST", f"{path}/messages", "Send", "a message") for path in ("orders", "events")]
    return manage + listen + send


OPERATIONS = _operations()


def covers_path(scope: str, path: str) -> bool:
    scope, path = scope.lower(), path.lower()
    return scope == "" or path == scope or path.startswith(f"{scope}/")


def is_granted(right: str, wanted: str) -> bool:
    return right in (wanted, "Manage")


def needed_path(operation: Operation) -> str:
    """What a claim must cover: the address itself, but for what is the whole namespace's or an entity's own."""
    path = operation.path.partition("?")[0]
    for suffix in ("/$purge", "/$resubmit", "/$policies"):
        if suffix in path:
            path = path.partition(suffix)[0]
    if path == "tandembus/meter":
        return "$namespaceinfo"
    if path.startswith("$policies"):
        return "$policies"
    if path.endswith("/77"):
        return path.rpartition("/messages")[0]
    return path


def expected(operation: Operation, right: str, scope: str) -> bool:
    may = is_granted(right, operation.right) and covers_path(scope, needed_path(operation))
    if operation.target is not None:
        may = may and is_granted(right, "Send") and covers_path(scope, operation.target)
    return may


@pytest.fixture
async def namespace(tmp_path: Path) -> AsyncIterator[RunningFrontEnd]:
    async with running_front_end(tmp_path) as running:
        await running.namespace.create_queue(QueueDescription("orders"))
        await running.namespace.create_topic(TopicDescription("events"))
        await running.namespace.create_subscription(SubscriptionDescription("events", "audit"))
        for right in RIGHTS:
            rule = AuthorizationRule(right.lower(), KEYS[right], "", frozenset([right]))
            await running.namespace.put_policy(rule)
        yield running


def test_the_matrix_is_large_enough_to_mean_something() -> None:
    assert len(OPERATIONS) * len(RIGHTS) * len(SCOPES) > 2_000
    outcomes = [expected(one, right, scope) for one in OPERATIONS for right in RIGHTS for scope in SCOPES]
    assert 0.05 < sum(outcomes) / len(outcomes) < 0.5


@covers("M15")
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one.method} {one.path}")
async def test_a_claim_opens_what_it_covers_and_nothing_else(namespace: RunningFrontEnd, operation: Operation) -> None:
    headers = {"If-Match": "*"}
    if operation.path.rpartition("/")[2] == "messages":
        headers["Content-Type"] = "text/plain"
    elif "$policies" in operation.path:
        headers["Content-Type"] = "application/json"
    async with aiohttp.ClientSession() as session:

        async def status_with(token: str | None) -> int:
            sent = {**headers, **({"Authorization": token} if token is not None else {})}
            url = URL(f"http://127.0.0.1:{namespace.port}/{operation.path}", encoded=True)
            async with session.request(operation.method, url, data=operation.document, headers=sent) as response:
                await response.read()
                return response.status

        for right in RIGHTS:
            for scope in SCOPES:
                status = await status_with(namespace.token(scope, right.lower(), KEYS[right]))
                assert status < 500
                assert (status != 401) == expected(operation, right, scope), (right, scope, status)
        assert await status_with(None) == 401
