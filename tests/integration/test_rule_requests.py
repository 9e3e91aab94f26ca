"""Requests about rules as they stand on the wire: statuses, claims, and nodes that have no rules."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding.values import Described, int_, symbol, timestamp
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.conftest import LISTENS_KEY, SENDS_KEY
from tests.integration.raw_amqp import Node, RawAmqp
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

ADD, REMOVE, ENUMERATE = (f"com.microsoft:{name}" for name in ("add-rule", "remove-rule", "enumerate-rules"))
RULE_DESCRIPTION, EMPTY_ACTION, SQL_ACTION = 0x0000013700000004, 0x0000013700000005, 0x0000013700000006
SQL_FILTER, TRUE_FILTER, CORRELATION_FILTER = 0x0000001370000006, 0x0000001370000007, 0x0000001370000009
SQL = {"sql-filter": {"expression": "color = 'red'"}}
PAGE = {"top": int_(100), "skip": int_(0)}

OK: tuple[int, None, dict[object, object]] = (200, None, {})
BAD_ARGUMENT = (400, "com.microsoft:argument-error")
NOT_ALLOWED = (400, "amqp:not-allowed")
UNAUTHORIZED = (401, "amqp:unauthorized-access")
NOT_FOUND = (404, "amqp:not-found")
CONFLICT = (409, "com.microsoft:entity-already-exists")


@pytest.fixture
def topic(bus: Bus) -> str:
    return bus.make_topic("sub")


@pytest.fixture
def node(raw: RawAmqp, topic: str) -> Node:
    return raw.attach_node(f"{topic}/Subscriptions/sub/$management")


def rule(name: object, description: object) -> dict[str, object]:
    return {"rule-name": name, "rule-description": description}


def listed(node: Node, **page: object) -> list[list[object]]:
    """Filter, action, name and time of each rule."""
    status, condition, body = node.manage(ENUMERATE, {**PAGE, **page})
    if status == 204:
        assert (condition, body) == (None, None)
        return []
    assert status == 200
    assert isinstance(body, dict)
    found: list[list[object]] = []
    for entry in body["rules"]:
        described = entry["rule-description"]
        assert isinstance(described, Described)
        assert described.descriptor == RULE_DESCRIPTION
        assert isinstance(described.value, list)
        found.append(described.value)
    return found


@covers("M9")
def test_rules_are_told_in_the_services_own_encoding(node: Node) -> None:
    (default,) = listed(node)
    assert default[:3] == [Described(TRUE_FILTER, []), Described(EMPTY_ACTION, []), "$Default"]
    properties = {"a": int_(1), "at": timestamp(1_700_000_000_000)}
    correlation = {"label": "l", "content-type": symbol("c"), "to": None, "properties": properties}
    action = {"expression": "SET a = 1"}
    assert node.manage(ADD, rule("c", {"correlation-filter": correlation})) == OK
    assert node.manage(ADD, rule("s", {**SQL, "sql-rule-action": action})) == OK
    _, second, third = listed(node)
    kept = {"a": 1, "at": timestamp(1_700_000_000_000)}
    assert second[0] == Described(CORRELATION_FILTER, [None, None, None, None, "l", None, None, "c", kept])
    assert third[:2] == [
        Described(SQL_FILTER, ["color = 'red'", int_(20)]),
        Described(SQL_ACTION, ["SET a = 1", int_(20)]),
    ]


@covers("M9")
def test_skip_and_top_make_pages_and_the_end_is_empty(node: Node) -> None:
    for number in range(5):
        assert node.manage(ADD, rule(f"r{number}", SQL)) == OK
    assert [one[2] for one in listed(node, skip=int_(1), top=int_(2))] == ["r0", "r1"]
    assert [one[2] for one in listed(node, skip=int_(5), top=int_(2))] == ["r4"]
    assert listed(node, skip=int_(6)) == []


@covers("M9")
@pytest.mark.parametrize(
    ("operation", "body", "expected"),
    [
        (ADD, {}, BAD_ARGUMENT),
        (ADD, rule("x", {}), BAD_ARGUMENT),
        (ADD, rule("x", {"sql-filter": {"expression": "color ="}}), BAD_ARGUMENT),
        (ADD, rule("x", {"sql-filter": {"expression": "(" * 500 + "a = 1" + ")" * 500}}), BAD_ARGUMENT),
        (ADD, rule("x", {"sql-filter": {"expression": "a = '" + "x" * 1_020 + "'"}}), BAD_ARGUMENT),
        (ADD, rule("x", {"correlation-filter": {}}), BAD_ARGUMENT),
        (ADD, rule("x", {**SQL, "sql-rule-action": {"expression": "SET sys.Size = 1"}}), BAD_ARGUMENT),
        (ADD, rule("x" * 51, SQL), BAD_ARGUMENT),
        (ADD, rule("$default", SQL), CONFLICT),
        (REMOVE, {}, BAD_ARGUMENT),
        (REMOVE, {"rule-name": "nobody"}, NOT_FOUND),
        (ENUMERATE, {}, BAD_ARGUMENT),
        (ENUMERATE, {"top": int_(-1), "skip": int_(0)}, BAD_ARGUMENT),
    ],
)
def test_a_wrong_request_gets_a_status_and_changes_nothing(
    node: Node, operation: str, body: object, expected: tuple[int, str]
) -> None:
    assert node.manage(operation, body) == (*expected, None)
    assert [one[2] for one in listed(node)] == ["$Default"]


@covers("M9")
@pytest.mark.parametrize("operation", [ADD, REMOVE, ENUMERATE])
def test_queues_topics_and_dead_letters_have_no_rules(bus: Bus, raw: RawAmqp, topic: str, operation: str) -> None:
    paths = (bus.make_queue(), topic, f"{topic}/Subscriptions/sub/$DeadLetterQueue")
    body = {**rule("x", SQL), **PAGE}
    for number, path in enumerate(paths):
        node = raw.attach_node(f"{path}/$management", handle=60 + 2 * number)
        assert node.manage(operation, body) == (*NOT_ALLOWED, None)


@covers("M9", "F16")
@pytest.mark.parametrize(("policy", "key"), [("sends", SENDS_KEY), ("listens", LISTENS_KEY)])
@pytest.mark.parametrize("operation", [ADD, REMOVE, ENUMERATE])
def test_rules_are_for_those_who_may_manage(small_bus: Bus, policy: str, key: str, operation: str) -> None:
    topic = small_bus.make_topic("sub")
    with RawAmqp(small_bus.running.port) as raw:
        raw.log_in(policy, key)
        node = raw.attach_node(f"{topic}/Subscriptions/sub/$management")
        assert node.manage(operation, {**rule("x", SQL), **PAGE, "rule-name": "$Default"}) == (*UNAUTHORIZED, None)
    assert [one.name for one in small_bus.admin.list_rules(topic, "sub")] == ["$Default"]
