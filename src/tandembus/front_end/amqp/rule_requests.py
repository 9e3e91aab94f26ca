"""Requests about a subscription's rules: add, remove, enumerate (wire contract 4).

Clients that receive may manage the rules of what they receive from, beside the administration over HTTP. Both see the
same rules: values come in with AMQP's types and are kept as Python's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tandembus.amqp.encoding.encoder import encode
from tandembus.amqp.encoding.values import Described, Encoded, int_, timestamp
from tandembus.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from tandembus.errors import InvalidArgument, InvalidOperation
from tandembus.metering.slot import RULES
from tandembus.namespace.paths import SubQueue, split_subscription
from tandembus.rules.values import Duration, Instant
from tandembus.rules.wire_values import encodable, value_of

if TYPE_CHECKING:
    from tandembus.front_end.amqp.requests import Body
    from tandembus.namespace.entity import Entity
    from tandembus.namespace.namespace import Namespace
    from tandembus.namespace.paths import EntityAddress

RULE_DESCRIPTION = 0x0000_0137_0000_0004
EMPTY_RULE_ACTION = 0x0000_0137_0000_0005
SQL_RULE_ACTION = 0x0000_0137_0000_0006
SQL_FILTER = 0x0000_0013_7000_0006
TRUE_FILTER = 0x0000_0013_7000_0007
FALSE_FILTER = 0x0000_0013_7000_0008
CORRELATION_FILTER = 0x0000_0013_7000_0009
COMPATIBILITY_LEVEL = 20
LARGEST_INT = 2**31 - 1
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Some clients ask for all rules at once and do not come back for more, so an answer may be large; but not any size."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Answer = tuple[int, str | None, object]
Count = Callable[[str, int, int, int], None]


class RuleRequests:
    """All of them need the right to manage the subscription."""

    def __init__(self, namespace: Namespace, address: EntityAddress, count: Count) -> None:
        self._namespace = namespace
        self._address = address
        self._count = count

    @property
    def operations(self) -> Mapping[str, Callable[[Entity, Body], Awaitable[Answer]]]:
        return {
            "com.microsoft:add-rule": self._add,
            "com.microsoft:remove-rule": self._remove,
            "com.microsoft:enumerate-rules": self._enumerate,
        }

    def _subscription(self) -> tuple[str, str]:
        found = split_subscription(self._address.key)
        if found is None or self._address.sub_queue is not SubQueue.MAIN:
            raise InvalidOperation(
                f"The messaging entity '{self._address.path}' has no rules: only subscriptions have."
            )
        return found

    async def _add(self, _entity: Entity, body: Body) -> Answer:
        topic, subscription = self._subscription()
        rule = rule_in(body)
        await self._namespace.create_rule(topic, subscription, rule)
        self._count(RULES, 0, 1, 0)
        return 200, None, {}

    async def _remove(self, _entity: Entity, body: Body) -> Answer:
        topic, subscription = self._subscription()
        await self._namespace.delete_rule(topic, subscription, _needed(body, "rule-name"))
        self._count(RULES, 0, 1, 0)
        return 200, None, {}

    async def _enumerate(self, _entity: Entity, body: Body) -> Answer:
        topic, subscription = self._subscription()
        skip = body.integer("skip", least=0, most=LARGEST_INT)
        top = body.integer("top", least=1, most=LARGEST_INT)
        rules = encoded_rules(self._namespace.rules(topic, subscription, skip, top))
        self._count(RULES, 0, 1, 0)
        if not rules:
            return 204, None, None
        return 200, None, {"rules": [{"rule-description": rule} for rule in rules]}


# From a request to a description.


def rule_in(body: Body) -> RuleDescription:
    description = body.map("rule-description")
    if description is None:
        raise InvalidArgument("The request needs 'rule-description' as a map.")
    return RuleDescription(_needed(body, "rule-name"), _filter_in(description), _action_in(description))


def _needed(body: Body, key: str) -> str:
    text = body.string(key)
    if not text:
        raise InvalidArgument(f"The request needs '{key}' as a string.")
    return text


def _filter_in(description: Body) -> Filter:
    sql = description.map("sql-filter")
    correlation = description.map("correlation-filter")
    if sql is not None and correlation is not None:
        raise InvalidArgument("A rule has one filter: either 'sql-filter' or 'correlation-filter'.")
    if sql is not None:
        return SqlFilter(_needed(sql, "expression"), _values_in(sql, "parameters"))
    if correlation is None:
        raise InvalidArgument("The 'rule-description' needs a 'sql-filter' or a 'correlation-filter'.")
    return CorrelationFilter(
        correlation_id=correlation.string("correlation-id"),
        message_id=correlation.string("message-id"),
        to=correlation.string("to"),
        reply_to=correlation.string("reply-to"),
        label=correlation.string("label"),
        session_id=correlation.string("session-id"),
        reply_to_session_id=correlation.string("reply-to-session-id"),
        content_type=correlation.string("content-type"),
        properties=_values_in(correlation, "properties"),
    )


def _action_in(description: Body) -> SqlAction | None:
    action = description.map("sql-rule-action")
    if action is None or action.string("expression") is None:
        return None
    return SqlAction(_needed(action, "expression"), _values_in(action, "parameters"))


def _values_in(body: Body, key: str) -> tuple[tuple[str, object], ...]:
    values = body.map(key)
    return () if values is None else tuple((name, own_value(value)) for name, value in values.items())


def own_value(value: object) -> object:
    """AMQP's integers are integers here, its times Python's; what has no such form is for the description to refuse."""
    found = value_of(value)
    try:
        if isinstance(found, Instant):
            return _EPOCH + timedelta(microseconds=found.ticks // 10)
        if isinstance(found, Duration):
            return timedelta(microseconds=found.ticks // 10)
    except OverflowError:
        raise InvalidArgument("A date or a duration in the rule is out of range.") from None
    return found


# From a description to an answer.


def encoded_rules(rules: Sequence[RuleDescription]) -> list[Encoded]:
    """As many of them as one answer may hold, and at least one."""
    encoded: list[Encoded] = []
    size = 0
    for rule in rules:
        one = encode(_described_rule(rule))
        size += len(one)
        if encoded and size > MAX_ANSWER_BYTES:
            break
        encoded.append(Encoded(one))
    return encoded


def _described_rule(rule: RuleDescription) -> Described:
    action = rule.action
    described_action = Described(EMPTY_RULE_ACTION, [])
    if action is not None:
        described_action = Described(SQL_RULE_ACTION, [action.expression, int_(COMPATIBILITY_LEVEL)])
    created_at = timestamp(int(rule.created_at * 1000))
    return Described(RULE_DESCRIPTION, [_described_filter(rule.filter), described_action, rule.name, created_at])


def _described_filter(wanted: Filter) -> Described:
    if isinstance(wanted, SqlFilter):
        return Described(SQL_FILTER, [wanted.expression, int_(COMPATIBILITY_LEVEL)])
    if isinstance(wanted, TrueFilter):
        return Described(TRUE_FILTER, [])
    if isinstance(wanted, FalseFilter):
        return Described(FALSE_FILTER, [])
    fields: list[object] = [
        wanted.correlation_id,
        wanted.message_id,
        wanted.to,
        wanted.reply_to,
        wanted.label,
        wanted.session_id,
        wanted.reply_to_session_id,
        wanted.content_type,
        {name: _wire_value(value) for name, value in wanted.properties},
    ]
    return Described(CORRELATION_FILTER, fields)


def _wire_value(value: object) -> object:
    return encodable(value_of(value)) if isinstance(value, (datetime, timedelta, int)) else value
