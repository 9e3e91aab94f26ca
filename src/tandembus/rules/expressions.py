"""The nodes of a parsed expression that have a value. Their shape is their type: each evaluates itself.

`evaluate` gives the value for one message: None is unknown, a Fault says why there is none. Chains of operators are one
node, so that the depth of a tree is bounded by its parentheses alone.
"""

from __future__ import annotations

import os
import uuid
from typing import Final, final

from mypy_extensions import i64

from tandembus.rules.message_view import TOO_EXPENSIVE, MessageView
from tandembus.rules.values import INT64_MIN, OVERFLOW, Fault, calculate, has_sign, kind_of, negated


class Node:
    """Part of a parsed expression: either an Expression or a Predicate."""

    __slots__ = ()


class Expression(Node):
    __slots__ = ()

    def evaluate(self, view: MessageView) -> object:
        raise AssertionError("every expression evaluates itself")


@final
class Constant(Expression):
    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value: Final = value

    def evaluate(self, view: MessageView) -> object:
        return self.value


@final
class UserProperty(Expression):
    """An application property, by its folded name; `spelled` is how the rule writes it."""

    __slots__ = ("name", "spelled")

    def __init__(self, spelled: str) -> None:
        self.spelled: Final = spelled
        self.name: Final = spelled.lower()

    def evaluate(self, view: MessageView) -> object:
        return view.user(self.name)


@final
class SystemProperty(Expression):
    __slots__ = ("index",)

    def __init__(self, index: i64) -> None:
        self.index: i64 = index

    def evaluate(self, view: MessageView) -> object:
        return view.system(self.index)


@final
class NamedProperty(Expression):
    """`property(name)`: an application property whose name is computed."""

    __slots__ = ("name",)

    def __init__(self, name: Expression) -> None:
        self.name: Final = name

    def evaluate(self, view: MessageView) -> object:
        name = self.name.evaluate(view)
        if name is None or isinstance(name, Fault):
            return name
        if not isinstance(name, str):
            return Fault(f"the name of a property is a string, not {kind_of(name)}")
        if not view.charge(len(name) >> 2):
            return TOO_EXPENSIVE
        return view.user(name.lower())


@final
class NewId(Expression):
    __slots__ = ()

    def evaluate(self, view: MessageView) -> object:
        return uuid.UUID(bytes=os.urandom(16), version=4)


@final
class Negative(Expression):
    """One or more minus signs before an expression."""

    __slots__ = ("is_odd", "operand")

    def __init__(self, operand: Expression, signs: int) -> None:
        self.operand: Final = operand
        self.is_odd: Final = signs % 2 == 1

    def evaluate(self, view: MessageView) -> object:
        value = self.operand.evaluate(view)
        if value is None or isinstance(value, Fault):
            return value
        if self.is_odd:
            return negated(value)
        if not has_sign(value):
            return negated(value)
        return OVERFLOW if value == INT64_MIN else value


@final
class Positive(Expression):
    """A plus sign changes nothing, but what stands behind it must be a number."""

    __slots__ = ("operand",)

    def __init__(self, operand: Expression) -> None:
        self.operand: Final = operand

    def evaluate(self, view: MessageView) -> object:
        value = self.operand.evaluate(view)
        if value is None or isinstance(value, Fault) or has_sign(value):
            return value
        return negated(value)


@final
class Chain(Expression):
    """Operands joined by operators of one precedence, evaluated from left to right."""

    __slots__ = ("operands", "operators")

    def __init__(self, operands: list[Expression], operators: list[int]) -> None:
        self.operands: Final = operands
        self.operators: Final = operators

    def evaluate(self, view: MessageView) -> object:
        value = self.operands[0].evaluate(view)
        if isinstance(value, Fault):
            return value
        for index in range(len(self.operators)):
            right = self.operands[index + 1].evaluate(view)
            if isinstance(right, Fault):
                return right
            if value is None or right is None:
                value = None
                continue
            value = calculate(value, right, self.operators[index])
            if isinstance(value, Fault):
                return value
            if isinstance(value, str) and not view.charge(len(value) >> 5):
                return TOO_EXPENSIVE
        return value
