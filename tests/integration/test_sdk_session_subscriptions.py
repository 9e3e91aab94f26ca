"""Sessions of subscriptions, and what a restart leaves of sessions, through the Python SDK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError, SessionCannotBeLockedError
from azure.servicebus.management import SqlRuleFilter

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import Connect
from tests.integration.python_sdk import PythonSdk, bodies_of, receive
from tests.integration.serving import RunningNamespace
from tests.integration.shapes import Shape, on_every_shape
from tests.integration.test_sdk_restarts import Restartable

pytestmark = on_every_shape


@pytest.fixture
def topic(bus: Bus) -> str:
    """With one subscription that requires sessions and gets what is red, and a plain one that gets everything."""
    topic = bus.make_topic("all")
    bus.admin.create_subscription(topic, "red", requires_session=True)
    bus.admin.delete_rule(topic, "red", "$Default")
    bus.admin.create_rule(topic, "red", "only red", filter=SqlRuleFilter("color = 'red'"))
    return topic


@pytest.fixture
def namespace(tmp_path: Path, shape: Shape) -> Iterator[Restartable]:
    namespace = Restartable(tmp_path / "data", shape)
    yield namespace
    namespace.close()


def colored(color: str, session_id: str | None, body: str) -> ServiceBusMessage:
    return ServiceBusMessage(body.encode(), session_id=session_id, application_properties={"color": color})


@covers("M7", "M9")
def test_a_subscription_has_sessions_of_the_messages_that_match(sdk: PythonSdk, bus: Bus, topic: str) -> None:
    sender = sdk.topic_sender(topic)
    for number in range(5):
        for session_id in ("a", "b"):
            sender.send_messages(colored("red", session_id, f"{session_id}{number}"))
            sender.send_messages(colored("blue", session_id, f"blue {session_id}{number}"))
    receiver = sdk.subscription_receiver(topic, "red", session_id=NEXT_AVAILABLE_SESSION)
    assert receiver.session.session_id == "a"
    received = receive(receiver, 5)
    assert bodies_of(received) == [f"a{number}".encode() for number in range(5)]
    for one in received:
        receiver.complete_message(one)
    receiver.session.set_state(b"done with a")
    second = sdk.subscription_receiver(topic, "red", session_id=NEXT_AVAILABLE_SESSION)
    assert second.session.session_id == "b"
    first, *_ = receive(second, 5)
    second.dead_letter_message(first, reason="no")
    second.close()
    assert bus.counts_of_subscription(topic, "red") == Counts(active=4, dead=1)
    assert bus.counts_of_subscription(topic, "all") == Counts(active=20)
    assert receiver.session.get_state() == b"done with a"


@covers("M7", "M9")
def test_a_message_without_a_session_is_refused_only_where_it_matches(
    impatient_sdk: PythonSdk, bus: Bus, topic: str
) -> None:
    sender = impatient_sdk.topic_sender(topic)
    sender.send_messages(colored("blue", None, "for the plain one"))
    with pytest.raises(ServiceBusError, match="SessionId"):
        sender.send_messages(colored("red", None, "for the one with sessions"))
    assert bus.counts_of_subscription(topic, "all") == Counts(active=1)
    with pytest.raises(ServiceBusError, match="requires sessions"):
        impatient_sdk.subscription_receiver(topic, "red")


@covers("M7", "F2")
def test_after_a_crash_sessions_are_free_in_order_and_keep_their_state(
    connect: Connect, namespace: Restartable, shape: Shape
) -> None:
    bus = namespace.bus
    queue, topic = bus.make_queue(requires_session=True), bus.make_topic()
    bus.admin.create_subscription(topic, "s", requires_session=True)
    sdk = connect(namespace.connection_string)
    queue_sender, topic_sender = sdk.sender(queue), sdk.topic_sender(topic)
    for number in range(40):
        messages = [ServiceBusMessage(f"{one}{number}".encode(), session_id=one) for one in ("a", "b", "c")]
        for message in messages:
            queue_sender.send_messages(message)
            topic_sender.send_messages(message)
    holder = sdk.receiver(queue, session_id="a")
    first, *_ = receive(holder, 10)
    holder.complete_message(first)
    holder.session.set_state(b"one is done")

    namespace.restart(RunningNamespace.kill)
    assert namespace.bus.counts(queue).active == 119  # fragments are open now: one that is being opened answers late

    again = connect(namespace.connection_string)
    second = again.receiver(queue, session_id="a")
    from_queue = again.receiver(queue, session_id=NEXT_AVAILABLE_SESSION)
    assert from_queue.session.session_id in ("bc" if shape.is_partitioned else "b"), "the oldest, in each fragment"
    assert second.session.get_state() == b"one is done"
    assert bodies_of(receive(second, 39)) == [f"a{number}".encode() for number in range(1, 40)]
    from_topic = again.subscription_receiver(topic, "s", session_id="c")
    assert bodies_of(receive(from_topic, 40)) == [f"c{number}".encode() for number in range(40)]


@covers("M7", "M9")
def test_sessions_of_two_subscriptions_are_held_apart(impatient_sdk: PythonSdk, bus: Bus) -> None:
    topic = bus.make_topic()
    for name in ("one", "two"):
        bus.admin.create_subscription(topic, name, requires_session=True)
    impatient_sdk.topic_sender(topic).send_messages(ServiceBusMessage(b"x", session_id="a"))
    one = impatient_sdk.subscription_receiver(topic, "one", session_id="a")
    two = impatient_sdk.subscription_receiver(topic, "two", session_id="a")
    assert (bodies_of(receive(one, 1)), bodies_of(receive(two, 1))) == ([b"x"], [b"x"])
    with pytest.raises(SessionCannotBeLockedError):
        impatient_sdk.subscription_receiver(topic, "one", session_id="a")
