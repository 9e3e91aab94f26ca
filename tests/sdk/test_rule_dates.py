"""Dates in rules as the .NET SDK writes them: seven fractional digits over HTTP, in messages a timestamp of AMQP
(milliseconds) for a DateTime, and a described long of 100 ns ticks for a DateTimeOffset."""

from __future__ import annotations

import re

import pytest

from tandembus.amqp.encoding.sections import application_properties_section, data_section
from tandembus.amqp.encoding.values import Described, int_, timestamp
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.raw_amqp import RawAmqp
from tests.integration.shapes import on_every_shape
from tests.integration.test_http_messages import Answer, Http

pytestmark = on_every_shape

DATE_MS = 1_896_091_200_123
DATE_TICKS = 621_355_968_000_000_000 + DATE_MS * 10_000 + 4_567
DATETIME_OFFSET = "com.microsoft:datetime-offset"
RULE = """<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">
<RuleDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
  xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{filter}<Name>dated</Name></RuleDescription></content></entry>"""
PAIRS = """<{0}><KeyValueOfstringanyType><Key>{1}</Key>
<Value i:type="d28p1:dateTime" xmlns:d28p1="http://www.w3.org/2001/XMLSchema">{2}</Value>
</KeyValueOfstringanyType></{0}>"""
CORRELATION = '<Filter i:type="CorrelationFilter">' + PAIRS.format("Properties", "at", "{0}") + "</Filter>"
SQL = '<Filter i:type="SqlFilter"><SqlExpression>at {1} @at</SqlExpression><CompatibilityLevel>20</CompatibilityLevel>'
SQL += PAIRS.format("Parameters", "@at", "{0}") + "</Filter>"
WRITTEN = "2030-01-31T12:00:00.1234567Z"


def put(bus: Bus, topic: str, wanted: str) -> Answer:
    body = RULE.format(filter=wanted).encode()
    path = f"{topic}/Subscriptions/dated/Rules/dated?api-version=2021-05"
    return Http(bus.running, uses_tls=False).ask("PUT", path, body, Content_Type="application/atom+xml")


def dated_topic(bus: Bus, wanted: str) -> str:
    """A topic whose only subscription has one rule: this filter."""
    topic = bus.make_topic("dated")
    assert put(bus, topic, wanted).status == 201
    bus.admin.delete_rule(topic, "dated", "$Default")
    return topic


@covers("M9", "B1")
@pytest.mark.parametrize(
    ("at", "wanted", "is_taken"),
    [
        (timestamp(DATE_MS), CORRELATION, True),
        (timestamp(DATE_MS + 1), CORRELATION, False),
        (Described(DATETIME_OFFSET, DATE_TICKS), CORRELATION, True),
        (Described(DATETIME_OFFSET, DATE_TICKS + 1), CORRELATION, False),
        ("2030-01-31T12:00:00.1234567Z", CORRELATION, False),
        (timestamp(DATE_MS), SQL.replace("{1}", "="), True),
        (timestamp(DATE_MS), SQL.replace("{1}", "&lt;"), False),
        (Described(DATETIME_OFFSET, DATE_TICKS), SQL.replace("{1}", "="), True),
        (Described(DATETIME_OFFSET, DATE_TICKS - 1), SQL.replace("{1}", "&lt;"), True),
    ],
)
def test_a_message_with_the_date_of_a_rule_is_taken(
    bus: Bus, raw: RawAmqp, at: object, wanted: str, is_taken: bool
) -> None:
    topic = dated_topic(bus, wanted.format(WRITTEN))
    raw.attach_sender(1, topic)
    raw.send_message(1, 0, application_properties_section({"at": at}) + data_section(b"dated"))
    assert bus.counts_of_subscription(topic, "dated") == Counts(int(is_taken))


@covers("M9", "B1")
def test_get_returns_the_date_with_its_type_and_all_its_digits(bus: Bus, raw: RawAmqp) -> None:
    topic = dated_topic(bus, CORRELATION.format(WRITTEN))
    path = f"{topic}/Subscriptions/dated/Rules/dated?api-version=2021-05"
    answer = Http(bus.running, uses_tls=False).ask("GET", path)
    (value,) = re.findall(r"<Value.*?</Value>", answer.body.decode())
    assert value == f'<Value xmlns:d6p1="http://www.w3.org/2001/XMLSchema" i:type="d6p1:dateTime">{WRITTEN}</Value>'
    node = raw.attach_node(f"{topic}/Subscriptions/dated/$management")
    _, _, body = node.manage("com.microsoft:enumerate-rules", {"top": int_(10), "skip": int_(0)})
    assert isinstance(body, dict)
    (rule,) = [entry["rule-description"].value for entry in body["rules"]]
    assert rule[0].value[8] == {"at": Described(DATETIME_OFFSET, DATE_TICKS)}


@covers("M9", "B1")
@pytest.mark.parametrize("written", ["2030-01-31T12:00:00.12345678901Z", "2030-02-31T12:00:00Z", "tomorrow"])
def test_what_is_no_date_is_refused(bus: Bus, written: str) -> None:
    refused = put(bus, bus.make_topic("dated"), CORRELATION.format(written))
    assert (refused.status, b"is not a time such as" in refused.body) == (400, True)
