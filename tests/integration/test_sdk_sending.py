"""What the Python SDK sends, blocking and asynchronous, and how it arrives."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusQuotaExceededError

from tandembus.store.messaging_store import NUMBER_BITS
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.python_sdk import PythonSdk, bodies_of, body_of, receive
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

LARGEST = 262_144


def send_one_by_one(sender: ServiceBusSender, bodies: list[str], key: str | None) -> None:
    for body in bodies:
        sender.send_messages(ServiceBusMessage(body, partition_key=key))


def send_list(sender: ServiceBusSender, bodies: list[str], key: str | None) -> None:
    sender.send_messages([ServiceBusMessage(body) for body in bodies])


def send_batch(sender: ServiceBusSender, bodies: list[str], key: str | None) -> None:
    batch = sender.create_message_batch()
    for body in bodies:
        batch.add_message(ServiceBusMessage(body))
    sender.send_messages(batch)


@covers("M1", "M12", "B1")
@pytest.mark.parametrize("send", [send_one_by_one, send_list, send_batch])
def test_messages_arrive_whole_and_in_order(
    sdk: PythonSdk, bus: Bus, send: Callable[[ServiceBusSender, list[str], str | None], None]
) -> None:
    """A batch is in one fragment (P27), and so is what has one key (P10)."""
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    bodies = [f"message {number}" for number in range(20)]
    send(sender, bodies, bus.shape.key)
    assert bus.counts(queue) == Counts(20)
    messages = receive(receiver, 20)
    assert bodies_of(messages) == [body.encode() for body in bodies]
    numbers = [message.sequence_number or 0 for message in messages]
    assert numbers == sorted(set(numbers))
    assert {message.delivery_count for message in messages} == {0}
    assert all(message.enqueued_time_utc is not None for message in messages)


@covers("B1")
def test_every_property_of_a_message_comes_back(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    sent = ServiceBusMessage(
        b"\x00\xff body",
        message_id="id-1",
        correlation_id="correlation-1",
        subject="subject of it",
        to="destination",
        reply_to="answers/here",
        reply_to_session_id="session of the answer",
        content_type="application/json; charset=utf-8",
        partition_key="key-1",
        time_to_live=timedelta(minutes=7),
    )
    sender.send_messages(sent)
    (message,) = receive(receiver, 1)
    assert body_of(message) == b"\x00\xff body"
    names = ("message_id", "correlation_id", "subject", "to", "reply_to", "reply_to_session_id", "content_type")
    for name in (*names, "partition_key", "time_to_live"):
        assert getattr(message, name) == getattr(sent, name), name
    assert message.enqueued_time_utc is not None
    assert message.expires_at_utc is not None
    assert message.expires_at_utc - message.enqueued_time_utc == timedelta(minutes=7)
    assert message.locked_until_utc is not None
    assert message.dead_letter_source is None


VALUES: dict[str, Any] = {
    "int": 5,
    "negative": -17,
    "zero": 0,
    "largest": 2**31 - 1,  # the SDK knows no larger integers
    "float": 1.5,
    "true": True,
    "false": False,
    "uuid": uuid.UUID("01234567-89ab-cdef-0123-456789abcdef"),
    "text": "text with \u00e9 and \U0001f600",
    "empty": "",
    "none": None,
}


@covers("B1")
def test_application_properties_keep_their_types(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    moment = datetime(2024, 2, 29, 12, 30, 15, 250_000, tzinfo=UTC)
    values: dict[str | bytes, Any] = {"time": moment}
    values.update(VALUES)
    sender.send_messages(ServiceBusMessage("typed", application_properties=values))
    (message,) = receive(receiver, 1)
    found = {_text(key): value for key, value in (message.application_properties or {}).items()}
    milliseconds = int(moment.timestamp() * 1000)
    expected = {name: _on_arrival(value) for name, value in VALUES.items()}
    assert found == {**expected, "time": milliseconds}
    assert {name: type(value) for name, value in found.items()} == {
        **{name: type(value) for name, value in expected.items()},
        "time": int,
    }


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _on_arrival(value: object) -> object:
    """The SDK leaves strings encoded."""
    return value.encode() if isinstance(value, str) else value


@covers("B1")
def test_a_message_may_be_empty(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    for body in (b"", "", None):
        sender.send_messages(ServiceBusMessage(body, message_id=repr(body), partition_key=bus.shape.key))
    messages = receive(receiver, 3)
    assert ids_of(messages) == ["b''", "''", "None"]
    assert [_content(message) for message in messages] == [[b""], [b""], None]


BODIES: list[tuple[dict[str, Any], object]] = [
    ({"value_body": "text"}, b"text"),
    ({"value_body": 1.5}, 1.5),
    ({"value_body": True}, True),
    ({"value_body": 0}, None),  # the SDK leaves a falsy body out
    ({"value_body": {b"key": [1, b"two", None]}}, {b"key": [1, b"two", None]}),
    ({"sequence_body": [1, b"two", 3.5]}, [[1, b"two", 3.5]]),
    ({"sequence_body": [[1], [b"two"]]}, [[1], [b"two"]]),
    ({"data_body": [b"one", b"two"]}, [b"one", b"two"]),
]


@covers("B1")
def test_bodies_of_every_kind_arrive_as_what_they_are(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    for number, (body, _) in enumerate(BODIES):
        properties = AmqpMessageProperties(message_id=str(number))
        sender.send_messages(AmqpAnnotatedMessage(**body, properties=properties))
    messages = bus.shape.as_sent(receive(receiver, len(BODIES)), lambda message: int(message.message_id))
    assert [_content(message) for message in messages] == [expected for _, expected in BODIES]
    assert ids_of(messages) == [str(number) for number in range(len(BODIES))]


def _content(message: ServiceBusReceivedMessage) -> object:
    is_value = message.body_type is AmqpMessageBodyType.VALUE
    return message.body if is_value else list(cast("Iterator[object]", message.body))


def ids_of(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    """The SDK leaves the id of an annotated message encoded."""
    return [_text(message.message_id or "") for message in messages]


@covers("B1")
def test_annotations_header_and_footer_travel_along(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    sender.send_messages(
        AmqpAnnotatedMessage(
            data_body=b"annotated",
            header=AmqpMessageHeader(durable=True, priority=7, first_acquirer=True),
            annotations={"x-mine": 7, "x-opt-sequence-number": 1_000_000},
            delivery_annotations={"x-hop": "first", "x-opt-lock-token": "forged"},
            footer={"x-foot": "note"},
        )
    )
    (message,) = receive(receiver, 1)
    raw = message.raw_amqp_message
    assert raw.header is not None
    assert (raw.header.durable, raw.header.priority, raw.header.delivery_count) == (True, 7, 0)
    annotations = raw.annotations or {}
    assert annotations[b"x-mine"] == 7
    assert annotations[b"x-opt-sequence-number"] == message.sequence_number != 1_000_000
    assert (raw.footer or {})[b"x-foot"] == b"note"
    assert raw.header.first_acquirer is True
    own = raw.delivery_annotations or {}
    assert own == {b"x-hop": b"first", b"x-opt-lock-token": uuid.UUID(str(message.lock_token))}


@covers("B1")
def test_a_plain_message_brings_its_lock_token_and_nothing_else_of_the_hop(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    sender.send_messages(ServiceBusMessage(b"plain"))
    (message,) = receive(receiver, 1)
    raw = message.raw_amqp_message
    assert raw.header is not None
    assert (raw.header.durable, raw.header.priority, raw.header.first_acquirer) == (None, None, None)
    assert raw.delivery_annotations == {b"x-opt-lock-token": uuid.UUID(str(message.lock_token))}
    assert raw.footer is None
    (peeked,) = receiver.peek_messages(1, sequence_number=1)
    assert not peeked.raw_amqp_message.delivery_annotations


@covers("M12")
def test_a_message_of_200_kb_takes_several_frames_both_ways(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    body = bytes(range(256)) * 800
    sender.send_messages([ServiceBusMessage(body, partition_key=bus.shape.key)])
    sender.send_messages(ServiceBusMessage(b"after", partition_key=bus.shape.key))
    large, after = receive(receiver, 2)
    assert body_of(large) == body
    assert body_of(after) == b"after"


@covers("M12", "M13")
def test_a_message_too_large_is_refused_and_the_sender_goes_on(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender = sdk.sender(queue)
    with pytest.raises(MessageSizeExceededError):
        sender.send_messages(ServiceBusMessage(b"x" * (LARGEST + 1)))
    sender.send_messages(ServiceBusMessage(b"x" * (LARGEST - 1000)))
    assert bus.counts(queue) == Counts(1)


@covers("M12", "M13")
def test_a_batch_holds_what_fits_and_no_more(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender = sdk.sender(queue)
    batch = sender.create_message_batch()
    assert batch.max_size_in_bytes == LARGEST
    message = ServiceBusMessage(b"x" * 50_000)
    for _ in range(5):
        batch.add_message(message)
    with pytest.raises(MessageSizeExceededError):
        batch.add_message(message)
    sender.send_messages(batch)
    assert bus.counts(queue) == Counts(5)
    with pytest.raises(MessageSizeExceededError):
        sender.send_messages([message] * 6)
    assert bus.counts(queue) == Counts(5)


@covers("M13")
def test_a_full_queue_says_so_and_takes_messages_again_once_some_are_gone(small_sdk: PythonSdk, small_bus: Bus) -> None:
    """Of a partitioned queue one fragment is full, and says so to what has to go there (P8)."""
    queue = small_bus.make_queue(max_size_in_megabytes=1)
    sender, receiver = small_sdk.pair(queue)
    message = ServiceBusMessage(b"x" * 200_000, partition_key=small_bus.shape.key)
    for _ in range(5):
        sender.send_messages(message)
    with pytest.raises(ServiceBusQuotaExceededError, match="1 MB"):
        sender.send_messages(message)
    assert small_bus.counts(queue) == Counts(5)
    (first,) = receive(receiver, 1)
    receiver.complete_message(first)
    sender.send_messages(message)
    assert small_bus.counts(queue) == Counts(5)


@covers("N10")
def test_a_ping_is_accepted_and_kept_from_everybody(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(default_message_time_to_live=timedelta(seconds=1), dead_lettering_on_message_expiration=True)
    sender, receiver = sdk.pair(queue)
    before = bus.properties(queue)
    for _ in range(3):
        sender.send_messages(_ping())
    assert receiver.peek_messages(10) == []
    assert bus.counts(queue) == Counts(0)
    assert bus.properties(queue).size_in_bytes == before.size_in_bytes
    sender.send_messages(ServiceBusMessage("behind the pings", time_to_live=timedelta(hours=1)))
    (message,) = receive(receiver, 1)
    assert (body_of(message), (message.sequence_number or 0) % (1 << NUMBER_BITS)) == (b"behind the pings", 1)


def _ping() -> ServiceBusMessage:
    return ServiceBusMessage(
        b"",
        content_type="application/vnd.ms-servicebus-ping",
        time_to_live=timedelta(seconds=1),
        session_id=uuid.uuid4().hex,
    )


@covers("N10")
def test_only_an_empty_message_is_a_ping(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages(ServiceBusMessage(b"news", content_type="application/vnd.ms-servicebus-ping"))
    (message,) = receive(receiver, 1)
    assert body_of(message) == b"news"


@covers("M5")
def test_a_message_may_name_the_time_at_which_it_is_to_be_enqueued(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    now = datetime.now(UTC)
    later = ServiceBusMessage("later", scheduled_enqueue_time_utc=now + timedelta(hours=1))
    soon = ServiceBusMessage("soon", scheduled_enqueue_time_utc=now + timedelta(seconds=1))
    past = ServiceBusMessage("past", scheduled_enqueue_time_utc=now - timedelta(hours=1))
    sender.send_messages([later, soon, past])
    first, second = receive(receiver, 2)
    assert bodies_of([first, second]) == [b"past", b"soon"]
    assert second.enqueued_time_utc is not None
    assert second.enqueued_time_utc >= now + timedelta(milliseconds=999)
    assert bus.counts(queue) == Counts(2, scheduled=1)
