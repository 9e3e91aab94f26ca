"""What counts as a delivery, and what becomes of a message when the last one is over."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageNotFoundError

from tandembus.amqp.encoding import descriptors as codes
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.python_sdk import PythonSdk, body_of, receive
from tests.integration.raw_amqp import state_of
from tests.integration.shapes import on_every_shape
from tests.sdk.dotnet_frames import DotNetClient

pytestmark = on_every_shape

LAST = "MaxDeliveryCountExceeded"


def fetched(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> ServiceBusReceivedMessage:
    """A deferred message, by its number."""
    (found,) = receiver.receive_deferred_messages(message.sequence_number or 0)
    return found


def check_dead(sdk: PythonSdk, queue: str, count: int) -> None:
    (dead,) = receive(sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER), 1)
    assert (body_of(dead), dead.delivery_count) == (b"a", count)
    assert dead.dead_letter_reason == LAST
    assert dead.dead_letter_error_description == f"Message could not be consumed after {count} delivery attempts."


@covers("M2", "M3")
def test_each_defer_counts_a_delivery(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    sender.send_messages(ServiceBusMessage("a"))
    (received,) = receive(receiver, 1)
    receiver.abandon_message(received)
    (received,) = receive(receiver, 1)
    receiver.defer_message(received)
    for count in (2, 3):
        again = fetched(receiver, received)
        assert again.delivery_count == count
        receiver.defer_message(again)
    (peeked,) = receiver.peek_messages(1, sequence_number=1)
    assert peeked.delivery_count == 4


@covers("M2", "M3")
@pytest.mark.parametrize("session_id", [None, "s"])
def test_a_defer_that_is_the_last_delivery_makes_a_dead_letter(
    sdk: PythonSdk, bus: Bus, session_id: str | None
) -> None:
    queue = bus.make_queue(max_delivery_count=2, requires_session=session_id is not None)
    sender, receiver = sdk.pair(queue, session_id=session_id)
    sender.send_messages(ServiceBusMessage("a", session_id=session_id))
    (received,) = receive(receiver, 1)
    receiver.abandon_message(received)
    (received,) = receive(receiver, 1)
    receiver.defer_message(received)
    assert bus.counts(queue) == Counts(0, dead=1)
    check_dead(sdk, queue, 2)


@covers("M2", "M3")
@pytest.mark.parametrize("session_id", [None, "s"])
def test_a_deferred_message_whose_next_defer_is_the_last_delivery_makes_a_dead_letter(
    impatient_sdk: PythonSdk, bus: Bus, session_id: str | None
) -> None:
    queue = bus.make_queue(max_delivery_count=2, requires_session=session_id is not None)
    sender, receiver = impatient_sdk.pair(queue, session_id=session_id)
    sender.send_messages(ServiceBusMessage("a", session_id=session_id))
    (received,) = receive(receiver, 1)
    receiver.defer_message(received)
    receiver.defer_message(fetched(receiver, received))
    assert bus.counts(queue) == Counts(0, dead=1)
    with pytest.raises(MessageNotFoundError):
        fetched(receiver, received)
    check_dead(impatient_sdk, queue, 2)


def defer_in(client: DotNetClient, txn_id: bytes, delivery_id: int) -> None:
    deferred = state_of(codes.MODIFIED, True, True)
    client.raw.dispose(delivery_id, state_of(codes.TRANSACTIONAL_STATE, txn_id, deferred))
    assert client.raw.expect(codes.DISPOSITION).described(4)[0] == codes.TRANSACTIONAL_STATE


@covers("M2", "M3", "M11")
def test_a_defer_in_a_transaction_counts_when_that_is_committed(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(max_delivery_count=2)
    with DotNetClient(bus.running.port) as client:
        client.coordinate()
        client.receiver(queue)
        sdk.sender(queue).send_messages(ServiceBusMessage("a"))
        delivery_id = client.receive()
        rolled_back = client.declare()
        defer_in(client, rolled_back, delivery_id)
        assert client.discharge(rolled_back, fail=True).described(4)[0] == codes.ACCEPTED
        (peeked,) = sdk.receiver(queue).peek_messages()
        assert peeked.delivery_count == 0
        committed = client.declare()
        defer_in(client, committed, delivery_id)
        client.commit(committed)
    receiver = sdk.receiver(queue)
    again = fetched(receiver, peeked)
    assert again.delivery_count == 1
    receiver.complete_message(again)
    assert bus.counts(queue) == Counts(0)


@covers("M2", "M3", "M11")
def test_a_defer_in_a_transaction_that_is_the_last_delivery_makes_a_dead_letter(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(max_delivery_count=1)
    with DotNetClient(bus.running.port) as client:
        client.coordinate()
        client.receiver(queue)
        sdk.sender(queue).send_messages(ServiceBusMessage("a"))
        delivery_id = client.receive()
        txn_id = client.declare()
        defer_in(client, txn_id, delivery_id)
        assert bus.counts(queue) == Counts(1)
        client.commit(txn_id)
    assert bus.counts(queue) == Counts(0, dead=1)
    check_dead(sdk, queue, 1)


def abandon(receiver: ServiceBusReceiver, received: ServiceBusReceivedMessage) -> ServiceBusReceivedMessage:
    receiver.abandon_message(received)
    return receive(receiver, 1)[0]


def defer(receiver: ServiceBusReceiver, received: ServiceBusReceivedMessage) -> ServiceBusReceivedMessage:
    receiver.defer_message(received)
    return fetched(receiver, received)


Settle = Callable[[ServiceBusReceiver, ServiceBusReceivedMessage], ServiceBusReceivedMessage]


def dead_lettered(sdk: PythonSdk, queue: str, abandoned_count: int) -> None:
    sender, receiver = sdk.pair(queue)
    sender.send_messages(ServiceBusMessage("a"))
    (received,) = receive(receiver, 1)
    for _ in range(abandoned_count):
        received = abandon(receiver, received)
    receiver.dead_letter_message(received)


@covers("M2", "M3")
@pytest.mark.parametrize("settle", [abandon, defer])
@pytest.mark.parametrize("count", [0, 1])
def test_a_dead_letter_that_is_set_aside_or_given_back_keeps_its_count(
    sdk: PythonSdk, bus: Bus, settle: Settle, count: int
) -> None:
    queue = bus.make_queue(max_delivery_count=2)
    dead_lettered(sdk, queue, count)
    letters = sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    (letter,) = receive(letters, 1)
    for _ in range(2):
        letter = settle(letters, letter)
        assert letter.delivery_count == count
    letters.complete_message(letter)
    assert bus.counts(queue) == Counts(0)


@covers("M2")
def test_a_dead_letter_whose_lock_lapses_keeps_its_count(small_sdk: PythonSdk, small_bus: Bus) -> None:
    queue = small_bus.make_queue(max_delivery_count=3)
    dead_lettered(small_sdk, queue, 1)
    properties = small_bus.admin.get_queue(queue)
    properties.lock_duration = timedelta(seconds=1)
    small_bus.admin.update_queue(properties)
    letters = small_sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert [receive(letters, 1)[0].delivery_count for _ in range(3)] == [1, 1, 1]
    assert small_bus.counts(queue) == Counts(0, dead=1)


@covers("M2", "M3", "M10")
def test_a_dead_letter_of_a_transfer_keeps_its_count(sdk: PythonSdk, bus: Bus) -> None:
    target = bus.make_queue()
    source = bus.make_queue(forward_to=target, max_delivery_count=1)
    bus.admin.delete_queue(target)
    sdk.sender(source).send_messages(ServiceBusMessage("a"))
    letters = sdk.receiver(source, sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
    (letter,) = receive(letters, 1)
    for settle in (abandon, defer):
        letter = settle(letters, letter)
        assert (body_of(letter), letter.delivery_count) == (b"a", 0)
