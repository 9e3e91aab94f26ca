"""A message that was scheduled says so, before it is active and afterwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.management import SqlRuleAction, TrueRuleFilter

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import Connect, with_sync_client
from tests.integration.python_sdk import PythonSdk, body_of, receive
from tests.integration.serving import RunningNamespace
from tests.integration.shapes import Shape, on_every_shape
from tests.integration.test_http_messages import Http
from tests.integration.test_sdk_restarts import Restartable

pytestmark = on_every_shape

ACTIVE, DEFERRED, SCHEDULED = (
    ServiceBusMessageState.ACTIVE,
    ServiceBusMessageState.DEFERRED,
    ServiceBusMessageState.SCHEDULED,
)


def soon(body: str = "a", session_id: str | None = None) -> ServiceBusMessage:
    """To be sent over a link that is open: else the time may be past when it comes."""
    at = datetime.now(UTC) + timedelta(seconds=2)
    return ServiceBusMessage(body, scheduled_enqueue_time_utc=at, session_id=session_id)


@covers("M4", "M5")
@pytest.mark.parametrize("session_id", [None, "s"])
def test_a_scheduled_message_is_received_as_one(sdk: PythonSdk, bus: Bus, session_id: str | None) -> None:
    queue = bus.make_queue(requires_session=session_id is not None)
    sender, receiver = sdk.pair(queue, session_id=session_id)
    at = datetime.now(UTC) + timedelta(seconds=3)
    sender.schedule_messages(ServiceBusMessage("asked for", session_id=session_id), at)
    sender.send_messages(soon("annotated", session_id))
    messages = receive(receiver, 2)
    assert {body_of(message): message.state for message in messages} == {
        b"asked for": SCHEDULED,
        b"annotated": SCHEDULED,
    }
    assert {message.state for message in receiver.peek_messages(2, sequence_number=1)} == {SCHEDULED}
    for message in messages:
        receiver.abandon_message(message)
    assert {message.state for message in receive(receiver, 2)} == {SCHEDULED}


@covers("M4", "M5")
def test_a_scheduled_message_is_peeked_as_one_before_its_time(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
    (message,) = receiver.peek_messages()
    assert message.state == SCHEDULED


@covers("M3", "M5")
def test_a_scheduled_message_is_deferred_while_it_is_and_scheduled_among_the_dead_letters(
    sdk: PythonSdk, bus: Bus
) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages(soon())
    (message,) = receive(receiver, 1)
    receiver.defer_message(message)
    assert [one.state for one in receiver.peek_messages(1, sequence_number=1)] == [DEFERRED]
    (deferred,) = receiver.receive_deferred_messages(message.sequence_number or 0)
    assert deferred.state == DEFERRED
    receiver.dead_letter_message(deferred)
    (dead,) = receive(sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER), 1)
    assert dead.state == SCHEDULED


@covers("M2", "M5")
def test_a_scheduled_message_that_is_received_and_deleted_says_so(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue(), receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    sender.send_messages(soon())
    assert [message.state for message in receive(receiver, 1)] == [SCHEDULED]


@covers("M1", "M5")
@with_sync_client
def test_a_scheduled_message_says_so_after_a_crash(connect: Connect, tmp_path: Path, shape: Shape) -> None:
    namespace = Restartable(tmp_path / "data", shape)
    queue = namespace.bus.make_queue()
    sender = connect(namespace.connection_string).sender(queue)
    sender.schedule_messages(ServiceBusMessage("a"), datetime.now(UTC) + timedelta(seconds=1))
    assert namespace.bus.comes_to(queue, Counts(1))
    namespace.restart(RunningNamespace.kill)
    (message,) = receive(connect(namespace.connection_string).receiver(queue), 1)
    assert (body_of(message), message.state) == (b"a", SCHEDULED)
    namespace.close()


@covers("M5", "M9")
def test_subscriptions_get_a_topics_scheduled_message_as_one(sdk: PythonSdk, bus: Bus) -> None:
    topic = bus.make_topic("all", "changed")
    bus.admin.delete_rule(topic, "changed", "$Default")
    bus.admin.create_rule(
        topic, "changed", "copy", filter=TrueRuleFilter(), action=SqlRuleAction("SET sys.Label = 'copy'")
    )
    sdk.topic_sender(topic).send_messages(soon())
    for name in ("all", "changed"):
        (message,) = receive(sdk.subscription_receiver(topic, name), 1)
        assert (message.state, message.subject) == (SCHEDULED, "copy" if name == "changed" else None)


@covers("M5", "M10")
def test_a_scheduled_message_is_active_where_it_was_forwarded_to(sdk: PythonSdk, bus: Bus) -> None:
    target = bus.make_queue()
    source = bus.make_queue(forward_to=target)
    sdk.sender(source).send_messages(soon())
    assert [message.state for message in receive(sdk.receiver(target), 1)] == [ACTIVE]


@covers("M5")
def test_a_message_whose_time_was_past_when_it_came_was_never_scheduled(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    past = datetime.now(UTC) - timedelta(hours=1)
    sender.send_messages(ServiceBusMessage("a", scheduled_enqueue_time_utc=past))
    assert [message.state for message in receive(receiver, 1)] == [ACTIVE]


@covers("B1", "M5")
def test_a_scheduled_message_says_so_over_http(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender = sdk.sender(queue)
    sender.send_messages(soon())
    answer = Http(bus.running, False).ask("POST", f"{queue}/messages/head?timeout=20", b"")
    assert (answer.status, answer.properties["State"]) == (201, "Scheduled")
    sender.send_messages(ServiceBusMessage("b"))
    answer = Http(bus.running, False).ask("POST", f"{queue}/messages/head?timeout=20", b"")
    assert (answer.status, answer.properties["State"]) == (201, "Active")
