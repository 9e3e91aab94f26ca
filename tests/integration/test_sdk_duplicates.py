"""Duplicate detection through the unmodified SDK, across restarts and in batches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from azure.servicebus import ServiceBusMessage

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import Connect, with_sync_client
from tests.integration.python_sdk import PythonSdk, bodies_of, receive
from tests.integration.serving import start_namespace
from tests.integration.shapes import Shape, on_every_shape

pytestmark = on_every_shape


def numbered(message_id: str, body: str) -> ServiceBusMessage:
    return ServiceBusMessage(body.encode(), message_id=message_id)


@covers("M8", "B1")
def test_the_first_of_each_id_arrives_and_the_rest_is_accepted_silently(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_duplicate_detection=True)
    sender, receiver = sdk.pair(queue)
    sender.send_messages(numbered("1", "first"))
    sender.send_messages(numbered("1", "again"))
    sender.send_messages([numbered("2", "second"), numbered("1", "again"), numbered("2", "again")])
    batch = sender.create_message_batch()
    for message_id in ("2", "3", "3"):
        batch.add_message(numbered(message_id, "third" if message_id == "3" else "again"))
    sender.send_messages(batch)
    messages = receive(receiver, 3)
    assert bus.shape.as_sent(bodies_of(messages)) == [b"first", b"second", b"third"]
    if not bus.shape.is_partitioned:  # each id is a key there, and each fragment has numbers of its own (P10)
        assert [message.sequence_number for message in messages] == [1, 2, 3], "a duplicate takes no number"
    for message in messages:
        receiver.complete_message(message)
    sender.send_messages(numbered("1", "completed, and still known"))
    assert bus.counts(queue) == Counts(0)


@covers("M5", "M8")
@with_sync_client
def test_scheduling_the_same_id_again_schedules_nothing(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_duplicate_detection=True)
    sender = sdk.sender(queue)
    at = datetime.now(UTC) + timedelta(hours=1)
    (first,) = sender.schedule_messages(numbered("1", "first"), at)
    assert first > 0
    again, second = sender.schedule_messages([numbered("1", "again"), numbered("2", "second")], at)
    assert (again, second > 0) == (0, True)
    assert bus.counts(queue) == Counts(0, scheduled=2)


@covers("M8")
@with_sync_client
def test_ids_are_known_after_a_kill(connect: Connect, data_folder: Path, shape: Shape) -> None:
    running = start_namespace(data_folder, *shape.topology.options)
    bus = Bus(running, shape=shape)
    queue = bus.make_queue(requires_duplicate_detection=True)
    connect(bus.connection_string).sender(queue).send_messages([numbered("1", "first"), numbered("2", "second")])
    bus.close()
    running.kill()
    running = start_namespace(data_folder, *shape.topology.options)
    bus = Bus(running, shape=shape)
    sender, receiver = connect(bus.connection_string).pair(queue)
    sender.send_messages([numbered("1", "again"), numbered("3", "third"), numbered("2", "again")])
    assert shape.as_sent(bodies_of(receive(receiver, 3))) == [b"first", b"second", b"third"]
    bus.close()
    running.stop_in_peace()


@covers("M8")
def test_the_window_is_changed_and_the_detection_is_not(bus: Bus) -> None:
    queue = bus.make_queue(
        requires_duplicate_detection=True, duplicate_detection_history_time_window=timedelta(seconds=20)
    )
    properties = bus.admin.get_queue(queue)
    assert properties.duplicate_detection_history_time_window == timedelta(seconds=20)
    properties.duplicate_detection_history_time_window = timedelta(days=7)
    bus.admin.update_queue(properties)
    assert bus.admin.get_queue(queue).duplicate_detection_history_time_window == timedelta(days=7)
