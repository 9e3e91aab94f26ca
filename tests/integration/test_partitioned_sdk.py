"""Partitioned queues through the Python SDK: whatever it does with a plain one, it does with sixteen fragments."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import ServiceBusError, SessionCannotBeLockedError

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


# Sending and receiving.


@covers("P5", "P6", "P24", "P26")
@with_sync_client
def test_messages_without_a_key_go_to_all_fragments_in_turn_and_all_come_back(sdk: PythonSdk, queue: str) -> None:
    bodies = numbered(3 * FRAGMENTS)
    send_one_by_one(sdk, queue, bodies)
    receiver = sdk.receiver(queue)
    received = receive(receiver, len(bodies))
    assert sorted(bodies_of(received)) == bodies
    assert Counter(map(fragment_of, received)) == dict.fromkeys(range(FRAGMENTS), 3)
    assert {one.delivery_count for one in received} == {0}
    for one in received:
        receiver.complete_message(one)


@covers("P24", "P27")
@with_async_client
def test_a_batch_is_one_step_of_the_round_robin(sdk: PythonSdk, bus: Bus, queue: str) -> None:
    sender, receiver = sdk.pair(queue)
    for batch in range(FRAGMENTS):
        sender.send_messages([ServiceBusMessage(f"{batch}.{number}".encode()) for number in range(3)])
    received = receive(receiver, 3 * FRAGMENTS)
    fragments = {body_of(one).split(b".")[0]: fragment_of(one) for one in received}
    assert all(fragments[body_of(one).split(b".")[0]] == fragment_of(one) for one in received)
    assert sorted(fragments.values()) == list(range(FRAGMENTS))
    for one in received:
        receiver.complete_message(one)
    assert bus.comes_to(queue, Counts(0))


@covers("P10", "P24")
@with_sync_client
def test_one_key_is_one_fragment_and_stays_in_order(sdk: PythonSdk, queue: str) -> None:
    sender, receiver = sdk.pair(queue)
    for number in range(20):
        sender.send_messages(ServiceBusMessage(f"{number:02}".encode(), partition_key="order-1"))
    received = receive(receiver, 20)
    assert bodies_of(received) == [f"{number:02}".encode() for number in range(20)]
    assert len(set(map(fragment_of, received))) == 1
    assert {one.partition_key for one in received} == {"order-1"}


@covers("P27")
@with_sync_client
@pytest.mark.parametrize("keys", [("a", "b"), ("a", None)])
def test_a_batch_with_different_keys_is_refused_and_nothing_of_it_is_stored(
    impatient_sdk: PythonSdk, bus: Bus, queue: str, keys: tuple[str, str | None]
) -> None:
    sender = impatient_sdk.sender(queue)
    with pytest.raises(ServiceBusError, match="SessionId and PartitionKey"):
        sender.send_messages([ServiceBusMessage(b"one", partition_key=key) for key in keys])
    assert bus.counts(queue) == Counts(0)


@covers("P10", "P27", "M8")
@with_sync_client
def test_a_batch_is_split_by_message_id_where_duplicates_are_looked_for(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_duplicate_detection=True)
    sender, receiver = sdk.pair(queue)
    for _ in range(2):
        sender.send_messages([ServiceBusMessage(body, message_id=body.decode()) for body in numbered(40)])
    assert bus.counts(queue) == Counts(40)
    received = receive(receiver, 40)
    assert sorted(bodies_of(received)) == numbered(40)
    assert len(set(map(fragment_of, received))) > 1
    for one in received:
        receiver.complete_message(one)


@covers("P10", "M8")
@with_sync_client
def test_one_message_id_under_two_keys_is_no_duplicate(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_duplicate_detection=True)
    sender = sdk.sender(queue)
    for key in ("a", "b", "a"):
        sender.send_messages(ServiceBusMessage(b"one", message_id="m", partition_key=key))
    assert bus.counts(queue) == Counts(2)


@covers("P6", "P24")
@with_async_client
def test_receive_and_delete_takes_every_message_once(sdk: PythonSdk, bus: Bus, queue: str) -> None:
    bodies = numbered(2 * FRAGMENTS)
    send_one_by_one(sdk, queue, bodies)
    receiver = sdk.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    assert sorted(bodies_of(receive(receiver, len(bodies)))) == bodies
    assert bus.comes_to(queue, Counts(0))


@covers("P6")
@with_async_client
def test_one_message_at_a_time_finds_all_sixteen(sdk: PythonSdk, bus: Bus, queue: str) -> None:
    bodies = numbered(FRAGMENTS)
    send_one_by_one(sdk, queue, bodies)
    receiver = sdk.receiver(queue)
    found: list[bytes] = []
    while len(found) < FRAGMENTS:
        (one,) = receive(receiver, 1)
        found.append(body_of(one))
        receiver.complete_message(one)
    assert sorted(found) == bodies
    assert bus.comes_to(queue, Counts(0))


@covers("P6")
@with_sync_client
def test_what_is_kept_ready_for_a_receiver_that_goes_is_there_for_the_next_one_uncounted(
    sdk: PythonSdk, queue: str
) -> None:
    bodies = numbered(FRAGMENTS)
    send_one_by_one(sdk, queue, bodies)
    first = sdk.receiver(queue)
    (one,) = receive(first, 1)
    first.complete_message(one)
    first.close()
    rest = receive(sdk.receiver(queue), FRAGMENTS - 1)
    assert sorted([*bodies_of(rest), body_of(one)]) == bodies
    assert {message.delivery_count for message in rest} == {0}


# Settling.


@covers("P4", "P24")
@with_sync_client
def test_every_way_of_settling_reaches_the_fragment_of_the_message(sdk: PythonSdk, bus: Bus, queue: str) -> None:
    send_one_by_one(sdk, queue, numbered(4 * FRAGMENTS))
    receiver = sdk.receiver(queue)
    received = receive(receiver, 4 * FRAGMENTS)
    by_fragment: dict[int, list[ServiceBusReceivedMessage]] = {}
    for one in received:
        by_fragment.setdefault(fragment_of(one), []).append(one)
    deferred: list[int] = []
    for completed, abandoned, dead, parked in by_fragment.values():
        receiver.complete_message(completed)
        receiver.abandon_message(abandoned)
        receiver.dead_letter_message(dead, reason="test")
        receiver.defer_message(parked)
        deferred.append(parked.sequence_number or 0)
    assert bus.counts(queue) == Counts(2 * FRAGMENTS, 0, FRAGMENTS)
    again = receive(receiver, FRAGMENTS)
    assert {one.delivery_count for one in again} == {1}
    found = receiver.receive_deferred_messages(deferred)
    assert [one.sequence_number for one in found] == deferred
    for one in [*again, *found]:
        receiver.complete_message(one)
    dead_letters = sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    buried = receive(dead_letters, FRAGMENTS)
    assert {one.dead_letter_reason for one in buried} == {"test"}
    assert sorted(map(fragment_of, buried)) == list(range(FRAGMENTS))
    for one in buried:
        dead_letters.complete_message(one)
    assert bus.comes_to(queue, Counts(0))


@covers("P24", "P26")
@with_sync_client
@pytest.mark.parametrize("number", [16 << NUMBER_BITS | 1, 0x7FFF << NUMBER_BITS | 1, 15 << NUMBER_BITS | 99, 0])
def test_a_deferred_message_of_a_fragment_that_is_not_there_is_not_found(
    impatient_sdk: PythonSdk, queue: str, number: int
) -> None:
    sender, receiver = impatient_sdk.pair(queue)
    with pytest.raises(ServiceBusError, match=r"no .*message with sequence number"):
        receiver.receive_deferred_messages([number])
    with pytest.raises(ServiceBusError, match=r"no .*message with sequence number"):
        sender.cancel_scheduled_messages(number)


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


# Browsing.


@covers("P22", "P24")
@with_sync_client
def test_repeated_peeks_walk_through_all_fragments_in_the_order_of_the_numbers(sdk: PythonSdk, queue: str) -> None:
    bodies = numbered(5 * FRAGMENTS)
    send_one_by_one(sdk, queue, bodies)
    found = all_peeked(sdk.receiver(queue))
    assert sorted(bodies_of(found)) == bodies
    numbers = [one.sequence_number or 0 for one in found]
    assert numbers == sorted(numbers)


@covers("P22")
@with_sync_client
def test_a_peek_does_not_end_at_a_fragment_that_is_empty(sdk: PythonSdk, queue: str) -> None:
    sender, receiver = sdk.pair(queue)
    for key in ("a", "b", "order-1"):
        sender.send_messages(ServiceBusMessage(key.encode(), partition_key=key))
    assert sorted(bodies_of(all_peeked(receiver))) == [b"a", b"b", b"order-1"]


# Scheduling.


@covers("P4", "P24")
@with_async_client
def test_scheduled_messages_are_cancelled_by_their_numbers(sdk: PythonSdk, bus: Bus, queue: str) -> None:
    sender = sdk.sender(queue)
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    numbers: list[int] = []
    for body in numbered(FRAGMENTS):
        numbers += sender.schedule_messages(ServiceBusMessage(body), later)
    assert len({number >> NUMBER_BITS for number in numbers}) == FRAGMENTS
    assert bus.counts(queue) == Counts(0, FRAGMENTS)
    sender.cancel_scheduled_messages(numbers)
    assert bus.counts(queue) == Counts(0)


@covers("P4", "P24")
@with_async_client
def test_scheduled_messages_appear_when_it_is_time(sdk: PythonSdk, queue: str) -> None:
    sender, receiver = sdk.pair(queue)
    soon = datetime.now(timezone.utc) + timedelta(seconds=1)
    for body in numbered(FRAGMENTS):
        sender.schedule_messages(ServiceBusMessage(body), soon)
    assert sorted(bodies_of(receive(receiver, FRAGMENTS))) == numbered(FRAGMENTS)


# Sessions.


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


# Topics.


@covers("P4", "P7", "P24", "P26")
@with_sync_client
def test_subscriptions_of_a_partitioned_topic_show_its_numbers(sdk: PythonSdk, bus: Bus) -> None:
    topic = bus.make_topic("one", "two")
    sender = sdk.topic_sender(topic)
    for body in numbered(2 * FRAGMENTS):
        sender.send_messages(ServiceBusMessage(body))
    found: list[dict[bytes, int | None]] = []
    for name in ("one", "two"):
        receiver = sdk.subscription_receiver(topic, name)
        received = receive(receiver, 2 * FRAGMENTS)
        assert Counter(map(fragment_of, received)) == dict.fromkeys(range(FRAGMENTS), 2)
        found.append({body_of(one): one.sequence_number for one in received})
        for one in received:
            receiver.complete_message(one)
    assert found[0] == found[1]
    assert sorted(found[0]) == numbered(2 * FRAGMENTS)


@covers("P4", "P24")
@with_sync_client
def test_scheduled_and_dead_letters_of_a_partitioned_topic(sdk: PythonSdk, bus: Bus) -> None:
    topic = bus.make_topic("sub")
    sender = sdk.topic_sender(topic)
    soon = datetime.now(timezone.utc) + timedelta(seconds=1)
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
