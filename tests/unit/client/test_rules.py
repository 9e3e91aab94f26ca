"""Rules as Atom entries and as AMQP values: what is written is read back."""

import uuid
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from tandembus.amqp.encoding.values import Described, int_, timestamp
from tandembus.client.atom import CONNECT, INSTANCE_TYPE, entry_with
from tandembus.client.rule_values import (
    CORRELATION_FILTER,
    FALSE_FILTER,
    RULE,
    SQL_ACTION,
    SQL_FILTER,
    TRUE_FILTER,
    rule_from,
    rule_map,
)
from tandembus.client.rules import rule_element, rule_of
from tandembus.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from tandembus.errors import InvalidArgument, MalformedData

NOON = datetime(2024, 2, 29, 12, 0, tzinfo=UTC)
VALUES = (("s", "a<b"), ("n", 5), ("d", 0.5), ("b", True), ("t", NOON), ("span", timedelta(seconds=90)))
FILTERS = [
    TrueFilter(),
    FalseFilter(),
    SqlFilter("size > 5 AND colour = 'red'"),
    SqlFilter("size > @least", (("@least", 5),)),
    CorrelationFilter("c", "m", "to", "r", "l", "s", "rs", "text/plain", VALUES),
    CorrelationFilter(label="only"),
]


def read_back(rule: RuleDescription) -> RuleDescription:
    return rule_of(ElementTree.fromstring(entry_with(rule_element(rule))))


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("action", [None, SqlAction("SET a = @v", (("@v", "x"),))])
def test_a_rule_is_read_back_as_it_was_written(filter: Filter, action: SqlAction | None) -> None:
    rule = RuleDescription("high", filter, action)
    assert read_back(rule) == rule


def test_values_with_an_amqp_type_are_written_as_the_type_of_xml() -> None:
    values = (("n", int_(7)), ("t", timestamp(1_709_208_000_000)))
    element = rule_element(RuleDescription("r", CorrelationFilter(properties=values)))
    kinds = [each.get(INSTANCE_TYPE) for each in element.iter(f"{CONNECT}Value")]
    assert [str(kind).rpartition("}")[2] for kind in kinds] == ["int", "dateTime"]
    assert read_back(RuleDescription("r", CorrelationFilter(properties=values))).filter == CorrelationFilter(
        properties=(("n", 7), ("t", NOON))
    )


def test_a_value_that_xml_has_no_type_for_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="UUID"):
        rule_element(RuleDescription("r", CorrelationFilter(properties=(("id", uuid.uuid4()),))))


RESPONSE = """<entry xmlns="http://www.w3.org/2005/Atom"><title type="text">high</title><content type="application/xml">
<RuleDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
 xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><Filter i:type="{kind}"><Properties>
<KeyValueOfstringanyType><Key>at</Key><Value xmlns:d6p1="http://www.w3.org/2001/XMLSchema"
 i:type="d6p1:dateTime">{value}</Value></KeyValueOfstringanyType></Properties></Filter>
<Action i:type="EmptyRuleAction"/><CreatedAt>2024-02-29T12:00:00.1234567Z</CreatedAt>
</RuleDescription></content></entry>"""


def test_a_rule_as_the_service_writes_it() -> None:
    text = RESPONSE.format(kind="CorrelationFilter", value="2024-02-29T12:00:00.0000000Z")
    rule = rule_of(ElementTree.fromstring(text))
    assert (rule.name, rule.action) == ("high", None)
    assert rule.filter == CorrelationFilter(properties=(("at", NOON),))
    assert rule.created_at == pytest.approx(NOON.timestamp() + 0.123456)


@pytest.mark.parametrize(("kind", "value"), [("OddFilter", "x"), ("CorrelationFilter", "noon")])
def test_an_answer_that_makes_no_sense_is_the_fault_of_the_service(kind: str, value: str) -> None:
    with pytest.raises(MalformedData):
        rule_of(ElementTree.fromstring(RESPONSE.format(kind=kind, value=value)))


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
