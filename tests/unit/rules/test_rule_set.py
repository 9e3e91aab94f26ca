"""All rules of a subscription together: how many copies of a message they give."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding.sections import decode_message
from tandembus.descriptions import CorrelationFilter, Filter, RuleDescription, SqlAction, SqlFilter, TrueFilter
from tandembus.errors import InvalidArgument
from tandembus.rules import ERROR, FALSE, TRUE, Rule, RuleSet, compile_rule
from tests.covers import covers
from tests.unit.rules.corpus_message import a_view

BLUE = SqlFilter("color = 'blue'")
RED = SqlFilter("color = 'red'")
CLASHING = SqlFilter("color > 5")


def rule(name: str, wanted: Filter, action: str | None = None) -> Rule:
    return compile_rule(RuleDescription(name, wanted, None if action is None else SqlAction(action)))


@covers("M9")
def test_no_rules_or_none_that_matches_give_nothing() -> None:
    for rules in ([], [rule("red", RED)], [rule("red", RED), rule("other", CorrelationFilter(label="x"), "SET a = 1")]):
        matches = RuleSet(rules).evaluate(a_view())
        assert (matches.plain, matches.changed, matches.error, matches.has_any) == (False, [], None, False)


@covers("M9")
def test_all_matching_rules_without_an_action_give_one_copy_together() -> None:
    matches = RuleSet([rule("all", TrueFilter()), rule("blue", BLUE), rule("red", RED)]).evaluate(a_view())
    assert (matches.plain, matches.changed, matches.error, matches.has_any) == (True, [], None, True)


@covers("M9")
def test_each_matching_rule_with_an_action_gives_a_copy_of_its_own() -> None:
    rules = [
        rule("one", TrueFilter(), "SET a = 1"),
        rule("two", BLUE, "SET a = 2"),
        rule("three", RED, "SET a = 3"),
        rule("plain", BLUE),
    ]
    matches = RuleSet(rules).evaluate(a_view({"color": "blue"}))
    assert matches.plain
    found = [decode_message(copy.application_properties).application_properties for copy in matches.changed]
    assert found == [
        {"color": "blue", "RuleName": "one", "a": 1},
        {"color": "blue", "RuleName": "two", "a": 2},
    ]


@covers("M9", "F15")
def test_a_rule_that_fails_does_not_match_and_does_not_keep_others_from_matching() -> None:
    for rules in (
        [rule("bad", CLASHING), rule("good", BLUE)],
        [rule("good", BLUE), rule("bad", CLASHING)],
        [rule("good", TrueFilter()), rule("bad", CLASHING)],
    ):
        matches = RuleSet(rules).evaluate(a_view())
        assert matches.plain
        assert matches.error is not None
        assert matches.error.startswith("Rule 'bad': ")


@covers("M9", "F15")
def test_an_action_that_fails_gives_no_copy_but_an_error() -> None:
    matches = RuleSet([rule("bad", BLUE, "SET a = color * 2"), rule("good", BLUE, "SET a = 1")]).evaluate(a_view())
    assert not matches.plain
    assert len(matches.changed) == 1
    assert matches.error == "Rule 'bad': a string and an integer do not go together here."


@covers("M9")
def test_the_first_of_several_errors_is_told() -> None:
    matches = RuleSet([rule("first", CLASHING), rule("second", CLASHING)]).evaluate(a_view())
    assert matches.error is not None
    assert "first" in matches.error


@covers("M9")
def test_one_view_serves_all_rules_of_all_subscriptions() -> None:
    view = a_view()
    assert [int(rule("x", wanted).matches(view)) for wanted in (BLUE, RED, CLASHING, BLUE)] == [
        TRUE,
        FALSE,
        ERROR,
        TRUE,
    ]


@covers("M9")
def test_an_action_leaves_no_trace_in_the_view_of_the_next_rule() -> None:
    view = a_view()
    changing = rule("changing", BLUE, "SET color = 'red'; SET sys.Label = 'changed'; REMOVE size; SET extra = 1")
    assert changing.matches(view) == TRUE
    assert changing.apply(view) is not None
    wanted = SqlFilter("color = 'blue' AND sys.Label = 'order' AND EXISTS(size) AND NOT EXISTS(extra)")
    assert rule("next", wanted).matches(view) == TRUE


@covers("M9")
def test_a_rule_tells_its_name_its_description_and_whether_it_has_an_action() -> None:
    plain, acting = rule("plain", BLUE), rule("acting", RED, "SET a = 1")
    assert (plain.name, plain.has_action, plain.description) == ("plain", False, RuleDescription("plain", BLUE))
    assert (acting.name, acting.has_action) == ("acting", True)


@covers("M9")
def test_a_refusal_names_the_rule() -> None:
    with pytest.raises(InvalidArgument, match=r"^Rule 'mine': The SQL expression is not valid at character 1: "):
        rule("mine", SqlFilter("= 5"))


@covers("M9")
@pytest.mark.parametrize("expression", ["", "   ", "\t\n"])
def test_an_empty_expression_is_refused(expression: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be empty"):
        rule("mine", SqlFilter(expression))
    with pytest.raises(InvalidArgument, match="cannot be empty"):
        rule("mine", TrueFilter(), expression)


@covers("M9", "F15")
def test_an_expression_has_at_most_1024_characters() -> None:
    longest = "color = '" + "x" * (1_024 - 10) + "'"
    assert len(longest) == 1_024
    assert rule("mine", SqlFilter(longest)).matches(a_view()) == FALSE
    with pytest.raises(InvalidArgument, match="1025 characters; at most 1024"):
        rule("mine", SqlFilter(longest + " "))


@covers("M9")
def test_two_parameters_cannot_have_one_name() -> None:
    with pytest.raises(InvalidArgument, match="Two parameters are called @a"):
        rule("mine", SqlFilter("a = @a", (("a", 1), ("@A", 2))))


@covers("M9", "F15")
@pytest.mark.parametrize("wanted", [SqlFilter("a = '\ud800'"), SqlFilter("a = @a", (("a", "\udfff"),))])
def test_half_a_unicode_character_is_refused(wanted: SqlFilter) -> None:
    with pytest.raises(InvalidArgument, match="lone surrogate"):
        rule("mine", wanted)
