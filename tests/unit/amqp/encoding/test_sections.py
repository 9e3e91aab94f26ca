"""Whole messages, as management and token nodes read and write them."""

from __future__ import annotations

import uuid

import pytest

from tandembus.amqp.encoding import Described, Typed, decode, encode, int_, symbol
from tandembus.amqp.encoding.descriptors import APPLICATION_PROPERTIES, DATA, MESSAGE_ANNOTATIONS
from tandembus.amqp.encoding.sections import (
    MessageSections,
    amqp_value_section,
    amqp_value_with_block,
    application_properties_section,
    data_section,
    decode_message,
    encode_message,
    header_section,
    map_section,
    message_annotations_section,
    properties_section,
)
from tandembus.errors import MalformedData

REQUEST_ID = uuid.UUID(int=7)


def test_a_message_is_read_section_by_section() -> None:
    payload = (
        header_section(durable=True, ttl_ms=2**32 - 1)
        + message_annotations_section({"x-opt-partition-key": "k"})
        + properties_section(message_id=REQUEST_ID, reply_to="here", creation_time=5, group_sequence=6)
        + application_properties_section({"operation": "put-token"})
        + amqp_value_section("token")
    )
    message = decode_message(payload)
    assert message.header == [True, None, 2**32 - 1, None, 0]
    assert message.message_annotations == {"x-opt-partition-key": "k"}
    assert message.property_at(0) == REQUEST_ID
    assert message.property_at(4) == "here"
    assert message.property_at(11) == 6
    assert message.property_at(12) is None
    assert message.application_properties == {"operation": "put-token"}
    assert message.body == "token"


def test_a_typed_message_is_written_as_it_was_read() -> None:
    payload = (
        header_section(priority=4)
        + map_section(MESSAGE_ANNOTATIONS, {"n": int_(5)})
        + properties_section(message_id="m", content_type="text/plain", absolute_expiry_time=9)
        + map_section(APPLICATION_PROPERTIES, {"when": Typed(0x83, 1), "uri": Described("com.microsoft:uri", "x")})
        + data_section(b"one")
        + data_section(b"two")
    )
    message = decode_message(payload, typed=True)
    assert message.body_kind == DATA
    assert message.bodies == [b"one", b"two"]
    assert encode_message(message) == payload


def test_plain_values_get_the_types_of_their_fields() -> None:
    message = MessageSections()
    message.header = [True, 4, 1000, None, 2]
    message.properties = ["id", None, None, None, None, 17, "text/plain", None, 1, 2, "g", 3]
    message.message_annotations = {"x": 1}
    payload = encode_message(message)
    typed = decode_message(payload, typed=True)
    assert typed.header == [True, Typed(0x50, 4), Typed(0x70, 1000), None, Typed(0x70, 2)]
    assert typed.properties is not None
    assert typed.properties[5:9] == [Typed(0x80, 17), symbol("text/plain"), None, Typed(0x83, 1)]
    assert typed.properties[11] == Typed(0x70, 3)
    assert typed.message_annotations == {symbol("x"): 1}


def test_sections_may_come_in_any_order_and_without_a_body() -> None:
    payload = data_section(b"x") + map_section(0x71, {"late": True}) + properties_section(to="q")
    message = decode_message(payload)
    assert message.delivery_annotations == {"late": True}
    assert message.property_at(2) == "q"
    assert decode_message(b"").body is None


def test_symbolic_section_names_are_understood() -> None:
    payload = b"\x00" + encode(symbol("amqp:data:binary")) + encode(b"x")
    assert decode_message(payload).body == b"x"


def test_message_sections_have_short_descriptors_as_rule_5_wants() -> None:
    payload = properties_section(message_id="m") + amqp_value_section({"a": 1})
    assert payload[:3] == b"\x00\x53\x73"
    _, end = decode(payload)
    assert payload[end : end + 3] == b"\x00\x53\x77"


@pytest.mark.parametrize("block", [b"", b"x", bytes(70_000)], ids=len)
def test_a_value_with_a_block_reads_as_a_map(block: bytes) -> None:
    parts = amqp_value_with_block({"next": 7, "name": None}, "messages", block)
    assert decode_message(b"".join(parts)).body == {"next": 7, "name": None, "messages": block}
    assert parts[-1] is block


@pytest.mark.parametrize(
    "payload",
    [
        b"\x40",
        b"\x00\x53\x70\xa1\x00",
        b"\x00\x53\x74\x45",
        b"\x00\x53\x99\x45",
        data_section(b"x") + amqp_value_section("y"),
    ],
    ids=bytes.hex,
)
def test_what_is_no_message_is_refused(payload: bytes) -> None:
    with pytest.raises(MalformedData):
        decode_message(payload)
