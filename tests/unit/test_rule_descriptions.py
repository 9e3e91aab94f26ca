"""What a rule may be asked to be, and how it survives as a record."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.amqp.encoding import Described, int_, symbol
from tandembus.descriptions import (
    DEFAULT_RULE_NAME,
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
    default_rule,
    rule_from_record,
    rule_to_record,
    validate_rule_name,
)
from tandembus.errors import InvalidArgument
from tandembus.limits import Limits
from tests.covers import covers

LIMITS = Limits()
MANY = tuple((f"name{number}", number) for number in range(129))


def rule(wanted: Filter, action: SqlAction | None = None) -> RuleDescription:
    return RuleDescription("r", wanted, action)


@covers("M9")
def test_a_new_subscription_gets_everything() -> None:
    assert default_rule() == RuleDescription(DEFAULT_RULE_NAME, TrueFilter())
    assert DEFAULT_RULE_NAME == "$Default"


@covers("M9")
@pytest.mark.parametrize("name", ["$Default", "r", "R-1_a.b~c", "prio high", "größer", "x" * 50, "'quoted'"])
def test_good_rule_names(name: str) -> None:
    validate_rule_name(name)


@covers("M9")
@pytest.mark.parametrize(
    "name", ["", "x" * 51, "a/b", "a\\b", "a?b", "a#b", "a%20b", " a", "a ", "a\n", "\x00", ".", ".."]
)
def test_bad_rule_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        RuleDescription(name, TrueFilter()).validated(LIMITS)


@covers("M9")
@pytest.mark.parametrize(
    "good",
    [
        rule(TrueFilter()),
        rule(FalseFilter(), SqlAction("SET a = 1")),
        rule(SqlFilter("a = 1")),
        rule(SqlFilter("x" * 1024)),
        rule(SqlFilter("a = @b", MANY[:128])),
        rule(CorrelationFilter(label="")),
        rule(CorrelationFilter(properties=(("a", 1), ("A", 2)))),
        rule(CorrelationFilter(properties=(("a", int_(1)), ("b", Described(symbol("com.microsoft:uri"), "u"))))),
    ],
)
def test_rules_in_bounds_are_taken(good: RuleDescription) -> None:
    assert good.validated(LIMITS) == good


@covers("M9")
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (rule(SqlFilter("")), "empty"),
        (rule(SqlFilter(" \n")), "empty"),
        (rule(SqlFilter("x" * 1025)), "1025.*up to 1024"),
        (rule(TrueFilter(), SqlAction("x" * 1025)), "action.*1025"),
        (rule(TrueFilter(), SqlAction("")), "action is empty"),
        (rule(SqlFilter("a = @b", MANY)), "129"),
        (rule(SqlFilter("a = @b", (("b", 1), ("b", 2)))), "same name"),
        (rule(SqlFilter("a = @b", (("", 1),))), "no name"),
        (rule(SqlFilter("a = @b", (("b", None),))), "no value"),
        (rule(SqlFilter("a = @b", (("b", [1]),))), "no value"),
        (rule(SqlFilter("a = @b", (("b", 2**64),))), "64 bits"),
        (rule(CorrelationFilter()), "at least one"),
        (rule(CorrelationFilter(message_id="x" * 1025)), "MessageId"),
        (rule(CorrelationFilter(properties=(("a", "x" * 1025),))), "'a' of the Properties"),
        (rule(CorrelationFilter(properties=(("a" * 1025, 1),))), "name"),
        (rule(CorrelationFilter(properties=(("a", int_(2**65)),))), "64 bits"),
    ],
)
def test_rules_out_of_bounds_are_refused(bad: RuleDescription, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        bad.validated(LIMITS)


VALUES = st.one_of(
    st.text(max_size=10),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(fold=0)),
    st.timedeltas(),
    st.uuids(),
    st.binary(max_size=10),
    st.integers(0, 100).map(int_),
    st.text(max_size=5).map(lambda text: Described(symbol("com.microsoft:uri"), text)),
)
NAMED = st.lists(st.tuples(st.text(min_size=1, max_size=5), VALUES), max_size=4).map(tuple)
FILTERS = st.one_of(
    st.just(TrueFilter()),
    st.just(FalseFilter()),
    st.builds(SqlFilter, st.text(max_size=10), NAMED),
    st.builds(CorrelationFilter, *[st.none() | st.text(max_size=5)] * 8, NAMED),
)
RULES = st.builds(
    RuleDescription,
    st.text(max_size=5),
    FILTERS,
    st.none() | st.builds(SqlAction, st.text(max_size=10), NAMED),
    st.floats(0, 1e10),
)


@covers("M9")
@given(RULES)
def test_a_rule_survives_as_a_record(one: RuleDescription) -> None:
    text = json.dumps(rule_to_record(one), allow_nan=False)
    back = rule_from_record(json.loads(text))
    assert back == one
    assert repr(back) == repr(one)


@covers("M9")
def test_every_type_of_value_survives_as_itself() -> None:
    values: list[object] = [
        True,
        1,
        1.0,
        math.inf,
        "1",
        b"1",
        UUID(int=1),
        datetime(2024, 1, 1, 5, 6, 7, 8, tzinfo=UTC),
        timedelta(days=3, microseconds=1),
        int_(1),
    ]
    one = rule(CorrelationFilter(properties=tuple((str(place), value) for place, value in enumerate(values))))
    back = rule_from_record(json.loads(json.dumps(rule_to_record(one)))).filter
    assert isinstance(back, CorrelationFilter)
    assert [(type(value), value) for _, value in back.properties] == [(type(value), value) for value in values]
