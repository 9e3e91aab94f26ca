"""The nodes of a parsed expression that hold or do not, in SQL's three-valued logic.

`test` gives TRUE, FALSE, UNKNOWN or ERROR; the view keeps why. Operands are evaluated from left to right, AND stops at
the first FALSE and OR at the first TRUE, and an error on the way is the result: what was not reached does not count.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.rules.expressions import Expression, Node
from tandembus.rules.like_pattern import MAX_PATTERN_CHARACTERS, LikePattern, PatternError
from tandembus.rules.message_view import TOO_EXPENSIVE, MessageView
from tandembus.rules.values import (
    EQUAL,
    ERROR,
    FALSE,
    LESS,
    TRUE,
    UNKNOWN,
    Fault,
    compare,
    kind_of,
    undefined,
)

_LONG: Final = 256
"""Texts shorter than this compare in no time."""
_STEPS_PER_CHARACTER: Final = 16
"""Of reading a pattern."""


class Predicate(Node):
    __slots__ = ()

    def test(self, view: MessageView) -> i64:
        raise AssertionError("every predicate tests itself")

    def can_fail(self) -> bool:
        """Whether `test` can be ERROR at all."""
        return True


def failed(view: MessageView, fault: Fault) -> i64:
    view.fault = fault
    return ERROR


def negation_of(result: i64) -> i64:
    if result == TRUE:
        return FALSE
    return TRUE if result == FALSE else result


@final
class Known(Predicate):
    """A result that no message changes, such as that of 1=1."""

    __slots__ = ("result",)

    def __init__(self, result: i64) -> None:
        self.result: i64 = result

    def test(self, view: MessageView) -> i64:
        return self.result

    def can_fail(self) -> bool:
        return False


@final
class Compare(Predicate):
    __slots__ = ("left", "operator", "right")

    def __init__(self, left: Expression, right: Expression, operator: i64) -> None:
        self.left: Final = left
        self.right: Final = right
        self.operator: i64 = operator

    def test(self, view: MessageView) -> i64:
        return compared(view, self.left.evaluate(view), self.right.evaluate(view), self.operator)


def compared(view: MessageView, left: object, right: object, operator: i64) -> i64:
    if left is None or right is None:
        if isinstance(left, Fault):
            return failed(view, left)
        return failed(view, right) if isinstance(right, Fault) else UNKNOWN
    if operator >= LESS and isinstance(left, str) and len(left) > _LONG and not view.charge(len(left) >> 4):
        return failed(view, TOO_EXPENSIVE)
    result = compare(left, right, operator)
    if result == ERROR:
        return _failed_to_compare(view, left, right)
    return result


def _failed_to_compare(view: MessageView, left: object, right: object) -> i64:
    if isinstance(left, Fault):
        return failed(view, left)
    if isinstance(right, Fault):
        return failed(view, right)
    return failed(view, undefined(left, right))


@final
class IsNull(Predicate):
    __slots__ = ("operand", "wanted")

    def __init__(self, operand: Expression, wanted: bool) -> None:
        self.operand: Final = operand
        self.wanted: Final = wanted

    def test(self, view: MessageView) -> i64:
        value = self.operand.evaluate(view)
        if isinstance(value, Fault):
            return failed(view, value)
        return TRUE if (value is None) == self.wanted else FALSE


@final
class UserPropertyExists(Predicate):
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name: Final = name

    def test(self, view: MessageView) -> i64:
        return TRUE if view.exists(self.name) else FALSE

    def can_fail(self) -> bool:
        return False


@final
class SystemPropertyExists(Predicate):
    """System properties have no null: one that was not set is not there."""

    __slots__ = ("index",)

    def __init__(self, index: i64) -> None:
        self.index: i64 = index

    def test(self, view: MessageView) -> i64:
        return FALSE if view.system(self.index) is None else TRUE

    def can_fail(self) -> bool:
        return False


@final
class In(Predicate):
    """`x IN (a, b)` is `x = a OR x = b`."""

    __slots__ = ("is_negated", "items", "operand")

    def __init__(self, operand: Expression, items: list[Expression], is_negated: bool) -> None:
        self.operand: Final = operand
        self.items: Final = items
        self.is_negated: Final = is_negated

    def test(self, view: MessageView) -> i64:
        result = self._found(view)
        return negation_of(result) if self.is_negated else result

    def _found(self, view: MessageView) -> i64:
        value = self.operand.evaluate(view)
        if value is None:
            return UNKNOWN
        if isinstance(value, Fault):
            return failed(view, value)
        result: i64 = FALSE
        for item in self.items:
            one = compared(view, value, item.evaluate(view), EQUAL)
            if one == TRUE or one == ERROR:
                return one
            if one == UNKNOWN:
                result = UNKNOWN
        return result


@final
class InTexts(Predicate):
    """IN with nothing but strings in its list, which is what nearly all are: one look into a set."""

    __slots__ = ("is_negated", "operand", "texts")

    def __init__(self, operand: Expression, texts: list[str], is_negated: bool) -> None:
        self.operand: Final = operand
        self.texts: Final = frozenset(texts)
        self.is_negated: Final = is_negated

    def test(self, view: MessageView) -> i64:
        value = self.operand.evaluate(view)
        if isinstance(value, str):
            return TRUE if (value in self.texts) != self.is_negated else FALSE
        if value is None:
            return UNKNOWN
        return failed(view, value if isinstance(value, Fault) else undefined(value, ""))


@final
class Like(Predicate):
    """LIKE with a pattern that was read with the rule."""

    __slots__ = ("is_negated", "operand", "pattern")

    def __init__(self, operand: Expression, pattern: LikePattern, is_negated: bool) -> None:
        self.operand: Final = operand
        self.pattern: Final = pattern
        self.is_negated: Final = is_negated

    def test(self, view: MessageView) -> i64:
        return _like(view, self.operand.evaluate(view), self.pattern, self.is_negated)


def _like(view: MessageView, value: object, pattern: LikePattern, is_negated: bool) -> i64:
    if isinstance(value, str):
        result = pattern.match(value, view.steps_left)
        view.steps_left = pattern.steps_left
        if result == UNKNOWN:
            return failed(view, TOO_EXPENSIVE)
        return negation_of(result) if is_negated else result
    if value is None:
        return UNKNOWN
    return failed(view, value if isinstance(value, Fault) else Fault(f"LIKE needs a string, not {kind_of(value)}"))


@final
class LikeComputed(Predicate):
    """LIKE with a pattern or an escape character that the message has a part in."""

    __slots__ = ("escape", "is_negated", "operand", "pattern")

    def __init__(self, operand: Expression, pattern: Expression, escape: Expression | None, is_negated: bool) -> None:
        self.operand: Final = operand
        self.pattern: Final = pattern
        self.escape: Final = escape
        self.is_negated: Final = is_negated

    def test(self, view: MessageView) -> i64:
        value = self.operand.evaluate(view)
        pattern = self.pattern.evaluate(view)
        escape = None if self.escape is None else self.escape.evaluate(view)
        if isinstance(value, Fault):
            return failed(view, value)
        if isinstance(pattern, Fault):
            return failed(view, pattern)
        if isinstance(escape, Fault):
            return failed(view, escape)
        if value is None or pattern is None or (escape is None and self.escape is not None):
            return UNKNOWN
        if isinstance(pattern, str) and not view.charge(
            _STEPS_PER_CHARACTER * min(len(pattern), MAX_PATTERN_CHARACTERS)
        ):
            return failed(view, TOO_EXPENSIVE)
        try:
            compiled = like_pattern(pattern, escape)
        except PatternError as error:
            return failed(view, Fault(str(error)))
        return _like(view, value, compiled, self.is_negated)


def like_pattern(pattern: object, escape: object) -> LikePattern:
    """Raises PatternError where the two are not what LIKE needs."""
    if not isinstance(pattern, str):
        raise PatternError(f"a pattern is a string, not {kind_of(pattern)}")
    if escape is None:
        return LikePattern(pattern)
    if not isinstance(escape, str) or len(escape) != 1:
        raise PatternError("ESCAPE needs a string of one character")
    return LikePattern(pattern, escape)


@final
class Not(Predicate):
    __slots__ = ("operand",)

    def __init__(self, operand: Predicate) -> None:
        self.operand: Final = operand

    def test(self, view: MessageView) -> i64:
        return negation_of(self.operand.test(view))

    def can_fail(self) -> bool:
        return self.operand.can_fail()


@final
class And(Predicate):
    __slots__ = ("operands",)

    def __init__(self, operands: list[Predicate]) -> None:
        self.operands: Final = operands

    def test(self, view: MessageView) -> i64:
        result: i64 = TRUE
        for operand in self.operands:
            one = operand.test(view)
            if one == FALSE or one == ERROR:
                return one
            if one == UNKNOWN:
                result = UNKNOWN
        return result

    def can_fail(self) -> bool:
        return any_can_fail(self.operands)


@final
class Or(Predicate):
    __slots__ = ("operands",)

    def __init__(self, operands: list[Predicate]) -> None:
        self.operands: Final = operands

    def test(self, view: MessageView) -> i64:
        result: i64 = FALSE
        for operand in self.operands:
            one = operand.test(view)
            if one == TRUE or one == ERROR:
                return one
            if one == UNKNOWN:
                result = UNKNOWN
        return result

    def can_fail(self) -> bool:
        return any_can_fail(self.operands)


def any_can_fail(predicates: list[Predicate]) -> bool:
    for predicate in predicates:
        if predicate.can_fail():
            return True
    return False
