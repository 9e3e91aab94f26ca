"""Rules in XML: filters, actions and typed values, as both SDKs write and read them."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from azure.servicebus.management._generated.models import RuleDescriptionEntry
from azure.servicebus.management._utils import deserialize_value
from hypothesis import given
from hypothesis import strategies as st

from tandembus.amqp.encoding.values import Described, Typed, int_, timestamp
from tandembus.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from tandembus.errors import BusError
from tandembus.front_end.http.atom import ATOM, INSTANCE, SERVICE_BUS, Entry, Origin, entry_document
from tandembus.front_end.http.rule_xml import SCHEMA, read_rule, write_rule
from tandembus.front_end.http.xml_reader import read_xml
from tests.covers import covers

ORIGIN = Origin("https", "localhost:5300", "2021-05", "contoso")
MOMENT = datetime(2030, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)
VALUES: tuple[tuple[str, object], ...] = (
    ("text", " <a> & 'b' \u00e9 "),
    ("empty", ""),
    ("int", 5),
    ("negative", -5),
    ("long", 2**40),
    ("double", 1.5),
    ("true", True),
    ("false", False),
    ("moment", MOMENT),
    ("early", datetime(1950, 6, 1, tzinfo=UTC)),
    ("span", timedelta(days=1, seconds=2, microseconds=500_000)),
    ("back", -timedelta(hours=1)),
)
RULES = [
    RuleDescription("r", TrueFilter()),
    RuleDescription("r", FalseFilter()),
    RuleDescription("r", SqlFilter("a < 1 AND b = '<x>'")),
    RuleDescription("r", SqlFilter("a = @text", VALUES), SqlAction("SET a = @text", VALUES)),
    RuleDescription("r", CorrelationFilter(label="l"), SqlAction("REMOVE a")),
    RuleDescription("r", CorrelationFilter("c", "m", "t", "rt", "l", "s", "rs", "ct", VALUES)),
    RuleDescription("r", CorrelationFilter(properties=(("a", "b"),))),
]


def document_of(rule: RuleDescription) -> bytes:
    path = f"events/Subscriptions/audit/Rules/{rule.name}"
    return entry_document(Entry(path, rule.name, 1.7e9, 1.7e9, write_rule(rule)), ORIGIN)


def read(data: bytes) -> RuleDescription:
    return read_rule(read_xml(data, 1 << 20, 32), "r")


def request(inner: str) -> bytes:
    return (
        f'<ns0:entry xmlns:ns0="{ATOM}" xmlns:p4="{INSTANCE}"><ns0:content type="application/xml">'
        f'<RuleDescription xmlns="{SERVICE_BUS}">{inner}</RuleDescription></ns0:content></ns0:entry>'
    ).encode()


def one_value(kind: str, text: str) -> bytes:
    value = f'<Value p4:type="l28:{kind}" xmlns:l28="{SCHEMA}">{text}</Value>'
    pair = f"<KeyValueOfstringanyType><Key>k</Key>{value}</KeyValueOfstringanyType>"
    return request(f'<Filter p4:type="CorrelationFilter"><Properties>{pair}</Properties></Filter>')


def value_in(data: bytes) -> object:
    wanted = read(data).filter
    assert isinstance(wanted, CorrelationFilter)
    ((_, value),) = wanted.properties
    return value


@covers("B1", "M9")
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_read_back_is_the_one_that_was_written(rule: RuleDescription) -> None:
    assert read(document_of(rule)) == rule


@covers("B1")
@pytest.mark.parametrize("rule", RULES)
def test_filter_action_time_and_name_are_always_there_and_in_this_order(rule: RuleDescription) -> None:
    found = ElementTree.fromstring(document_of(rule)).find(f"{{{ATOM}}}content/{{{SERVICE_BUS}}}RuleDescription")
    assert found is not None
    assert [child.tag.partition("}")[2] for child in found] == ["Filter", "Action", "CreatedAt", "Name"]


@covers("B1")
def test_types_have_the_prefixes_that_the_js_sdk_counts_on() -> None:
    text = document_of(RULES[3]).decode()
    attributes = re.findall(r"<Value ([^>]*)>", text)
    assert len(attributes) == 2 * len(VALUES)
    assert all(re.fullmatch(rf'xmlns:d6p1="{SCHEMA}" i:type="d6p1:\w+"', one) for one in attributes)
    assert re.findall(r'<(?:Filter|Action) i:type="(\w+)">', text) == ["SqlFilter", "SqlRuleAction"]


@covers("B1")
def test_the_id_has_the_capitals_that_the_js_sdk_looks_for() -> None:
    found = ElementTree.fromstring(document_of(RuleDescription("$Default", TrueFilter()))).findtext(f"{{{ATOM}}}id")
    assert found == "https://localhost:5300/events/Subscriptions/audit/Rules/$Default?api-version=2021-05"


@covers("B1")
@pytest.mark.parametrize(
    ("wanted", "kind", "expression"),
    [
        (TrueFilter(), "TrueFilter", "1=1"),
        (FalseFilter(), "FalseFilter", "1=0"),
        (SqlFilter("a=1"), "SqlFilter", "a=1"),
    ],
)
def test_the_python_sdk_reads_our_filters(wanted: Filter, kind: str, expression: str) -> None:
    root = ElementTree.fromstring(document_of(RuleDescription("r", wanted)))
    entry: Any = RuleDescriptionEntry.deserialize(root)
    rule = entry.content.rule_description
    assert (rule.name, rule.filter.type, rule.filter.sql_expression) == ("r", kind, expression)
    assert rule.filter.compatibility_level == "20"
    assert rule.action.type == "EmptyRuleAction"


@covers("B1")
@pytest.mark.parametrize(("name", "value"), VALUES)
def test_the_python_sdk_reads_our_values(name: str, value: object) -> None:
    found = ElementTree.fromstring(document_of(RuleDescription("r", CorrelationFilter(properties=((name, value),)))))
    element = next(found.iter(f"{{{SERVICE_BUS}}}Value"))
    kind = element.attrib[f"{{{INSTANCE}}}type"].partition(":")[2]
    read: Callable[[str, str], object] = deserialize_value
    assert read(element.text or "", kind) == value


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (int_(5), "int", "5"),
        (Typed(0x80, 2**63), "long", str(2**63)),
        (timestamp(-1000), "dateTime", "1969-12-31T23:59:59Z"),
        (uuid.UUID(int=5), "string", "00000000-0000-0000-0000-000000000005"),
        (b"\x00", "base64Binary", "AA=="),
        (Described("com.microsoft:timespan", 5), "int", "5"),
        (math.inf, "double", "INF"),
        (-math.inf, "double", "-INF"),
        (math.nan, "double", "NaN"),
        (datetime(2030, 1, 1), "dateTime", "2030-01-01T00:00:00Z"),
        (timedelta.max, "duration", "P10675199DT2H48M5.4775807S"),
    ],
)
def test_values_that_came_over_amqp_are_written_as_what_comes_closest(value: object, kind: str, text: str) -> None:
    document = document_of(RuleDescription("r", SqlFilter("a=@k", (("k", value),)))).decode()
    assert f'i:type="d6p1:{kind}">{text}</Value>' in document


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "5", 5),
        ("int", str(-(2**40)), -(2**40)),
        ("long", str(2**63 - 1), 2**63 - 1),
        ("double", "1", 1.0),
        ("double", "-1E3", -1000.0),
        ("double", "INF", math.inf),
        ("boolean", "true", True),
        ("boolean", "0", False),
        ("string", " a ", " a "),
        ("string", "", ""),
        ("dateTime", "2030-01-31T12:00:00.25Z", MOMENT),
        ("dateTime", "2030-01-31T13:00:00.250000+01:00", MOMENT),
        ("dateTime", "2030-01-31T12:00:00.25", MOMENT),
        ("dateTime", "2030-01-31T12:00:00.2500000Z", MOMENT),  # as .NET writes it
        ("duration", "PT1.5S", timedelta(seconds=1.5)),
        ("duration", "-P1D", -timedelta(days=1)),
        ("base64Binary", "AA==", b"\x00"),
    ],
)
def test_values_are_read_by_their_type_whatever_its_prefix(kind: str, text: str, value: object) -> None:
    found = value_in(one_value(kind, text))
    assert (found, type(found)) == (value, type(value))


@covers("B1")
@pytest.mark.parametrize(
    "document",
    [
        request('<Filter p4:type="MagicFilter"><SqlExpression>1=1</SqlExpression></Filter>'),
        request("<Filter><SqlExpression>1=1</SqlExpression></Filter>"),
        request('<Filter p4:type="SqlFilter"/>'),
        request('<Filter p4:type="SqlFilter"><SqlExpression> </SqlExpression></Filter>'),
        request('<Action p4:type="SqlRuleAction"/>'),
        request('<Action p4:type="MagicAction"/>'),
        request("<Action><SqlExpression>SET a=1</SqlExpression></Action>"),
        request('<Filter p4:type="TrueFilter"/><Filter p4:type="FalseFilter"/>'),
        request(
            '<Filter p4:type="SqlFilter"><SqlExpression>a</SqlExpression><SqlExpression>b</SqlExpression></Filter>'
        ),
        request(
            '<Filter p4:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k</Key>'
            "</KeyValueOfstringanyType></Properties></Filter>"
        ),
        request(
            '<Filter p4:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k</Key><Value>1</Value>'
            "</KeyValueOfstringanyType></Properties></Filter>"
        ),
        one_value("anyURI", "x"),
        one_value("int", "x"),
        one_value("int", "1.5"),
        one_value("int", ""),
        one_value("long", str(2**63)),
        one_value("long", "9" * 5000),
        one_value("double", "1_0"),
        one_value("double", "\u0661"),
        one_value("double", "x"),
        one_value("boolean", "yes"),
        one_value("dateTime", "yesterday"),
        one_value("dateTime", "2030-02-31T00:00:00Z"),
        one_value("dateTime", "0001-01-01T00:00:00+14:00"),
        one_value("duration", "1 hour"),
        one_value("duration", "P999999999Y"),
        one_value("base64Binary", "*"),
        request("").replace(b"RuleDescription", b"QueueDescription"),
        request("").replace(SERVICE_BUS.encode(), b"urn:x"),
        b"<entry/>",
    ],
)
def test_what_is_no_rule_is_refused_in_words(document: bytes) -> None:
    with pytest.raises(BusError) as refusal:
        read(document)
    assert 10 < len(str(refusal.value)) < 400


def test_a_rule_without_a_filter_takes_everything() -> None:
    assert read(request("")) == RuleDescription("r", TrueFilter())
    assert read(request('<Action p4:type="EmptyRuleAction"/>')) == RuleDescription("r", TrueFilter())
    assert read(request("<Filter p4:nil='true'/><Action/><Name>other</Name>")) == RuleDescription("r", TrueFilter())


simple_values = (
    st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"))
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.datetimes(timezones=st.just(UTC))
    | st.timedeltas(timedelta(days=-(10**6)), timedelta(days=10**6))
)


@given(simple_values)
def test_any_value_survives_the_way_through_xml(value: object) -> None:
    rule = RuleDescription("r", CorrelationFilter(properties=(("k", value),)))
    if isinstance(value, timedelta):
        found = value_in(document_of(rule))
        assert isinstance(found, timedelta)
        assert abs(found - value) <= timedelta(milliseconds=1)
    else:
        assert value_in(document_of(rule)) == value
