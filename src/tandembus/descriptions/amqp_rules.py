"""Rules as the management node of a subscription sends them, both ways, and as a client asks for a new one."""

from __future__ import annotations

from typing import Final

from tandembus.amqp.encoding.values import Described, int_, timestamp
from tandembus.descriptions.rules import (
    CORRELATED,
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from tandembus.descriptions.values import wire_value
from tandembus.errors import InvalidArgument, MalformedData

RULE: Final = 0x0000_0137_0000_0004
EMPTY_ACTION: Final = 0x0000_0137_0000_0005
SQL_ACTION: Final = 0x0000_0137_0000_0006
SQL_FILTER: Final = 0x0000_0013_7000_0006
TRUE_FILTER: Final = 0x0000_0013_7000_0007
FALSE_FILTER: Final = 0x0000_0013_7000_0008
CORRELATION_FILTER: Final = 0x0000_0013_7000_0009
COMPATIBILITY_LEVEL: Final = 20

_FIELDS: Final = tuple(CORRELATED.values())


def described_rule(rule: RuleDescription) -> Described:
    """A rule as `enumerate-rules` answers with it."""
    action = Described(EMPTY_ACTION, [])
    if rule.action is not None:
        action = Described(SQL_ACTION, [rule.action.expression, int_(COMPATIBILITY_LEVEL)])
    created_at = timestamp(int(rule.created_at * 1000))
    return Described(RULE, [_described_filter(rule.filter), action, rule.name, created_at])


def _described_filter(wanted: Filter) -> Described:
    match wanted:
        case SqlFilter():
            return Described(SQL_FILTER, [wanted.expression, int_(COMPATIBILITY_LEVEL)])
        case TrueFilter():
            return Described(TRUE_FILTER, [])
        case FalseFilter():
            return Described(FALSE_FILTER, [])
        case CorrelationFilter():
            fields: list[object] = [getattr(wanted, name) for name in _FIELDS]
            properties = {name: wire_value(value) for name, value in wanted.properties}
            return Described(CORRELATION_FILTER, [*fields, properties])


def rule_from(value: object) -> RuleDescription:
    """Reads what `described_rule` writes. Raises MalformedData."""
    if not isinstance(value, Described) or value.descriptor != RULE or not isinstance(value.value, list):
        raise MalformedData("the service answered with something that is not a rule")
    filter, action, name, created_at = [*value.value, None, None, None, None][:4]
    return RuleDescription(
        name=str(name or ""),
        filter=_filter_from(filter),
        action=_action_from(action),
        created_at=created_at / 1000 if isinstance(created_at, int) else 0.0,
    )


def _filter_from(value: object) -> Filter:
    if not isinstance(value, Described):
        raise MalformedData("a rule without a filter")
    parts = value.value if isinstance(value.value, list) else []
    if value.descriptor == SQL_FILTER:
        return SqlFilter(_text(parts, 0) or "")
    if value.descriptor == TRUE_FILTER:
        return TrueFilter()
    if value.descriptor == FALSE_FILTER:
        return FalseFilter()
    if value.descriptor == CORRELATION_FILTER:
        named = {name: _text(parts, place) for place, name in enumerate(_FIELDS)}
        properties = parts[len(_FIELDS)] if len(parts) > len(_FIELDS) else None
        pairs = properties.items() if isinstance(properties, dict) else ()
        return CorrelationFilter(**named, properties=tuple([(str(key), each) for key, each in pairs]))
    raise MalformedData("a filter of an unknown kind")


def _action_from(value: object) -> SqlAction | None:
    if not isinstance(value, Described) or value.descriptor != SQL_ACTION:
        return None
    return SqlAction(_text(value.value if isinstance(value.value, list) else [], 0) or "")


def _text(parts: list[object], place: int) -> str | None:
    value = parts[place] if place < len(parts) else None
    return None if value is None else str(value)


def rule_map(rule: RuleDescription) -> dict[str, object]:
    """The body of `add-rule`. It has no place for parameters; HTTP has one."""
    if getattr(rule.filter, "parameters", ()) or (rule.action is not None and rule.action.parameters):
        raise InvalidArgument("a rule with parameters cannot be added over AMQP: use the administration over HTTP")
    description: dict[str, object] = {}
    if isinstance(rule.filter, CorrelationFilter):
        fields: dict[str, object] = {name.replace("_", "-"): getattr(rule.filter, name) for name in _FIELDS}
        properties = {name: wire_value(value) for name, value in rule.filter.properties}
        description["correlation-filter"] = {**fields, "properties": properties}
    else:
        constant = "1=1" if isinstance(rule.filter, TrueFilter) else "1=0"
        expression = rule.filter.expression if isinstance(rule.filter, SqlFilter) else constant
        description["sql-filter"] = {"expression": expression}
    if rule.action is not None:
        description["sql-rule-action"] = {"expression": rule.action.expression}
    return {"rule-name": rule.name, "rule-description": description}
