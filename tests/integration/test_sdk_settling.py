"""What the Python SDK does with the messages it has locked, blocking and asynchronous."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageAlreadySettled, MessageLockLostError, MessageNotFoundError

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.python_sdk import PythonSdk, bodies_of, body_of, receive
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape


@covers("M2", "M3")
def test_an_abandoned_message_comes_back_first_and_is_counted(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    sender.send_messages([ServiceBusMessage("first"), ServiceBusMessage("second")])
    for count in range(3):
        (message,) = receive(receiver, 1)
        assert (body_of(message), message.delivery_count) == (b"first", count)
        receiver.abandon_message(message)
    assert [message.delivery_count for message in receive(receiver, 2)] == [3, 0]


@covers("M2", "M3")
def test_a_message_delivered_in_vain_too_often_goes_to_the_dead_letters(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(max_delivery_count=2)
    sender, receiver = sdk.pair(queue)
    sent = ServiceBusMessage("hopeless", message_id="hopeless", subject="kept", application_properties={"kept": 7})
    sender.send_messages(sent)
    for _ in range(2):
        receiver.abandon_message(receive(receiver, 1)[0])
    assert bus.counts(queue) == Counts(0, dead=1)
    (dead,) = receive(sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER), 1)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert dead.dead_letter_error_description == "Message could not be consumed after 2 delivery attempts."
    assert (dead.message_id, dead.subject, body_of(dead)) == ("hopeless", "kept", b"hopeless")
    assert (dead.application_properties or {})[b"kept"] == 7


@covers("M3")
def test_a_dead_letter_tells_why_it_is_one(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages(ServiceBusMessage("bad", message_id="bad", application_properties={"kept": "so"}))
    (message,) = receive(receiver, 1)
    receiver.dead_letter_message(message, reason="unreadable", error_description="of no known \u00e9dition")
    assert bus.counts(queue) == Counts(0, dead=1)
    (dead,) = receive(sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER), 1)
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("unreadable", "of no known \u00e9dition")
    assert (dead.message_id, body_of(dead)) == ("bad", b"bad")
    assert (dead.application_properties or {})[b"kept"] == b"so"
    assert dead.enqueued_time_utc == message.enqueued_time_utc


def complete(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> Counts:
    receiver.complete_message(message)
    return Counts(1)


def abandon(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> Counts:
    """It stays deferred, and can be fetched again."""
    number = message.sequence_number or 0
    receiver.abandon_message(message)
    (again,) = receiver.receive_deferred_messages(number)
    assert again.delivery_count == 2
    return Counts(2)


def dead_letter(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> Counts:
    receiver.dead_letter_message(message, reason="deferred in vain")
    return Counts(1, dead=1)


def defer(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> Counts:
    number = message.sequence_number or 0
    receiver.defer_message(message)
    (again,) = receiver.receive_deferred_messages(number)
    assert again.delivery_count == 2
    return Counts(2)


@covers("M3")
@pytest.mark.parametrize("settle", [complete, abandon, dead_letter, defer])
def test_a_deferred_message_is_fetched_by_its_number_and_settled(sdk: PythonSdk, bus: Bus, settle: object) -> None:
    assert callable(settle)
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages([ServiceBusMessage("deferred"), ServiceBusMessage("other")])
    (message,) = receive(receiver, 1)
    number = message.sequence_number or 0
    receiver.defer_message(message)
    assert bodies_of(receive(receiver, 1)) == [b"other"]
    (fetched,) = receiver.receive_deferred_messages([number])
    assert (body_of(fetched), fetched.sequence_number, fetched.delivery_count) == (b"deferred", number, 1)
    assert fetched.locked_until_utc is not None
    assert fetched.locked_until_utc > datetime.now(UTC)
    expected = settle(receiver, fetched)
    assert bus.counts(queue) == expected


@covers("M3")
def test_deferred_messages_can_be_received_and_deleted(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
    numbers = []
    for message in receive(receiver, 2):
        numbers.append(message.sequence_number or 0)
        receiver.defer_message(message)
    destructive = sdk.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    assert bodies_of(destructive.receive_deferred_messages(numbers)) == [b"one", b"two"]
    assert bus.counts(queue) == Counts(0)


@covers("M3")
def test_what_is_not_deferred_is_not_found_by_number(impatient_sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = impatient_sdk.pair(bus.make_queue())
    sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
    first, second = receive(receiver, 2)
    number = first.sequence_number or 0
    receiver.defer_message(first)
    for numbers in ([second.sequence_number or 0], [1_000_000], [number, 1_000_000]):
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(numbers)
    assert bodies_of(receiver.receive_deferred_messages([number])) == [b"one"]
    with pytest.raises(MessageNotFoundError):
        receiver.receive_deferred_messages([number])  # it is locked now


@covers("M2")
def test_a_renewed_lock_holds_beyond_its_first_time(small_sdk: PythonSdk, small_bus: Bus) -> None:
    queue = small_bus.make_queue(lock_duration=timedelta(seconds=2))
    sender, receiver = small_sdk.pair(queue)
    sender.send_messages(ServiceBusMessage("renewed"))
    (message,) = receive(receiver, 1)
    first = message.locked_until_utc
    assert first is not None
    assert receive_until(receiver, first - timedelta(seconds=1)) == []
    renewed = receiver.renew_message_lock(message)
    assert message.locked_until_utc == renewed > first
    assert receive_until(receiver, first + timedelta(seconds=0.2)) == []
    receiver.complete_message(message)
    assert small_bus.counts(queue) == Counts(0)


def receive_until(receiver: ServiceBusReceiver, moment: datetime) -> list[ServiceBusReceivedMessage]:
    """What a receive brings until then; the receive itself does the waiting."""
    left = (moment - datetime.now(UTC)).total_seconds()
    return receiver.receive_messages(max_wait_time=max(left, 0.1))


@covers("M2")
def test_a_lapsed_lock_is_lost_and_the_message_comes_again(small_sdk: PythonSdk, small_bus: Bus) -> None:
    queue = small_bus.make_queue(lock_duration=timedelta(seconds=1))
    sender, receiver = small_sdk.pair(queue)
    sender.send_messages(ServiceBusMessage("slow"))
    (first,) = receive(receiver, 1)
    (second,) = receive(receiver, 1)
    assert (body_of(second), second.delivery_count) == (b"slow", 1)
    assert second.lock_token != first.lock_token
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(first)
    with pytest.raises(MessageLockLostError):
        receiver.renew_message_lock(first)
    receiver.complete_message(second)
    assert small_bus.counts(queue) == Counts(0)


@covers("M2")
def test_lapses_count_towards_the_dead_letters(small_sdk: PythonSdk, small_bus: Bus) -> None:
    queue = small_bus.make_queue(lock_duration=timedelta(seconds=1), max_delivery_count=1)
    sender, receiver = small_sdk.pair(queue)
    dead = small_sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    sender.send_messages(ServiceBusMessage("forgotten"))
    receive(receiver, 1)
    (message,) = receive(dead, 1)
    assert (body_of(message), message.dead_letter_reason) == (b"forgotten", "MaxDeliveryCountExceeded")


@covers("M2")
def test_a_message_is_settled_once(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    sender.send_messages(ServiceBusMessage("once"))
    (message,) = receive(receiver, 1)
    receiver.complete_message(message)
    with pytest.raises((MessageAlreadySettled, ValueError)):
        receiver.complete_message(message)


@covers("M2", "M12")
def test_many_messages_are_settled_in_any_order_and_in_many_ways(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages([ServiceBusMessage(str(number)) for number in range(40)])
    messages = receive(receiver, 40)
    settle = (
        receiver.complete_message,
        receiver.abandon_message,
        receiver.defer_message,
        receiver.dead_letter_message,
    )
    for number, message in reversed(list(enumerate(messages))):
        settle[number % 4](message)
    assert bus.counts(queue) == Counts(20, dead=10)
    again = receive(receiver, 10)
    assert bodies_of(again) == [str(number).encode() for number in range(1, 40, 4)]
    assert {message.delivery_count for message in again} == {1}
