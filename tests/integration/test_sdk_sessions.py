"""Sessions through the Python SDK: accepting, holding, losing, state, browsing, listing."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import with_sync_client
from tests.integration.python_sdk import PythonSdk, bodies_of, receive
from tests.integration.shapes import Shape, on_every_shape

pytestmark = on_every_shape

SHORT = timedelta(seconds=2)
A_MOMENT = timedelta(seconds=0.5)


@pytest.fixture
def session_queue(bus: Bus) -> str:
    return bus.make_queue(requires_session=True)


def messages_of(session_id: str, count: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"{session_id}{i}".encode(), session_id=session_id) for i in range(count)]


def numbered(session_id: str, numbers: range) -> list[bytes]:
    return [f"{session_id}{i}".encode() for i in numbers]


def send_together(sender: ServiceBusSender, bus: Bus, messages: list[ServiceBusMessage]) -> None:
    """As one batch, where a batch may be of several sessions (P27)."""
    for batch in [[one] for one in messages] if bus.shape.is_partitioned else [messages]:
        sender.send_messages(batch)


def locked_until(receiver: ServiceBusReceiver) -> datetime:
    until = receiver.session.locked_until_utc
    assert until is not None
    return until


@covers("M7")
def test_a_named_session_is_received_in_order_and_shows_its_id(sdk: PythonSdk, session_queue: str) -> None:
    sender = sdk.sender(session_queue)
    sender.send_messages(messages_of("a", 3))
    sender.send_messages(messages_of("b", 1))
    sender.send_messages(ServiceBusMessage(b"a3", session_id="a"))
    receiver = sdk.receiver(session_queue, session_id="a")
    assert receiver.session.session_id == "a"
    until = locked_until(receiver)
    assert timedelta(seconds=50) < until - datetime.now(UTC) < timedelta(seconds=70)
    received = receive(receiver, 4)
    assert bodies_of(received) == numbered("a", range(4))
    assert {one.session_id for one in received} == {"a"}
    assert {one.delivery_count for one in received} == {0}
    for one in received:
        receiver.complete_message(one)


@covers("M7")
def test_the_next_available_session_is_the_oldest(sdk: PythonSdk, session_queue: str, shape: Shape) -> None:
    # Over fragments that are asked at once, the first to answer wins: there "oldest" holds in each of them.
    sender = sdk.sender(session_queue)
    sender.send_messages(messages_of("first", 1))
    sender.send_messages(messages_of("second", 1))
    one = sdk.receiver(session_queue, session_id=NEXT_AVAILABLE_SESSION)
    two = sdk.receiver(session_queue, session_id=NEXT_AVAILABLE_SESSION)
    found = [one.session.session_id, two.session.session_id]
    assert shape.as_sent(found) == ["first", "second"]
    assert bodies_of(receive(two, 1)) == [f"{found[1]}0".encode()]


@covers("M7")
def test_a_waiting_accept_gets_a_session_that_comes_later(sdk: PythonSdk, session_queue: str) -> None:
    sender = sdk.sender(session_queue)
    timer = threading.Timer(1.0, lambda: sender.send_messages(messages_of("late", 1)))
    timer.start()
    receiver = sdk.receiver(session_queue, session_id=NEXT_AVAILABLE_SESSION)
    assert receiver.session.session_id == "late"
    timer.join()


@covers("M7")
def test_an_accept_without_a_session_to_come_times_out(impatient_sdk: PythonSdk, session_queue: str) -> None:
    with pytest.raises(OperationTimeoutError):
        impatient_sdk.receiver(session_queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1)


@covers("M7")
def test_a_session_held_by_another_cannot_be_locked(impatient_sdk: PythonSdk, session_queue: str) -> None:
    impatient_sdk.receiver(session_queue, session_id="mine")
    with pytest.raises(SessionCannotBeLockedError):
        impatient_sdk.receiver(session_queue, session_id="mine")


@covers("M7")
def test_closing_a_receiver_frees_its_session_with_what_it_did_not_settle(
    sdk: PythonSdk, bus: Bus, session_queue: str
) -> None:
    sdk.sender(session_queue).send_messages(messages_of("a", 3))
    first = sdk.receiver(session_queue, session_id="a")
    received = receive(first, 2)
    first.complete_message(received[0])
    first.close()
    second = sdk.receiver(session_queue, session_id="a")
    again = receive(second, 2)
    assert bodies_of(again) == [b"a1", b"a2"]
    assert [one.delivery_count for one in again] == [0, 0]


@covers("M7")
def test_every_settlement_works_in_a_session(sdk: PythonSdk, bus: Bus, session_queue: str) -> None:
    sdk.sender(session_queue).send_messages(messages_of("a", 4))
    receiver = sdk.receiver(session_queue, session_id="a")
    zero, one, two, three = receive(receiver, 4)
    receiver.complete_message(zero)
    receiver.abandon_message(one)
    receiver.defer_message(two)
    receiver.dead_letter_message(three, reason="enough", error_description="of it")
    (again,) = receive(receiver, 1)
    assert (bodies_of([again]), again.delivery_count) == ([b"a1"], 1)
    receiver.complete_message(again)
    (deferred,) = receiver.receive_deferred_messages(two.sequence_number or 0)
    assert (bodies_of([deferred]), deferred.session_id) == ([b"a2"], "a")
    receiver.complete_message(deferred)
    assert bus.comes_to(session_queue, Counts(active=0, dead=1))
    dead = sdk.receiver(session_queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    (letter,) = receive(dead, 1)
    assert (bodies_of([letter]), letter.session_id, letter.dead_letter_reason) == ([b"a3"], "a", "enough")
    dead.complete_message(letter)


@covers("M7")
def test_a_deferred_message_belongs_to_its_session(impatient_sdk: PythonSdk, session_queue: str) -> None:
    impatient_sdk.sender(session_queue).send_messages(messages_of("a", 1))
    receiver = impatient_sdk.receiver(session_queue, session_id="a")
    (message,) = receive(receiver, 1)
    receiver.defer_message(message)
    other = impatient_sdk.receiver(session_queue, session_id="b")
    with pytest.raises(ServiceBusError):
        other.receive_deferred_messages(message.sequence_number or 0)


@covers("M7")
def test_receive_and_delete_in_a_session(sdk: PythonSdk, bus: Bus, session_queue: str) -> None:
    sdk.sender(session_queue).send_messages(messages_of("a", 5))
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    receiver = sdk.receiver(session_queue, session_id="a", receive_mode=mode)
    assert bodies_of(receive(receiver, 3)) == numbered("a", range(3))
    assert bus.comes_to(session_queue, Counts(active=2))


@covers("M7")
def test_renewing_keeps_a_session_and_what_was_received_in_it(small_sdk: PythonSdk, small_bus: Bus) -> None:
    queue = small_bus.make_queue(requires_session=True, lock_duration=SHORT)
    small_sdk.sender(queue).send_messages(messages_of("a", 1))
    receiver = small_sdk.receiver(queue, session_id="a")
    (message,) = receive(receiver, 1)
    first_end = locked_until(receiver)
    while datetime.now(UTC) < first_end + A_MOMENT:
        assert receiver.session.renew_lock() > first_end
        assert receiver.receive_messages(max_wait_time=0.1) == []  # it does the waiting
    receiver.complete_message(message)
    assert small_bus.comes_to(queue, Counts(active=0))


@covers("M7")
def test_a_lapsed_session_is_lost_and_free(small_sdk: PythonSdk, small_bus: Bus) -> None:
    queue = small_bus.make_queue(requires_session=True, lock_duration=SHORT)
    small_sdk.sender(queue).send_messages(messages_of("a", 1))
    receiver = small_sdk.receiver(queue, session_id="a")
    (message,) = receive(receiver, 1)
    next_one = small_sdk.receiver(queue, session_id=NEXT_AVAILABLE_SESSION)
    assert next_one.session.session_id == "a"
    (again,) = receive(next_one, 1)
    assert again.delivery_count == 1
    with pytest.raises(SessionLockLostError):
        receiver.complete_message(message)
    with pytest.raises(SessionLockLostError):
        receiver.session.get_state()
    next_one.complete_message(again)


@covers("M7")
def test_a_session_keeps_a_state(sdk: PythonSdk, session_queue: str) -> None:
    receiver = sdk.receiver(session_queue, session_id="a")
    assert receiver.session.get_state() is None
    receiver.session.set_state(b"first")
    receiver.session.set_state(bytes(range(256)) * 1024)
    receiver.close()
    receiver = sdk.receiver(session_queue, session_id="a")
    assert receiver.session.get_state() == bytes(range(256)) * 1024
    receiver.session.set_state(None)
    assert receiver.session.get_state() is None


@covers("M7")
def test_a_state_that_is_too_large_is_refused(impatient_sdk: PythonSdk, session_queue: str) -> None:
    receiver = impatient_sdk.receiver(session_queue, session_id="a")
    receiver.session.set_state(b"small")
    with pytest.raises(MessageSizeExceededError, match="has 262145 bytes; at most 262144 are allowed"):
        receiver.session.set_state(bytes(256 * 1024 + 1))
    assert receiver.session.get_state() == b"small"


@covers("M7")
def test_peeking_in_a_session_shows_its_messages_only(sdk: PythonSdk, session_queue: str) -> None:
    sender = sdk.sender(session_queue)
    for session_id in ("a", "b", "a", "b"):
        sender.send_messages(messages_of(session_id, 2))
    receiver = sdk.receiver(session_queue, session_id="b")
    peeked = receiver.peek_messages(max_message_count=10)
    assert bodies_of(peeked) == [b"b0", b"b1", b"b0", b"b1"]
    assert {one.session_id for one in peeked} == {"b"}
    (taken,) = receive(receiver, 1)
    assert len(receiver.peek_messages(max_message_count=10, sequence_number=1)) == 4, "locked ones are shown, too"
    receiver.complete_message(taken)
    assert len(receiver.peek_messages(max_message_count=10, sequence_number=1)) == 3


@covers("M7")
def test_a_scheduled_message_comes_to_its_session(sdk: PythonSdk, session_queue: str) -> None:
    sender = sdk.sender(session_queue)
    at = datetime.now(UTC) + timedelta(seconds=1)
    sender.schedule_messages(messages_of("later", 2), at)
    receiver = sdk.receiver(session_queue, session_id=NEXT_AVAILABLE_SESSION)
    assert receiver.session.session_id == "later"
    assert bodies_of(receive(receiver, 2)) == numbered("later", range(2))


@covers("M7")
@with_sync_client
def test_all_sessions_can_be_listed_page_by_page(sdk: PythonSdk, bus: Bus, session_queue: str) -> None:
    sender = sdk.sender(session_queue)
    batch = [ServiceBusMessage(b"x", session_id=f"session {i}") for i in range(250)]
    send_together(sender, bus, batch[:125])
    send_together(sender, bus, batch[125:])
    sdk.receiver(session_queue, session_id="state only").session.set_state(b"state")
    with ServiceBusClient.from_connection_string(bus.connection_string) as client:
        listed = list(client.list_queue_sessions(session_queue))
        assert sorted(listed) == sorted([f"session {i}" for i in range(250)] + ["state only"])
        past = datetime.now(UTC) - timedelta(minutes=1)
        assert list(client.list_queue_sessions(session_queue, state_updated_after=past)) == ["state only"]
        soon = datetime.now(UTC) + timedelta(minutes=1)
        assert list(client.list_queue_sessions(session_queue, state_updated_after=soon)) == []


@covers("M7")
@with_sync_client
def test_competing_receivers_share_the_sessions_and_keep_each_in_order(
    sdk: PythonSdk, bus: Bus, session_queue: str
) -> None:
    sessions = [f"s{i}" for i in range(8)]  # twice as many as receivers
    sender = sdk.sender(session_queue)
    for number in range(5):
        send_together(sender, bus, [ServiceBusMessage(str(number).encode(), session_id=one) for one in sessions])
    received: dict[str, list[bytes]] = {}
    held: set[str] = set()
    lock = threading.Lock()

    def work() -> None:
        with ServiceBusClient.from_connection_string(bus.connection_string, retry_total=0) as client:
            while True:
                try:
                    with client.get_queue_receiver(
                        session_queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1
                    ) as receiver:
                        session_id = receiver.session.session_id
                        with lock:
                            assert session_id not in held, "two hold the same session"
                            held.add(session_id)
                        got: list[ServiceBusReceivedMessage] = receive(receiver, 5, max_wait_time=10)
                        for one in got:
                            receiver.complete_message(one)
                        with lock:
                            received.setdefault(session_id, []).extend(bodies_of(got))
                            held.remove(session_id)
                except OperationTimeoutError:
                    return

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert received == {one: [b"0", b"1", b"2", b"3", b"4"] for one in sessions}
    assert bus.comes_to(session_queue, Counts(active=0))


@covers("M7")
@with_sync_client
def test_an_automatic_renewer_keeps_a_session(small_sdk: PythonSdk, small_bus: Bus) -> None:
    queue = small_bus.make_queue(requires_session=True, lock_duration=SHORT)
    with (
        ServiceBusClient.from_connection_string(small_bus.connection_string) as client,
        client.get_queue_receiver(queue, session_id="a") as receiver,
        AutoLockRenewer() as renewer,
    ):
        renewer.register(receiver, receiver.session, max_lock_renewal_duration=60)
        first_end = locked_until(receiver)
        while locked_until(receiver) < first_end + A_MOMENT:
            assert not receiver.session.auto_renew_error
            time.sleep(0.05)  # others need the processor more
        small_sdk.sender(queue).send_messages(messages_of("a", 1))
        (message,) = receive(receiver, 1)
        receiver.complete_message(message)


# What does not go together.


@covers("M7")
def test_a_message_without_a_session_is_refused(impatient_sdk: PythonSdk, bus: Bus, session_queue: str) -> None:
    sender = impatient_sdk.sender(session_queue)
    with pytest.raises(ServiceBusError, match="SessionId"):
        sender.send_messages(ServiceBusMessage(b"x"))
    with pytest.raises(ServiceBusError, match="SessionId"):
        sender.send_messages([ServiceBusMessage(b"x", session_id="a"), ServiceBusMessage(b"y")])
    assert bus.counts(session_queue) == Counts(active=0)


@covers("M7")
def test_a_plain_receiver_on_a_session_queue_is_refused(impatient_sdk: PythonSdk, session_queue: str) -> None:
    with pytest.raises(ServiceBusError, match="requires sessions"):
        impatient_sdk.receiver(session_queue)


@covers("M7")
def test_a_session_receiver_on_a_plain_queue_is_refused(impatient_sdk: PythonSdk, queue: str) -> None:
    with pytest.raises(ServiceBusError, match="does not require sessions"):
        impatient_sdk.receiver(queue, session_id="a")
    with pytest.raises(ServiceBusError, match="does not require sessions"):
        impatient_sdk.receiver(queue, session_id=NEXT_AVAILABLE_SESSION)


@covers("M7")
def test_a_session_id_that_is_too_long_is_refused(impatient_sdk: PythonSdk, session_queue: str) -> None:
    with pytest.raises(ServiceBusError, match="128"):
        impatient_sdk.receiver(session_queue, session_id="x" * 129)
    impatient_sdk.receiver(session_queue, session_id="x" * 128)
