"""Values in rules keep their types: created over HTTP and listed over AMQP, created over AMQP and listed over HTTP."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from tandembus.amqp.encoding.values import DECIMAL128, Described, Typed, float_, int_, short, timestamp
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.raw_amqp import Node, RawAmqp
from tests.integration.serving import RunningNamespace, serving
from tests.integration.shapes import on_every_shape
from tests.integration.test_http_messages import Http

pytestmark = on_every_shape

OFFSET, SPAN = "com.microsoft:datetime-offset", "com.microsoft:timespan"
SECOND_TICKS = 621_355_968_000_000_000 + 1_896_091_200 * 10_000_000
"""2030-01-31T12:00:00Z in .NET's ticks."""
FLOAT = struct.unpack(">f", struct.pack(">f", 1.1))[0]
VALUES: list[tuple[str, str, object]] = [
    ("string", "text", "text"),
    ("boolean", "true", True),
    ("short", "3", short(3)),
    ("int", "3", int_(3)),
    ("long", "3", 3),
    ("float", "1.1", float_(FLOAT)),
    ("double", "1.1", 1.1),
    ("decimal", "1.5", Typed(DECIMAL128, bytes.fromhex("303e000000000000000000000000000f"))),
    ("dateTime", "2030-01-31T12:00:00.123Z", timestamp(1_896_091_200_123)),
    ("dateTime", "2030-01-31T12:00:00.1234567Z", Described(OFFSET, SECOND_TICKS + 1_234_567)),
    ("duration", "PT1M0.0000001S", Described(SPAN, 600_000_001)),
    ("base64Binary", "AP8=", b"\x00\xff"),
]
"""The name and text in XML, and the value in AMQP."""
AMQP_VALUES = {f"v{place}": value for place, (_, _, value) in enumerate(VALUES)}
XML_VALUES = [(kind, text) for kind, text, _ in VALUES]


def described_in_xml(*values: tuple[str, str]) -> bytes:
    pairs = "".join(
        f'<KeyValueOfstringanyType><Key>v{place}</Key><Value xmlns:s="http://www.w3.org/2001/XMLSchema" '
        f'i:type="s:{kind}">{text}</Value></KeyValueOfstringanyType>'
        for place, (kind, text) in enumerate(values)
    )
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><RuleDescription '
        'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
        'xmlns:i="http://www.w3.org/2001/XMLSchema-instance">'
        f'<Filter i:type="CorrelationFilter"><Properties>{pairs}</Properties></Filter>'
        "</RuleDescription></content></entry>"
    ).encode()


def values_over_http(running: RunningNamespace, topic: str) -> list[tuple[str, str]]:
    answer = Http(running, uses_tls=False).ask("GET", f"{topic}/Subscriptions/sub/Rules/typed")
    assert answer.status == 200
    return re.findall(r'<Value xmlns:d6p1="[^"]*" i:type="d6p1:(\w+)">([^<]*)</Value>', answer.body.decode())


def values_over_amqp(node: Node) -> dict[object, object]:
    _, _, body = node.manage("com.microsoft:enumerate-rules", {"top": int_(10), "skip": int_(0)})
    assert isinstance(body, dict)
    (found,) = [rule for one in body["rules"] if (rule := one["rule-description"].value)[2] == "typed"]
    properties = found[0].value[8]
    assert isinstance(properties, dict)
    return properties


def add_over_amqp(node: Node, values: dict[str, object]) -> None:
    rule = {"rule-name": "typed", "rule-description": {"correlation-filter": {"properties": values}}}
    assert node.manage("com.microsoft:add-rule", rule)[0] == 200


@covers("M9", "B1")
def test_values_created_over_http_have_their_types_over_amqp_and_http(bus: Bus, raw: RawAmqp) -> None:
    topic = bus.make_topic("sub")
    http = Http(bus.running, uses_tls=False)
    path = f"{topic}/Subscriptions/sub/Rules/typed"
    body = described_in_xml(
        *XML_VALUES, ("dateTime", "2030-01-31T12:00:00"), ("dateTime", "2030-01-31T12:00:00.0000001")
    )
    assert http.ask("PUT", path, body, Content_Type="application/xml").status == 201
    zoneless = [("dateTime", "2030-01-31T12:00:00"), ("dateTime", "2030-01-31T12:00:00.0000001")]
    assert values_over_http(bus.running, topic) == [*XML_VALUES, *zoneless]
    assert values_over_amqp(raw.attach_node(f"{topic}/Subscriptions/sub/$management")) == {
        **AMQP_VALUES,
        "v12": timestamp(1_896_091_200_000),
        "v13": Described(OFFSET, SECOND_TICKS + 1),
    }


@covers("M9", "B1")
def test_values_created_over_amqp_have_their_types_over_http_and_amqp(bus: Bus, raw: RawAmqp) -> None:
    topic = bus.make_topic("sub")
    node = raw.attach_node(f"{topic}/Subscriptions/sub/$management")
    add_over_amqp(node, AMQP_VALUES)
    assert values_over_amqp(node) == AMQP_VALUES
    assert values_over_http(bus.running, topic) == XML_VALUES


@covers("M9", "M4")
def test_values_have_their_types_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        bus = Bus(running)
        topic = bus.make_topic("sub")
        with RawAmqp(running.port) as raw:
            raw.log_in()
            add_over_amqp(raw.attach_node(f"{topic}/Subscriptions/sub/$management"), AMQP_VALUES)
        bus.close()
    with serving(tmp_path) as running:
        assert values_over_http(running, topic) == XML_VALUES
        with RawAmqp(running.port) as raw:
            raw.log_in()
            assert values_over_amqp(raw.attach_node(f"{topic}/Subscriptions/sub/$management")) == AMQP_VALUES
