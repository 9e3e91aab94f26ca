"""Laws that hold for all filters and all messages, whatever they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.amqp.encoding.sections import MessageSections, encode_message
from tandembus.descriptions import RuleDescription, SqlAction, SqlFilter, TrueFilter
from tandembus.errors import BusError, InvalidArgument
from tandembus.message import parse_message
from tandembus.rules import ERROR, FALSE, TRUE, MessageView, compile_rule, copy_with
from tandembus.rules.sql_parser import parse_filter
from tests.covers import covers
from tests.unit.any_message import messages
from tests.unit.rules.corpus_message import a_view

PIECES = (
    *("AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "SET", "REMOVE", ";"),
    *("(", ")", ",", ".", "=", "<>", "!=", "<", ">=", "+", "-", "*", "/", "%", "'", '"', "[", "]", "@", "@p", " "),
    *("color", "sys.Label", "user.size", "newid()", "p('x')", "'a%'", "1", "2.5", "1E3", "9999999999999999999", "é"),
)
soup = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=40).map(" ".join)

names = st.sampled_from(
    ("color", "size", "price", "urgent", "missing", "nothing", "name", "sys.Label", "sys.SequenceNumber", "moment")
)
constants = st.one_of(
    st.integers(-100, 100).map(str),
    st.sampled_from(("'blue'", "'O''Reilly'", "''", "9.5", "12", "12.0", "TRUE", "FALSE", "NULL", "41", "'order'")),
)
sums = st.builds("{} {} {}".format, names, st.sampled_from(("+", "-", "*")), st.integers(0, 9).map(str) | names)
expressions = names | constants | sums.map("({})".format)
operators = st.sampled_from(("=", "<>", "!=", "<", "<=", ">", ">="))
patterns = st.text(alphabet="bluer%_", max_size=5).map("'{}'".format)
comparisons = st.builds("{} {} {}".format, names | sums, operators, expressions)
likes = st.builds("{} LIKE {}".format, names, patterns)
nulls = st.builds("{} IS {}NULL".format, names, st.sampled_from(("", "NOT ")))
atoms = comparisons | likes | nulls | names.map("EXISTS({})".format)
conditions: st.SearchStrategy[str] = st.recursive(
    atoms,
    lambda inner: st.one_of(
        inner.map("NOT ({})".format),
        st.builds("({}) AND ({})".format, inner, inner),
        st.builds("({}) OR ({})".format, inner, inner),
    ),
    max_leaves=6,
)


def result_of(expression: str) -> int:
    """TRUE, FALSE, UNKNOWN or ERROR for the message of the corpus."""
    return int(parse_filter(expression, {}).test(a_view()))


@covers("F15")
@given(soup | st.text(max_size=1_100))
def test_reading_a_filter_or_an_action_raises_nothing_but_invalid_argument(sql: str) -> None:
    for description in (
        RuleDescription("rule", SqlFilter(sql, (("p", 1),))),
        RuleDescription("rule", TrueFilter(), SqlAction(sql, (("p", 1),))),
    ):
        try:
            assert compile_rule(description).matches(a_view()) in (TRUE, FALSE, ERROR)
        except InvalidArgument:
            pass


@covers("M9")
@given(conditions)
def test_two_negations_cancel_each_other(p: str) -> None:
    assert result_of(f"NOT NOT ({p})") == result_of(f"NOT (NOT ({p}))") == result_of(p)


@covers("M9")
@given(conditions, conditions)
def test_negation_turns_and_into_or(p: str, q: str) -> None:
    assert result_of(f"NOT (({p}) AND ({q}))") == result_of(f"NOT ({p}) OR NOT ({q})")
    assert result_of(f"NOT (({p}) OR ({q}))") == result_of(f"NOT ({p}) AND NOT ({q})")


@covers("M9")
@given(conditions, conditions, conditions)
def test_and_binds_tighter_than_or_and_both_associate(p: str, q: str, r: str) -> None:
    p, q, r = f"({p})", f"({q})", f"({r})"
    assert result_of(f"{p} OR {q} AND {r}") == result_of(f"{p} OR ({q} AND {r})")
    assert result_of(f"{p} AND {q} OR {r}") == result_of(f"({p} AND {q}) OR {r}")
    assert result_of(f"{p} AND {q} AND {r}") == result_of(f"{p} AND ({q} AND {r})")
    assert result_of(f"{p} OR {q} OR {r}") == result_of(f"{p} OR ({q} OR {r})")


@covers("M9")
@given(conditions)
def test_parentheses_white_space_and_case_of_keywords_mean_nothing(p: str) -> None:
    spaced = f" \t( (\n{p} ) )  "
    lower = p
    for word in ("NOT", "AND", "OR", "LIKE", "IS", "NULL", "EXISTS", "TRUE", "FALSE"):
        lower = lower.replace(f"{word} ", f"{word.lower()} ").replace(f"{word}(", f"{word.lower()}(")
    assert result_of(p) == result_of(spaced) == result_of(lower)


@covers("M9")
@given(names | sums, expressions, expressions)
def test_in_is_a_chain_of_equalities(x: str, a: str, b: str) -> None:
    assert result_of(f"{x} NOT IN ({a}, {b})") == result_of(f"NOT ({x} IN ({a}, {b}))")
    if ERROR not in (result_of(f"{a} = {a}"), result_of(f"{b} = {b}")):
        # What fails by itself is not even looked at when x is unknown.
        assert result_of(f"{x} IN ({a}, {b})") == result_of(f"{x} = {a} OR {x} = {b}")


@covers("M9")
@given(names, patterns)
def test_not_like_is_the_negation_of_like(x: str, pattern: str) -> None:
    assert result_of(f"{x} NOT LIKE {pattern}") == result_of(f"NOT ({x} LIKE {pattern})")


@covers("M9")
@given(names | sums, expressions)
def test_comparisons_read_the_same_from_both_sides(x: str, y: str) -> None:
    for operator, mirrored in (("=", "="), ("<>", "<>"), ("<", ">"), ("<=", ">=")):
        assert result_of(f"{x} {operator} {y}") == result_of(f"{y} {mirrored} {x}")
    assert result_of(f"{x} <> {y}") == result_of(f"NOT ({x} = {y})") == result_of(f"{x} != {y}")


def _named(key: object) -> str:
    return "[" + str(key).replace("]", "]]") + "]" if isinstance(key, str) and 0 < len(key) < 60 else "[missing]"


@covers("F15", "M9")
@given(message=messages(), number=st.integers(0, 2**48), conditions=st.lists(conditions, min_size=1, max_size=3))
def test_no_message_makes_a_rule_raise(message: MessageSections, number: int, conditions: list[str]) -> None:
    try:
        parsed = parse_message(encode_message(message))
    except BusError:
        return
    view = MessageView(parsed, number, 1_700_000_000_000)
    keys = [_named(key) for key in message.application_properties or {}] or ["[missing]"]
    for key in keys:
        conditions += [f"{key} = 5", f"{key} LIKE 'a%'", f"{key} + {keys[0]} <> {keys[-1]}", f"EXISTS({key})"]
    for condition in conditions:
        assert compile_rule(RuleDescription("rule", SqlFilter(condition))).matches(view) in (TRUE, FALSE, ERROR)


@covers("F15", "M9")
@given(message=messages(), source=st.integers(0, 3), target=st.integers(0, 3))
def test_what_an_action_makes_of_any_message_is_a_message(message: MessageSections, source: int, target: int) -> None:
    try:
        parsed = parse_message(encode_message(message))
    except BusError:
        return
    view = MessageView(parsed, 1, 1_700_000_000_000)
    keys = [_named(key) for key in message.application_properties or {}] or ["[missing]"]
    one, other = keys[source % len(keys)], keys[target % len(keys)]
    sql = f"SET {other} = {one}; SET sys.ReplyTo = {one} + ''; REMOVE {one}; SET [new] = sys.MessageId"
    changed = compile_rule(RuleDescription("rule", TrueFilter(), SqlAction(sql))).apply(view)
    if changed is None:
        assert view.fault is not None
        return
    copy = copy_with(parsed, changed)
    again = parse_message(copy.sections)
    assert again.sections == copy.sections
    assert again.application_end == copy.application_end
    assert again.sections[again.application_end :] == parsed.sections[parsed.application_end :]


@covers("M9")
def test_the_laws_are_tried_on_true_false_unknown_and_error() -> None:
    seen = {result_of(p) for p in ("color = 'blue'", "color = 'red'", "missing = 1", "color = 1")}
    assert seen == {TRUE, FALSE, 3, ERROR}
    with pytest.raises(InvalidArgument):
        result_of("color")
