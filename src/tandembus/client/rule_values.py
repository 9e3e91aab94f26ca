"""Rules of subscriptions as the management node of a subscription speaks of them."""

from __future__ import annotations

from typing import Final

from tandembus.amqp.encoding.values import Described
from tandembus.client.rules import CORRELATION_FIELDS, FALSE_EXPRESSION, TRUE_EXPRESSION
from tandembus.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from tandembus.errors import InvalidArgument, MalformedData

RULE: Final = 0x0000013700000004
SQL_ACTION: Final = 0x0000013700000006
SQL_FILTER: Final = 0x0000001370000006
TRUE_FILTER: Final = 0x0000001370000007
FALSE_FILTER: Final = 0x0000001370000008
CORRELATION_FILTER: Final = 0x0000001370000009

_FIELDS: Final = tuple([attribute for _, attribute in CORRELATION_FIELDS])


def rule_map(rule: RuleDescription) -> dict[str, object]:
    """The body of `add-rule`. There is no place for parameters in it: HTTP has one."""
    if getattr(rule.filter, "parameters", ()) or (rule.action is not None and rule.action.parameters):
        raise InvalidArgument("a rule with parameters cannot be added over AMQP: use the administration over HTTP")
    description = _filter_map(rule.filter)
    if rule.action is not None:
        description["sql-rule-action"] = {"expression": rule.action.expression}
    return {"rule-name": rule.name, "rule-description": description}


def _filter_map(filter: Filter) -> dict[str, object]:
    match filter:
        case SqlFilter():
            return {"sql-filter": {"expression": filter.expression}}
        case TrueFilter():
            return {"sql-filter": {"expression": TRUE_EXPRESSION}}
        case FalseFilter():
            return {"sql-filter": {"expression": FALSE_EXPRESSION}}
        case CorrelationFilter():
            fields: dict[str, object] = {name.replace("_", "-"): getattr(filter, name) for name in _FIELDS}
            return {"correlation-filter": {**fields, "properties": dict(filter.properties)}}


def rule_from(value: object) -> RuleDescription:
    """A rule as `enumerate-rules` answers with it."""
    parts = _parts(value, RULE)
    filter = parts[0] if parts else None
    action = parts[1] if len(parts) > 1 else None
    name = parts[2] if len(parts) > 2 else None
    created_at = parts[3] if len(parts) > 3 else None
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
        return _correlation_from(parts)
    raise MalformedData("a filter of an unknown kind")


def _correlation_from(parts: list[object]) -> CorrelationFilter:
    named = {name: _text(parts, place) for place, name in enumerate(_FIELDS)}
    properties = parts[len(_FIELDS)] if len(parts) > len(_FIELDS) else None
    pairs = properties.items() if isinstance(properties, dict) else ()
    return CorrelationFilter(**named, properties=tuple([(str(key), each) for key, each in pairs]))


def _action_from(value: object) -> SqlAction | None:
    if not isinstance(value, Described) or value.descriptor != SQL_ACTION:
        return None
    return SqlAction(_text(value.value if isinstance(value.value, list) else [], 0) or "")


def _parts(value: object, descriptor: int) -> list[object]:
    if not isinstance(value, Described) or value.descriptor != descriptor or not isinstance(value.value, list):
        raise MalformedData("the service answered with something that is not a rule")
    return value.value


def _text(parts: list[object], place: int) -> str | None:
    value = parts[place] if place < len(parts) else None
    return None if value is None else str(value)
