"""Every operation, with every kind of claim, for every scope: nobody is wrongly let in, and nobody wrongly kept out."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandembus.config import PolicySetting, ServeSettings
from tandembus.descriptions import AuthorizationRule, QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.node.wiring import NamespaceNode
from tests.covers import covers
from tests.integration.access_matrix import (
    AMQP_ATTEMPTS,
    HTTP_ATTEMPTS,
    NOBODY,
    RIGHTS,
    Credential,
    HttpAttempt,
    Visitor,
    credentials,
)
from tests.integration.python_sdk import LoopThread

CREDENTIALS = list(credentials())
OVER_HTTP = [one for one in CREDENTIALS if not one.is_password]


def policies_of(place: str) -> tuple[AuthorizationRule, ...]:
    return tuple(
        AuthorizationRule(one.policy, one.key, "unused", RIGHTS[rights])
        for rights in RIGHTS
        for one in [Credential(place, rights, "")]
    )


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, loop_thread: LoopThread) -> Iterator[int]:
    """A namespace of its own, in this process: its policies are the matrix's."""
    folder: Path = tmp_path_factory.mktemp("matrix") / "data"
    namespace_policies = tuple(
        PolicySetting(rule.key_name, rule.primary_key, None, tuple(rule.rights)) for rule in policies_of("")
    )
    settings = ServeSettings(data=folder, amqp_port=0, amqps_port=None, http_port=0, policies=namespace_policies)
    node = NamespaceNode(settings)
    loop_thread.call(node.start)
    namespace = node.namespace
    rules = policies_of("orders")
    loop_thread.call(namespace.create_queue, QueueDescription("orders", authorization_rules=rules))
    loop_thread.call(namespace.create_queue, QueueDescription("orders2"))
    loop_thread.call(namespace.create_queue, QueueDescription("orders/sub"))
    loop_thread.call(namespace.create_queue, QueueDescription("orders/messages"))
    loop_thread.call(namespace.create_queue, QueueDescription("baskets", requires_session=True))
    loop_thread.call(namespace.create_topic, TopicDescription("news", authorization_rules=policies_of("news")))
    loop_thread.call(namespace.create_subscription, SubscriptionDescription("news", "audit"))
    yield node.ports.amqp
    loop_thread.call(node.stop)


@covers("M15", "F16")
@pytest.mark.parametrize("credential", CREDENTIALS, ids=str)
def test_over_amqp(port: int, credential: Credential) -> None:
    visitor = Visitor(port, credential)
    try:
        wrong = [
            f"{attempt} was {'refused' if refused else 'let in'}"
            for attempt in AMQP_ATTEMPTS
            for refused in [attempt.is_refused(visitor)]
            if refused == credential.allows(attempt.right, attempt.target)
        ]
    finally:
        visitor.close()
    assert wrong == []


def status_of(port: int, attempt: HttpAttempt, token: str | None) -> int:
    connection = http.client.HTTPConnection("localhost", port, timeout=20.0)
    headers = {"Content-Type": "application/atom+xml", **dict(attempt.headers)}
    if token is not None:
        headers["Authorization"] = token
    try:
        connection.request(attempt.method, attempt.path, attempt.body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


@covers("M15", "F16")
@pytest.mark.parametrize("credential", OVER_HTTP, ids=str)
def test_over_http(port: int, credential: Credential) -> None:
    token = None if credential is NOBODY else credential.token()
    statuses = {attempt: status_of(port, attempt, token) for attempt in HTTP_ATTEMPTS}
    wrong = [
        f"{attempt} was answered with {status}"
        for attempt, status in statuses.items()
        if (status == 401) == credential.allows(attempt.right, attempt.target)
    ]
    assert wrong == []
    assert all(status < 500 for status in statuses.values()), statuses


def test_the_matrix_is_large_and_has_both_answers() -> None:
    over_amqp = [one.allows(attempt.right, attempt.target) for one in CREDENTIALS for attempt in AMQP_ATTEMPTS]
    over_http = [one.allows(attempt.right, attempt.target) for one in OVER_HTTP for attempt in HTTP_ATTEMPTS]
    for expected in (over_amqp, over_http):
        assert expected.count(True) >= 150
        assert expected.count(False) >= 2_000
