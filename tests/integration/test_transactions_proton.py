"""Transactions as a client that knows AMQP and nothing of Service Bus makes them: Qpid Proton."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.proton_transactions import TRANSACTIONAL, ProtonClient, proton
from tests.integration.serving import start_namespace
from tests.integration.shapes import Shape, on_every_shape

pytestmark = on_every_shape

ACCEPTED, REJECTED = proton.Delivery.ACCEPTED, proton.Delivery.REJECTED
RELEASED, MODIFIED = proton.Delivery.RELEASED, proton.Delivery.MODIFIED


@pytest.fixture
def client(bus: Bus) -> Iterator[ProtonClient]:
    client = ProtonClient(bus)
    yield client
    client.close()


@pytest.fixture
def small_client(small_bus: Bus) -> Iterator[ProtonClient]:
    """Of the namespace whose limits are within reach."""
    client = ProtonClient(small_bus)
    yield client
    client.close()


def fill(client: ProtonClient, queue: str, *bodies: str) -> None:
    sender = client.sender(queue)
    for body in bodies:
        sender.send(client.message(body))


def bodies(client: ProtonClient, queue: str, count: int) -> list[str]:
    return client.receive(queue, count)[0]


@covers("M11", "B1")
@pytest.mark.parametrize("settle_before_discharge", [False, True])
def test_several_sends_and_settlements_are_carried_out_together(
    client: ProtonClient, bus: Bus, queue: str, settle_before_discharge: bool
) -> None:
    fill(client, queue, "a", "b", "c")
    sender = client.sender(queue)
    _, deliveries = client.receive(queue, 2)
    transaction = client.declare(settle_before_discharge)
    for delivery in deliveries:
        transaction.accept(delivery)
    for body in ("d", "e", "f"):
        sent = transaction.send(sender, body)
        assert (sent.remote_state, sent.remote.data[1].descriptor) == (TRANSACTIONAL, ACCEPTED)
    assert bus.counts(queue) == Counts(3)
    assert transaction.commit() == "committed"
    assert bus.counts(queue) == Counts(4)
    if not settle_before_discharge:
        client.wait(lambda: all(delivery.settled for delivery in deliveries))
        assert {delivery.remote_state for delivery in deliveries} == {TRANSACTIONAL}
        assert {delivery.remote.data[1].descriptor for delivery in deliveries} == {ACCEPTED}
    assert bodies(client, queue, 4) == ["c", "d", "e", "f"]


@covers("M11", "B1")
def test_an_aborted_transaction_leaves_no_trace(client: ProtonClient, bus: Bus, queue: str) -> None:
    fill(client, queue, "a", "b")
    sender = client.sender(queue)
    _, deliveries = client.receive(queue, 1)
    transaction = client.declare()
    transaction.accept(deliveries[0])
    transaction.send(sender, "c")
    assert transaction.abort() == "aborted"
    assert bus.counts(queue) == Counts(2)
    # Proton releases what it had accepted in the transaction: it is there again at once.
    found, _ = client.receive_messages(queue, 2)
    assert sorted((one.body, one.delivery_count) for one in found) == [("a", 0), ("b", 0)]


@covers("M11", "B1")
def test_what_was_settled_before_an_abort_comes_again_and_is_counted(
    client: ProtonClient, bus: Bus, queue: str
) -> None:
    fill(client, queue, "a")
    _, (delivery,) = client.receive(queue, 1)
    transaction = client.declare(settle_before_discharge=True)
    transaction.accept(delivery)
    assert transaction.abort() == "aborted"
    (again,), _ = client.receive_messages(queue, 1)
    assert (again.body, again.delivery_count) == ("a", 1)
    assert bus.counts(queue) == Counts(1)


OUTCOMES = {
    "accepted": (ACCEPTED, Counts(1)),
    "rejected": (REJECTED, Counts(1, dead=1)),
    "released": (RELEASED, Counts(2)),
    "modified": (MODIFIED, Counts(2)),
}


@covers("M11", "M6")
@pytest.mark.parametrize("name", OUTCOMES)
def test_every_outcome_is_carried_out_with_the_transaction(
    client: ProtonClient, bus: Bus, queue: str, name: str
) -> None:
    state, counts = OUTCOMES[name]
    fill(client, queue, "a")
    sender = client.sender(queue)
    _, (delivery,) = client.receive(queue, 1)
    transaction = client.declare()
    transaction.settle(delivery, state)
    transaction.send(sender, "b")
    assert bus.counts(queue) == Counts(1)
    assert transaction.commit() == "committed"
    assert bus.counts(queue) == counts


@covers("M11")
def test_the_end_of_the_control_link_rolls_back(client: ProtonClient, bus: Bus, queue: str) -> None:
    sender = client.sender(queue)
    transaction = client.declare()
    transaction.send(sender, "a")
    client.end_control_link()
    assert bus.counts(queue) == Counts(0)
    late = transaction.send(sender, "b")
    assert late.remote_state == REJECTED
    assert late.remote.condition.name == "amqp:transaction:unknown-id"
    assert client.declare().commit() == "committed"
    assert bus.counts(queue) == Counts(0)


@covers("M11")
def test_the_end_of_the_connection_rolls_back(bus: Bus, queue: str) -> None:
    client = ProtonClient(bus)
    fill(client, queue, "a")
    sender = client.sender(queue)
    _, (delivery,) = client.receive(queue, 1)
    transaction = client.declare()
    transaction.accept(delivery)
    transaction.send(sender, "b")
    client.close()
    other = ProtonClient(bus)
    fill(other, queue, "c")
    assert bodies(other, queue, 1) == ["c"]
    assert bus.counts(queue) == Counts(2), "the first one is still locked"
    other.close()


@covers("M11")
def test_a_second_entity_is_refused_and_dooms_the_transaction(
    client: ProtonClient, bus: Bus, queue: str, queue_name: str
) -> None:
    here, there = client.sender(queue), client.sender(queue_name)
    transaction = client.declare()
    transaction.send(here, "a")
    refused = transaction.send(there, "b")
    assert (refused.remote_state, refused.remote.condition.name) == (REJECTED, "amqp:not-allowed")
    assert transaction.commit() == "rolled back"
    assert transaction.outcomes.condition == "amqp:transaction:rollback"
    assert (bus.counts(queue), bus.counts(queue_name)) == (Counts(0), Counts(0))


@covers("M11")
def test_a_receiver_may_leave_before_the_discharge(client: ProtonClient, bus: Bus, queue: str) -> None:
    fill(client, queue, "a")
    sender = client.sender(queue)
    receiver = client.receiver(queue, 1)
    receiver.receive()
    transaction = client.declare()
    transaction.accept(receiver.fetcher.unsettled[0])
    transaction.send(sender, "b")
    receiver.close()
    assert transaction.commit() == "committed"
    assert bodies(client, queue, 1) == ["b"]
    assert bus.counts(queue) == Counts(1)


@covers("M11")
def test_a_transaction_times_out(small_client: ProtonClient, small_bus: Bus) -> None:
    queue = small_bus.make_queue()
    sender = small_client.sender(queue)
    began_at = time.monotonic()
    transaction = small_client.declare()
    transaction.send(sender, "a")
    while time.monotonic() - began_at < 2.5:
        assert small_bus.counts(queue) == Counts(0)
    assert transaction.commit() == "rolled back"
    assert transaction.outcomes.condition == "amqp:transaction:timeout"
    assert small_bus.counts(queue) == Counts(0)


@covers("M11", "M13")
def test_more_than_a_transaction_takes_dooms_it(small_client: ProtonClient, small_bus: Bus) -> None:
    queue = small_bus.make_queue()
    sender = small_client.sender(queue)
    transaction = small_client.declare()
    answers = [transaction.send(sender, str(number)) for number in range(6)]
    assert [one.remote_state for one in answers] == [TRANSACTIONAL] * 5 + [REJECTED]
    assert answers[-1].remote.condition.name == "amqp:resource-limit-exceeded"
    assert transaction.commit() == "rolled back"
    assert small_bus.counts(queue) == Counts(0)


@covers("M11")
def test_several_transactions_go_on_side_by_side(client: ProtonClient, bus: Bus, queue: str, queue_name: str) -> None:
    here, there = client.sender(queue), client.sender(queue_name)
    first, second = client.declare(), client.declare()
    first.send(here, "first")
    second.send(there, "second")
    first.send(here, "first again")
    assert second.commit() == "committed"
    assert (bus.counts(queue), bus.counts(queue_name)) == (Counts(0), Counts(1))
    assert first.commit() == "committed"
    assert bus.counts(queue) == Counts(2)


@covers("M11", "M1")
def test_a_kill_keeps_all_of_what_was_carried_out_and_nothing_of_what_was_not(data_folder: Path, shape: Shape) -> None:
    namespace = start_namespace(data_folder, *shape.topology.options)
    bus = Bus(namespace, shape=shape)
    queue = bus.make_queue()
    client = ProtonClient(bus)
    fill(client, queue, "a", "b")
    sender = client.sender(queue)
    _, (first, second) = client.receive(queue, 2)
    done = client.declare()
    done.accept(first)
    done.send(sender, "c")
    done.send(sender, "d")
    cut = client.declare()
    cut.settle(second, REJECTED)
    cut.send(sender, "e")
    assert done.commit() == "committed"
    bus.close()
    namespace.kill()
    again = start_namespace(data_folder, *shape.topology.options)
    bus = Bus(again, shape=shape)
    assert bus.counts(queue) == Counts(3)
    client = ProtonClient(bus)
    assert bodies(client, queue, 3) == ["b", "c", "d"]
    client.close()
    bus.close()
    again.stop_in_peace()
