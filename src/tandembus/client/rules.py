"""Rules of subscriptions as the Atom entries a namespace speaks. How AMQP says them stands in `rule_values`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final
from xml.etree import ElementTree

from tandembus.amqp.encoding import values
from tandembus.amqp.encoding.values import Typed
from tandembus.client.atom import CONNECT, INSTANCE_TYPE, SCHEMA, add, description_in, title_of
from tandembus.client.durations import duration_of, duration_text
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

COMPATIBILITY_LEVEL: Final = "20"
TRUE_EXPRESSION: Final = "1=1"
FALSE_EXPRESSION: Final = "1=0"

CORRELATION_FIELDS: Final = (
    ("CorrelationId", "correlation_id"),
    ("MessageId", "message_id"),
    ("To", "to"),
    ("ReplyTo", "reply_to"),
    ("Label", "label"),
    ("SessionId", "session_id"),
    ("ReplyToSessionId", "reply_to_session_id"),
    ("ContentType", "content_type"),
)

Pairs = tuple[tuple[str, object], ...]
_LONG_FRACTION: Final = re.compile(r"(\.\d{6})\d+")


def rule_element(rule: RuleDescription, name: str = "RuleDescription") -> ElementTree.Element:
    """The description that asks for this rule."""
    description = ElementTree.Element(CONNECT + name)
    _add_filter(description, rule.filter)
    _add_action(description, rule.action)
    add(description, "Name", rule.name)
    return description


def rule_of(entry: ElementTree.Element) -> RuleDescription:
    description = description_in(entry, "RuleDescription")
    filter = description.find(f"{CONNECT}Filter")
    if filter is None:
        raise MalformedData("the service answered with a rule that has no filter")
    return RuleDescription(
        name=(description.findtext(f"{CONNECT}Name") or title_of(entry)).strip(),
        filter=_filter_of(filter),
        action=_action_of(description.find(f"{CONNECT}Action")),
        created_at=_seconds_of(description.findtext(f"{CONNECT}CreatedAt")),
    )


def _add_filter(description: ElementTree.Element, filter: Filter) -> None:
    element = add(description, "Filter")
    _set_type(element, type(filter).__name__)
    match filter:
        case CorrelationFilter():
            for name, value in filter.fields.items():
                add(element, name, value)
            _add_pairs(element, "Properties", filter.properties)
        case SqlFilter():
            _add_expression(element, filter.expression, filter.parameters)
        case TrueFilter():
            _add_expression(element, TRUE_EXPRESSION, ())
        case FalseFilter():
            _add_expression(element, FALSE_EXPRESSION, ())


def _add_action(description: ElementTree.Element, action: SqlAction | None) -> None:
    element = add(description, "Action")
    _set_type(element, "EmptyRuleAction" if action is None else "SqlRuleAction")
    if action is not None:
        _add_expression(element, action.expression, action.parameters)


def _add_expression(element: ElementTree.Element, expression: str, parameters: Pairs) -> None:
    add(element, "SqlExpression", expression)
    add(element, "CompatibilityLevel", COMPATIBILITY_LEVEL)
    _add_pairs(element, "Parameters", parameters)


def _add_pairs(element: ElementTree.Element, name: str, pairs: Pairs) -> None:
    if not pairs:
        return
    parent = add(element, name)
    for key, value in pairs:
        pair = add(parent, "KeyValueOfstringanyType")
        add(pair, "Key", key)
        kind, text = _typed_text(key, value)
        typed = add(pair, "Value", text)
        typed.set(INSTANCE_TYPE, ElementTree.QName(SCHEMA, kind))  # type: ignore[arg-type]


def _set_type(element: ElementTree.Element, name: str) -> None:
    # With its namespace: the service looks the type up by its whole name.
    element.set(INSTANCE_TYPE, ElementTree.QName(CONNECT + name))  # type: ignore[arg-type]


def _typed_text(key: str, value: object) -> tuple[str, str]:
    """Type and text of a value, as XML Schema calls and writes them."""
    match value:
        case Typed(code=values.INT, value=int() as number):
            return "int", str(number)
        case Typed(code=values.TIMESTAMP, value=int() as milliseconds):
            return "dateTime", _moment_text(datetime.fromtimestamp(milliseconds / 1000, UTC))
        case bool():
            return "boolean", "true" if value else "false"
        case int():
            return "long", str(value)
        case float():
            return "double", repr(value)
        case str():
            return "string", value
        case datetime():
            return "dateTime", _moment_text(value)
        case timedelta():
            return "duration", duration_text(value.total_seconds())
    raise InvalidArgument(f"a rule cannot compare '{key}' with a value of the type {type(value).__name__}")


def _moment_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _filter_of(element: ElementTree.Element) -> Filter:
    match _type_of(element):
        case "TrueFilter":
            return TrueFilter()
        case "FalseFilter":
            return FalseFilter()
        case "CorrelationFilter":
            named = {attribute: element.findtext(CONNECT + name) for name, attribute in CORRELATION_FIELDS}
            return CorrelationFilter(**named, properties=_pairs_in(element, "Properties"))
        case "SqlFilter":
            return SqlFilter(element.findtext(f"{CONNECT}SqlExpression") or "", _pairs_in(element, "Parameters"))
        case kind:
            raise MalformedData(f"the service answered with a filter of the unknown kind {kind!r}")


def _action_of(element: ElementTree.Element | None) -> SqlAction | None:
    if element is None or _type_of(element) != "SqlRuleAction":
        return None
    return SqlAction(element.findtext(f"{CONNECT}SqlExpression") or "", _pairs_in(element, "Parameters"))


def _pairs_in(element: ElementTree.Element, name: str) -> Pairs:
    pairs: Iterable[ElementTree.Element] = element.iterfind(f"{CONNECT}{name}/{CONNECT}KeyValueOfstringanyType")
    return tuple([(pair.findtext(f"{CONNECT}Key") or "", _value_of(pair.find(f"{CONNECT}Value"))) for pair in pairs])


def _value_of(element: ElementTree.Element | None) -> object:
    if element is None:
        return None
    text = element.text or ""
    try:
        return _read(_type_of(element), text)
    except ValueError:
        raise MalformedData(f"the service answered with {text!r} as a {_type_of(element)}") from None


def _read(kind: str, text: str) -> object:
    match kind:
        case "int" | "long" | "short" | "byte":
            return int(text)
        case "double" | "float" | "decimal":
            return float(text)
        case "boolean":
            return text.strip().lower() in ("true", "1")
        case "dateTime":
            return _moment_of(text)
        case "duration":
            return timedelta(seconds=duration_of(text))
        case _:
            return text


def _type_of(element: ElementTree.Element) -> str:
    return element.get(INSTANCE_TYPE, "").rpartition(":")[2]


def _moment_of(text: str) -> datetime:
    shortened = _LONG_FRACTION.sub(r"\1", text.strip())
    moment = datetime.fromisoformat(shortened.replace("Z", "+00:00"))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _seconds_of(text: str | None) -> float:
    """When it was made; 0 where the service does not say, or says it in a way of its own."""
    try:
        return _moment_of(text).timestamp() if text else 0.0
    except ValueError:
        return 0.0
