"""Transactions on partitioned entities, as they stand on the wire: one key, one fragment, or refused."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import message_annotations_section, properties_section
from tandembus.amqp.encoding.values import Described, symbol
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.raw_amqp import (
    MESSAGE,
    RECEIVER,
    SENDER,
    Frame,
    RawAmqp,
    assert_has_three_fields,
    rejection,
    source_of,
    state_of,
    target_of,
)
from tests.integration.raw_transactions import Transacting
from tests.integration.shapes import PARTITIONED, PARTITIONED_ON_BROKERS, on_shapes

pytestmark = on_shapes(PARTITIONED, PARTITIONED_ON_BROKERS)

NOT_ALLOWED = "amqp:not-allowed"
ROLLBACK = "amqp:transaction:rollback"
SESSION_FILTER = "com.microsoft:session-filter"
SAME_FRAGMENT = ("key-1", "key-5")
"""Two keys of one fragment: that they meet is chance, so they are two keys all the same."""


def keyed(
    key: str | None = None, session_id: str | None = None, message_id: str | None = None, via_key: str | None = None
) -> bytes:
    annotations: dict[str, object] = {} if key is None else {"x-opt-partition-key": key}
    if via_key is not None:
        annotations["x-opt-via-partition-key"] = via_key
    return message_annotations_section(annotations) + properties_section(message_id, group_id=session_id) + MESSAGE


def is_accepted(answer: Frame) -> bool:
    state = answer[4]
    assert isinstance(state, Described)
    return answer.described(4)[0] in (codes.ACCEPTED, codes.TRANSACTIONAL_STATE)


@pytest.fixture
def queue(bus: Bus) -> str:
    return bus.make_queue()


@pytest.fixture
def transacting(raw: RawAmqp) -> Transacting:
    return Transacting(raw)


def refused(transacting: Transacting, payloads: list[bytes], reason: str = "", handle: int = SENDER) -> None:
    """The last of these sends cannot be part of the transaction, which is then rolled back as a whole. Both say why."""
    txn_id = transacting.declare()
    for payload in payloads[:-1]:
        assert is_accepted(transacting.transfer(handle, payload, txn_id))
    send = rejection(transacting.transfer(handle, payloads[-1], txn_id))
    discharge = rejection(transacting.discharge(txn_id))
    assert_has_three_fields(send, NOT_ALLOWED)
    assert_has_three_fields(discharge, ROLLBACK)
    assert reason in str(send[1])
    assert reason in str(discharge[1])


@covers("P16")
def test_messages_with_one_key_are_one_transaction(transacting: Transacting, bus: Bus, queue: str) -> None:
    transacting.raw.attach_sender(SENDER, queue)
    txn_id = transacting.declare()
    for key in ("Straße", "STRASSE", "strasse"):
        assert is_accepted(transacting.transfer(SENDER, keyed(key), txn_id))
    assert bus.counts(queue) == Counts(0)
    transacting.commit(txn_id)
    assert bus.counts(queue) == Counts(3)


@covers("P16")
@pytest.mark.parametrize(
    "payloads",
    [[keyed()], [keyed("a"), keyed()], [keyed("a"), keyed("b")], [keyed(message_id="m")]],
    ids=["no key", "a key and none", "two keys", "an id is no key"],
)
def test_no_key_or_different_keys_are_refused(
    transacting: Transacting, bus: Bus, queue: str, payloads: list[bytes]
) -> None:
    transacting.raw.attach_sender(SENDER, queue)
    refused(transacting, payloads)
    assert bus.counts(queue) == Counts(0)


@covers("P16")
def test_two_keys_are_two_even_where_one_fragment_has_both(transacting: Transacting, bus: Bus, queue: str) -> None:
    transacting.raw.attach_sender(SENDER, queue)
    refused(transacting, [keyed(SAME_FRAGMENT[0]), keyed(SAME_FRAGMENT[1])])
    assert bus.counts(queue) == Counts(0)


@covers("P16", "P10")
def test_a_message_id_is_a_key_where_duplicates_are_looked_for(transacting: Transacting, bus: Bus) -> None:
    queue = bus.make_queue(requires_duplicate_detection=True)
    transacting.raw.attach_sender(SENDER, queue)
    txn_id = transacting.declare()
    assert is_accepted(transacting.transfer(SENDER, keyed(message_id="m"), txn_id))
    transacting.commit(txn_id)
    assert bus.counts(queue) == Counts(1)
    refused(transacting, [keyed(message_id="m1"), keyed(message_id="m2")])
    assert bus.counts(queue) == Counts(1)


@covers("P16")
def test_two_sessions_are_refused_on_a_partitioned_entity_and_fine_on_a_plain_one(
    transacting: Transacting, bus: Bus
) -> None:
    payloads = [keyed(session_id="a"), keyed(session_id="b")]
    partitioned = bus.make_queue(requires_session=True)
    transacting.raw.attach_sender(SENDER, partitioned)
    refused(transacting, payloads)
    assert bus.counts(partitioned) == Counts(0)
    plain = bus.make_queue(enable_partitioning=False, requires_session=True)
    with RawAmqp(bus.running.port) as raw:
        raw.log_in()
        other = Transacting(raw)
        raw.attach_sender(SENDER, plain)
        txn_id = other.declare()
        for payload in payloads:
            assert is_accepted(other.transfer(SENDER, payload, txn_id))
        other.commit(txn_id)
    assert bus.counts(plain) == Counts(2)


@covers("P16")
def test_with_sessions_a_missing_session_id_is_named_whatever_other_key_there_is(
    transacting: Transacting, bus: Bus
) -> None:
    queue = bus.make_queue(requires_session=True)
    transacting.raw.attach_sender(SENDER, queue)
    for last in (keyed("a"), keyed(), keyed(message_id="m")):
        refused(transacting, [keyed(session_id="a"), last], "every message sent to it needs a SessionId")
        refused(transacting, [last], "every message sent to it needs a SessionId")
    assert bus.counts(queue) == Counts(0)


def received(raw: RawAmqp, queue: str, count: int) -> dict[str, int]:
    """Delivery ids by the key of the message."""
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, count)
    found: dict[str, int] = {}
    for _ in range(count):
        frame, sections = raw.receive_message()
        annotations = sections.message_annotations or {}
        found[str(annotations[symbol("x-opt-partition-key")])] = frame.number(1)
    return found


def settle_in(transacting: Transacting, txn_id: bytes, delivery_id: int) -> Frame:
    """Complete a delivery in the transaction; returns the answer."""
    accepted = state_of(codes.ACCEPTED)
    transacting.raw.dispose(delivery_id, state_of(codes.TRANSACTIONAL_STATE, txn_id, accepted))
    return transacting.raw.expect(codes.DISPOSITION)


@covers("P16")
def test_a_settlement_and_a_send_in_one_fragment_are_one_commit(transacting: Transacting, bus: Bus, queue: str) -> None:
    raw = transacting.raw
    raw.attach_sender(SENDER, queue)
    transacting.transfer(SENDER, keyed("a"))
    deliveries = received(raw, queue, 1)
    txn_id = transacting.declare()
    assert settle_in(transacting, txn_id, deliveries["a"]).described(4)[0] == codes.TRANSACTIONAL_STATE
    assert is_accepted(transacting.transfer(SENDER, keyed("a"), txn_id))
    assert bus.counts(queue) == Counts(1)
    assert transacting.discharge(txn_id)
    assert bus.comes_to(queue, Counts(1))


@covers("P16")
def test_a_settlement_in_another_fragment_is_refused(transacting: Transacting, bus: Bus, queue: str) -> None:
    raw = transacting.raw
    raw.attach_sender(SENDER, queue)
    transacting.transfer(SENDER, keyed("a"))
    transacting.transfer(SENDER, keyed("b"))
    deliveries = received(raw, queue, 2)
    txn_id = transacting.declare()
    assert settle_in(transacting, txn_id, deliveries["a"]).described(4)[0] == codes.TRANSACTIONAL_STATE
    assert_has_three_fields(rejection(settle_in(transacting, txn_id, deliveries["b"])), NOT_ALLOWED)
    assert_has_three_fields(rejection(transacting.discharge(txn_id)), ROLLBACK)
    txn_id = transacting.declare()
    assert is_accepted(transacting.transfer(SENDER, keyed("b"), txn_id))
    assert_has_three_fields(rejection(settle_in(transacting, txn_id, deliveries["a"])), NOT_ALLOWED)
    assert_has_three_fields(rejection(transacting.discharge(txn_id)), ROLLBACK)
    assert bus.counts(queue) == Counts(2)


@covers("P16", "P17")
def test_what_only_passes_through_needs_a_key_for_its_way(transacting: Transacting, bus: Bus, queue: str) -> None:
    destination = bus.make_queue()
    raw = transacting.raw
    properties: dict[str, object] = {"com.microsoft:transfer-destination-address": destination}
    raw.attach(SENDER, False, source_of("client"), target_of(queue), properties=properties)
    raw.expect(codes.ATTACH)
    refused = transacting.declare()
    assert is_accepted(transacting.transfer(SENDER, keyed("b"), refused))
    assert_has_three_fields(rejection(transacting.discharge(refused)), NOT_ALLOWED)
    txn_id = transacting.declare()
    for key, via_key in (("a", "way"), ("b", "WAY")):
        assert is_accepted(transacting.transfer(SENDER, keyed(key, via_key=via_key), txn_id))
    transacting.commit(txn_id)
    assert bus.comes_to(destination, Counts(2))
    assert bus.counts(queue) == Counts(0)
