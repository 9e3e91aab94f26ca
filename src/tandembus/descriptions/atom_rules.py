"""Rules in Atom XML, both ways: filters, actions and their typed values.

The prefixes in what is written are not free: the JS SDK reads the attribute literally as `i:type`, and cuts five
characters off its value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tandembus.descriptions.atom import children_of, content_of, described, element, escaped, type_of
from tandembus.descriptions.durations import EPOCH, format_time, parse_iso_time
from tandembus.descriptions.names import DEFAULT_RULE_NAME
from tandembus.descriptions.rules import (
    CORRELATED,
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
    Values,
)
from tandembus.descriptions.values import kind_and_text, value_of_text
from tandembus.descriptions.xml_reader import Element
from tandembus.errors import InvalidArgument, MalformedData, NotSupported

ROOT: Final = "RuleDescription"
SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"
COMPATIBILITY_LEVEL: Final = 20


# Writing.


def write_rule(rule: RuleDescription) -> str:
    return described(ROOT, rule_elements(rule))


def rule_elements(rule: RuleDescription) -> list[str]:
    """Always writes all four elements: the Python SDK reads below Action without checking that it is there."""
    return [
        _write_filter(rule.filter),
        _write_action(rule.action),
        element("CreatedAt", format_time(rule.created_at)),
        element("Name", rule.name),
    ]


def _write_filter(wanted: Filter) -> str:
    if isinstance(wanted, CorrelationFilter):
        fields = [element(name, text) for name, text in wanted.fields.items()]
        return _typed("Filter", "CorrelationFilter", [*fields, _write_values("Properties", wanted.properties)])
    if isinstance(wanted, SqlFilter):
        return _typed("Filter", "SqlFilter", _write_sql(wanted.expression, wanted.parameters))
    if isinstance(wanted, TrueFilter):
        return _typed("Filter", "TrueFilter", _write_sql("1=1", ()))
    return _typed("Filter", "FalseFilter", _write_sql("1=0", ()))


def _write_action(action: SqlAction | None) -> str:
    if action is None:
        return _typed("Action", "EmptyRuleAction", [])
    return _typed("Action", "SqlRuleAction", _write_sql(action.expression, action.parameters))


def _write_sql(expression: str, parameters: Values) -> list[str]:
    return [
        element("SqlExpression", expression),
        element("CompatibilityLevel", str(COMPATIBILITY_LEVEL)),
        _write_values("Parameters", parameters),
    ]


def _typed(name: str, kind: str, elements: Sequence[str]) -> str:
    return f'<{name} i:type="{kind}">{"".join(elements)}</{name}>'


def _write_values(name: str, values: Values) -> str:
    if not values:
        return ""
    pairs = [
        f"<KeyValueOfstringanyType>{element('Key', key)}{_write_value(value)}</KeyValueOfstringanyType>"
        for key, value in values
    ]
    return f"<{name}>{''.join(pairs)}</{name}>"


def _write_value(value: object) -> str:
    kind, text = kind_and_text(value)
    return f'<Value xmlns:d6p1="{SCHEMA}" i:type="d6p1:{kind}">{escaped(text)}</Value>'


# Reading.


def read_rule(root: Element, name: str = "") -> RuleDescription:
    """Reads the rule in an entry. Its name is `name`, or else the one in the description."""
    description = content_of(root)
    if description.name != ROOT:
        raise MalformedData(f"The description '{description.name[:64]}' is not one of a rule.")
    return read_description(description, name)


def read_description(description: Element, name: str = "") -> RuleDescription:
    """Reads a rule; without a name it gets the one of a subscription's first rule."""
    fields = children_of(description)
    texts = {key: field.text.strip() for key, field in fields.items()}
    wanted, action = fields.get("Filter"), fields.get("Action")
    created_at = parse_iso_time(texts.get("CreatedAt", ""))
    return RuleDescription(
        name or texts.get("Name") or DEFAULT_RULE_NAME,
        _read_filter(wanted) if wanted is not None else TrueFilter(),
        _read_action(action) if action is not None else None,
        max((created_at - EPOCH).total_seconds(), 0.0) if created_at is not None else 0.0,
    )


def _read_filter(wanted: Element) -> Filter:
    kind, fields = type_of(wanted), children_of(wanted)
    if kind == "SqlFilter":
        return SqlFilter(_expression(fields, "filter"), _read_values(fields.get("Parameters")))
    if kind == "TrueFilter":
        return TrueFilter()
    if kind == "FalseFilter":
        return FalseFilter()
    if kind == "CorrelationFilter":
        texts = {field: fields[name].text or None for name, field in CORRELATED.items() if name in fields}
        return CorrelationFilter(**texts, properties=_read_values(fields.get("Properties")))
    raise NotSupported(f"A Filter of the type '{kind[:64]}' is not known here.")


def _read_action(action: Element) -> SqlAction | None:
    kind, fields = type_of(action), children_of(action)
    if kind == "EmptyRuleAction" or (not kind and not fields):
        return None
    if kind == "SqlRuleAction":
        return SqlAction(_expression(fields, "action"), _read_values(fields.get("Parameters")))
    raise NotSupported(f"An Action of the type '{kind[:64]}' is not known here.")


def _expression(fields: Mapping[str, Element], of: str) -> str:
    expression = fields.get("SqlExpression")
    if expression is None or not expression.text.strip():
        raise InvalidArgument(f"The {of} has no SqlExpression.")
    return expression.text


def _read_values(parent: Element | None) -> Values:
    if parent is None:
        return ()
    return tuple([_read_pair(child) for child in parent.children if child.name == "KeyValueOfstringanyType"])


def _read_pair(pair: Element) -> tuple[str, object]:
    fields = children_of(pair)
    key, value = fields.get("Key"), fields.get("Value")
    if key is None or value is None:
        raise MalformedData("A KeyValueOfstringanyType needs a Key and a Value.")
    return key.text, value_of_text(type_of(value), value.text, key.text[:64])
