"""Rules over AMQP: from a request to a description and back, and the status that each request gets."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from tandembus.amqp.encoding import Described, decode, encode, int_, symbol, timestamp, ulong
from tandembus.amqp.encoding.values import Array, Typed
from tandembus.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)
from tandembus.errors import BusError, EntityAlreadyExists, EntityNotFound, InvalidArgument, InvalidOperation
from tandembus.front_end.amqp.requests import Body
from tandembus.front_end.amqp.rule_requests import MAX_ANSWER_BYTES, RuleRequests, encoded_rules, rule_in
from tandembus.limits import Limits
from tandembus.namespace.paths import parse_address
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Life, Machine

ADD, REMOVE, ENUMERATE = (f"com.microsoft:{name}" for name in ("add-rule", "remove-rule", "enumerate-rules"))
PATH = "Orders/Subscriptions/Large"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
GUID = uuid.UUID(int=5)


def decoded(value: object) -> object:
    """As it comes off the wire."""
    return decode(encode(value), typed=True)[0]


def request(name: object, description: object) -> Body:
    return Body(decoded({"rule-name": name, "rule-description": description}))


class Node:
    """The requests of a subscription in a namespace of its own."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.counted: list[str] = []

    async def ask(self, operation: str, body: object, path: str = PATH) -> tuple[int, str | None, object]:
        address = parse_address(f"{path}/$management")
        requests = RuleRequests(self.life.namespace, address, lambda *counted: self.counted.append(counted[0]))
        entity = await self.life.namespace.entity(address.key)
        return await requests.operations[operation](entity, Body(decoded(body)))

    async def add(self, name: str, expression: str = "1=1") -> None:
        description = {"sql-filter": {"expression": expression}}
        assert await self.ask(ADD, {"rule-name": name, "rule-description": description}) == (200, None, {})

    async def names(self, skip: int = 0, top: int = 100) -> list[str]:
        status, _, body = await self.ask(ENUMERATE, {"top": int_(top), "skip": int_(skip)})
        if status == 204:
            return []
        assert isinstance(body, dict)
        return [_decoded_rule(rule["rule-description"])[2] for rule in body["rules"]]


def _decoded_rule(rule: object) -> list[str]:
    described, _ = decode(encode(rule))
    assert isinstance(described, Described)
    assert isinstance(described.value, list)
    return described.value


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with Life(Machine(Limits())) as life:
        await life.namespace.create_topic(TopicDescription("orders"))
        await life.namespace.create_subscription(SubscriptionDescription("orders", "large"))
        yield Node(life)


# From a request to a description.


@covers("M9")
def test_a_sql_filter_is_read() -> None:
    assert rule_in(request("r", {"sql-filter": {"expression": "a = 1"}})) == RuleDescription("r", SqlFilter("a = 1"))


@covers("M9")
def test_a_correlation_filter_is_read_and_nulls_are_left_out() -> None:
    wanted = {
        "correlation-id": "c",
        "message-id": "m",
        "to": "t",
        "reply-to": "r",
        "label": "l",
        "session-id": None,
        "reply-to-session-id": "rs",
        "content-type": symbol("ct"),
        "properties": {"a": int_(1), "b": "x"},
    }
    expected = CorrelationFilter("c", "m", "t", "r", "l", None, "rs", "ct", (("a", 1), ("b", "x")))
    assert rule_in(request("r", {"correlation-filter": wanted})).filter == expected


@covers("M9")
def test_an_action_is_read_and_a_null_one_is_none() -> None:
    sql = {"expression": "a = 1"}
    action = {"expression": "SET b = 2"}
    assert rule_in(request("r", {"sql-filter": sql, "sql-rule-action": action})).action == SqlAction("SET b = 2")
    for nothing in (None, {}, {"expression": None}):
        assert rule_in(request("r", {"sql-filter": sql, "sql-rule-action": nothing})).action is None


@covers("M9")
@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (int_(5), 5),
        (ulong(2**64 - 1), 2**64 - 1),
        (1.5, 1.5),
        (True, True),
        (symbol("s"), "s"),
        (GUID, GUID),
        (b"\x00", b"\x00"),
        (timestamp(NOON_MS), NOON),
        (Described("com.microsoft:timespan", 36_000_000_000), timedelta(hours=1)),
        (Typed(0x73, "c"), "c"),
    ],
)
def test_values_are_kept_as_pythons_own(sent: object, kept: object) -> None:
    rule = rule_in(request("r", {"correlation-filter": {"properties": {"x": sent}}}))
    assert isinstance(rule.filter, CorrelationFilter)
    ((name, value),) = rule.filter.properties
    assert (name, value, type(value)) == ("x", kept, type(kept))


SQL = {"sql-filter": {"expression": "a = 1"}}
BAD_REQUESTS: list[tuple[object, object]] = [
    (None, SQL),
    ("", SQL),
    (5, SQL),
    ("r", None),
    ("r", {}),
    ("r", "sql"),
    ("r", {"sql-filter": None}),
    ("r", {"sql-filter": "a = 1"}),
    ("r", {"sql-filter": {}}),
    ("r", {"sql-filter": {"expression": ""}}),
    ("r", {"sql-filter": {"expression": 5}}),
    ("r", {"sql-filter": {"expression": "a = 1", "parameters": [1]}}),
    ("r", {"correlation-filter": "x"}),
    ("r", {"correlation-filter": {"label": 5}}),
    ("r", {"correlation-filter": {"properties": "x"}}),
    ("r", {"correlation-filter": {"properties": {5: "x"}}}),
    ("r", {"correlation-filter": {"properties": {"x": timestamp(2**63 - 1)}}}),
    ("r", {**SQL, "correlation-filter": {"label": "x"}}),
    ("r", {**SQL, "sql-rule-action": "SET a = 1"}),
    ("r", {**SQL, "sql-rule-action": {"expression": ""}}),
    ("r", {**SQL, "sql-rule-action": {"expression": 5}}),
]


@covers("M9")
@pytest.mark.parametrize(("name", "description"), BAD_REQUESTS)
def test_a_request_that_describes_no_rule_is_a_bad_argument(name: object, description: object) -> None:
    with pytest.raises(InvalidArgument):
        rule_in(request(name, description))


# From a description to an answer.


@covers("M9")
@pytest.mark.parametrize(
    ("wanted", "descriptor", "fields"),
    [
        (SqlFilter("a = 1"), 0x0000001370000006, ["a = 1", int_(20)]),
        (TrueFilter(), 0x0000001370000007, []),
        (FalseFilter(), 0x0000001370000008, []),
        (
            CorrelationFilter("c", "m", "t", "r", "l", "s", "rs", "ct", (("at", NOON), ("wait", timedelta(hours=1)))),
            0x0000001370000009,
            [
                *("c", "m", "t", "r", "l", "s", "rs", "ct"),
                {"at": timestamp(NOON_MS), "wait": Described("com.microsoft:timespan", 36_000_000_000)},
            ],
        ),
        (CorrelationFilter(label="l"), 0x0000001370000009, [None, None, None, None, "l", None, None, None, {}]),
    ],
)
def test_a_rule_is_told_as_described_lists(wanted: Filter, descriptor: int, fields: list[object]) -> None:
    (encoded,) = encoded_rules([RuleDescription("r", wanted, created_at=1.5)])
    assert decode(encoded.data, typed=True)[0] == Described(
        0x0000013700000004,
        [Described(descriptor, fields), Described(0x0000013700000005, []), "r", timestamp(1500)],
    )


@covers("M9")
def test_an_action_is_told_as_a_described_list() -> None:
    (encoded,) = encoded_rules([RuleDescription("r", TrueFilter(), SqlAction("SET a = 1"))])
    rule, _ = decode(encoded.data, typed=True)
    assert isinstance(rule, Described)
    assert isinstance(rule.value, list)
    assert rule.value[1] == Described(0x0000013700000006, ["SET a = 1", int_(20)])


@covers("M9")
@pytest.mark.parametrize("value", [2**64 - 1, -(2**63), timedelta(days=10_675_199), True, NOON, GUID])
def test_every_value_that_a_rule_may_have_can_be_told(value: object) -> None:
    rule = RuleDescription("r", CorrelationFilter(properties=(("k", value),))).validated(Limits())
    assert len(encoded_rules([rule])) == 1


@pytest.mark.parametrize("days", [10_675_200, -10_675_200])
def test_a_span_that_amqp_cannot_tell_is_no_value_of_a_rule(days: int) -> None:
    with pytest.raises(InvalidArgument, match="longer than 10675199 days"):
        RuleDescription("r", SqlFilter("a = @p", (("@p", timedelta(days=days)),))).validated(Limits())


def test_an_answer_is_bounded_but_never_empty() -> None:
    huge = CorrelationFilter(properties=tuple((f"p{number}", "x" * 1_024) for number in range(128)))
    rules = [RuleDescription(f"r{number}", huge) for number in range(100)]
    told = encoded_rules(rules)
    assert 1 < len(told) < 100
    assert sum(len(one.data) for one in told) <= MAX_ANSWER_BYTES


# Requests.


@covers("M9")
async def test_rules_are_added_enumerated_in_pages_and_removed(node: Node) -> None:
    for name in ("b", "a", "c"):
        await node.add(name)
    assert await node.names() == ["$Default", "a", "b", "c"]
    assert await node.names(skip=1, top=2) == ["a", "b"]
    assert await node.names(skip=3, top=2) == ["c"]
    assert await node.ask(ENUMERATE, {"top": int_(100), "skip": int_(4)}) == (204, None, None)
    for name in ("$Default", "A", "b"):
        assert await node.ask(REMOVE, {"rule-name": name}) == (200, None, {})
    assert await node.names() == ["c"]
    assert set(node.counted) == {"rules"}


@covers("M9")
async def test_a_rule_works_as_soon_as_it_is_added(node: Node) -> None:
    await node.ask(REMOVE, {"rule-name": "$Default"})
    await node.add("right", "sys.Size > 0 AND missing IS NULL")
    await node.life.send("orders", "first")
    assert await node.life.peek("orders/subscriptions/large") == ["first"]
    await node.ask(REMOVE, {"rule-name": "right"})
    await node.life.send("orders", "second")
    assert await node.life.peek("orders/subscriptions/large") == ["first"]


@covers("M9")
async def test_what_is_wrong_with_a_rule_is_told_and_nothing_is_added(node: Node) -> None:
    await node.add("there")
    wrong: list[tuple[str, object, type[BusError]]] = [
        ("there", SQL, EntityAlreadyExists),
        ("THERE", SQL, EntityAlreadyExists),
        ("new", {"sql-filter": {"expression": "a ="}}, InvalidArgument),
        ("new", {"sql-filter": {"expression": "a = '" + "x" * 1_024 + "'"}}, InvalidArgument),
        ("new", {"sql-filter": {"expression": "upper(a) = 1"}}, InvalidArgument),
        ("new", {**SQL, "sql-rule-action": {"expression": "REMOVE sys.Label"}}, InvalidArgument),
        ("new", {"correlation-filter": {}}, InvalidArgument),
        ("new", {"correlation-filter": {"properties": {"x": None}}}, InvalidArgument),
        ("new", {"correlation-filter": {"properties": {"x": [1]}}}, InvalidArgument),
        ("new", {"correlation-filter": {"properties": {"x": Array(0x71, [1])}}}, InvalidArgument),
        ("x" * 51, SQL, InvalidArgument),
        ("a/b", SQL, InvalidArgument),
    ]
    for name, description, error in wrong:
        with pytest.raises(error):
            await node.ask(ADD, {"rule-name": name, "rule-description": description})
    assert await node.names() == ["$Default", "there"]


@covers("M9")
async def test_a_rule_that_is_not_there_cannot_be_removed(node: Node) -> None:
    with pytest.raises(EntityNotFound):
        await node.ask(REMOVE, {"rule-name": "nobody"})
    with pytest.raises(InvalidArgument):
        await node.ask(REMOVE, {})


@covers("M9")
@pytest.mark.parametrize(
    "body",
    [{}, {"top": int_(1)}, {"skip": int_(0)}, {"top": int_(0), "skip": int_(0)}, {"top": int_(1), "skip": int_(-1)}],
)
async def test_enumerating_needs_a_page(node: Node, body: object) -> None:
    with pytest.raises(InvalidArgument):
        await node.ask(ENUMERATE, body)


@covers("M9")
@pytest.mark.parametrize("path", ["orders", f"{PATH}/$DeadLetterQueue"])
@pytest.mark.parametrize("operation", [ADD, REMOVE, ENUMERATE])
async def test_only_subscriptions_have_rules(node: Node, operation: str, path: str) -> None:
    body = {"rule-name": "r", "rule-description": SQL, "top": int_(1), "skip": int_(0)}
    with pytest.raises(InvalidOperation, match="has no rules"):
        await node.ask(operation, body, path)
