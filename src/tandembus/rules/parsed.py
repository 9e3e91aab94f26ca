"""Parts of a parsed expression, as they are put together: what only constants decide is decided, and refused, here."""

from __future__ import annotations

import math
from typing import Final, final

from tandembus.rules import system_properties
from tandembus.rules.expressions import Chain, Constant, Expression, NamedProperty, SystemProperty, UserProperty
from tandembus.rules.like_pattern import PatternError
from tandembus.rules.predicates import Compare, In, InTexts, Known, Like, LikeComputed, Predicate, like_pattern
from tandembus.rules.tokens import Token, sql_error
from tandembus.rules.values import (
    ERROR,
    INT64_MAX,
    UNKNOWN,
    Fault,
    calculate,
    compare,
    has_sign,
    kind_of,
    negated,
    undefined,
)

KEYWORDS: Final = frozenset(("AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "FALSE"))


@final
class ChainBuilder:
    """Joins operands; as long as all are constants, they are one."""

    __slots__ = ("_operands", "_operators")

    def __init__(self, first: Expression) -> None:
        self._operands: list[Expression] = [first]
        self._operators: list[int] = []

    def add(self, operator: int, right: Expression, sign: Token) -> None:
        left = self._operands[-1]
        if self._operators or not isinstance(left, Constant) or not isinstance(right, Constant):
            self._operands.append(right)
            self._operators.append(operator)
            return
        value: object = None
        if left.value is not None and right.value is not None:
            value = calculate(left.value, right.value, operator)
        if isinstance(value, Fault):
            raise sql_error(sign.at, value.reason)
        self._operands = [Constant(value)]

    def finished(self) -> Expression:
        return Chain(self._operands, self._operators) if self._operators else self._operands[0]


def comparison(left: Expression, right: Expression, operator: int, token: Token) -> Predicate:
    if not isinstance(left, Constant) or not isinstance(right, Constant):
        return Compare(left, right, operator)
    if left.value is None or right.value is None:
        return Known(UNKNOWN)
    result = compare(left.value, right.value, operator)
    if result == ERROR:
        raise sql_error(token.at, undefined(left.value, right.value).reason)
    return Known(result)


def membership(operand: Expression, items: list[Expression], is_negated: bool) -> Predicate:
    texts: list[str] = []
    for item in items:
        if isinstance(item, Constant) and isinstance(item.value, str):
            texts.append(item.value)
    if len(texts) == len(items):
        return InTexts(operand, texts, is_negated)
    return In(operand, items, is_negated)


def likeness(
    operand: Expression, pattern: Expression, escape: Expression | None, is_negated: bool, start: Token
) -> Predicate:
    """With a pattern that is a constant, as nearly all are, there is nothing left to read when a message comes."""
    character: object = None
    if isinstance(escape, Constant):
        character = escape.value
    if not isinstance(pattern, Constant) or pattern.value is None or (escape is not None and character is None):
        return LikeComputed(operand, pattern, escape, is_negated)
    try:
        return Like(operand, like_pattern(pattern.value, character), is_negated)
    except PatternError as error:
        raise sql_error(start.at, str(error)) from error


def signed_constant(operand: Constant, minus_count: int, first: Token) -> Constant:
    value = operand.value
    if value is None:
        return operand
    if not has_sign(value):
        raise sql_error(first.at, f"{kind_of(value)} has no sign")
    if minus_count % 2 == 0:
        return operand
    result = negated(value)
    if isinstance(result, Fault):
        raise sql_error(first.at, result.reason)
    return Constant(result)


def integer(token: Token, sign: int) -> int:
    digits = token.text.lstrip("0")
    if len(digits) <= 19:
        number = sign * int(digits or "0")
        if -INT64_MAX - 1 <= number <= INT64_MAX:
            return number
    raise sql_error(token.at, "this integer does not fit into 64 bits")


def double(token: Token) -> float:
    number = float(token.text)
    if math.isinf(number):
        raise sql_error(token.at, "this number is too large for a double")
    return number


def named_property(name: Expression, start: Token) -> Expression:
    if not isinstance(name, Constant):
        return NamedProperty(name)
    if not isinstance(name.value, str) or name.value == "":
        raise sql_error(start.at, "the name of a property is a string that is not empty")
    return UserProperty(name.value)


def check_not_keyword(token: Token) -> None:
    if token.word in KEYWORDS:
        raise sql_error(token.at, f"'{token.text}' is a keyword: a property of that name is written [{token.text}]")


def system_property(name: Token) -> Expression:
    index = system_properties.find(name.text)
    if index < 0:
        shown = name.text[:60]
        raise sql_error(name.at, f"there is no system property sys.{shown}{system_properties.suggestion(name.text)}")
    return SystemProperty(index)
