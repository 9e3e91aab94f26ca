"""Rules as people type them."""

from typing import Any

import click
import pytest

from tandembus.amqp.encoding.values import int_
from tandembus.cli.entity_output import action_text, filter_text, rule_record
from tandembus.cli.rule_options import rule_from_options
from tandembus.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from tests.covers import covers


@covers("M9")
@pytest.mark.parametrize(
    ("chosen", "filter"),
    [
        ({}, TrueFilter()),
        ({"true": True}, TrueFilter()),
        ({"false": True}, FalseFilter()),
        ({"sql": "a = 1"}, SqlFilter("a = 1")),
        ({"sql": "a = @x", "parameters": (("x", 5),)}, SqlFilter("a = @x", (("@x", 5),))),
        ({"sql": "a = @X", "parameters": (("@x", 5),)}, SqlFilter("a = @X", (("@x", 5),))),
        ({"label": "s", "to": "t"}, CorrelationFilter(label="s", to="t")),
        ({"properties": (("n", int_(5)),)}, CorrelationFilter(properties=(("n", int_(5)),))),
    ],
)
def test_options_mean_one_filter(chosen: dict[str, Any], filter: Filter) -> None:
    assert rule_from_options("r", chosen) == RuleDescription("r", filter)


@covers("M9")
def test_a_parameter_goes_to_where_it_is_spoken_of() -> None:
    chosen = {"sql": "a = @x", "action": "SET b = @y", "parameters": (("x", 1), ("y", 2))}
    rule = rule_from_options("r", chosen)
    assert rule.filter == SqlFilter("a = @x", (("@x", 1),))
    assert rule.action == SqlAction("SET b = @y", (("@y", 2),))


@pytest.mark.parametrize(
    "chosen",
    [
        {"sql": "a", "label": "s"},
        {"true": True, "false": True},
        {"sql": "a", "properties": (("n", 5),)},
        {"label": "s", "parameters": (("x", 1),)},
    ],
)
def test_two_filters_at_once_are_refused(chosen: dict[str, Any]) -> None:
    with pytest.raises(click.UsageError):
        rule_from_options("r", chosen)


def test_a_rule_is_told_on_a_line_and_in_json() -> None:
    rule = RuleDescription("r", SqlFilter("a = @x", (("@x", 1),)), SqlAction("SET b = 2"), 1_709_208_000.0)
    assert (filter_text(rule.filter), action_text(rule)) == ("a = @x (@x = 1)", "SET b = 2")
    assert rule_record(rule) == {
        "name": "r",
        "filter": {"kind": "sql", "expression": "a = @x", "parameters": {"@x": 1}},
        "action": {"expression": "SET b = 2", "parameters": {}},
        "created_at": "2024-02-29T12:00:00.000Z",
    }
    correlated = CorrelationFilter(label="s", properties=(("n", 5),))
    assert filter_text(correlated) == "label = s, n = 5"
    record = rule_record(RuleDescription("r", correlated))
    assert record["filter"] == {"kind": "correlation", "label": "s", "properties": {"n": 5}}
    assert [filter_text(TrueFilter()), filter_text(FalseFilter())] == ["every message", "no message"]
