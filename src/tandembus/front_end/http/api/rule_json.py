"""Rules as JSON: a filter, and an action or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tandembus.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from tandembus.descriptions.rules import Values
from tandembus.errors import InvalidArgument
from tandembus.front_end.amqp.rule_requests import own_value
from tandembus.front_end.http.api.routes import Document
from tandembus.front_end.http.api.typed_values import MAX_SHOWN, Shown, read_values, shown
from tandembus.front_end.http.values import format_time
from tandembus.rules.wire_values import encodable, value_of

_SQL_KEYS: Final = frozenset(("expression", "parameters"))
_FIELDS: Final[Mapping[str, str]] = {
    "correlation_id": "correlation_id",
    "message_id": "message_id",
    "to": "to",
    "reply_to": "reply_to",
    "subject": "label",
    "session_id": "session_id",
    "reply_to_session_id": "reply_to_session_id",
    "content_type": "content_type",
}
"""Of a correlation filter, by the key: the field of its description."""
_KINDS: Final = ("sql", "correlation", "true", "false")


def rule_json(rule: RuleDescription) -> dict[str, object]:
    action = rule.action
    return {
        "name": rule.name,
        "filter": filter_json(rule.filter),
        "action": None if action is None else _sql_json(action),
        "created_at": format_time(rule.created_at),
    }


def filter_json(wanted: Filter) -> dict[str, object]:
    if isinstance(wanted, SqlFilter):
        return {"kind": "sql", **_sql_json(wanted)}
    if isinstance(wanted, TrueFilter):
        return {"kind": "true"}
    if isinstance(wanted, FalseFilter):
        return {"kind": "false"}
    fields: dict[str, str | None] = {key: getattr(wanted, field) for key, field in _FIELDS.items()}
    return {"kind": "correlation", **fields, "properties": _values_json(wanted.properties)}


def _sql_json(sql: SqlFilter | SqlAction) -> dict[str, object]:
    return {"expression": sql.expression, "parameters": _values_json(sql.parameters)}


def _values_json(values: Values) -> list[Shown]:
    return [{"name": name, **shown(encodable(value_of(value)))} for name, value in values]


def read_rule(document: Document, name: str, max_values: int) -> RuleDescription:
    """Whether its expressions make sense is not looked at here."""
    unknown = document.keys() - {"name", "filter", "action", "created_at"}
    if unknown:
        raise InvalidArgument(f"A rule has a filter and an action; '{min(unknown)[:MAX_SHOWN]}' is an unknown key.")
    wanted, action = document.get("filter"), document.get("action")
    if wanted is None:
        raise InvalidArgument("A rule needs a filter.")
    return RuleDescription(
        name, read_filter(wanted, max_values), None if action is None else read_action(action, max_values)
    )


def read_filter(document: object, max_values: int) -> Filter:
    kind = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(document, dict) or kind not in _KINDS:
        raise InvalidArgument(f"A filter is an object, and its kind one of {', '.join(_KINDS)}.")
    rest = {key: value for key, value in document.items() if key != "kind"}
    if kind == "sql":
        return SqlFilter(*_read_sql(rest, "filter", max_values))
    if kind == "correlation":
        return _read_correlation(rest, max_values)
    _check_keys(rest, frozenset(), f"{kind} filter")
    return TrueFilter() if kind == "true" else FalseFilter()


def read_action(document: object, max_values: int) -> SqlAction:
    if not isinstance(document, dict):
        raise InvalidArgument("An action is an object with an expression.")
    return SqlAction(*_read_sql(document, "action", max_values))


def _read_sql(document: Document, what: str, max_values: int) -> tuple[str, Values]:
    _check_keys(document, _SQL_KEYS, what)
    expression = document.get("expression")
    if not isinstance(expression, str):
        raise InvalidArgument(f"The expression of the {what} must be a text.")
    return expression, _read_own(document.get("parameters"), f"{what}: parameters", max_values)


def _read_correlation(document: Document, max_values: int) -> CorrelationFilter:
    _check_keys(document, frozenset((*_FIELDS, "properties")), "correlation filter")
    fields: dict[str, str] = {}
    for key, field in _FIELDS.items():
        value = document.get(key)
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(f"{key} of the filter must be a text, or null.")
        if isinstance(value, str):
            fields[field] = value
    properties = _read_own(document.get("properties"), "filter: properties", max_values)
    return CorrelationFilter(**fields, properties=properties)


def _read_own(document: object, what: str, max_values: int) -> Values:
    values = read_values(document, what, max_values)
    return tuple([(name, own_value(value)) for name, value in values.items()])


def _check_keys(document: Document, known: frozenset[str], what: str) -> None:
    unknown = document.keys() - known
    if unknown:
        raise InvalidArgument(f"The {what} has no '{min(unknown)[:MAX_SHOWN]}'.")
