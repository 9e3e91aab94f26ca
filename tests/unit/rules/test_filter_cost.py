"""What the worst filters and messages cost (F15): bounded in steps, and never an exception.

Steps are counted and so the same everywhere. Times are the best of several tries, in time of the processor, on which
others may be busy; interpreted code has more room.
"""

from __future__ import annotations

import math
import random
import time
import uuid
from collections.abc import Callable

import pytest

from tandembus import build
from tandembus.amqp.encoding import Described, Typed, byte_, char, float_, symbol, timestamp, ulong
from tandembus.descriptions import CorrelationFilter, RuleDescription, SqlAction, SqlFilter, TrueFilter
from tandembus.errors import InvalidArgument
from tandembus.rules import ERROR, FALSE, TRUE, MessageView, Rule, RuleSet, compile_rule, copy_with
from tandembus.rules.message_view import MAX_STEPS
from tandembus.rules.sql_parser import MAX_DEPTH
from tests.covers import covers
from tests.scale import scaled
from tests.unit.rules.corpus_message import a_view

LONG = 60_000
LARGEST_STEP = LONG // 8 + 16 * 1_024
"""The work that one operation may do before it notices that it was too much."""
SLOWER = 1.0 if build.current().is_compiled else 20.0
PARSE_S = 0.005 * max(1.0, SLOWER / 4)
EVALUATE_S = 0.001 * SLOWER
TRIES = 7

HOSTILE: dict[str, object] = {
    "a": "a" * (LONG // 4),
    "b": "ab" * 5_000,
    "c": "é" * 5_000 + "€",
    "n": 2**63 - 1,
    "m": -(2**63),
    "f": math.nan,
    "t": timestamp(2**63 - 1),
    "u": ulong(2**64 - 1),
    "x": None,
    "l": [1] * 100,
    "g": uuid.UUID(int=0),
    "like": "%a" * 500,
}


def rule(expression: str) -> Rule:
    return compile_rule(RuleDescription("rule", SqlFilter(expression)))


def best_time(work: Callable[[], object]) -> float:
    best = math.inf
    for _ in range(TRIES):
        began_at = time.thread_time()
        work()
        best = min(best, time.thread_time() - began_at)
    return best


def check_cost(one: Rule, view: MessageView) -> int:
    result = int(one.matches(view))
    assert result in (TRUE, FALSE, ERROR)
    assert view.steps_left >= -LARGEST_STEP
    return result


def filled(start: str, repeated: str, end: str) -> str:
    """As long as an expression may be."""
    return start + repeated * ((1_024 - len(start) - len(end)) // len(repeated)) + end


WORST = [
    filled("", "a+", "a = 'x'"),
    filled("", "a + b = a OR ", "a = b"),
    filled("", "a < c OR c < a OR ", "a < c"),
    filled("", "a LIKE [like] OR ", "a = b"),
    filled("", "a LIKE '%a%a%b' OR ", "a = b"),
    filled("a LIKE '%", "a_", "b%'"),
    filled("a LIKE '", "%_a", "b'"),
    filled("a LIKE '%", "a", "b%'"),
    filled("p(", "a+", "a) = 1"),
    filled("a IN (", "b,", "a)"),
    filled("a IN (", "'b',", "'a')"),
    filled("n IN (", "1,", "2)"),
    filled("", "NOT ", "n = 1"),
    filled("n = ", "-", "n"),
    filled("n = ", "+", "n"),
    filled("n = ", "1*", "1"),
    filled("n = ", "f%", "1"),
    filled("n = ", "n/", "1"),
    filled("", "n=1 AND ", "n=1"),
    filled("", "x=1 OR ", "n=1"),
    filled("", "newid() = g OR ", "n=1"),
    filled("n = 1 OR [", "]]", "] = 1"),
    filled("a = '", "''", "'"),
    filled("", "EXISTS(z) OR ", "n = 1"),
    filled("n = ", "1 + 9.9E9 - ", "1"),
]


@covers("F15")
@pytest.mark.chaos
@pytest.mark.parametrize("expression", WORST, ids=lambda expression: expression[:20])
def test_the_longest_expressions_are_parsed_and_evaluated_in_bounded_time(expression: str) -> None:
    assert 1_000 <= len(expression) <= 1_024
    one = rule(expression)
    check_cost(one, a_view(HOSTILE))
    assert best_time(lambda: rule(expression)) <= PARSE_S
    view = a_view(HOSTILE)
    assert best_time(lambda: one.matches(view)) <= EVALUATE_S


@covers("F15")
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100, 500])
@pytest.mark.parametrize("shape", ["{}n = 1{}", "{}n{} = 1", "NOT {}n = 1{}", "n = -{}n{}"])
def test_parentheses_nested_too_deep_are_refused(shape: str, depth: int) -> None:
    with pytest.raises(InvalidArgument, match=f"nested deeper than {MAX_DEPTH}"):
        rule(shape.format("(" * depth, ")" * depth))


@covers("F15")
def test_functions_nested_too_deep_are_refused() -> None:
    rule("p(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH + " = 1")
    with pytest.raises(InvalidArgument, match=f"nested deeper than {MAX_DEPTH}"):
        rule("p(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1) + " = 1")


@covers("F15")
@pytest.mark.parametrize("shape", ["{}n = 9223372036854775807{}", "{}n{} = 9223372036854775807"])
def test_parentheses_nested_as_deep_as_allowed_mean_nothing(shape: str) -> None:
    assert rule(shape.format("(" * MAX_DEPTH, ")" * MAX_DEPTH)).matches(a_view(HOSTILE)) == TRUE


@covers("F15")
def test_unbalanced_parentheses_are_refused_however_many() -> None:
    for expression in ("(" * 1_024, ")" * 1_024, "(" * 60 + "n = 1", "n = 1" + ")" * 60):
        with pytest.raises(InvalidArgument, match="not valid at character"):
            rule(expression)


@covers("F15")
def test_the_deepest_trees_are_evaluated() -> None:
    """Every level of nesting brings a node of every kind that can stand in it."""
    deep = "n"
    for _ in range(MAX_DEPTH):
        deep = f"-(1+2*{deep})"
    assert check_cost(rule(f"{deep} > 0"), a_view({"n": 0.5})) in (TRUE, FALSE)
    nested = "n = 1"
    for _ in range(MAX_DEPTH // 2):
        nested = f"NOT(x=1 OR x=1 AND({nested}))"
    assert check_cost(rule(nested), a_view({"n": 1})) in (TRUE, FALSE)


def random_value(chance: random.Random, depth: int) -> str:
    leaves = ["a", "b", "c", "n", "m", "f", "t", "u", "x", "l", "g", "z", "[like]", "sys.Label", "sys.TimeToLive"]
    leaves += ["'a'", "'%a_'", "''", "1", "0", "9223372036854775807", "1.5E300", "TRUE", "NULL", "newid()"]
    kind = chance.randrange(8) if depth > 0 else 0
    if kind < 3:
        return chance.choice(leaves)
    if kind == 3:
        return f"({random_value(chance, depth - 1)})"
    if kind == 4:
        return f"p({random_value(chance, depth - 1)})"
    if kind == 5:
        return f"{chance.choice('+-')} {random_value(chance, depth - 1)}"
    operators = chance.choices("+-*/%", k=chance.randint(1, 4))
    return "".join(f"{random_value(chance, depth - 1)} {one} " for one in operators) + chance.choice(leaves)


def random_condition(chance: random.Random, depth: int) -> str:
    kind = chance.randrange(9) if depth > 0 else chance.randrange(5)
    if kind == 0:
        operator = chance.choice(["=", "<>", "!=", "<", "<=", ">", ">="])
        return f"{random_value(chance, depth)} {operator} {random_value(chance, depth)}"
    if kind == 1:
        escape = chance.choice(["", " ESCAPE '!'", " ESCAPE '_'"])
        return f"{random_value(chance, depth)} {chance.choice(['', 'NOT '])}LIKE {random_value(chance, depth)}{escape}"
    if kind == 2:
        items = ", ".join(random_value(chance, depth - 1) for _ in range(chance.randint(1, 5)))
        return f"{random_value(chance, depth)} {chance.choice(['', 'NOT '])}IN ({items})"
    if kind == 3:
        return f"{chance.choice('abnxz')} IS {chance.choice(['', 'NOT '])}NULL"
    if kind == 4:
        return f"EXISTS({chance.choice('abnxz')})"
    if kind == 5:
        return f"NOT {random_condition(chance, depth - 1)}"
    if kind == 6:
        return f"({random_condition(chance, depth - 1)})"
    word = chance.choice([" AND ", " OR "])
    return word.join(random_condition(chance, depth - 1) for _ in range(chance.randint(2, 5)))


def damaged(chance: random.Random, expression: str) -> str:
    """A few characters gone, doubled or changed."""
    characters = list(expression)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(characters))
        characters[at] = chance.choice(["", characters[at] * 2, "(", ")", "'", "[", ".", "@", "\x00", "€", " NOT "])
    return "".join(characters)[:1_024]


@covers("F15")
@pytest.mark.chaos
def test_generated_expressions_are_refused_or_cost_a_bounded_number_of_steps() -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    outcomes = {"evaluated": 0, "refused": 0}
    for number in range(scaled(200, 50_000, 50_000)):
        expression = random_condition(chance, chance.randint(1, 5))[:1_024]
        if number % 4 == 0:
            expression = damaged(chance, expression)
        try:
            outcomes[compiled_and_evaluated(expression)] += 1
        except Exception as problem:
            raise AssertionError(f"seed {seed}, expression {expression!r}") from problem
    assert min(outcomes.values()) > 10, f"seed {seed}: {outcomes}"


def compiled_and_evaluated(expression: str) -> str:
    try:
        one = rule(expression)
    except InvalidArgument:
        return "refused"
    for view in (a_view(HOSTILE), a_view({}), a_view()):
        check_cost(one, view)
    return "evaluated"


OF_EVERY_TYPE: dict[str, object] = {
    "text": "text",
    "empty": "",
    "number": "12",
    "integer": 12,
    "zero": 0,
    "least": -(2**63),
    "unsigned": ulong(2**64 - 1),
    "byte": byte_(-1),
    "double": 1.5,
    "nan": math.nan,
    "infinite": -math.inf,
    "single": float_(0.5),
    "decimal": Typed(0x94, b"\x30" * 16),
    "strange": Typed(0x74, b"\xff" * 4),
    "yes": True,
    "null": None,
    "letter": char("x"),
    "symbol": symbol("s"),
    "moment": timestamp(-(2**63)),
    "span": Described("com.microsoft:timespan", 2**63 - 1),
    "described": Described("other", [1]),
    "guid": uuid.UUID(int=7),
    "blob": b"\x00",
    "list": [],
    "map": {},
}
SHAPES = [f"{{}} {operator} {{}}" for operator in ("=", "<>", "<", "<=", ">", ">=", "LIKE", "NOT LIKE")]
SHAPES += [f"[{{}}] {operator} [{{}}] = 1".replace("[{}]", "{}") for operator in ("+", "-", "*", "/", "%")]
SHAPES += ["{} IN ({}, 1, 'x')", "NOT ({} = {})", "p({}) = {}", "{} LIKE 'a' ESCAPE {}", "-{} = +{}"]


@covers("F15")
@pytest.mark.parametrize("shape", SHAPES)
def test_no_two_types_confuse_an_operator(shape: str) -> None:
    view = a_view(OF_EVERY_TYPE)
    for left in OF_EVERY_TYPE:
        for right in (*OF_EVERY_TYPE, "missing"):
            check_cost(rule(shape.format(f"[{left}]", f"[{right}]")), view)


@covers("F15")
def test_no_type_confuses_an_action() -> None:
    for target in OF_EVERY_TYPE:
        for source in OF_EVERY_TYPE:
            sql = f"SET [{target}] = [{source}]; SET sys.Label = [{source}]; SET sys.SessionId = [{target}]"
            one = compile_rule(RuleDescription("rule", TrueFilter(), SqlAction(sql)))
            view = a_view(OF_EVERY_TYPE)
            changed = one.apply(view)
            if changed is None:
                assert view.fault is not None
            else:
                copy_with(view.message, changed)


@covers("F15")
def test_two_thousand_rules_cost_two_thousand_times_as_much_as_one_and_no_more() -> None:
    """No rule makes another one dearer: each has the same allowance, and properties are read once for all."""
    rules = [rule(f"a LIKE '%{number}%' OR n > {number}") for number in range(1_999)]
    dear = rule("a LIKE '%" + "a_" * 400 + "b%'")
    view = a_view(HOSTILE)
    matches = RuleSet([dear, *rules]).evaluate(view)
    assert matches.plain
    assert matches.error is not None
    assert "costs too much" in matches.error
    assert [int(one.matches(view)) for one in (dear, rules[0], dear, rules[-1])] == [ERROR, TRUE, ERROR, TRUE]
    assert view.steps_left >= 0


@covers("F15")
def test_two_thousand_correlation_filters_are_compared_with_one_message() -> None:
    rules = [
        compile_rule(RuleDescription(f"r{number}", CorrelationFilter(properties=(("n", number),))))
        for number in range(2_000)
    ]
    view = a_view({"n": 1_234})
    assert [int(one.matches(view)) for one in rules] == [TRUE if number == 1_234 else FALSE for number in range(2_000)]
    assert view.steps_left == MAX_STEPS


@covers("F15")
def test_text_does_not_grow_without_end() -> None:
    view = a_view({"a": "x" * 40_000})
    assert rule("a + a = 'x'").matches(view) == ERROR
    assert view.fault is not None
    assert "too long" in view.fault.reason
