"""Locks, sessions and topics of sixteen fragments through the Python SDK, beside what is sent and received there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import SessionCannotBeLockedError

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import with_async_client, with_sync_client
from tests.integration.python_sdk import PythonSdk, bodies_of, body_of, receive
from tests.integration.shapes import PARTITIONED, PARTITIONED_ON_BROKERS, on_shapes

pytestmark = on_shapes(PARTITIONED, PARTITIONED_ON_BROKERS)

FRAGMENTS = 16
NUMBER_BITS = 48


@pytest.fixture
def queue(bus: Bus) -> str:
    return bus.make_queue()


@pytest.fixture
def session_queue(bus: Bus) -> str:
    return bus.make_queue(requires_session=True)


def fragment_of(message: ServiceBusReceivedMessage) -> int:
    assert message.sequence_number is not None
    return message.sequence_number >> NUMBER_BITS


def numbered(count: int) -> list[bytes]:
    return [f"{number:04}".encode() for number in range(count)]


def send_one_by_one(sdk: PythonSdk, queue: str, bodies: list[bytes]) -> None:
    sender = sdk.sender(queue)
    for body in bodies:
        sender.send_messages(ServiceBusMessage(body))


def all_peeked(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    """Call after call, until there is nothing more."""
    found: list[ServiceBusReceivedMessage] = []
    while True:
        start = (found[-1].sequence_number or 0) + 1 if found else 1
        part = receiver.peek_messages(max_message_count=10, sequence_number=start)
        if not part:
            return found
        found += part


@covers("P24")
@with_async_client
def test_locks_are_renewed_in_every_fragment(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(lock_duration=timedelta(seconds=10))
    send_one_by_one(sdk, queue, numbered(FRAGMENTS))
    receiver = sdk.receiver(queue)
    for one in receive(receiver, FRAGMENTS):
        before = one.locked_until_utc
        assert before is not None
        assert receiver.renew_message_lock(one) >= before
        receiver.complete_message(one)
    assert bus.comes_to(queue, Counts(0))


@covers("P22")
@with_sync_client
def test_a_peek_does_not_end_at_a_fragment_that_is_empty(sdk: PythonSdk, queue: str) -> None:
    sender, receiver = sdk.pair(queue)
    for key in ("a", "b", "order-1"):
        sender.send_messages(ServiceBusMessage(key.encode(), partition_key=key))
    assert sorted(bodies_of(all_peeked(receiver))) == [b"a", b"b", b"order-1"]


@covers("P4", "P24")
@with_sync_client
def test_sessions_are_received_by_name_and_in_order(sdk: PythonSdk, session_queue: str) -> None:
    sender = sdk.sender(session_queue)
    names = [f"session-{number}" for number in range(6)]
    for number in range(3):
        for name in names:
            sender.send_messages(ServiceBusMessage(f"{name}.{number}".encode(), session_id=name))
    fragments: set[int] = set()
    for name in names:
        receiver = sdk.receiver(session_queue, session_id=name)
        received = receive(receiver, 3)
        assert bodies_of(received) == [f"{name}.{number}".encode() for number in range(3)]
        assert len(set(map(fragment_of, received))) == 1
        fragments.add(fragment_of(received[0]))
        for one in received:
            receiver.complete_message(one)
    assert len(fragments) > 1


@covers("P4", "P24")
@with_async_client
def test_the_next_available_session_is_found_in_any_fragment(sdk: PythonSdk, session_queue: str) -> None:
    sender = sdk.sender(session_queue)
    names = [f"session-{number}" for number in range(6)]
    for name in names:
        sender.send_messages(ServiceBusMessage(name.encode(), session_id=name))
    accepted: list[str] = []
    for _ in names:
        receiver = sdk.receiver(session_queue, session_id=NEXT_AVAILABLE_SESSION)
        (one,) = receive(receiver, 1)
        assert body_of(one).decode() == receiver.session.session_id
        accepted.append(receiver.session.session_id)
    assert sorted(accepted) == names


@covers("P10", "P24")
@with_async_client
def test_a_sessions_state_and_lock_are_with_its_fragment(sdk: PythonSdk, session_queue: str) -> None:
    for number in range(4):
        receiver = sdk.receiver(session_queue, session_id=f"session-{number}")
        session = receiver.session
        assert session.get_state() is None
        session.set_state(f"state-{number}".encode())
        before = session.locked_until_utc
        assert before is not None
        assert session.renew_lock() >= before
        receiver.close()
    for number in range(4):
        assert sdk.receiver(session_queue, session_id=f"session-{number}").session.get_state() == (
            f"state-{number}".encode()
        )


@covers("P4")
@with_sync_client
def test_a_session_has_one_receiver(impatient_sdk: PythonSdk, session_queue: str) -> None:
    impatient_sdk.receiver(session_queue, session_id="one")
    with pytest.raises(SessionCannotBeLockedError):
        impatient_sdk.receiver(session_queue, session_id="one")


@covers("P22", "P24")
@with_sync_client
def test_the_messages_of_a_session_can_be_browsed(sdk: PythonSdk, session_queue: str) -> None:
    sender = sdk.sender(session_queue)
    for name in ("a", "b", "order-1"):
        for number in range(15):
            sender.send_messages(ServiceBusMessage(f"{name}.{number:02}".encode(), session_id=name))
    receiver = sdk.receiver(session_queue, session_id="b")
    assert bodies_of(all_peeked(receiver)) == [f"b.{number:02}".encode() for number in range(15)]


@covers("P24", "P4")
@with_sync_client
def test_deferred_messages_of_a_session_are_received_by_its_holder(sdk: PythonSdk, session_queue: str) -> None:
    sender = sdk.sender(session_queue)
    sender.send_messages(ServiceBusMessage(b"one", session_id="a"))
    receiver = sdk.receiver(session_queue, session_id="a")
    (one,) = receive(receiver, 1)
    receiver.defer_message(one)
    assert one.sequence_number is not None
    (found,) = receiver.receive_deferred_messages([one.sequence_number])
    assert body_of(found) == b"one"
    receiver.complete_message(found)


@covers("P4", "P24")
@with_sync_client
def test_scheduled_and_dead_letters_of_a_partitioned_topic(sdk: PythonSdk, bus: Bus) -> None:
    topic = bus.make_topic("sub")
    sender = sdk.topic_sender(topic)
    soon = datetime.now(UTC) + timedelta(seconds=1)
    for body in numbered(FRAGMENTS):
        sender.schedule_messages(ServiceBusMessage(body), soon)
    receiver = sdk.subscription_receiver(topic, "sub")
    for one in receive(receiver, FRAGMENTS):
        receiver.dead_letter_message(one, reason="test")
    dead = sdk.subscription_receiver(topic, "sub", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    buried = receive(dead, FRAGMENTS)
    assert sorted(bodies_of(buried)) == numbered(FRAGMENTS)
    for one in buried:
        dead.complete_message(one)
