"""Rules to and from XML: filters, actions and the typed values in both.

The prefixes in what is written are not free: the JS SDK reads the attribute literally as `i:type`, and cuts five
characters off its value.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from tandembus.amqp.encoding.values import TIMESTAMP, Described, Typed
from tandembus.descriptions import (
    DEFAULT_RULE_NAME,
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from tandembus.errors import InvalidArgument, MalformedData, NotSupported
from tandembus.front_end.http.atom import described, element, escaped
from tandembus.front_end.http.elements import children_of, content_of, type_of
from tandembus.front_end.http.values import (
    format_boolean,
    format_moment,
    format_time,
    format_time_span,
    parse_boolean,
    parse_integer,
    parse_iso_time,
    parse_time_span,
    ticks_beyond_microseconds,
)
from tandembus.front_end.http.xml_reader import Element
from tandembus.rules.wire_values import DATETIME_OFFSET, EPOCH_TICKS

ROOT: Final = "RuleDescription"
SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"
COMPATIBILITY_LEVEL: Final = 20

_CORRELATION: Final[Mapping[str, str]] = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "label",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Values = tuple[tuple[str, object], ...]


# Writing.


def write_rule(rule: RuleDescription) -> str:
    """All four elements, always: the Python SDK looks below Action without asking whether it is there."""
    return described(
        ROOT,
        [
            _write_filter(rule.filter),
            _write_action(rule.action),
            element("CreatedAt", format_time(rule.created_at)),
            element("Name", rule.name),
        ],
    )


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
    kind, text = _kind_and_text(value)
    return f'<Value xmlns:d6p1="{SCHEMA}" i:type="d6p1:{kind}">{escaped(text)}</Value>'


def _kind_and_text(value: object) -> tuple[str, str]:
    if isinstance(value, Typed) and value.code == TIMESTAMP and isinstance(value.value, int):
        return "dateTime", format_moment(_EPOCH + timedelta(milliseconds=value.value))
    if isinstance(value, Described) and value.descriptor == DATETIME_OFFSET and isinstance(value.value, int):
        return "dateTime", _text_of_ticks(value.value - EPOCH_TICKS)
    while isinstance(value, Typed | Described):
        value = value.value
    if isinstance(value, bool):
        return "boolean", format_boolean(value)
    if isinstance(value, int):
        return ("int" if -(2**31) <= value < 2**31 else "long"), str(value)
    if isinstance(value, float):
        return "double", _write_double(value)
    if isinstance(value, datetime):
        return "dateTime", format_moment(value)
    if isinstance(value, timedelta):
        return "duration", format_time_span(value)
    if isinstance(value, bytes):
        return "base64Binary", base64.b64encode(value).decode()
    return "string", str(value)


def _text_of_ticks(ticks: int) -> str:
    seconds, fraction = divmod(ticks, 10_000_000)
    text = format_moment(_EPOCH + timedelta(seconds=seconds)).removesuffix("Z")
    return f"{text}.{fraction:07d}".rstrip("0").rstrip(".") + "Z"


def _write_double(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"


# Reading.


def read_rule(root: Element, name: str) -> RuleDescription:
    """The rule of this name as a request describes it; its name is what its address says."""
    description = content_of(root)
    if description.name != ROOT:
        raise MalformedData(f"The description '{description.name[:64]}' is not one of a rule.")
    return _read(description, name)


def read_default_rule(description: Element) -> RuleDescription:
    """The one that a new subscription begins with, named by its own element or as the service names it."""
    name = children_of(description).get("Name")
    return _read(description, (name.text if name is not None else "") or DEFAULT_RULE_NAME)


def _read(description: Element, name: str) -> RuleDescription:
    fields = children_of(description)
    wanted, action = fields.get("Filter"), fields.get("Action")
    return RuleDescription(
        name,
        _read_filter(wanted) if wanted is not None else TrueFilter(),
        _read_action(action) if action is not None else None,
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
        texts = {field: fields[name].text or None for name, field in _CORRELATION.items() if name in fields}
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
    return key.text, _read_value(value, key.text)


def _read_value(value: Element, key: str) -> object:
    kind = type_of(value)
    read = _READERS.get(kind)
    if read is None:
        raise InvalidArgument(f"'{key[:64]}' is of the type '{kind[:64]}'; known are {', '.join(_READERS)}.")
    if kind == "string":
        return value.text
    return read(value.text.strip(), key[:64])


def _integer(text: str, name: str) -> int:
    number = parse_integer(text, name)
    if not -(2**63) <= number < 2**63:
        raise InvalidArgument(f"{name}: '{text}' has more than 64 bits.")
    return number


def _double(text: str, name: str) -> float:
    try:
        if text.isascii() and "_" not in text:
            return float(text)
    except ValueError:
        pass
    raise InvalidArgument(f"{name}: '{text[:64]}' is not a number.")


def _moment(text: str, name: str) -> object:
    """A datetime, or what .NET calls a DateTimeOffset where there is a digit more than a datetime has."""
    moment = parse_iso_time(text)
    if moment is None:
        raise InvalidArgument(f"{name}: '{text[:64]}' is not a time such as 2030-01-31T12:00:00Z.")
    more_ticks = ticks_beyond_microseconds(text)
    if not more_ticks:
        return moment
    ticks = (moment - _EPOCH) // timedelta(microseconds=1) * 10 + more_ticks
    return Described(DATETIME_OFFSET, EPOCH_TICKS + ticks)


def _bytes(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument(f"{name}: the value is not base64.") from None


_READERS: Final[Mapping[str, Callable[[str, str], object]]] = {
    "string": lambda text, _name: text,
    "int": _integer,
    "long": _integer,
    "short": _integer,
    "double": _double,
    "float": _double,
    "decimal": _double,
    "boolean": parse_boolean,
    "dateTime": _moment,
    "duration": parse_time_span,
    "base64Binary": _bytes,
}
