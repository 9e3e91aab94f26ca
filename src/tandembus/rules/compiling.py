"""From a rule's description to something that can be evaluated: once, when the rule is made or read back."""

from __future__ import annotations

from tandembus.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlFilter,
    TrueFilter,
)
from tandembus.errors import InvalidArgument
from tandembus.rules import system_properties
from tandembus.rules.actions import parse_action
from tandembus.rules.correlation import Correlation
from tandembus.rules.predicates import Known, Predicate
from tandembus.rules.rule import Rule
from tandembus.rules.sql_parser import parse_filter
from tandembus.rules.tokens import check_unicode
from tandembus.rules.values import FALSE, OPAQUE, TRUE
from tandembus.rules.wire_values import value_of


def compile_rule(description: RuleDescription) -> Rule:
    """Raises InvalidArgument that says what is wrong, and for SQL also where."""
    try:
        return compile_unnamed(description)
    except InvalidArgument as error:
        raise InvalidArgument(f"Rule '{description.name}': {error}") from error


def compile_unnamed(description: RuleDescription) -> Rule:
    """The same for who writes the rule at the moment: raises the mistake itself, for SQL a SqlError."""
    predicate = _predicate(description.filter)
    sql = description.action
    action = None
    if sql is not None:
        action = parse_action(sql.expression, _parameters(sql.parameters), description.name)
    return Rule(description, predicate, action)


def _predicate(wanted: Filter) -> Predicate:
    if isinstance(wanted, SqlFilter):
        return parse_filter(wanted.expression, _parameters(wanted.parameters))
    if isinstance(wanted, CorrelationFilter):
        return _correlation(wanted)
    if isinstance(wanted, TrueFilter):
        return Known(TRUE)
    assert isinstance(wanted, FalseFilter)
    return Known(FALSE)


def _correlation(wanted: CorrelationFilter) -> Correlation:
    system = [(system_properties.find(name), value) for name, value in wanted.fields.items()]
    user = [(name, _comparable(name, value)) for name, value in wanted.properties]
    if not system and not user:
        raise InvalidArgument("A CorrelationFilter needs at least one property to compare.")
    if any(value is None for _, value in user):
        raise InvalidArgument("A CorrelationFilter cannot ask for null.")
    return Correlation(system, user)


def _parameters(values: tuple[tuple[str, object], ...]) -> dict[str, object]:
    """By folded name, without the @ that some clients put in front."""
    parameters: dict[str, object] = {}
    for name, value in values:
        folded = name.removeprefix("@").lower()
        if folded in parameters:
            raise InvalidArgument(f"Two parameters are called @{folded}.")
        parameters[folded] = _comparable(name, value)
    return parameters


def _comparable(name: str, value: object) -> object:
    comparable = value_of(value)
    if isinstance(comparable, str):
        check_unicode(comparable)
    if comparable is OPAQUE:
        raise InvalidArgument(f"The value of '{name[:60]}' is of a type that cannot be compared.")
    return comparable
