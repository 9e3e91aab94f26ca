"""Transactions on topics, subscriptions and sessions, and by way of one entity to others, with Qpid Proton."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.proton_transactions import ProtonClient, Via, proton
from tests.integration.serving import start_namespace
from tests.integration.shapes import Shape, on_every_shape

pytestmark = on_every_shape

ACCEPTED, REJECTED = proton.Delivery.ACCEPTED, proton.Delivery.REJECTED


@pytest.fixture
def client(bus: Bus) -> Iterator[ProtonClient]:
    client = ProtonClient(bus)
    yield client
    client.close()


def fill(client: ProtonClient, entity: str, *bodies: str, session_id: str | None = None) -> None:
    sender = client.sender(entity)
    for body in bodies:
        sender.send(client.message(body, session_id))


@covers("M11", "M9")
def test_sends_to_a_topic_are_there_for_all_subscriptions_together(client: ProtonClient, bus: Bus) -> None:
    topic = bus.make_topic("red", "blue")
    sender = client.sender(topic)
    kept, forgotten = client.declare(), client.declare()
    kept.send(sender, "a")
    forgotten.send(sender, "x")
    kept.send(sender, "b")
    assert bus.counts_of_subscription(topic, "red") == Counts(0)
    assert forgotten.abort() == "aborted"
    assert kept.commit() == "committed"
    for subscription in ("red", "blue"):
        assert client.receive(f"{topic}/Subscriptions/{subscription}", 2)[0] == ["a", "b"]


@covers("M11", "M9", "M6")
def test_settlements_on_a_subscription_are_carried_out_together(client: ProtonClient, bus: Bus) -> None:
    topic = bus.make_topic("red", "blue")
    fill(client, topic, "a", "b", "c")
    _, deliveries = client.receive(f"{topic}/Subscriptions/red", 3)
    transaction = client.declare()
    transaction.accept(deliveries[0])
    transaction.settle(deliveries[1], REJECTED)
    assert bus.counts_of_subscription(topic, "red") == Counts(3)
    assert transaction.commit() == "committed"
    assert bus.counts_of_subscription(topic, "red") == Counts(1, dead=1)
    assert bus.counts_of_subscription(topic, "blue") == Counts(3)


@covers("M11", "M9")
def test_a_topic_and_its_subscriptions_are_one_entity(client: ProtonClient, bus: Bus) -> None:
    topic = bus.make_topic("red", "blue")
    fill(client, topic, "a")
    sender = client.sender(topic)
    _, (red,) = client.receive(f"{topic}/Subscriptions/red", 1)
    _, (blue,) = client.receive(f"{topic}/Subscriptions/blue", 1)
    transaction = client.declare()
    transaction.accept(red)
    transaction.send(sender, "b")
    transaction.settle(blue, REJECTED)
    assert bus.counts_of_subscription(topic, "red") == Counts(1)
    assert transaction.commit() == "committed"
    assert bus.counts_of_subscription(topic, "red") == Counts(1)
    assert bus.counts_of_subscription(topic, "blue") == Counts(1, dead=1)
    assert client.receive(f"{topic}/Subscriptions/red", 1)[0] == ["b"]


@covers("M11", "M9")
def test_subscriptions_of_two_topics_are_two_entities(client: ProtonClient, bus: Bus) -> None:
    one, other = bus.make_topic("red"), bus.make_topic("red")
    fill(client, one, "a")
    fill(client, other, "b")
    _, (first,) = client.receive(f"{one}/Subscriptions/red", 1)
    _, (second,) = client.receive(f"{other}/Subscriptions/red", 1)
    transaction = client.declare()
    transaction.accept(first)
    transaction.accept(second)
    assert second.remote.condition.name == "amqp:not-allowed"
    assert transaction.commit() == "rolled back"
    assert bus.counts_of_subscription(one, "red") == Counts(1)
    assert bus.counts_of_subscription(other, "red") == Counts(1)


@covers("M11", "M7")
def test_messages_of_two_sessions_are_part_of_one_transaction(client: ProtonClient, bus: Bus) -> None:
    """Of a partitioned entity they are not (P16), not even where both are in one fragment."""
    queue = bus.make_queue(requires_session=True)
    fill(client, queue, "s1", session_id="s")
    fill(client, queue, "t1", "t2", session_id="t")
    sender = client.sender(queue)
    _, (s1,) = client.receive(queue, 1, "s")
    _, (t1,) = client.receive(queue, 1, "t")
    transaction = client.declare()
    transaction.accept(s1)
    transaction.accept(t1)
    transaction.send(sender, "s2", "s")
    refused = client.declare()
    assert refused.send(sender, "none").remote.condition.name == "amqp:not-allowed"
    assert refused.commit() == "rolled back"
    assert bus.counts(queue) == Counts(3)
    if bus.shape.is_partitioned:
        assert transaction.commit() == "rolled back"
        assert bus.counts(queue) == Counts(3)
    else:
        assert transaction.commit() == "committed"
        assert bus.counts(queue) == Counts(2)


@covers("M11", "M10")
def test_what_is_received_here_goes_elsewhere_in_one_transaction(client: ProtonClient, bus: Bus, queue: str) -> None:
    """Receive and send on: the pattern that sending via an entity is for."""
    there, also = bus.make_queue(), bus.make_topic("red")
    fill(client, queue, "order", "other")
    to_there = client.sender(queue, options=Via(there))
    to_topic = client.sender(queue, options=Via(also))
    _, (delivery,) = client.receive(queue, 1)
    forgotten = client.declare()
    forgotten.send(to_there, "nothing")
    assert forgotten.abort() == "aborted"
    transaction = client.declare()
    transaction.accept(delivery)
    transaction.send(to_there, "bill")
    transaction.send(to_topic, "news")
    assert transaction.commit() == "committed"
    assert bus.comes_to(there, Counts(1))
    assert client.receive(there, 1)[0] == ["bill"]
    assert client.receive(f"{also}/Subscriptions/red", 1)[0] == ["news"]
    assert bus.counts(queue) == Counts(1)


@covers("M11", "M10")
def test_a_subscription_can_be_the_way_too(client: ProtonClient, bus: Bus, queue: str) -> None:
    topic = bus.make_topic("red")
    path = f"{topic}/Subscriptions/red"
    fill(client, topic, "a")
    onwards = client.sender(path, options=Via(queue))
    _, (delivery,) = client.receive(path, 1)
    transaction = client.declare()
    transaction.accept(delivery)
    transaction.send(onwards, "b")
    assert transaction.commit() == "committed"
    assert client.receive(queue, 1)[0] == ["b"]
    assert bus.counts_of_subscription(topic, "red") == Counts(0)


@covers("M11", "M10")
def test_sending_via_works_without_a_transaction_too(client: ProtonClient, bus: Bus, queue: str) -> None:
    there = bus.make_queue()
    sender = client.sender(queue, options=Via(there))
    sender.send(proton.Message(body="a", id="a"))
    assert client.receive(there, 1)[0] == ["a"]
    assert bus.counts(queue) == Counts(0)


@covers("M11", "M10", "M1")
def test_a_kill_after_the_commit_loses_nothing_that_was_sent_via(data_folder: Path, shape: Shape) -> None:
    namespace = start_namespace(data_folder, *shape.topology.options)
    bus = Bus(namespace, shape=shape)
    here, there = bus.make_queue(), bus.make_queue()
    client = ProtonClient(bus)
    fill(client, here, "a")
    sender = client.sender(here, options=Via(there))
    _, (delivery,) = client.receive(here, 1)
    transaction = client.declare()
    transaction.accept(delivery)
    for number in range(50):
        transaction.send(sender, str(number))
    assert transaction.commit() == "committed"
    bus.close()
    namespace.kill()
    again = start_namespace(data_folder, *shape.topology.options)
    bus = Bus(again, shape=shape)
    assert bus.comes_to(there, Counts(50))
    assert bus.counts(here) == Counts(0)
    client = ProtonClient(bus)
    assert client.receive(there, 50)[0] == [str(number) for number in range(50)]
    client.close()
    bus.close()
    again.stop_in_peace()
