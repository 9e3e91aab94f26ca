"""Rules as the management node of a subscription sends them."""

import pytest

from tandembus.amqp.encoding.values import Described
from tandembus.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from tandembus.descriptions.amqp_rules import (
    CORRELATION_FILTER,
    FALSE_FILTER,
    RULE,
    SQL_ACTION,
    SQL_FILTER,
    TRUE_FILTER,
    rule_from,
    rule_map,
)
from tandembus.errors import InvalidArgument, MalformedData


def test_a_rule_for_the_management_node_names_its_filter_and_action() -> None:
    rule = RuleDescription("r", SqlFilter("a = 1"), SqlAction("SET b = 2"))
    assert rule_map(rule) == {
        "rule-name": "r",
        "rule-description": {"sql-filter": {"expression": "a = 1"}, "sql-rule-action": {"expression": "SET b = 2"}},
    }
    assert rule_map(RuleDescription("r", TrueFilter()))["rule-description"] == {"sql-filter": {"expression": "1=1"}}
    assert rule_map(RuleDescription("r", FalseFilter()))["rule-description"] == {"sql-filter": {"expression": "1=0"}}
    correlated = rule_map(RuleDescription("r", CorrelationFilter(label="l", properties=(("n", 5),))))
    description = correlated["rule-description"]
    assert isinstance(description, dict)
    assert description["correlation-filter"]["label"] == "l"
    assert description["correlation-filter"]["message-id"] is None
    assert description["correlation-filter"]["properties"] == {"n": 5}


def test_parameters_have_no_place_in_a_request_over_amqp() -> None:
    with pytest.raises(InvalidArgument, match="HTTP"):
        rule_map(RuleDescription("r", SqlFilter("a = @x", (("@x", 1),))))
    with pytest.raises(InvalidArgument, match="HTTP"):
        rule_map(RuleDescription("r", TrueFilter(), SqlAction("SET a = @x", (("@x", 1),))))


@pytest.mark.parametrize(
    ("value", "filter"),
    [
        (Described(SQL_FILTER, ["a = 1", 20]), SqlFilter("a = 1")),
        (Described(TRUE_FILTER, []), TrueFilter()),
        (Described(FALSE_FILTER, []), FalseFilter()),
        (
            Described(CORRELATION_FILTER, ["c", None, None, None, "l", None, None, None, {"n": 5}]),
            CorrelationFilter(correlation_id="c", label="l", properties=(("n", 5),)),
        ),
        (Described(CORRELATION_FILTER, ["c"]), CorrelationFilter(correlation_id="c")),
    ],
)
def test_rules_are_read_from_the_management_node(value: Described, filter: Filter) -> None:
    action = Described(SQL_ACTION, ["SET a = 1", 20])
    assert rule_from(Described(RULE, [value, action, "r", 5_000])) == RuleDescription(
        "r", filter, SqlAction("SET a = 1"), 5.0
    )
    assert rule_from(Described(RULE, [value, Described(0x0000013700000005, []), "r"])) == RuleDescription("r", filter)


@pytest.mark.parametrize(
    "value", [None, {}, Described(RULE, []), Described(RULE, [Described(99, [])]), Described(7, [])]
)
def test_what_is_no_rule_is_refused(value: object) -> None:
    with pytest.raises(MalformedData):
        rule_from(value)
