"""The SDK's messages on their way into the backlog and home: what is moved, what is kept, what is refused."""

from __future__ import annotations

import copy
import datetime
import decimal
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tandembus.amqp.encoding.sections import (
    MessageSections,
    data_section,
    decode_message,
    message_annotations_section,
    properties_section,
    section,
)
from tandembus.amqp.encoding.values import Typed, symbol, timestamp, uint
from tandembus.pairing import payloads
from tandembus.pairing.aliases import (
    ALIASES,
    MALFORMED_PATH,
    MALFORMED_PROPERTY,
    NO_PATH,
    PATH,
    RESERVED,
    SCHEDULED_ENQUEUE_TIME,
    SESSION_ID,
    TIME_TO_LIVE,
    backlog_path,
    read_aliases,
)
from tandembus.pairing.errors import ReservedPropertyName
from tandembus.pairing.transfer import MalformedBacklogMessage, encoded_size, to_backlog
from tests.covers import covers
from tests.unit.pairing.sdk_messages import AT, AT_MS, BODIES, annotated, full_message, wire

HOUR_MS = 3_600_000


def sections(message: ServiceBusMessage) -> MessageSections:
    return decode_message(wire(message), True)


@covers("N2")
def test_the_path_of_a_backlog_queue_names_the_primary_and_an_index() -> None:
    assert backlog_path("contoso", 0) == "contoso/x-servicebus-transfer/0"


@covers("N8")
def test_what_cannot_stay_in_the_backlog_becomes_typed_properties() -> None:
    found = sections(to_backlog(full_message(), "region/orders"))
    properties = found.application_properties or {}
    assert {name: properties[name] for name in ALIASES} == {
        PATH: "region/orders",
        SESSION_ID: "session-1",
        TIME_TO_LIVE: 3 * HOUR_MS,
        SCHEDULED_ENQUEUE_TIME: timestamp(AT_MS),
    }
    assert found.property_at(10) is None
    assert (found.header or [])[2] is None
    assert symbol("x-opt-scheduled-enqueue-time") not in (found.message_annotations or {})


@covers("N8")
def test_nothing_else_is_changed_on_the_way_into_the_backlog() -> None:
    before, after = sections(full_message()), sections(to_backlog(full_message(), "orders"))
    kept = {name: value for name, value in (after.application_properties or {}).items() if name not in ALIASES}
    assert kept == before.application_properties
    for index in (0, 1, 2, 3, 4, 5, 6, 7, 11, 12):
        assert after.property_at(index) == before.property_at(index)
    assert (before.header or [])[1] == (after.header or [])[1] == Typed(0x50, 7)
    assert after.message_annotations == {symbol("x-opt-partition-key"): "session-1", symbol("x-opt-mine"): "kept"}
    assert (after.bodies, after.footer) == (before.bodies, before.footer)


@covers("N8")
@pytest.mark.parametrize("kind", BODIES)
def test_every_kind_of_body_goes_along_byte_for_byte(kind: str) -> None:
    plain = wire(annotated(BODIES[kind]))
    assert wire(to_backlog(BODIES[kind], "orders")).endswith(plain)


@covers("N8")
def test_the_callers_message_is_not_changed() -> None:
    message = full_message()
    before = copy.deepcopy(message.raw_amqp_message.__dict__)
    wire(to_backlog(message, "orders"))
    assert message.raw_amqp_message.__dict__ == before


@covers("N8")
def test_a_message_without_anything_gets_only_its_path() -> None:
    found = sections(to_backlog(ServiceBusMessage("x"), "orders"))
    assert found.application_properties == {PATH: "orders"}


@covers("N8")
def test_a_mapping_is_taken_as_the_senders_of_the_sdk_take_it() -> None:
    found = sections(to_backlog({"body": "x", "session_id": "s"}, "orders"))
    assert found.application_properties == {PATH: "orders", SESSION_ID: "s"}


@covers("N8")
@pytest.mark.parametrize("name", [*sorted(RESERVED), PATH.encode()])
def test_a_property_of_the_callers_with_a_reserved_name_is_refused(name: str | bytes) -> None:
    with pytest.raises(ReservedPropertyName, match=r"x-(ms|tandembus)-"):
        to_backlog(ServiceBusMessage("x", application_properties={name: "mine"}), "orders")


@covers("N8")
def test_a_message_comes_home_with_what_it_had() -> None:
    home = payloads.from_backlog(wire(to_backlog(full_message(), "region/orders")))
    before, after = sections(full_message()), decode_message(home.payload, True)
    assert home.path == "region/orders"
    assert after.property_at(10) == "session-1"
    assert (after.header or [])[2] == uint(3 * HOUR_MS)
    assert after.message_annotations == {
        symbol("x-opt-partition-key"): "session-1",
        symbol("x-opt-mine"): "kept",
        symbol("x-opt-scheduled-enqueue-time"): timestamp(AT_MS),
    }
    assert after.application_properties == before.application_properties
    assert after.bodies == before.bodies


@covers("N8")
def test_times_are_taken_in_every_form_in_which_the_sdk_takes_them() -> None:
    for given in (AT, AT.replace(tzinfo=None), AT.astimezone(datetime.timezone(datetime.timedelta(hours=5)))):
        found = sections(to_backlog(ServiceBusMessage("x", scheduled_enqueue_time_utc=given), "orders"))
        assert (found.application_properties or {})[SCHEDULED_ENQUEUE_TIME] == timestamp(AT_MS)


@covers("N9")
def test_the_size_is_that_of_the_message_with_what_was_added_and_with_its_place_in_a_batch() -> None:
    message = to_backlog(ServiceBusMessage(b"x" * 1000), "orders")
    assert 1000 < len(wire(message)) < encoded_size(message) < 1100


@covers("N8")
@pytest.mark.parametrize("year", [1, 1960, 1969, 1970, 2001])
def test_a_schedule_that_is_over_comes_home_as_one_that_is_over_however_long_ago_it_was(year: int) -> None:
    at = datetime.datetime(year, 1, 2, tzinfo=datetime.UTC)
    message = ServiceBusMessage("x", scheduled_enqueue_time_utc=at)
    for stored in (wire(to_backlog(message, "orders")), payloads.to_backlog(wire(message), "orders")):
        home = decode_message(payloads.from_backlog(stored).payload, True)
        scheduled = (home.message_annotations or {})[symbol("x-opt-scheduled-enqueue-time")]
        assert scheduled == timestamp(max(int(at.timestamp() * 1000), 0))


@covers("N8")
def test_what_could_not_come_home_is_refused_on_the_way_into_the_backlog() -> None:
    late = ServiceBusMessage("x")
    late.raw_amqp_message.annotations = {b"x-opt-scheduled-enqueue-time": 253_402_300_800_000}
    endless = ServiceBusMessage("x", time_to_live=datetime.timedelta.max)
    before = ServiceBusMessage("x", time_to_live=datetime.timedelta(seconds=-1))
    crowded = ServiceBusMessage("x")
    assert crowded.raw_amqp_message.properties is not None
    crowded.raw_amqp_message.properties.group_id = "s" * 129
    for message in (late, endless, before, crowded):
        with pytest.raises(ValueError, match=r"time to live|scheduled|session id"):
            to_backlog(message, "orders")


@covers("N8")
def test_encoded_messages_that_could_not_come_home_are_refused_on_the_way_into_the_backlog() -> None:
    late = message_annotations_section({"x-opt-scheduled-enqueue-time": timestamp(253_402_300_800_000)})
    long = section(0x70, [True, None, uint(0xFFFFFFFF)]) + properties_section(
        creation_time=0, absolute_expiry_time=922_337_203_685_478
    )
    crowded = properties_section(group_id="s" * 129)
    for sections_before in (late, long, crowded):
        with pytest.raises(ValueError, match=r"time to live|scheduled|session id"):
            payloads.to_backlog(sections_before + data_section(b"x"), "orders")


@covers("N12")
@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/orders",
        "orders/",
        "a//b",
        "..",
        "../orders",
        "a/../b",
        "a/./b",
        "sb://evil.example/orders",
        "//evil.example/orders",
        "evil.example:5671/orders",
        "user@evil.example",
        "orders?timeout=1",
        "orders#x",
        "orders\\x",
        "orders/$management",
        "orders/$deadletterqueue",
        "$cbs",
        "topic/subscriptions/s",
        "topic/Subscriptions/s",
        "orders\x00",
        "orders\n",
        "grüße",
        " orders",
        "%2e%2e/orders",
        "x" * 261,
    ],
)
def test_a_path_that_names_no_queue_or_topic_of_the_primary_is_malformed(path: str) -> None:
    with pytest.raises(MalformedBacklogMessage) as caught:
        read_aliases({PATH: path})
    assert caught.value.reason == MALFORMED_PATH
    assert len(caught.value.description) < 500
    assert caught.value.description.isascii()
    with pytest.raises(ValueError, match="cannot be sent to"):
        to_backlog(ServiceBusMessage("x"), path)


@covers("N12")
def test_a_message_without_a_path_is_malformed() -> None:
    with pytest.raises(MalformedBacklogMessage) as caught:
        read_aliases({SESSION_ID: "s"})
    assert caught.value.reason == NO_PATH


@covers("N12")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        (PATH, b"orders"),
        (PATH, None),
        (PATH, symbol("orders")),
        (SESSION_ID, 5),
        (SESSION_ID, None),
        (SESSION_ID, b"s"),
        (SESSION_ID, "s" * 129),
        (TIME_TO_LIVE, "5"),
        (TIME_TO_LIVE, uint(5)),
        (TIME_TO_LIVE, True),
        (TIME_TO_LIVE, -1),
        (TIME_TO_LIVE, 1 << 62),
        (TIME_TO_LIVE, None),
        (SCHEDULED_ENQUEUE_TIME, AT_MS),
        (SCHEDULED_ENQUEUE_TIME, "2031-05-17"),
        (SCHEDULED_ENQUEUE_TIME, timestamp(-1)),
        (SCHEDULED_ENQUEUE_TIME, timestamp(1 << 62)),
    ],
)
def test_a_wrongly_typed_alias_is_malformed(name: str, value: Any) -> None:
    with pytest.raises(MalformedBacklogMessage) as caught:
        read_aliases({PATH: "orders", name: value})
    assert caught.value.reason == (MALFORMED_PATH if name == PATH else MALFORMED_PROPERTY)
    assert name in caught.value.description


@covers("N8")
def test_a_decimal_goes_along_although_the_sdk_could_not_read_it_back() -> None:
    message = ServiceBusMessage("x")
    message.application_properties = {"price": decimal.Decimal("12.5")}
    found = sections(to_backlog(message, "orders")).application_properties or {}
    assert found["price"] == (sections(message).application_properties or {})["price"]
