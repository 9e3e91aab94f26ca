"""Auto-forwarding through the unmodified SDK: chains, dead letters, what nobody takes, and restarts."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from tandembus.store.messaging_store import NUMBER_MASK
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import Connect, with_sync_client
from tests.integration.python_sdk import PythonSdk, bodies_of, receive
from tests.integration.serving import start_namespace
from tests.integration.shapes import Shape, on_every_shape

pytestmark = on_every_shape


def messages(count: int, prefix: str = "m", key: str | None = None) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"{prefix}{number}".encode(), partition_key=key) for number in range(count)]


@covers("M10", "B1")
def test_messages_arrive_at_the_end_of_a_chain_in_order(sdk: PythonSdk, bus: Bus) -> None:
    end = bus.make_queue()
    middle = bus.make_queue(forward_to=end)
    start = bus.make_queue(forward_to=middle)
    assert (bus.admin.get_queue(start).forward_to or "").endswith(f"/{middle}")
    sender, receiver = sdk.sender(start), sdk.receiver(end)
    key = bus.shape.key
    sender.send_messages(
        ServiceBusMessage("first", subject="kept", application_properties={"colour": "red"}, partition_key=key)
    )
    sender.send_messages(messages(50, key=key))
    first, *rest = receive(receiver, 51)
    assert bodies_of(rest) == [f"m{number}".encode() for number in range(50)]
    assert (first.subject, first.application_properties) == ("kept", {b"colour": b"red"})
    numbers = (first.sequence_number or 0, first.enqueued_sequence_number or 0)
    assert [number & NUMBER_MASK for number in numbers] == [1, 1]
    assert first.delivery_count == 0
    for message in (first, *rest):
        receiver.complete_message(message)
    assert bus.counts(start) == bus.counts(middle) == bus.counts(end) == Counts(0)


@covers("M10")
@with_sync_client
def test_nobody_receives_from_an_entity_that_forwards(impatient_sdk: PythonSdk, bus: Bus) -> None:
    source = bus.make_queue(forward_to=bus.make_queue())
    with pytest.raises(ServiceBusError, match="forwards its messages"):
        impatient_sdk.receiver(source).receive_messages(max_wait_time=2)


@covers("M3", "M10")
def test_dead_letters_are_forwarded_and_say_where_they_come_from(sdk: PythonSdk, bus: Bus) -> None:
    parking = bus.make_queue()
    queue = bus.make_queue(forward_dead_lettered_messages_to=parking)
    sender, receiver = sdk.pair(queue)
    sender.send_messages(ServiceBusMessage("broken"))
    (message,) = receive(receiver, 1)
    receiver.dead_letter_message(message, reason="Broken", error_description="cannot be read")
    (parked,) = receive(sdk.receiver(parking), 1)
    assert (parked.dead_letter_reason, parked.dead_letter_error_description) == ("Broken", "cannot be read")
    assert parked.dead_letter_source == queue
    assert bus.counts(queue) == Counts(0)


@covers("M3", "M10")
def test_what_nobody_takes_is_received_from_the_transfer_dead_letters(sdk: PythonSdk, bus: Bus) -> None:
    target = bus.make_queue()
    source = bus.make_queue(forward_to=target)
    bus.admin.delete_queue(target)
    sdk.sender(source).send_messages(messages(2))
    receiver = sdk.receiver(source, sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
    first, second = receive(receiver, 2)
    assert bodies_of([first, second]) == [b"m0", b"m1"]
    assert first.dead_letter_reason == "TransferDestinationNotFound"
    runtime = bus.properties(source)
    assert (runtime.transfer_dead_letter_message_count, runtime.transfer_message_count) == (2, 0)
    assert bodies_of(receiver.peek_messages(5, sequence_number=1)) == [b"m0", b"m1"]
    receiver.complete_message(first)
    receiver.abandon_message(second)
    (again,) = receive(receiver, 1)
    assert again.delivery_count == 0
    receiver.complete_message(again)
    assert bus.properties(source).transfer_dead_letter_message_count == 0


@covers("M10")
def test_targets_that_are_not_there_and_circles_are_refused(bus: Bus) -> None:
    queue, other = bus.make_queue(), bus.make_queue()
    properties = bus.admin.get_queue(queue)
    properties.forward_to = "nowhere"
    with pytest.raises(HttpResponseError) as refused:
        bus.admin.update_queue(properties)
    assert refused.value.status_code == 400
    properties.forward_to = other
    bus.admin.update_queue(properties)
    back = bus.admin.get_queue(other)
    back.forward_to = queue
    with pytest.raises(HttpResponseError, match="come back"):
        bus.admin.update_queue(back)
    properties.forward_to = None
    bus.admin.update_queue(properties)
    assert bus.admin.get_queue(queue).forward_to is None


@covers("M9", "M10")
@with_sync_client
def test_a_subscription_forwards_to_a_queue_that_detects_duplicates(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_duplicate_detection=True)
    topic = f"topic-{uuid.uuid4().hex[:12]}"
    bus.admin.create_topic(topic)
    bus.admin.create_subscription(topic, "all", forward_to=queue)
    source = bus.make_queue(forward_to=topic)
    sender, receiver = sdk.sender(source), sdk.receiver(queue)
    sender.send_messages([ServiceBusMessage(body, message_id=body[0]) for body in ("a1", "b1", "a2")])
    assert sorted(bodies_of(receive(receiver, 2))) == [b"a1", b"b1"]  # each in the partition of its id
    assert bus.comes_to(queue, Counts(2))


@covers("M10", "M1")
@with_sync_client
def test_what_waited_for_its_target_goes_on_after_a_kill(connect: Connect, data_folder: Path, shape: Shape) -> None:
    running = start_namespace(data_folder, *shape.topology.options)
    bus = Bus(running, shape=shape)
    target = bus.make_queue()
    source = bus.make_queue(forward_to=target)
    _set_status(bus, target, "Disabled")
    connect(bus.connection_string).sender(source).send_messages(messages(20, key=shape.key))
    assert bus.counts(source) == Counts(20)
    bus.close()
    running.kill()
    running = start_namespace(data_folder, *shape.topology.options)
    bus = Bus(running, shape=shape)
    _set_status(bus, target, "Active")
    received = receive(connect(bus.connection_string).receiver(target), 20)
    assert bodies_of(received) == [f"m{number}".encode() for number in range(20)]
    assert bus.counts(source) == Counts(0)
    bus.close()
    running.stop_in_peace()


def _set_status(bus: Bus, queue: str, status: str) -> None:
    properties = bus.admin.get_queue(queue)
    properties.status = status
    bus.admin.update_queue(properties)
