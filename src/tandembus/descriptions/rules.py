"""Rules as plain data: the filter that picks messages for a subscription, and the action that changes them.

Whether an expression makes sense is for `tandembus.rules` to say, which compiles it; here only what bounds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias
from uuid import UUID

from tandembus.amqp.encoding.values import Described, Typed
from tandembus.descriptions.names import DEFAULT_RULE_NAME, validate_rule_name
from tandembus.descriptions.ranges import out_of_range
from tandembus.errors import InvalidArgument
from tandembus.limits import Limits

Values: TypeAlias = tuple[tuple[str, object], ...]
"""Names and values: str, int, float, bool, datetime, timedelta; over AMQP also UUID, bytes, Typed, Described."""

_LONGEST_SPAN: Final = timedelta(microseconds=2**63 // 10)
"""AMQP, and .NET, count spans of time in 100 ns, in 64 bits."""
_PLAIN: Final = (str, bool, int, float, datetime, timedelta, UUID, bytes)


@dataclass(frozen=True, slots=True)
class SqlFilter:
    expression: str
    parameters: Values = ()


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Every message."""


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """No message."""


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Every field that is set must be equal."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Values = ()

    @property
    def fields(self) -> dict[str, str]:
        """The system properties that are asked for, by their name in a description."""
        named = {
            "CorrelationId": self.correlation_id,
            "MessageId": self.message_id,
            "To": self.to,
            "ReplyTo": self.reply_to,
            "Label": self.label,
            "SessionId": self.session_id,
            "ReplyToSessionId": self.reply_to_session_id,
            "ContentType": self.content_type,
        }
        return {name: value for name, value in named.items() if value is not None}


Filter: TypeAlias = SqlFilter | TrueFilter | FalseFilter | CorrelationFilter


@dataclass(frozen=True, slots=True)
class SqlAction:
    expression: str
    parameters: Values = ()


@dataclass(frozen=True, slots=True)
class RuleDescription:
    name: str
    filter: Filter
    action: SqlAction | None = None
    created_at: float = 0.0

    def validated(self, limits: Limits) -> RuleDescription:
        """This rule, its name and sizes in bounds, or InvalidArgument."""
        validate_rule_name(self.name)
        if isinstance(self.filter, SqlFilter):
            _check_sql("filter", self.filter, limits)
        elif isinstance(self.filter, CorrelationFilter):
            _check_correlation(self.filter, limits)
        if self.action is not None:
            _check_sql("action", self.action, limits)
        return self


def default_rule(name: str = DEFAULT_RULE_NAME) -> RuleDescription:
    """What a new subscription has unless it is told otherwise: it gets everything."""
    return RuleDescription(name, TrueFilter())


def _check_sql(kind: str, sql: SqlFilter | SqlAction, limits: Limits) -> None:
    if not sql.expression.strip():
        raise InvalidArgument(f"The SqlExpression of the {kind} is empty.")
    if len(sql.expression) > limits.max_sql_length:
        raise out_of_range(
            f"The length of the {kind}'s SqlExpression",
            len(sql.expression),
            f"up to {limits.max_sql_length} characters",
        )
    _check_values("Parameters", sql.parameters, limits)


def _check_correlation(wanted: CorrelationFilter, limits: Limits) -> None:
    if not wanted.fields and not wanted.properties:
        raise InvalidArgument("A CorrelationFilter needs at least one property to compare.")
    for name, value in wanted.fields.items():
        _check_text(name, value, limits)
    _check_values("Properties", wanted.properties, limits)


def _check_values(kind: str, values: Values, limits: Limits) -> None:
    if len(values) > limits.max_rule_values:
        raise out_of_range(f"The number of {kind}", len(values), f"up to {limits.max_rule_values}")
    if len({name for name, _ in values}) != len(values):
        raise InvalidArgument(f"Two of the {kind} have the same name.")
    for name, value in values:
        if not name:
            raise InvalidArgument(f"One of the {kind} has no name.")
        _check_text(f"The name of one of the {kind}", name, limits)
        _check_value(f"'{name}' of the {kind}", value, limits)


def _check_value(name: str, value: object, limits: Limits) -> None:
    plain = value.value if isinstance(value, (Typed, Described)) else value
    if isinstance(plain, Typed):
        plain = plain.value
    if not isinstance(plain, _PLAIN):
        raise InvalidArgument(f"{name} has no value that can be compared.")
    if isinstance(plain, (str, bytes)):
        _check_text(name, plain, limits)
    if isinstance(plain, int) and not -(2**63) <= plain < 2**64:
        raise InvalidArgument(f"{name} has more than 64 bits.")
    if isinstance(plain, timedelta) and abs(plain) > _LONGEST_SPAN:
        raise InvalidArgument(f"{name} is longer than {_LONGEST_SPAN.days} days.")


def _check_text(name: str, text: str | bytes, limits: Limits) -> None:
    if len(text) > limits.max_sql_length:
        raise out_of_range(f"The length of {name}", len(text), f"up to {limits.max_sql_length}")
