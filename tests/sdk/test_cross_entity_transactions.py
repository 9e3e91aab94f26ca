"""Cross-entity transactions frame by frame, as the .NET SDK makes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.values import uint
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import LISTENS_KEY, SENDS_KEY
from tests.integration.raw_amqp import Frame, RawAmqp, assert_has_three_fields, state_of
from tests.integration.raw_transactions import CONTROL
from tests.integration.shapes import on_every_shape
from tests.integration.test_partitioned_transactions import SAME_FRAGMENT
from tests.sdk.dotnet_frames import DotNetClient, condition, detach, message

pytestmark = on_every_shape

NOT_ALLOWED, ROLLBACK = "amqp:not-allowed", "amqp:transaction:rollback"
LIMIT_EXCEEDED, UNKNOWN_ID = "amqp:resource-limit-exceeded", "amqp:transaction:unknown-id"
ELSEWHERE = "elsewhere"
"""The key of another fragment than that of the shapes' key."""


@pytest.fixture
def client(bus: Bus) -> Iterator[DotNetClient]:
    with DotNetClient(bus.running.port) as client:
        yield client


def fill(bus: Bus, entity: str, *bodies: str, session_id: str | None = None) -> None:
    with RawAmqp(bus.running.port) as raw:
        raw.log_in()
        raw.attach_sender(1, entity)
        for number, body in enumerate(bodies):
            answer = raw.send_message(
                1, number, message(body, None if session_id else bus.shape.key, session_id=session_id)
            )
            assert answer.described(4)[0] == codes.ACCEPTED


@covers("M11", "P16", "P17")
def test_one_is_received_and_two_are_sent_to_others_in_one_transaction(client: DotNetClient, bus: Bus) -> None:
    here, there, also = bus.make_queue(), bus.make_queue(), bus.make_topic("red")
    fill(bus, here, "order")
    client.coordinate()
    txn_id = client.declare()  # before any token
    client.receiver(here)
    delivery_id = client.receive()
    to_there, to_topic = client.sender(there), client.sender(also)
    client.send_in(to_there, message("bill", "of another fragment"), txn_id)
    client.send_in(to_topic, message("news"), txn_id)
    client.complete_in(txn_id, delivery_id)
    assert (bus.counts(here), bus.counts(there)) == (Counts(1), Counts(0))
    client.commit(txn_id)
    assert bus.comes_to(there, Counts(1))
    assert bus.comes_to(here, Counts(0))
    with RawAmqp(bus.running.port) as raw:
        raw.log_in()
        raw.attach_receiver(1, f"{also}/Subscriptions/red")
        raw.flow(1, 1)
        assert raw.receive_message()[1].body == b"news"


@covers("M11")
def test_a_rollback_leaves_nothing_anywhere(client: DotNetClient, bus: Bus, queue: str) -> None:
    there = bus.make_queue()
    fill(bus, queue, "order")
    client.coordinate()
    client.receiver(queue)
    delivery_id = client.receive()
    to_there = client.sender(there)
    txn_id = client.declare()
    client.complete_in(txn_id, delivery_id)
    client.send_in(to_there, message("bill"), txn_id)
    assert client.discharge(txn_id, fail=True).described(4)[0] == codes.ACCEPTED
    again = client.declare()
    client.complete_in(again, delivery_id)
    client.send_in(to_there, message("second bill"), again)
    client.commit(again)
    assert bus.comes_to(there, Counts(1))
    assert bus.counts(queue) == Counts(0)


@covers("M11")
def test_what_is_sent_without_a_transaction_goes_straight_there(client: DotNetClient, bus: Bus, queue: str) -> None:
    there = bus.make_queue()
    client.coordinate()
    client.receiver(queue, credit=0)
    assert client.send(client.sender(there), message("a")).described(4)[0] == codes.ACCEPTED
    assert bus.counts(there) == Counts(1)


@covers("M11")
def test_a_receiver_of_a_second_entity_is_refused(client: DotNetClient, bus: Bus, queue: str) -> None:
    topic = bus.make_topic("red", "blue")
    client.coordinate()
    client.receiver(f"{topic}/Subscriptions/red")
    assert_has_three_fields(client.refused_receiver(queue), NOT_ALLOWED)
    assert_has_three_fields(client.refused_receiver(f"{queue}/$DeadLetterQueue"), NOT_ALLOWED)
    client.receiver(f"{topic}/Subscriptions/red/$DeadLetterQueue")
    client.receiver(f"{topic}/Subscriptions/blue")
    client.commit(client.declare())  # neither was refused


@covers("M11")
def test_after_a_refused_first_entity_the_next_one_is_the_first(client: DotNetClient, bus: Bus, queue: str) -> None:
    client.coordinate()
    assert_has_three_fields(client.refused_receiver(bus.make_topic()), NOT_ALLOWED)
    fill(bus, queue, "a")
    client.receiver(queue)
    client.receive()


@covers("M11")
def test_a_first_sender_is_the_way_too(client: DotNetClient, bus: Bus, queue: str) -> None:
    """Its own messages need a key where it is partitioned; what passes through has none."""
    there = bus.make_queue()
    client.coordinate()
    here, other = client.sender(queue), client.sender(there)
    assert_has_three_fields(client.refused_receiver(there), NOT_ALLOWED)
    txn_id = client.declare()
    client.send_in(here, message("a", bus.shape.key), txn_id)
    client.send_in(other, message("b"), txn_id)
    client.commit(txn_id)
    assert bus.counts(queue) == Counts(1)
    assert bus.comes_to(there, Counts(1))


@covers("M11")
def test_the_way_stays_when_its_link_is_gone(client: DotNetClient, bus: Bus, queue: str) -> None:
    there = bus.make_queue()
    client.coordinate()
    detach(client, client.receiver(queue, credit=0))
    assert_has_three_fields(client.refused_receiver(there), NOT_ALLOWED)
    other = client.sender(there)
    fill(bus, queue, "a")
    client.receiver(queue)
    delivery_id = client.receive()
    txn_id = client.declare()
    client.send_in(other, message("b"), txn_id)
    client.complete_in(txn_id, delivery_id)
    client.commit(txn_id)
    assert bus.comes_to(there, Counts(1))
    assert bus.comes_to(queue, Counts(0))


@covers("M11")
def test_when_the_first_entity_is_deleted_the_next_sender_takes_its_place(
    client: DotNetClient, bus: Bus, queue: str
) -> None:
    there = bus.make_queue()
    client.coordinate()
    client.receiver(queue, credit=0)
    bus.admin.delete_queue(queue)
    assert_has_three_fields(client.raw.expect(codes.DETACH).error(2), "amqp:not-found")
    sender = client.sender(there)
    txn_id = client.declare()
    client.send_in(sender, message("a", bus.shape.key), txn_id)
    client.commit(txn_id)
    assert bus.counts(there) == Counts(1)


@covers("M11")
def test_a_coordinator_that_comes_late_leaves_each_link_to_its_own_entity(
    client: DotNetClient, bus: Bus, queue: str
) -> None:
    there = bus.make_queue()
    fill(bus, queue, "order")
    client.receiver(queue)
    delivery_id = client.receive()
    to_there = client.sender(there)
    client.coordinate()
    txn_id = client.declare()
    client.complete_in(txn_id, delivery_id)
    assert condition(client.send(to_there, message("bill", bus.shape.key), txn_id)) == NOT_ALLOWED
    assert condition(client.discharge(txn_id)) == ROLLBACK
    for entity in (there, queue):
        client.receiver(entity, credit=0)
    client.commit(client.declare())  # neither was refused
    assert (bus.counts(queue), bus.counts(there)) == (Counts(1), Counts(0))


@covers("M11")
def test_an_amqp_session_without_the_coordinator_is_no_part_of_it(client: DotNetClient, bus: Bus, queue: str) -> None:
    """The same entity may be worked on from another session; another entity may not."""
    there = bus.make_queue()
    client.coordinate()
    client.receiver(queue, credit=0)
    client.put_token(there)
    raw, channel = client.raw, 2
    raw.begin(channel)
    raw.attach_sender(1, queue, channel)
    raw.attach_sender(2, there, channel)
    raw.attach_receiver(3, there, channel=channel)
    txn_id = client.declare()
    assert sent_on(client, channel, 0, 1, txn_id, bus).described(4)[0] == codes.TRANSACTIONAL_STATE
    client.commit(txn_id)
    assert bus.counts(queue) == Counts(1)
    txn_id = client.declare()
    assert sent_on(client, channel, 1, 1, txn_id, bus).described(4)[0] == codes.TRANSACTIONAL_STATE
    assert condition(sent_on(client, channel, 2, 2, txn_id, bus)) == NOT_ALLOWED
    assert condition(client.discharge(txn_id)) == ROLLBACK
    assert (bus.counts(queue), bus.counts(there)) == (Counts(1), Counts(0))


def sent_on(client: DotNetClient, channel: int, delivery_id: int, handle: int, txn_id: bytes, bus: Bus) -> Frame:
    fields: list[object] = [uint(handle), uint(delivery_id), b"tag", uint(0), False, False, None]
    fields.append(state_of(codes.TRANSACTIONAL_STATE, txn_id))
    client.raw.perform(codes.TRANSFER, fields, message("a", bus.shape.key), channel)
    return client.raw.expect(codes.DISPOSITION)


@covers("M11")
def test_a_client_that_dies_in_the_middle_has_done_nothing(bus: Bus, queue: str) -> None:
    there = bus.make_queue()
    fill(bus, queue, "order")
    with DotNetClient(bus.running.port) as client:
        client.coordinate()
        client.receiver(queue)
        delivery_id = client.receive()
        to_there = client.sender(there)
        txn_id = client.declare()
        client.send_in(to_there, message("bill"), txn_id)
        client.complete_in(txn_id, delivery_id)
    with DotNetClient(bus.running.port) as other:
        other.coordinate()
        assert condition(other.discharge(txn_id)) == UNKNOWN_ID
    assert (bus.counts(queue), bus.counts(there)) == (Counts(1), Counts(0))


@covers("M11", "M15")
def test_listening_here_and_sending_there_is_enough(small_bus: Bus) -> None:
    """Every part needs its own claim, and no more."""
    here, there = small_bus.make_queue(), small_bus.make_queue()
    fill(small_bus, here, "order")
    listens, sends = ("listens", LISTENS_KEY), ("sends", SENDS_KEY)
    with DotNetClient(small_bus.running.port, *listens) as client:
        client.coordinate()
        txn_id = client.declare()
        client.receiver(here)
        delivery_id = client.receive()
        client.put_token(there)
        refused = client.handle()
        client.raw.attach_sender(refused, there)
        assert_has_three_fields(client.raw.expect(codes.DETACH).error(2), "amqp:unauthorized-access")
        to_there = client.sender(there, sends)
        client.send_in(to_there, message("bill"), txn_id)
        client.complete_in(txn_id, delivery_id)
        client.commit(txn_id)
    assert small_bus.comes_to(there, Counts(1))
    assert small_bus.counts(here) == Counts(0)


@covers("M11")
def test_a_transaction_over_its_limit_is_rolled_back_everywhere(small_bus: Bus) -> None:
    here, there = small_bus.make_queue(), small_bus.make_queue()
    fill(small_bus, here, "order")
    with DotNetClient(small_bus.running.port) as client:
        client.coordinate()
        client.receiver(here)
        delivery_id = client.receive()
        to_there = client.sender(there)
        txn_id = client.declare()
        client.complete_in(txn_id, delivery_id)
        for number in range(4):
            client.send_in(to_there, message(str(number)), txn_id)
        assert condition(client.send(to_there, message("one more"), txn_id)) == LIMIT_EXCEEDED
        assert condition(client.discharge(txn_id)) == ROLLBACK
    assert (small_bus.counts(here), small_bus.counts(there)) == (Counts(1), Counts(0))


@covers("M11", "M7", "P16")
def test_a_session_is_received_here_and_another_is_sent_to_there(client: DotNetClient, bus: Bus) -> None:
    here, there = bus.make_queue(requires_session=True), bus.make_queue(requires_session=True)
    fill(bus, here, "order", session_id="s")
    client.coordinate()
    client.raw.flow(client.accept_session(here, "s"), 1)
    delivery_id = client.receive()
    to_there = client.sender(there)
    txn_id = client.declare()
    client.send_in(to_there, message("bill", session_id="t"), txn_id)
    client.complete_in(txn_id, delivery_id)
    client.commit(txn_id)
    assert bus.comes_to(there, Counts(1))
    assert bus.comes_to(here, Counts(0))


@covers("M11", "P16")
def test_what_only_passes_through_needs_a_via_key_where_the_way_is_partitioned(
    client: DotNetClient, bus: Bus, queue: str
) -> None:
    there = bus.make_queue()
    client.coordinate()
    client.receiver(queue, credit=0)
    to_there = client.sender(there)
    for keys in ((None, None), SAME_FRAGMENT):
        txn_id = client.declare()
        for key in keys:
            client.send_in(to_there, message("a", "key", key), txn_id)
        if bus.shape.is_partitioned:
            assert condition(client.discharge(txn_id)) == NOT_ALLOWED
            assert condition(client.discharge(txn_id)) == UNKNOWN_ID
        else:
            client.commit(txn_id)
    txn_id = client.declare()
    for key in ("one", "two"):
        client.send_in(to_there, message("a", key, "way"), txn_id)
    client.commit(txn_id)
    assert bus.comes_to(there, Counts(2 if bus.shape.is_partitioned else 6))


@covers("M11", "P16")
def test_a_via_key_may_not_name_another_fragment_than_the_settlement(
    client: DotNetClient, bus: Bus, queue: str
) -> None:
    there = bus.make_queue()
    fill(bus, queue, "order")
    client.coordinate()
    client.receiver(queue)
    delivery_id = client.receive()
    to_there = client.sender(there)
    for via_key in (ELSEWHERE, bus.shape.key):
        txn_id = client.declare()
        client.send_in(to_there, message("bill", via_key=via_key), txn_id)
        client.complete_in(txn_id, delivery_id)
        if via_key == ELSEWHERE and bus.shape.is_partitioned:
            assert condition(client.discharge(txn_id)) == NOT_ALLOWED
            assert (bus.counts(queue), bus.counts(there)) == (Counts(1), Counts(0))
        else:
            client.commit(txn_id)
            break
    assert bus.comes_to(there, Counts(1))
    assert bus.comes_to(queue, Counts(0))


@covers("M11")
def test_the_end_of_the_control_link_ends_its_transactions_and_not_the_way(
    client: DotNetClient, bus: Bus, queue: str
) -> None:
    there = bus.make_queue()
    fill(bus, queue, "order")
    client.coordinate()
    client.receiver(queue)
    delivery_id = client.receive()
    to_there = client.sender(there)
    txn_id = client.declare()
    client.send_in(to_there, message("nothing"), txn_id)
    detach(client, CONTROL)
    client.coordinate()
    assert condition(client.discharge(txn_id)) == UNKNOWN_ID
    again = client.declare()
    client.send_in(to_there, message("bill"), again)
    client.complete_in(again, delivery_id)
    client.commit(again)
    assert bus.comes_to(there, Counts(1))


@covers("M11", "M9", "P16")
def test_a_topic_and_its_subscriptions_are_one_entity_on_the_way_to_another(
    client: DotNetClient, bus: Bus, queue: str
) -> None:
    """Received from two subscriptions, sent back to their topic and on to a queue."""
    topic = bus.make_topic("red", "blue")
    fill(bus, topic, "a")
    client.coordinate()
    deliveries = []
    for subscription in ("red", "blue"):
        client.receiver(f"{topic}/Subscriptions/{subscription}")
        deliveries.append(client.receive())
    to_topic, to_queue = client.sender(topic), client.sender(queue)
    for fail in (True, False):
        txn_id = client.declare()
        client.send_in(to_queue, message("on"), txn_id)
        client.send_in(to_topic, message("again", bus.shape.key), txn_id)
        for delivery_id in deliveries:
            client.complete_in(txn_id, delivery_id)
        assert client.discharge(txn_id, fail).described(4)[0] == codes.ACCEPTED
    assert bus.comes_to(queue, Counts(1))
    for subscription in ("red", "blue"):
        assert bus.counts_of_subscription(topic, subscription) == Counts(1)
    with RawAmqp(bus.running.port) as raw:
        raw.log_in()
        raw.attach_receiver(1, f"{topic}/Subscriptions/blue")
        raw.flow(1, 1)
        assert raw.receive_message()[1].body == b"again"


@covers("M11", "M9")
def test_a_subscription_that_is_deleted_takes_the_whole_transaction_along(
    client: DotNetClient, bus: Bus, queue: str
) -> None:
    topic = bus.make_topic("red", "blue")
    fill(bus, topic, "a")
    client.coordinate()
    client.receiver(f"{topic}/Subscriptions/red")
    red = client.receive()
    client.receiver(f"{topic}/Subscriptions/blue")
    blue = client.receive()
    to_topic = client.sender(topic)
    txn_id = client.declare()
    client.complete_in(txn_id, red)
    client.complete_in(txn_id, blue)
    client.send_in(to_topic, message("again", bus.shape.key), txn_id)
    bus.admin.delete_subscription(topic, "blue")
    client.raw.expect(codes.DETACH)
    assert condition(client.discharge(txn_id)) == ROLLBACK
    assert bus.counts_of_subscription(topic, "red") == Counts(1)
