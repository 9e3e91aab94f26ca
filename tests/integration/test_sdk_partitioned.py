"""Partitioned entities through the unmodified SDK: where messages land, what clients see, what an outage changes."""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus.exceptions import ServiceBusError

from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.namespace.partitioning import fragment_of_key
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import with_sync_client
from tests.integration.python_sdk import PythonSdk, bodies_of, body_of, receive
from tests.integration.shapes import PARTITIONED, PARTITIONED_ON_BROKERS, on_shapes
from tests.integration.test_http_messages import Http
from tests.integration.test_meter import live

pytestmark = [on_shapes(PARTITIONED, PARTITIONED_ON_BROKERS), with_sync_client]

EACH = [f"m{number}" for number in range(FRAGMENT_COUNT)]


def fragment_of(message: ServiceBusReceivedMessage) -> int:
    assert message.sequence_number is not None
    return message.sequence_number >> 48


def peeked(receiver: ServiceBusReceiver, step: int = 100) -> list[ServiceBusReceivedMessage]:
    """Everything there is, one peek after the other."""
    found: list[ServiceBusReceivedMessage] = []
    at = 1
    while part := receiver.peek_messages(step, sequence_number=at):
        found += part
        at = (part[-1].sequence_number or 0) + 1
    return found


def send_each(sender: ServiceBusSender, bodies: list[str]) -> None:
    for body in bodies:
        sender.send_messages(ServiceBusMessage(body))


def batch_of(sender: ServiceBusSender, *messages: ServiceBusMessage) -> None:
    batch = sender.create_message_batch()
    for message in messages:
        batch.add_message(message)
    sender.send_messages(batch)


def key_in(index: int) -> str:
    return next(key for number in range(1000) if fragment_of_key(key := f"key-{number}") == index)


# Where messages land.


@covers("P5", "P26")
def test_messages_without_a_key_are_spread_evenly_over_all_fragments(sdk: PythonSdk, queue: str) -> None:
    sender, receiver = sdk.pair(queue)
    send_each(sender, EACH + EACH)
    found = peeked(receiver)
    assert Counter(fragment_of(one) for one in found) == dict.fromkeys(range(FRAGMENT_COUNT), 2)
    for index in range(FRAGMENT_COUNT):
        numbers = [one.sequence_number or 0 for one in found if fragment_of(one) == index]
        assert [number & ((1 << 48) - 1) for number in numbers] == [1, 2]


@covers("P5", "P10")
def test_the_same_key_always_lands_in_the_same_fragment_and_in_order(sdk: PythonSdk, queue: str) -> None:
    sender, receiver = sdk.pair(queue)
    for number in range(4):
        for key in ("a", "b", "c"):
            sender.send_messages(ServiceBusMessage(f"{key}{number}", partition_key=key))
    found = peeked(receiver)
    for key in ("a", "b", "c"):
        own = [one for one in found if one.partition_key == key]
        assert {fragment_of(one) for one in own} == {int(fragment_of_key(key))}
        assert bodies_of(own) == [f"{key}{number}".encode() for number in range(4)]


@covers("P10", "M7")
def test_a_session_lives_in_the_fragment_of_its_id_with_its_state(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_session=True)
    sender = sdk.sender(queue)
    for number in range(3):
        for name in ("one", "two"):
            sender.send_messages(ServiceBusMessage(f"{name}{number}", session_id=name))
    for name in ("two", "one"):
        receiver = sdk.receiver(queue, session_id=name)
        receiver.session.set_state(name.encode())
        messages = receive(receiver, 3)
        assert bodies_of(messages) == [f"{name}{number}".encode() for number in range(3)]
        assert {fragment_of(one) for one in messages} == {int(fragment_of_key(name))}
        assert bytes(receiver.session.get_state() or b"") == name.encode()


@covers("P10", "M8")
def test_a_duplicate_has_the_same_key_and_the_same_message_id(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_duplicate_detection=True)
    sender = sdk.sender(queue)
    for _ in range(3):
        for number in range(20):
            sender.send_messages(ServiceBusMessage("x", message_id=f"id-{number}"))
    assert bus.counts(queue) == Counts(20)
    for _ in range(2):
        for number in range(40):
            sender.send_messages(ServiceBusMessage("x", message_id="id-0", partition_key=f"key-{number}"))
    assert bus.counts(queue) == Counts(60)
    for _ in range(2):
        for number in range(40):
            sender.send_messages(ServiceBusMessage("x", message_id="id-0", session_id=f"session-{number}"))
    assert bus.counts(queue) == Counts(100)


@covers("P26", "M9")
def test_a_subscription_shows_its_topics_numbers(sdk: PythonSdk, bus: Bus) -> None:
    topic = bus.make_topic("one", "two")
    send_each(sdk.topic_sender(topic), EACH)
    seen = [peeked(sdk.subscription_receiver(topic, name)) for name in ("one", "two")]
    numbers = [[one.sequence_number for one in found] for found in seen]
    assert numbers[0] == numbers[1]
    assert [fragment_of(one) for one in seen[0]] == list(range(FRAGMENT_COUNT))


# Batches.


@covers("P27", "P5", "P24")
def test_a_batch_without_a_key_goes_whole_to_one_fragment_and_is_one_step(sdk: PythonSdk, queue: str) -> None:
    sender, receiver = sdk.pair(queue)
    for number in range(3):
        batch_of(sender, *[ServiceBusMessage(f"{number}{part}") for part in "abcd"])
    found = peeked(receiver)
    together: dict[int, list[bytes]] = defaultdict(list)
    for one in found:
        together[fragment_of(one)].append(body_of(one))
    whole = [[f"{number}{part}".encode() for part in "abcd"] for number in range(3)]
    assert sorted(together.values()) == whole


@covers("P27")
@pytest.mark.parametrize(
    "keys",
    [("a", "b"), ("a", None), (None, "b")],
    ids=["two keys", "first only", "second only"],
)
def test_a_batch_with_different_keys_is_refused(
    impatient_sdk: PythonSdk, bus: Bus, queue: str, keys: tuple[str | None, str | None]
) -> None:
    sender = impatient_sdk.sender(queue)
    with pytest.raises(ServiceBusError, match="batch") as refused:
        batch_of(sender, *[ServiceBusMessage("x", partition_key=key) for key in keys])
    assert "not-allowed" in str(refused.value)
    assert bus.counts(queue) == Counts(0)
    batch_of(sender, *[ServiceBusMessage("x", partition_key="a") for _ in range(3)])
    assert bus.counts(queue) == Counts(3)


@covers("P27", "M8")
def test_a_batch_is_split_by_message_id_where_duplicates_are_looked_for(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_duplicate_detection=True)
    sender, receiver = sdk.pair(queue)
    messages = [ServiceBusMessage(f"m{number}", message_id=f"m{number}") for number in range(30)]
    batch_of(sender, *messages)
    batch_of(sender, *messages)
    found = peeked(receiver)
    assert Counter(one.message_id for one in found) == dict.fromkeys([f"m{number}" for number in range(30)], 1)
    assert all(fragment_of(one) == fragment_of_key(str(one.message_id)) for one in found)


# Receiving.


@covers("P6", "M2")
@pytest.mark.parametrize("mode", [ServiceBusReceiveMode.PEEK_LOCK, ServiceBusReceiveMode.RECEIVE_AND_DELETE])
def test_one_by_one_every_message_comes_once(sdk: PythonSdk, bus: Bus, queue: str, mode: ServiceBusReceiveMode) -> None:
    sender, receiver = sdk.pair(queue, receive_mode=mode)
    send_each(sender, EACH)
    got: list[ServiceBusReceivedMessage] = []
    for _ in EACH:
        (message,) = receive(receiver, 1)
        got.append(message)
        if mode == ServiceBusReceiveMode.PEEK_LOCK:
            receiver.complete_message(message)
    assert sorted(bodies_of(got)) == sorted(body.encode() for body in EACH)
    assert {message.delivery_count for message in got} == {0}
    assert receiver.receive_messages(max_wait_time=0.5) == []
    assert bus.counts(queue) == Counts(0)


@covers("P6", "M2")
def test_what_was_kept_ready_comes_to_the_next_receiver_at_once_and_uncounted(sdk: PythonSdk, queue: str) -> None:
    sender, receiver = sdk.pair(queue)
    send_each(sender, EACH)
    (first,) = receive(receiver, 1)
    receiver.complete_message(first)
    receiver.close()
    rest = receive(sdk.receiver(queue), FRAGMENT_COUNT - 1)
    assert {message.delivery_count for message in rest} == {0}
    assert sorted(bodies_of([first, *rest])) == sorted(body.encode() for body in EACH)


@covers("P4", "P6", "P24", "M3")
def test_messages_are_settled_in_every_way(sdk: PythonSdk, bus: Bus, queue: str) -> None:
    sender, receiver = sdk.pair(queue)
    send_each(sender, EACH)
    messages = receive(receiver, FRAGMENT_COUNT)
    for message in messages[:4]:
        receiver.complete_message(message)
    for message in messages[4:8]:
        receiver.dead_letter_message(message, reason="why", error_description="because")
    for message in messages[8:12]:
        receiver.defer_message(message)
    for message in messages[12:]:
        receiver.abandon_message(message)
    again = receive(receiver, 4)
    assert {message.delivery_count for message in again} == {1}
    deferred = receiver.receive_deferred_messages([one.sequence_number or 0 for one in messages[8:12]])
    assert bodies_of(deferred) == bodies_of(messages[8:12])
    for message in [*again, *deferred]:
        receiver.renew_message_lock(message)
        receiver.complete_message(message)
    dead = receive(sdk.receiver(queue, sub_queue="deadletter"), 4)
    assert {message.dead_letter_reason for message in dead} == {"why"}
    assert bus.counts(queue) == Counts(0, dead=4)


@covers("P4", "P24", "M5")
def test_scheduled_messages_are_cancelled_or_come_in_time(sdk: PythonSdk, bus: Bus, queue: str) -> None:
    sender, receiver = sdk.pair(queue)
    hour = datetime.now(UTC) + timedelta(hours=1)
    numbers = [sender.schedule_messages(ServiceBusMessage(body), hour)[0] for body in EACH]
    assert sorted(number >> 48 for number in numbers) == list(range(FRAGMENT_COUNT))
    assert bus.counts(queue) == Counts(0, scheduled=FRAGMENT_COUNT)
    sender.cancel_scheduled_messages(numbers)
    assert bus.counts(queue) == Counts(0)
    sender.schedule_messages(ServiceBusMessage("soon"), datetime.now(UTC) + timedelta(seconds=1))
    assert bodies_of(receive(receiver, 1)) == [b"soon"]


# Peeking.


@covers("P22", "P24", "P26")
@pytest.mark.parametrize("step", [1, 7, 250])
def test_repeated_peeks_get_everything_in_the_order_of_sequence_numbers(sdk: PythonSdk, queue: str, step: int) -> None:
    sender, receiver = sdk.pair(queue)
    send_each(sender, EACH + EACH)
    found = peeked(receiver, step)
    numbers = [one.sequence_number or 0 for one in found]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 2 * FRAGMENT_COUNT


@covers("P22")
def test_a_peek_returns_at_most_256_kb_and_the_rest_comes_with_the_next(sdk: PythonSdk, queue: str) -> None:
    sender, receiver = sdk.pair(queue)
    for _ in range(5):
        sender.send_messages(ServiceBusMessage(b"x" * 100_000))
    assert len(receiver.peek_messages(10)) == 2
    assert len(peeked(receiver)) == 5


@covers("P26", "M3")
@pytest.mark.parametrize("number", [16 << 48 | 1, (1 << 63) - 1])
def test_a_number_that_names_no_fragment_is_not_found(impatient_sdk: PythonSdk, queue: str, number: int) -> None:
    receiver = impatient_sdk.receiver(queue)
    with pytest.raises(ServiceBusError, match="sequence number"):
        receiver.receive_deferred_messages([number])
    assert receiver.peek_messages(5, sequence_number=number) == []


# Outages.

Break = Callable[[str], Callable[[], None]]


@pytest.fixture
def take_out(bus: Bus) -> Iterator[Break]:
    """`take_out("fragment/NAME/3")` puts a part of the namespace out of reach; what it returns heals it."""
    http = Http(bus.running, False)
    faults: list[str] = []

    def heal(path: str) -> None:
        if path in faults:
            faults.remove(path)
            assert http.ask("DELETE", path).status in (200, 204)

    def break_it(target: str) -> Callable[[], None]:
        path = f"$faults/{uuid.uuid4().hex}"
        fault = json.dumps({"target": target, "kind": "unavailable", "for_s": 120}).encode()
        answer = http.ask("PUT", path, fault, Content_Type="application/json")
        assert answer.status in (200, 201), answer.body
        faults.append(path)
        return lambda: heal(path)

    yield break_it
    for path in list(faults):
        heal(path)


@covers("P3", "P13", "P19")
def test_without_a_key_sends_go_around_what_is_out(
    impatient_sdk: PythonSdk, bus: Bus, queue: str, take_out: Break
) -> None:
    sender, receiver = impatient_sdk.pair(queue)
    heals = [take_out(f"fragment/{queue}/{index}") for index in (0, 5, 15)]
    send_each(sender, EACH)
    got = receive(receiver, FRAGMENT_COUNT)
    assert {fragment_of(one) for one in got} == set(range(FRAGMENT_COUNT)) - {0, 5, 15}
    for message in got:
        receiver.complete_message(message)
    for heal in heals:
        heal()
    send_each(sender, EACH)
    assert {fragment_of(one) for one in receive(receiver, FRAGMENT_COUNT)} == set(range(FRAGMENT_COUNT))


@covers("P14", "P20")
def test_with_a_key_only_what_is_pinned_to_a_lost_fragment_fails_and_nothing_is_moved(
    impatient_sdk: PythonSdk, queue: str, take_out: Break
) -> None:
    sender, receiver = impatient_sdk.pair(queue)
    heal = take_out(f"fragment/{queue}/4")
    with pytest.raises(ServiceBusError) as refused:
        sender.send_messages(ServiceBusMessage("lost", partition_key=key_in(4)))
    assert "server-busy" not in str(refused.value), "an outage is no overload"
    for index in (3, 5):
        sender.send_messages(ServiceBusMessage(f"in {index}", partition_key=key_in(index)))
    assert sorted(bodies_of(peeked(receiver))) == [b"in 3", b"in 5"]
    heal()
    sender.send_messages(ServiceBusMessage("back", partition_key=key_in(4)))
    assert sorted(bodies_of(peeked(receiver))) == [b"back", b"in 3", b"in 5"]


@covers("P3", "P6", "P22")
def test_what_a_lost_fragment_holds_comes_when_it_is_back(
    impatient_sdk: PythonSdk, queue: str, take_out: Break
) -> None:
    sender, receiver = impatient_sdk.pair(queue)
    send_each(sender, EACH)
    heal = take_out(f"fragment/{queue}/7")
    got = receive(receiver, FRAGMENT_COUNT - 1)
    assert 7 not in {fragment_of(one) for one in got}
    assert 7 not in {fragment_of(one) for one in peeked(receiver)}
    heal()
    (last,) = receive(receiver, 1)
    assert (fragment_of(last), last.delivery_count) == (7, 0)


# The bill.


def metered(bus: Bus, entity: str) -> dict[str, tuple[int, int]]:
    """Messages and operations of each kind so far."""
    rows = live(bus.running)["since_start"]
    return {row["operation"]: (row["messages"], row["operations"]) for row in rows if row["entity"] == entity}


@covers("P28")
def test_one_operation_of_a_client_is_metered_once_however_many_fragments_it_touched(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_duplicate_detection=True)
    sender, receiver = sdk.pair(queue)
    send_each(sender, EACH)
    batch_of(sender, *[ServiceBusMessage("x", message_id=f"b{number}") for number in range(20)])
    messages = receive(receiver, FRAGMENT_COUNT + 20)
    for message in messages:
        receiver.complete_message(message)
    assert Http(bus.running, False).ask("DELETE", f"{queue}/messages/head?timeout=0").status == 204
    assert receiver.peek_messages(100) == []
    count = FRAGMENT_COUNT + 20
    assert metered(bus, queue) == {
        "manage": (0, 1),
        "send": (count, count),
        "receive": (count, count),
        "complete": (count, count),
        "empty_receive": (0, 1),
        "peek": (0, 1),
    }
