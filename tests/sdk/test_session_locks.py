"""A session's lock: deliveries renew it, and whoever has lost it has a few seconds to close its link in peace."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import SessionLockLostError

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.values import Array, uint
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import Connect
from tests.integration.python_sdk import PythonSdk, bodies_of, receive
from tests.integration.raw_amqp import CREDIT, RECEIVER, SENDER, Frame, Node, RawAmqp, plain, rejection, state_of, texts
from tests.integration.shapes import on_every_shape
from tests.integration.test_wire_sessions import LONG, TICKS_AT_EPOCH, accept, ask, message, session_of

pytestmark = on_every_shape

SHORT = timedelta(seconds=1)
REPLIES = 51
"""The handle of the management node's answers."""
LOCK_MS = 60_000
TICK_MS = 20
"""What two readings of the machine's clock may be apart."""
LOST = (410, "com.microsoft:session-lock-lost")


class Address(NamedTuple):
    """Where messages are sent to, and where they are received."""

    to: str
    at: str


@pytest.fixture(params=["queue", "subscription"])
def kind(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def make(bus: Bus, kind: str, lock_duration: timedelta) -> Address:
    if kind == "queue":
        queue = bus.make_queue(requires_session=True, lock_duration=lock_duration)
        return Address(queue, queue)
    topic = bus.make_topic()
    bus.admin.create_subscription(topic, "s", requires_session=True, lock_duration=lock_duration)
    return Address(topic, f"{topic}/Subscriptions/s")


class Client:
    """A connection with a sender, perhaps a session, and the management node."""

    def __init__(self, raw: RawAmqp, address: Address) -> None:
        self.raw = raw
        self.address = address
        self.sent = 0
        self.asked = 0
        raw.log_in()
        raw.attach_sender(SENDER, address.to)
        self.node: Node = raw.attach_node(f"{address.at}/$management", REPLIES - 1)

    def accept(self, session_id: str = "a") -> Frame:
        return accept(self.raw, self.address.at, session_id, name="holder")

    def send(self, body: bytes, session_id: str = "a") -> None:
        answer = self.raw.send_message(SENDER, self.sent, message(session_id, body))
        assert answer.described(4)[0] == codes.ACCEPTED
        self.sent += 1

    def wait_for_lapse(self) -> None:
        """By questions that renew nothing."""
        while self.node.manage("com.microsoft:get-session-state", {"session-id": "a"})[:2] != LOST:
            self.asked += 1
            self.raw.flow(REPLIES, CREDIT, delivery_count=self.asked)

    def assert_nothing_comes(self) -> None:
        """What was sent before the answer to an echo has come before it."""
        self.raw.flow(RECEIVER, 5, echo=True)
        assert self.raw.next_frame().code == codes.FLOW

    def close(self) -> None:
        """The answer carries no error."""
        self.raw.perform(codes.DETACH, [uint(RECEIVER), True])
        assert self.raw.expect(codes.DETACH)[2] is None


@pytest.fixture
def lapsing(small_bus: Bus, kind: str) -> Address:
    return make(small_bus, kind, SHORT)


@pytest.fixture
def holder(small_bus: Bus, lapsing: Address) -> Iterator[Client]:
    with RawAmqp(small_bus.running.port) as raw:
        yield Client(raw, lapsing)


@pytest.fixture
def other(small_bus: Bus, lapsing: Address) -> Iterator[Client]:
    with RawAmqp(small_bus.running.port) as raw:
        yield Client(raw, lapsing)


def locked_until_of(attached: Frame) -> int:
    """In milliseconds since 1970, as messages say it."""
    ticks = texts(attached[13])["com.microsoft:locked-until-utc"]  # type: ignore[arg-type]
    assert isinstance(ticks, int)
    return (ticks - TICKS_AT_EPOCH) // 10_000


@covers("M2", "M7")
def test_a_delivery_renews_the_lock_of_its_session(bus: Bus, kind: str) -> None:
    with RawAmqp(bus.running.port) as raw:
        client = Client(raw, make(bus, kind, timedelta(milliseconds=LOCK_MS)))
        until = locked_until_of(client.accept())
        for count in range(3):
            sent_at = time.time_ns() // 1_000_000
            client.send(b"x")
            raw.flow(RECEIVER, 1, delivery_count=count)
            _, received = raw.receive_message()
            annotations = texts(received.message_annotations)
            renewed = plain(annotations["x-opt-locked-until"])
            assert isinstance(renewed, int)
            assert sent_at + LOCK_MS - TICK_MS <= renewed
            assert until <= renewed
            until = renewed


@covers("M2", "M7")
def test_a_lapsed_session_is_free_at_once_and_its_link_has_time_to_close_in_peace(
    holder: Client, other: Client
) -> None:
    holder.send(b"x")
    holder.accept()
    holder.raw.flow(RECEIVER, 5)
    delivery, _ = holder.raw.receive_message()
    ask(other.raw, other.address.at, None)
    assert session_of(other.raw.expect(codes.ATTACH)) == "a"
    other.send(b"y")
    other.raw.flow(RECEIVER, 5)
    assert [other.raw.receive_message()[1].body for _ in range(2)] == [b"x", b"y"]
    holder.assert_nothing_comes()
    holder.raw.dispose(delivery.number(1), state_of(codes.ACCEPTED))
    assert plain(rejection(holder.raw.expect(codes.DISPOSITION))[0]) == LOST[1]
    token = delivery.plain(2)
    assert isinstance(token, bytes)
    settle: dict[str, object] = {
        "disposition-status": "completed",
        "lock-tokens": Array(0x98, [uuid.UUID(bytes_le=token)]),
        "session-id": "a",
    }
    for operation, body in (
        ("update-disposition", settle),
        ("renew-session-lock", {"session-id": "a"}),
        ("get-session-state", {"session-id": "a"}),
        ("set-session-state", {"session-id": "a", "session-state": b"x"}),
        (
            "receive-by-sequence-number",
            {"session-id": "a", "sequence-numbers": Array(LONG, [1]), "receiver-settle-mode": uint(1)},
        ),
    ):
        found = holder.node.manage(f"com.microsoft:{operation}", body, **{"associated-link-name": "holder"})
        assert found[:2] == LOST, operation
    peek: dict[str, object] = {"from-sequence-number": 1, "message-count": 5, "session-id": "a"}
    assert holder.node.manage("com.microsoft:peek-message", peek)[0] == 200, "it needs no lock"
    holder.close()


@covers("M2", "M7")
def test_a_lapsed_session_that_nobody_took_stays_lost(holder: Client, other: Client) -> None:
    holder.accept()
    holder.raw.flow(RECEIVER, 5)
    holder.wait_for_lapse()
    other.send(b"late")
    holder.assert_nothing_comes()
    assert holder.node.manage("com.microsoft:renew-session-lock", {"session-id": "a"})[:2] == LOST
    holder.raw.flow(RECEIVER, 5, drain=True)
    drained = holder.raw.expect(codes.FLOW)
    assert (drained.plain(4), drained.plain(6)) == (RECEIVER, 0)
    holder.close()
    other.accept()
    other.raw.flow(RECEIVER, 5)
    _, received = other.raw.receive_message()
    assert received.body == b"late"


def waits_longer_than_its_lock(receiver: ServiceBusReceiver) -> None:
    """The session is lost by then, and the SDK would raise it if it knew."""
    assert receiver.receive_messages(max_wait_time=1.5 * SHORT.total_seconds()) == []


@covers("M7")
def test_a_receiver_that_waits_longer_than_its_lock_ends_quietly(small_sdk: PythonSdk, small_bus: Bus) -> None:
    queue = small_bus.make_queue(requires_session=True, lock_duration=SHORT)
    receiver = small_sdk.receiver(queue, session_id="a")
    waits_longer_than_its_lock(receiver)
    receiver.close()
    small_sdk.sender(queue).send_messages(ServiceBusMessage("x", session_id="a"))
    again = small_sdk.receiver(queue, session_id="a")
    assert bodies_of(receive(again, 1)) == [b"x"]


@covers("M7")
def test_a_receiver_that_has_lost_its_session_is_told_so_by_whatever_it_asks(
    small_sdk: PythonSdk, small_bus: Bus
) -> None:
    queue = small_bus.make_queue(requires_session=True, lock_duration=SHORT)
    small_sdk.sender(queue).send_messages(ServiceBusMessage("x", session_id="a"))
    receiver = small_sdk.receiver(queue, session_id="a")
    (taken,) = receive(receiver, 1)
    waits_longer_than_its_lock(receiver)
    with pytest.raises(SessionLockLostError):
        receiver.complete_message(taken)
    with pytest.raises(SessionLockLostError):
        receiver.session.renew_lock()
    receiver.close()
    assert small_bus.comes_to(queue, Counts(active=1))


@covers("M2", "M7")
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_receive_loop_keeps_its_session_as_long_as_messages_come(connect: Connect, is_partitioned: bool) -> None:
    with EmbeddedNamespace(stores=2) as namespace:
        namespace.create_queue("q", requires_session=True, lock_duration=60, enable_partitioning=is_partitioned)
        sdk = connect(namespace.connection_string)
        sender = sdk.sender("q")
        receiver = sdk.receiver("q", session_id="a")
        for body in (b"0", b"1", b"2"):
            namespace.clock.advance(40)
            sender.send_messages(ServiceBusMessage(body, session_id="a"))
            (received,) = receive(receiver, 1)
            namespace.clock.advance(40)
            receiver.complete_message(received)
            receiver.session.renew_lock()
        assert namespace.counts("q").active == 0
        namespace.clock.advance(60)
        with pytest.raises(SessionLockLostError):
            receiver.session.renew_lock()
