"""What holds for every message that a client may send."""

from __future__ import annotations

import random
import uuid

from hypothesis import given, settings
from hypothesis import strategies as st

from tandembus.amqp.encoding import symbol
from tandembus.amqp.encoding.sections import MessageSections, decode_message, encode_message
from tandembus.errors import BusError
from tandembus.message import Message, delivery_annotations_at, parse_message
from tandembus.message_encoding import (
    application_properties_with,
    encode_changes,
    encode_delivery,
    with_application_properties,
)
from tests.covers import covers
from tests.unit.amqp.mutation import MESSAGE, Mutator
from tests.unit.any_message import messages, sections_apart


@given(messages())
@settings(max_examples=100)
def test_it_parses_and_keeps_all_but_the_header(sent: MessageSections) -> None:
    found = decode_message(parse_message(encode_message(sent)).sections, typed=True)
    assert (found.header, found.delivery_annotations) == (None, sent.delivery_annotations)
    assert found.message_annotations == sent.message_annotations
    assert found.application_properties == sent.application_properties
    assert (found.bodies, found.footer) == (sent.bodies, sent.footer)
    if sent.property_at(0) is not None:
        assert found.properties == sent.properties


@given(messages(), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_the_order_of_its_sections_does_not_matter(sent: MessageSections, order: random.Random) -> None:
    sent.properties = ["id"]
    parts = sections_apart(sent)
    order.shuffle(parts)
    assert parse_message(b"".join(parts)).sections == parse_message(encode_message(sent)).sections


@covers("M1")
@given(messages())
@settings(max_examples=100)
def test_a_delivery_has_its_properties_and_body_byte_for_byte(sent: MessageSections) -> None:
    message = parse_message(encode_message(sent))
    delivery = encode_delivery(message, 7, 0, 0)
    assert delivery.endswith(message.sections[message.annotations_end : delivery_annotations_at(message)])


@covers("M1")
@given(messages())
@settings(max_examples=100)
def test_a_delivery_has_its_delivery_annotations_and_with_a_lock_the_token(sent: MessageSections) -> None:
    message, token = parse_message(encode_message(sent)), uuid.uuid4()
    found = decode_message(encode_delivery(message, 7, 0, 0), typed=True)
    assert found.delivery_annotations == sent.delivery_annotations
    found = decode_message(encode_delivery(message, 7, 9, 0, token.bytes_le), typed=True)
    own = sent.delivery_annotations or {}
    assert found.delivery_annotations == {**own, symbol("x-opt-lock-token"): token}


@given(messages())
@settings(max_examples=100)
def test_a_delivery_has_its_annotations_with_their_types(sent: MessageSections) -> None:
    delivery = encode_delivery(parse_message(encode_message(sent)), 7, 0, 0)
    found = decode_message(delivery, typed=True).message_annotations or {}
    for name, value in (sent.message_annotations or {}).items():
        assert found[name] == value


@given(messages())
@settings(max_examples=100)
def test_a_delivery_can_be_sent_again_as_it_is(sent: MessageSections) -> None:
    message = parse_message(encode_message(sent))
    again = parse_message(encode_delivery(message, 7, 9, 0))
    rest, rest_again = message.sections[message.annotations_end :], again.sections[again.annotations_end :]
    assert rest_again == rest
    found = decode_message(again.sections, typed=True).message_annotations
    assert (found or {}) == (sent.message_annotations or {})


@covers("M1", "M3", "M6")
def test_whatever_parses_can_be_delivered_changed_and_dead_lettered() -> None:
    mutator = Mutator(20_240_702, [MESSAGE])
    taken = 0
    for _ in range(10_000):
        try:
            message = parse_message(mutator.next())
        except BusError:
            continue
        taken += 1
        deliver_in_every_way(message)
    assert taken > 1_000


def deliver_in_every_way(message: Message) -> None:
    changed = application_properties_with(message, encode_changes({"DeadLetterReason": "because"}))
    dead = with_application_properties(message, changed)
    assert dead.sections[dead.application_end :] == message.sections[message.application_end :]
    body = message.sections[message.application_end :]
    for expires_at in (0, 5_000):
        message.expires_at = dead.expires_at = expires_at
        message.application_properties = b""
        assert encode_delivery(message, 7, 9, 1).endswith(body)
        message.application_properties = changed
        assert encode_delivery(message, 7, 9, 1).endswith(changed + body)
        assert encode_delivery(dead, 7, 9, 1).endswith(changed + body)
