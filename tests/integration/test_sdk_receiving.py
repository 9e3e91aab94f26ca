"""How the Python SDK receives, blocking and asynchronous: modes, prefetch, competition, browsing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusError,
)

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.python_sdk import PythonSdk, bodies_of, body_of, receive, short_lived
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape


def numbered(count: int, first: int = 0) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"message {number}") for number in range(first, first + count)]


def bodies(count: int, first: int = 0) -> list[bytes]:
    return [f"message {number}".encode() for number in range(first, first + count)]


@covers("M2", "B1")
def test_receive_and_delete_takes_messages_for_good(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    sender.send_messages(numbered(10))
    messages = receive(receiver, 4)
    assert bodies_of(messages) == bodies(4)
    assert messages[0].locked_until_utc is None
    with pytest.raises(ValueError, match="RECEIVE_AND_DELETE"):
        receiver.complete_message(messages[0])
    assert bus.counts(queue) == Counts(6)


@covers("M2")
def test_peek_lock_keeps_messages_until_they_are_completed(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages(numbered(3))
    messages = receive(receiver, 3)
    assert len({str(message.lock_token) for message in messages}) == 3
    assert bus.counts(queue) == Counts(3)
    for message in messages:
        receiver.complete_message(message)
    assert bus.counts(queue) == Counts(0)


@covers("M12")
def test_a_receiver_can_be_iterated_over_and_ends_when_nothing_comes(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue, max_wait_time=1)
    sender.send_messages(numbered(12))
    found = []
    for message in receiver:
        receiver.complete_message(message)
        found.append(body_of(message))
    assert found == bodies(12)
    assert bus.counts(queue) == Counts(0)


@covers("M12")
def test_prefetched_messages_are_handed_out_in_order(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue, prefetch_count=30)
    sender.send_messages(numbered(100))
    found = []
    for _ in range(5):
        for message in receive(receiver, 20):
            found.append(body_of(message))
            receiver.complete_message(message)
    assert found == bodies(100)
    assert bus.counts(queue) == Counts(0)


@covers("M2", "M12")
def test_what_a_receiver_prefetched_and_never_took_goes_back_uncounted(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue, prefetch_count=10)
    sender.send_messages(numbered(10))
    (taken,) = receive(receiver, 1)
    receiver.complete_message(taken)
    receiver.close()
    again = receive(sdk.receiver(queue), 9)
    assert bodies_of(again) == bodies(9, first=1)
    assert {message.delivery_count for message in again} == {0}


@covers("M1")
@pytest.mark.parametrize(
    ("connect", "mode"),
    [("sync", ServiceBusReceiveMode.PEEK_LOCK), ("async", ServiceBusReceiveMode.RECEIVE_AND_DELETE)],
    indirect=["connect"],
    ids=["peek-lock", "receive-and-delete"],
)
def test_competing_receivers_get_every_message_exactly_once(
    sdk: PythonSdk, bus: Bus, mode: ServiceBusReceiveMode
) -> None:
    queue = bus.make_queue()
    sender = sdk.sender(queue)
    receivers = sdk.receivers(4, queue, max_wait_time=1, receive_mode=mode)
    for first in range(0, 400, 100):
        sender.send_messages(numbered(100, first))
    with ThreadPoolExecutor(len(receivers)) as threads:
        parts = list(threads.map(_take_all, receivers))
    found = [body for part in parts for body in part]
    assert sorted(found) == sorted(bodies(400))
    assert all(parts)
    assert bus.counts(queue) == Counts(0)


def _take_all(receiver: ServiceBusReceiver) -> list[bytes]:
    """Until nothing has come for a while."""
    found: list[bytes] = []
    while messages := receiver.receive_messages(max_message_count=10):
        found += bodies_of(messages)
        if messages[0].lock_token is not None:
            for message in messages:
                receiver.complete_message(message)
    return found


@covers("M1")
def test_a_receiver_that_waits_gets_a_message_as_soon_as_it_is_sent(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(receive, receiver, 1)
        sender.send_messages(ServiceBusMessage("at last"))
        assert bodies_of(waiting.result()) == [b"at last"]


@covers("M4")
def test_peeking_walks_over_everything_and_changes_nothing(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages(numbered(25))
    peeked: list[ServiceBusReceivedMessage] = []
    while part := receiver.peek_messages(max_message_count=10):
        peeked += part
    assert bodies_of(peeked) == bodies(25)
    first = peeked[0].sequence_number or 0  # they were one batch, so they are all in the fragment of this one
    assert [message.sequence_number for message in peeked] == list(range(first, first + 25))
    assert {message.delivery_count for message in peeked} == {0}
    from_twenty = receiver.peek_messages(max_message_count=3, sequence_number=first + 20)
    assert [message.sequence_number for message in from_twenty] == [first + 20, first + 21, first + 22]
    assert receiver.peek_messages(sequence_number=first + 25) == []
    assert {message.delivery_count for message in receive(receiver, 25)} == {0}


@covers("M4", "P22")
def test_one_answer_to_a_peek_stays_below_256_kb_and_the_next_goes_on(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    for number in range(6):
        sender.send_messages(ServiceBusMessage(bytes([number]) * 100_000))
    sizes = []
    found: list[int] = []
    while part := receiver.peek_messages(max_message_count=100):
        sizes.append(len(part))
        found += [body_of(message)[0] for message in part]
    assert bus.shape.as_sent(found) == list(range(6))
    assert max(sizes) == 2


@covers("M4", "M5", "M3")
def test_peeking_tells_active_locked_deferred_and_scheduled_messages_apart(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages(numbered(3))
    sender.schedule_messages(ServiceBusMessage("scheduled"), datetime.now(UTC) + timedelta(hours=1))
    deferred, _locked = receive(receiver, 2)
    receiver.defer_message(deferred)
    peeked = receiver.peek_messages(max_message_count=10, sequence_number=1)
    states = {body_of(message): message.state for message in peeked}
    assert states == {
        b"message 0": ServiceBusMessageState.DEFERRED,
        b"message 1": ServiceBusMessageState.ACTIVE,
        b"message 2": ServiceBusMessageState.ACTIVE,
        b"scheduled": ServiceBusMessageState.SCHEDULED,
    }
    assert bus.counts(queue) == Counts(3, scheduled=1)


@covers("M3", "M4")
def test_dead_letters_are_a_queue_of_their_own(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages(numbered(3))
    for message in receive(receiver, 3):
        receiver.dead_letter_message(message, reason="tried", error_description="in vain")
    dead = sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert bodies_of(dead.peek_messages(max_message_count=10)) == bodies(3)
    first, second, third = receive(dead, 3)
    dead.complete_message(first)
    dead.abandon_message(second)
    dead.defer_message(third)
    (again,) = receive(dead, 1)
    assert (body_of(again), again.delivery_count) == (b"message 1", 0)
    (fetched,) = dead.receive_deferred_messages([third.sequence_number or 0])
    dead.complete_message(fetched)
    assert bus.counts(queue) == Counts(0, dead=1)


@covers("M3")
def test_sub_queues_can_be_received_from_and_deleted(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages(ServiceBusMessage("bad"))
    receiver.dead_letter_message(receive(receiver, 1)[0])
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    (message,) = receive(sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER, receive_mode=mode), 1)
    assert (message.dead_letter_reason, message.dead_letter_error_description) == (None, None)
    assert bus.counts(queue) == Counts(0)


@covers("M5")
def test_messages_are_scheduled_by_their_sequence_numbers_and_cancelled(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    later = datetime.now(UTC) + timedelta(hours=1)
    one = sender.schedule_messages(ServiceBusMessage("one"), later)
    many = sender.schedule_messages(numbered(4), later)
    assert len({*one, *many}) == 5
    assert bus.counts(queue) == Counts(0, scheduled=5)
    peeked = receiver.peek_messages(max_message_count=10)
    assert {message.sequence_number for message in peeked} == {*one, *many}
    assert {message.scheduled_enqueue_time_utc for message in peeked} == {
        later.replace(microsecond=later.microsecond // 1000 * 1000)
    }
    sender.cancel_scheduled_messages(many[0])
    sender.cancel_scheduled_messages(many[1:3])
    assert bus.counts(queue) == Counts(0, scheduled=2)
    left = receiver.peek_messages(max_message_count=10, sequence_number=1)
    assert {message.sequence_number for message in left} == {one[0], many[3]}


@covers("M5")
def test_what_is_not_scheduled_cannot_be_cancelled(impatient_sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender = impatient_sdk.sender(queue)
    (kept,) = sender.schedule_messages(ServiceBusMessage("one"), datetime.now(UTC) + timedelta(hours=1))
    sender.send_messages(ServiceBusMessage("active"))
    for numbers in ([1_000_000], [kept + 1], [kept, 1_000_000]):
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers)
    assert bus.counts(queue) == Counts(1, scheduled=1)


@covers("M5")
def test_scheduled_messages_come_when_they_are_due_with_new_numbers(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    due = datetime.now(UTC) + timedelta(seconds=1)
    numbers = sender.schedule_messages(numbered(3), due)
    sender.send_messages(ServiceBusMessage("first"))
    first, *scheduled = receive(receiver, 4)
    assert body_of(first) == b"first"
    assert bodies_of(scheduled) == bodies(3)
    for message in scheduled:
        assert message.sequence_number not in numbers
        assert (message.sequence_number or 0) > max(number for number in numbers)
        assert message.enqueued_time_utc is not None
        assert message.enqueued_time_utc >= due - timedelta(milliseconds=1)
    assert bus.counts(queue) == Counts(4)


@covers("M6")
def test_an_expired_message_is_dropped(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages(
        [
            short_lived("short"),
            ServiceBusMessage("long", time_to_live=timedelta(hours=1)),
        ]
    )
    (message,) = receive(receiver, 1)
    assert body_of(message) == b"long"
    assert bus.comes_to(queue, Counts(1))


@covers("M6", "M3")
def test_an_expired_message_goes_to_the_dead_letters_where_the_queue_wants_it(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(dead_lettering_on_message_expiration=True)
    sender = sdk.sender(queue)
    sender.send_messages(short_lived("late", message_id="late"))
    (dead,) = receive(sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER), 1)
    assert (dead.message_id, dead.dead_letter_reason) == ("late", "TTLExpiredException")
    assert dead.dead_letter_error_description == "The message expired and was dead lettered."
    assert bus.counts(queue) == Counts(0, dead=1)


@covers("M6")
def test_the_smaller_time_to_live_of_message_and_queue_holds(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue(default_message_time_to_live=timedelta(minutes=10)))
    asked = [timedelta(minutes=1), timedelta(hours=1), None]
    sender.send_messages([ServiceBusMessage("x", time_to_live=ttl) for ttl in asked])
    lives = []
    for message in receive(receiver, 3):
        assert message.expires_at_utc is not None
        assert message.enqueued_time_utc is not None
        assert message.time_to_live == message.expires_at_utc - message.enqueued_time_utc
        lives.append(message.time_to_live)
    assert lives == [timedelta(minutes=1), timedelta(minutes=10), timedelta(minutes=10)]


@covers("M1")
def test_a_queue_deleted_under_its_receiver_ends_the_receiving(impatient_sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    receiver = impatient_sdk.receiver(queue)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(receiver.receive_messages)
        bus.admin.delete_queue(queue)
        with pytest.raises((MessagingEntityNotFoundError, ServiceBusAuthenticationError)):
            waiting.result()


@covers("M1")
def test_a_queue_deleted_under_its_sender_takes_nothing_more(impatient_sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender = impatient_sdk.sender(queue)
    sender.send_messages(ServiceBusMessage("one"))
    bus.admin.delete_queue(queue)
    with pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("two"))
