"""Entities that forward to themselves, and entities with sessions that forward, as the service allows."""

from __future__ import annotations

import uuid

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver, ServiceBusSubQueue

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import with_sync_client
from tests.integration.python_sdk import PythonSdk, bodies_of, receive
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

MOST_HOPS = 4


def went_round(receiver: ServiceBusReceiver, count: int) -> list[bytes]:
    """What the hop limit has put among the transfer dead letters, sorted."""
    found = receive(receiver, count)
    assert {message.dead_letter_reason for message in found} == {"MaxTransferHopCountExceeded"}
    for message in found:
        receiver.complete_message(message)
    return sorted(bodies_of(found))


@covers("M10", "B1")
def test_a_queue_may_forward_to_itself(bus: Bus) -> None:
    name = bus.make_queue()
    properties = bus.admin.get_queue(name)
    properties.forward_to = name
    properties.forward_dead_lettered_messages_to = name
    bus.admin.update_queue(properties)
    updated = bus.admin.get_queue(name)
    assert (updated.forward_to or "").endswith(f"/{name}")
    assert (updated.forward_dead_lettered_messages_to or "").endswith(f"/{name}")
    other = f"queue-{uuid.uuid4().hex}"
    assert (bus.admin.create_queue(other, forward_to=other).forward_to or "").endswith(f"/{other}")


@covers("M10", "B1")
def test_a_subscription_may_forward_to_its_own_topic(bus: Bus) -> None:
    topic = bus.make_topic("before")
    for subscription in (
        bus.admin.create_subscription(topic, "at-once", forward_to=topic, forward_dead_lettered_messages_to=topic),
        bus.admin.get_subscription(topic, "before"),
    ):
        subscription.forward_to = subscription.forward_dead_lettered_messages_to = topic
        bus.admin.update_subscription(topic, subscription)
        assert (bus.admin.get_subscription(topic, subscription.name).forward_to or "").endswith(f"/{topic}")


@covers("M10", "B1")
def test_others_may_forward_to_what_forwards_to_itself(bus: Bus) -> None:
    queue, topic = bus.make_queue(), bus.make_topic()
    properties = bus.admin.get_queue(queue)
    properties.forward_to = queue
    bus.admin.update_queue(properties)
    bus.admin.create_subscription(topic, "round", forward_to=topic)
    for target in (queue, topic):
        bus.make_queue(forward_to=target)


@covers("M8", "M10")
@with_sync_client
@pytest.mark.parametrize("settings", [{}, {"requires_duplicate_detection": True}, {"requires_session": True}], ids=str)
def test_what_a_queue_forwards_to_itself_becomes_a_transfer_dead_letter(
    sdk: PythonSdk, bus: Bus, settings: dict[str, bool]
) -> None:
    name = bus.make_queue(**settings)
    properties = bus.admin.get_queue(name)
    properties.forward_to = name
    bus.admin.update_queue(properties)
    session_id = "s" if "requires_session" in settings else None
    sdk.sender(name).send_messages([ServiceBusMessage(f"m{number}", session_id=session_id) for number in range(3)])
    receiver = sdk.receiver(name, sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
    assert went_round(receiver, 3) == [b"m0", b"m1", b"m2"]
    assert bus.comes_to(name, Counts(0))


@covers("M9", "M10")
@with_sync_client
@pytest.mark.parametrize("detects_duplicates", [False, True])
def test_what_a_subscription_forwards_to_its_own_topic_reaches_the_others_with_every_hop(
    sdk: PythonSdk, bus: Bus, detects_duplicates: bool
) -> None:
    topic = bus.make_topic("others", requires_duplicate_detection=detects_duplicates)
    bus.admin.create_subscription(topic, "round", forward_to=topic)
    sdk.topic_sender(topic).send_messages(ServiceBusMessage("m"))
    copies = receive(sdk.subscription_receiver(topic, "others"), 1 + MOST_HOPS)
    assert bodies_of(copies) == [b"m"] * (1 + MOST_HOPS)
    receiver = sdk.subscription_receiver(topic, "round", sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
    assert went_round(receiver, 1) == [b"m"]


@covers("M3", "M10")
@with_sync_client
@pytest.mark.parametrize("detects_duplicates", [False, True])
def test_dead_letters_that_are_forwarded_to_their_own_queue_come_again_until_the_limit(
    sdk: PythonSdk, bus: Bus, detects_duplicates: bool
) -> None:
    name = bus.make_queue(requires_duplicate_detection=detects_duplicates)
    properties = bus.admin.get_queue(name)
    properties.forward_dead_lettered_messages_to = name
    bus.admin.update_queue(properties)
    sender, receiver = sdk.pair(name)
    sender.send_messages(ServiceBusMessage("broken"))
    for _ in range(1 + MOST_HOPS):
        (message,) = receive(receiver, 1)
        receiver.dead_letter_message(message, reason="Broken")
    transfer = sdk.receiver(name, sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
    assert went_round(transfer, 1) == [b"broken"]
    assert bus.comes_to(name, Counts(0))


@covers("M7", "M10")
def test_a_queue_with_sessions_forwards_each_session_in_order(sdk: PythonSdk, bus: Bus) -> None:
    end = bus.make_queue(requires_session=True)
    start = bus.make_queue(requires_session=True, forward_to=end)
    made = bus.admin.get_queue(start)
    assert (made.requires_session, (made.forward_to or "").endswith(f"/{end}")) == (True, True)
    sender = sdk.sender(start)
    for session_id in ("a", "b"):
        sender.send_messages([ServiceBusMessage(f"{session_id}{number}", session_id=session_id) for number in range(9)])
    for session_id in ("a", "b"):
        receiver = sdk.receiver(end, session_id=session_id)
        found = receive(receiver, 9)
        assert bodies_of(found) == [f"{session_id}{number}".encode() for number in range(9)]
        for message in found:
            receiver.complete_message(message)
    assert bus.comes_to(start, Counts(0))


@covers("M7", "M9", "M10")
@with_sync_client
def test_a_subscription_with_sessions_forwards(sdk: PythonSdk, bus: Bus) -> None:
    end = bus.make_queue()
    topic = bus.make_topic()
    bus.admin.create_subscription(topic, "all", requires_session=True, forward_to=end)
    sdk.topic_sender(topic).send_messages([ServiceBusMessage(f"m{number}", session_id="s") for number in range(5)])
    found = receive(sdk.receiver(end), 5)
    assert bodies_of(found) == [f"m{number}".encode() for number in range(5)]
    assert {message.session_id for message in found} == {"s"}
