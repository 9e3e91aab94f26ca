"""Encoded messages on their way into the backlog and home: byte for byte what they were."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tandembus.amqp.encoding.codec import skip
from tandembus.amqp.encoding.sections import (
    application_properties_section,
    data_section,
    decode_message,
    encode_message,
    header_section,
    map_section,
    message_annotations_section,
    properties_section,
    section,
)
from tandembus.amqp.encoding.values import Described, int_, symbol, timestamp, ubyte, uint
from tandembus.client.messages import OutgoingMessage, ReceivedMessage
from tandembus.errors import MalformedData
from tandembus.pairing.aliases import (
    IS_HOME,
    MALFORMED_MESSAGE,
    NO_PATH,
    PATH,
    RESERVED,
    TIME_TO_LIVE,
    MalformedBacklogMessage,
    why_not_a_path,
)
from tandembus.pairing.errors import ReservedPropertyName
from tandembus.pairing.payloads import SCHEDULED, from_backlog, to_backlog
from tests.covers import covers
from tests.unit.any_message import messages
from tests.unit.pairing.sdk_messages import AT_MS, BODIES, PROPERTIES, annotated, full_message, wire

FULL = (
    section(0x70, [True, ubyte(7), uint(60_000)])
    + map_section(0x71, {"x-hop": "first"})
    + message_annotations_section({"x-opt-partition-key": "s", "x-opt-scheduled-enqueue-time": timestamp(AT_MS)})
    + properties_section(message_id="m", group_id="s", creation_time=AT_MS, absolute_expiry_time=AT_MS + 60_000)
    + application_properties_section({"mine": uint(7)})
    + data_section(b"hello")
)
WRITTEN_BY_THE_SECONDARY = {
    "x-opt-sequence-number": 5,
    "x-opt-enqueued-time": timestamp(1),
    "x-opt-locked-until": timestamp(2),
    "x-opt-enqueue-sequence-number": 0,
}


def delivered(payload: bytes, ttl_ms: int | None = None) -> bytes:
    """A stored message as the secondary hands it out: its own header and annotations around the rest."""
    parts = decode_message(payload, True)
    annotations: dict[object, object] = {
        **(parts.message_annotations or {}),
        **{symbol(k): v for k, v in WRITTEN_BY_THE_SECONDARY.items()},
    }
    at = 0
    for code in (0x70, 0x71, 0x72):
        if payload[at : at + 3] == bytes((0, 0x53, code)):
            at = skip(payload, at + 3, len(payload))
    header = section(0x70, [True, None if parts.header is None else (parts.header + [None] * 2)[1], *_ttl(ttl_ms)])
    token: dict[object, object] = {symbol("x-opt-lock-token"): UUID(int=7)}
    delivery = section(0x71, {**(parts.delivery_annotations or {}), **token})
    return header + delivery + section(0x72, annotations) + payload[at:]


def _ttl(ttl_ms: int | None) -> list[object]:
    return [None if ttl_ms is None else uint(ttl_ms), None, uint(3)]


@covers("N8")
def test_a_message_comes_home_as_it_was_sent() -> None:
    home = from_backlog(delivered(to_backlog(FULL, "region/orders")))
    assert home.path == "region/orders"
    assert home.payload == FULL
    assert (home.sequence_number, home.delivery_count) == (5, 3)


@covers("N8")
@pytest.mark.parametrize("kind", BODIES)
def test_every_body_of_the_sdk_comes_home_byte_for_byte(kind: str) -> None:
    sent = wire(annotated(BODIES[kind]))
    payload = from_backlog(delivered(to_backlog(sent, "orders"))).payload
    assert payload.removeprefix(b"\x00\x53\x70\xc0\x02\x01\x41") == sent


@covers("N8")
@pytest.mark.parametrize("name", PROPERTIES)
def test_every_type_of_property_comes_home_byte_for_byte(name: str) -> None:
    message = full_message()
    message.application_properties = {name: PROPERTIES[name]}
    sent = wire(message)
    home = decode_message(from_backlog(delivered(to_backlog(sent, "orders")))[1], True)
    before = decode_message(sent, True)
    assert home.application_properties == before.application_properties
    assert home.properties == before.properties
    assert home.footer == before.footer


@covers("N8")
@settings(max_examples=150, deadline=None)
@given(messages().map(encode_message), st.sampled_from(["orders", "region/orders"]))
def test_any_message_comes_home_with_its_sections_as_they_were(payload: bytes, path: str) -> None:
    assume(not any(name.encode() in payload for name in (*RESERVED, SCHEDULED)))
    before = decode_message(payload, True)
    home = decode_message(from_backlog(delivered(to_backlog(payload, path)))[1], True)
    assert home.bodies == before.bodies
    assert home.body_kind == before.body_kind
    assert home.footer == before.footer
    assert (home.application_properties or {}) == (before.application_properties or {})
    assert (home.delivery_annotations or {}) == (before.delivery_annotations or {})


@covers("N8")
def test_the_default_time_to_live_of_a_backlog_queue_does_not_come_home() -> None:
    sent = properties_section(message_id="m") + data_section(b"x")
    stored = to_backlog(sent, "orders")
    home = from_backlog(delivered(stored, ttl_ms=5_000))
    assert ReceivedMessage(home.payload).time_to_live_s is None
    home = from_backlog(delivered(to_backlog(FULL, "orders"), ttl_ms=5_000))
    assert ReceivedMessage(home.payload).time_to_live_s == 60.0


@covers("N8")
def test_a_time_to_live_beyond_49_days_keeps_its_length() -> None:
    days_100_ms = 100 * 24 * 3_600_000
    sent = (
        header_section(ttl_ms=0xFFFFFFFF)
        + properties_section(message_id="m", creation_time=AT_MS, absolute_expiry_time=AT_MS + days_100_ms)
        + data_section(b"x")
    )
    stored = to_backlog(sent, "orders")
    assert ReceivedMessage(stored).properties["x-ms-timetolive"] == days_100_ms
    home = ReceivedMessage(from_backlog(delivered(stored))[1])
    assert home.time_to_live_s == days_100_ms / 1000
    assert home.sections.property_at(8) == AT_MS + days_100_ms


@covers("N8")
def test_a_message_without_properties_gets_its_session_back() -> None:
    stored = application_properties_section({PATH: "orders", "x-ms-sessionid": "s"}) + data_section(b"x")
    assert ReceivedMessage(from_backlog(stored)[1]).session_id == "s"


@covers("N8")
def test_a_reserved_name_is_refused() -> None:
    with pytest.raises(ReservedPropertyName):
        to_backlog(OutgoingMessage(properties={PATH: "x"}).encode(), "orders")
    with pytest.raises(ReservedPropertyName):
        to_backlog(OutgoingMessage(properties={IS_HOME: True}).encode(), "orders")
    with pytest.raises(ValueError, match="cannot be sent to"):
        to_backlog(OutgoingMessage().encode(), "../orders")


@covers("N8")
def test_sections_under_long_descriptors_are_understood() -> None:
    long = b"\x00\x80" + (0x74).to_bytes(8, "big") + application_properties_section({PATH: "orders"})[3:]
    assert from_backlog(long + data_section(b"x"))[:2] == ("orders", data_section(b"x"))


@covers("N12")
def test_a_message_without_aliases_has_no_path() -> None:
    with pytest.raises(MalformedBacklogMessage) as caught:
        from_backlog(OutgoingMessage("x").encode())
    assert caught.value.reason == NO_PATH


@covers("N12")
@pytest.mark.parametrize(
    "payload",
    [
        b"\x00",
        b"\x01\x02\x03",
        b"\x00\x53\x74",
        b"\x00\x53\x74\xc1\x05\x03\xa1\x01a",
        b"\x00\x53\x74\x45",
        b"\x00\x53\x99\x45",
        b"\x00\x53\x74\xd1\x00\x00\x00\x04\xff\xff\xff\xff",
        b"\x00\x53\x72\xc1\x01\x01" + application_properties_section({PATH: "orders"}),
        section(0x74, Described(1, {PATH: "orders"})),
    ],
)
def test_bytes_that_are_no_message_are_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedBacklogMessage) as caught:
        from_backlog(payload)
    assert caught.value.reason == MALFORMED_MESSAGE


@covers("N12")
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_bytes_break_the_translation(data: st.DataObject) -> None:
    payload = bytearray(to_backlog(FULL, "orders"))
    for at in data.draw(st.lists(st.integers(0, len(payload) - 1), max_size=4)):
        payload[at] = data.draw(st.integers(0, 255))
    try:
        home = from_backlog(bytes(payload))
    except MalformedBacklogMessage:
        return
    assert why_not_a_path(home.path) is None


def test_malformed_messages_are_not_made_worse_on_the_way_in() -> None:
    with pytest.raises(MalformedData):
        to_backlog(b"\x00\x53\x73\xc0\x02\x02\x40", "orders")


@covers("N8", "N12")
def test_a_message_created_at_the_end_of_time_comes_home_all_the_same() -> None:
    late = properties_section(creation_time=(1 << 63) - 1, absolute_expiry_time=5)
    stored = late + application_properties_section({PATH: "orders", TIME_TO_LIVE: 60_000}) + data_section(b"x")
    assert decode_message(from_backlog(stored).payload, True).header == [None, None, uint(60_000)]


@covers("N12")
def test_a_path_of_the_wrong_type_is_told_by_the_name_of_that_type() -> None:
    with pytest.raises(MalformedBacklogMessage) as caught:
        from_backlog(application_properties_section({PATH: int_(5)}) + data_section(b"hello"))
    assert caught.value.description == "x-ms-path must be a string, and is the int 5."


@covers("N12")
def test_a_note_that_a_message_is_home_is_read_and_does_not_go_along() -> None:
    noted = OutgoingMessage("x", message_id="1", properties={PATH: "orders", IS_HOME: True}).encode()
    plain = to_backlog(OutgoingMessage("x", message_id="1").encode(), "orders")
    assert from_backlog(noted).is_home
    assert not from_backlog(plain).is_home
    assert from_backlog(noted).payload == from_backlog(plain).payload
    with pytest.raises(MalformedBacklogMessage, match="must be a boolean, and is the long 1"):
        from_backlog(OutgoingMessage(properties={PATH: "orders", IS_HOME: 1}).encode())
