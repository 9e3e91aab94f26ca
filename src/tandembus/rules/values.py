"""What an expression computes with: values of a message's properties, and the operators on them.

AMQP has some twenty types; here are nine: text, integer, double, boolean, point in time, duration, UUID, bytes, and
whatever has no operators at all. `None` is SQL's unknown. Nothing raises: an operation that its operands do not allow
gives a `Fault`, so that one odd message costs as little as any other.
"""

from __future__ import annotations

import math
import uuid
from typing import Final, final

from mypy_extensions import i64

# What a predicate can be. The first three are also what a rule answers.
FALSE: Final = 0
TRUE: Final = 1
ERROR: Final = 2
UNKNOWN: Final = 3

EQUAL: Final = 0
NOT_EQUAL: Final = 1
LESS: Final = 2
LESS_OR_EQUAL: Final = 3
GREATER: Final = 4
GREATER_OR_EQUAL: Final = 5

PLUS: Final = 0
MINUS: Final = 1
TIMES: Final = 2
DIVIDED: Final = 3
MODULO: Final = 4

INT64_MAX: Final = 9_223_372_036_854_775_807
INT64_MIN: Final = -INT64_MAX - 1
TICKS_PER_MS: Final = 10_000
MAX_TEXT_CHARACTERS: Final = 65_536
"""The longest text that concatenation makes: nothing longer would fit into a message's properties."""

_UNORDERED: Final = 2


@final
class Fault:
    """Why an expression has no value for this message."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason: Final = reason

    def __repr__(self) -> str:
        return f"Fault({self.reason!r})"


@final
class Instant:
    """A point in time: ticks of 100 ns since 1970, UTC.

    AMQP's timestamps count milliseconds, so a sender's date lost its further digits on the way. `is_in_ms` says so:
    such an instant is compared with others in milliseconds.
    """

    __slots__ = ("is_in_ms", "ticks")

    def __init__(self, ticks: int, is_in_ms: bool = False) -> None:
        self.ticks: Final = ticks
        self.is_in_ms: Final = is_in_ms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Instant) and self.ticks == other.ticks

    def __hash__(self) -> int:
        return hash(self.ticks)

    def __repr__(self) -> str:
        return f"Instant({self.ticks})"


@final
class Duration:
    """A length of time in ticks of 100 ns."""

    __slots__ = ("ticks",)

    def __init__(self, ticks: int) -> None:
        self.ticks: Final = ticks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.ticks == other.ticks

    def __hash__(self) -> int:
        return hash(self.ticks)

    def __repr__(self) -> str:
        return f"Duration({self.ticks})"


@final
class Opaque:
    """A list, map, array or strange described value: it is there, and nothing can be computed with it."""

    __slots__ = ()


OPAQUE: Final = Opaque()
OVERFLOW: Final = Fault("the result does not fit into 64 bits")
DIVISION_BY_ZERO: Final = Fault("division by zero")
TEXT_TOO_LONG: Final = Fault("the text grows too long")


def kind_of(value: object) -> str:
    """How messages to people name the type of a value."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a double"
    if isinstance(value, Instant):
        return "a date and time"
    if isinstance(value, Duration):
        return "a duration"
    if isinstance(value, uuid.UUID):
        return "a uuid"
    if isinstance(value, bytes):
        return "binary"
    return "a value of another type"


def compare(left: object, right: object, operator: i64) -> i64:
    """TRUE or FALSE; ERROR where the operator is not defined for the two. Neither is None nor a Fault.

    Numbers are promoted as in C#: an integer beside a double becomes a double. Text is ordered by code points.
    """
    if isinstance(left, str):
        if isinstance(right, str):
            return _compare_texts(left, right, operator)
    elif isinstance(left, bool):
        if isinstance(right, bool) and operator <= NOT_EQUAL:
            return TRUE if (left == right) == (operator == EQUAL) else FALSE
    elif isinstance(left, int):
        if isinstance(right, bool):
            return ERROR
        if isinstance(right, int):
            return _holds(-1 if left < right else 1 if left > right else 0, operator)
        if isinstance(right, float):
            return _compare_doubles(float(left), right, operator)
    elif isinstance(left, float):
        if isinstance(right, float):
            return _compare_doubles(left, right, operator)
        if isinstance(right, int) and not isinstance(right, bool):
            return _compare_doubles(left, float(right), operator)
    else:
        return _compare_others(left, right, operator)
    return ERROR


def _compare_texts(left: str, right: str, operator: i64) -> i64:
    if operator <= NOT_EQUAL:
        return TRUE if (left == right) == (operator == EQUAL) else FALSE
    return _holds(0 if left == right else -1 if left < right else 1, operator)


def _compare_doubles(left: float, right: float, operator: i64) -> i64:
    if left < right:
        return _holds(-1, operator)
    if left > right:
        return _holds(1, operator)
    return _holds(0 if left == right else _UNORDERED, operator)


def _compare_others(left: object, right: object, operator: i64) -> i64:
    if isinstance(left, Instant):
        if isinstance(right, Instant):
            return _compare_instants(left, right, operator)
    elif isinstance(left, Duration):
        if isinstance(right, Duration):
            return _holds(_sign(left.ticks - right.ticks), operator)
    elif isinstance(left, uuid.UUID):
        if isinstance(right, uuid.UUID) and operator <= NOT_EQUAL:
            return TRUE if (left == right) == (operator == EQUAL) else FALSE
    elif isinstance(left, bytes) and isinstance(right, bytes) and operator <= NOT_EQUAL:
        return TRUE if (left == right) == (operator == EQUAL) else FALSE
    return ERROR


def _compare_instants(left: Instant, right: Instant, operator: i64) -> i64:
    if left.is_in_ms or right.is_in_ms:
        return _holds(_sign(left.ticks // TICKS_PER_MS - right.ticks // TICKS_PER_MS), operator)
    return _holds(_sign(left.ticks - right.ticks), operator)


def _sign(number: int) -> i64:
    return -1 if number < 0 else 1 if number > 0 else 0


def _holds(sign: i64, operator: i64) -> i64:
    """Whether the operator holds between two values of which the left is less (-1), equal (0) or greater (1)."""
    if operator == EQUAL:
        return TRUE if sign == 0 else FALSE
    if operator == NOT_EQUAL:
        return TRUE if sign != 0 else FALSE
    if sign == _UNORDERED:
        return FALSE
    if operator == LESS:
        return TRUE if sign < 0 else FALSE
    if operator == LESS_OR_EQUAL:
        return TRUE if sign <= 0 else FALSE
    if operator == GREATER:
        return TRUE if sign > 0 else FALSE
    return TRUE if sign >= 0 else FALSE


def calculate(left: object, right: object, operator: i64) -> object:
    """The result of an arithmetic operator, or a Fault. Neither operand is None nor a Fault."""
    if isinstance(left, int) and isinstance(right, int):
        if isinstance(left, bool) or isinstance(right, bool):
            return undefined(left, right)
        return _with_integers(left, right, operator)
    if isinstance(left, float):
        if isinstance(right, float):
            return _with_doubles(left, right, operator)
        if isinstance(right, int) and not isinstance(right, bool):
            return _with_doubles(left, float(right), operator)
    elif isinstance(right, float) and isinstance(left, int) and not isinstance(left, bool):
        return _with_doubles(float(left), right, operator)
    if operator == PLUS and (isinstance(left, str) or isinstance(right, str)):
        return _concatenated(left, right)
    if operator == PLUS or operator == MINUS:
        return _with_times(left, right, operator)
    return undefined(left, right)


def undefined(left: object, right: object) -> Fault:
    return Fault(f"{kind_of(left)} and {kind_of(right)} do not go together here")


def _with_integers(left: int, right: int, operator: i64) -> object:
    """As in checked C#: 64 bits, division towards zero."""
    if operator == PLUS:
        return in_int64(left + right)
    if operator == MINUS:
        return in_int64(left - right)
    if operator == TIMES:
        return in_int64(left * right)
    if right == 0:
        return DIVISION_BY_ZERO
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    if operator == DIVIDED:
        return in_int64(quotient)
    return in_int64(left - quotient * right)


def in_int64(number: int) -> object:
    return number if INT64_MIN <= number <= INT64_MAX else OVERFLOW


def _with_doubles(left: float, right: float, operator: i64) -> object:
    """As IEEE 754 says, which knows no errors."""
    if operator == PLUS:
        return left + right
    if operator == MINUS:
        return left - right
    if operator == TIMES:
        return left * right
    if operator == DIVIDED:
        if right != 0.0:
            return left / right
        if left == 0.0 or math.isnan(left) or math.isnan(right):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)
    if right == 0.0 or math.isinf(left):
        return math.nan
    return math.fmod(left, right)


def _concatenated(left: object, right: object) -> object:
    first = text_of(left)
    second = text_of(right)
    if first is None or second is None:
        return undefined(left, right)
    if len(first) + len(second) > MAX_TEXT_CHARACTERS:
        return TEXT_TOO_LONG
    return first + second


def text_of(value: object) -> str | None:
    """A value as text, the way C# shows it; None for what has no one form."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _text_of_double(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    return None


def _text_of_double(number: float) -> str:
    if math.isinf(number) or math.isnan(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0.0 else "-Infinity"
    text = repr(number).upper()
    return text[:-2] if text.endswith(".0") else text


def _with_times(left: object, right: object, operator: i64) -> object:
    if isinstance(left, Instant):
        if isinstance(right, Duration):
            return Instant(left.ticks + right.ticks if operator == PLUS else left.ticks - right.ticks)
        if isinstance(right, Instant) and operator == MINUS:
            return Duration(left.ticks - right.ticks)
    elif isinstance(left, Duration):
        if isinstance(right, Duration):
            return Duration(left.ticks + right.ticks if operator == PLUS else left.ticks - right.ticks)
        if isinstance(right, Instant) and operator == PLUS:
            return Instant(left.ticks + right.ticks)
    return undefined(left, right)


def negated(value: object) -> object:
    """-value, or a Fault. The value is neither None nor a Fault."""
    if isinstance(value, bool):
        return Fault("a boolean has no sign")
    if isinstance(value, int):
        return in_int64(-value)
    if isinstance(value, float):
        return -value
    if isinstance(value, Duration):
        return Duration(-value.ticks)
    return Fault(f"{kind_of(value)} has no sign")


def has_sign(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or isinstance(value, float) or isinstance(value, Duration)  # noqa: SIM101
