"""Descriptions as plain values, for a store that knows only those (JSON).

What an older record does not have gets its default, and what a newer one has beside it is left out.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from tandembus.amqp.encoding.values import Described, Typed
from tandembus.descriptions.access import AuthorizationRule
from tandembus.descriptions.entities import (
    EntityDescription,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.descriptions.rules import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
    Values,
)

_FILTERS: Final = {"sql": SqlFilter, "true": TrueFilter, "false": FalseFilter, "correlation": CorrelationFilter}
_FIELDS: Final = {
    kind: frozenset(one.name for one in dataclasses.fields(kind))
    for kind in (QueueDescription, TopicDescription, SubscriptionDescription)
}
_CORRELATION: Final = tuple(one.name for one in dataclasses.fields(CorrelationFilter) if one.name != "properties")
_MICROSECOND: Final = timedelta(microseconds=1)


def to_record(description: EntityDescription) -> dict[str, object]:
    record: dict[str, object] = {
        one.name: getattr(description, one.name)
        for one in dataclasses.fields(description)
        if one.name not in ("status", "authorization_rules")
    }
    record["status"] = description.status.value
    if not isinstance(description, SubscriptionDescription):
        record["authorization_rules"] = [
            {**dataclasses.asdict(rule), "rights": sorted(rule.rights)} for rule in description.authorization_rules
        ]
    return record


def from_record(record: Mapping[str, object]) -> QueueDescription:
    return QueueDescription(**_entity_values(QueueDescription, record))


def topic_from_record(record: Mapping[str, object]) -> TopicDescription:
    return TopicDescription(**_entity_values(TopicDescription, record))


def subscription_from_record(record: Mapping[str, object]) -> SubscriptionDescription:
    return SubscriptionDescription(**_entity_values(SubscriptionDescription, record))


def _entity_values(kind: type[EntityDescription], record: Mapping[str, object]) -> dict[str, Any]:
    known = _FIELDS[kind]
    values: dict[str, Any] = {name: value for name, value in record.items() if name in known}
    values["status"] = EntityStatus(values.get("status", EntityStatus.ACTIVE.value))
    if "authorization_rules" in known:
        values["authorization_rules"] = tuple(
            AuthorizationRule(**{**rule, "rights": frozenset(rule["rights"])})
            for rule in values.get("authorization_rules", [])
        )
    return values


def rule_to_record(rule: RuleDescription) -> dict[str, object]:
    record: dict[str, object] = {
        "name": rule.name,
        "filter": _filter_record(rule.filter),
        "created_at": rule.created_at,
    }
    if rule.action is not None:
        record["action"] = _sql_record(rule.action)
    return record


def rule_from_record(record: Mapping[str, Any]) -> RuleDescription:
    action = record.get("action")
    return RuleDescription(
        record["name"],
        _filter(record["filter"]),
        None if action is None else SqlAction(action["expression"], _values(action["parameters"])),
        record["created_at"],
    )


def _filter_record(wanted: Filter) -> dict[str, object]:
    kind = next(name for name, one in _FILTERS.items() if type(wanted) is one)
    if isinstance(wanted, SqlFilter):
        return {"kind": kind, **_sql_record(wanted)}
    if isinstance(wanted, CorrelationFilter):
        fields = {name: getattr(wanted, name) for name in _CORRELATION if getattr(wanted, name) is not None}
        return {"kind": kind, **fields, "properties": _values_record(wanted.properties)}
    return {"kind": kind}


def _sql_record(sql: SqlFilter | SqlAction) -> dict[str, object]:
    return {"expression": sql.expression, "parameters": _values_record(sql.parameters)}


def _filter(record: Mapping[str, Any]) -> Filter:
    kind = _FILTERS[record["kind"]]
    if kind is SqlFilter:
        return SqlFilter(record["expression"], _values(record["parameters"]))
    if kind is CorrelationFilter:
        fields: dict[str, Any] = {name: record.get(name) for name in _CORRELATION}
        return CorrelationFilter(**fields, properties=_values(record["properties"]))
    return TrueFilter() if kind is TrueFilter else FalseFilter()


def _values_record(values: Values) -> list[list[object]]:
    return [[name, _value_record(value)] for name, value in values]


def _values(record: list[list[Any]]) -> Values:
    return tuple((name, _value(value)) for name, value in record)


def _value_record(value: object) -> object:
    """JSON's own types as they are; every other as an object that names its type."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"double": repr(value)}
    if isinstance(value, datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, timedelta):
        return {"timedelta_us": value // _MICROSECOND}
    if isinstance(value, UUID):
        return {"uuid": value.hex}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Typed):
        return {"typed": value.code, "value": _value_record(value.value)}
    if isinstance(value, Described):
        return {"descriptor": _value_record(value.descriptor), "value": _value_record(value.value)}
    return value


def _value(record: Any) -> object:
    if not isinstance(record, dict):
        return record
    if "typed" in record:
        return Typed(record["typed"], _value(record["value"]))
    if "descriptor" in record:
        return Described(_value(record["descriptor"]), _value(record["value"]))
    ((kind, text),) = record.items()
    match kind:
        case "double":
            return float(text)
        case "datetime":
            return datetime.fromisoformat(text)
        case "timedelta_us":
            return timedelta(microseconds=text)
        case "uuid":
            return UUID(hex=text)
        case _:
            return base64.b64decode(text)
