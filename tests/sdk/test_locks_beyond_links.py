"""A lock belongs to its token: what becomes of messages when their receiver closes, or is cut off."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import data_section, properties_section
from tandembus.amqp.encoding.values import Array, uint
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import Connect
from tests.integration.python_sdk import PythonSdk, bodies_of, body_of, receive
from tests.integration.raw_amqp import RECEIVER, SENDER, RawAmqp, plain
from tests.integration.shapes import on_every_shape
from tests.integration.test_sdk_js import JS, NODE
from tests.integration.test_wire_sessions import accept, ask, session_of

pytestmark = on_every_shape

LOCK = timedelta(seconds=2)
CLOCK_TICK = timedelta(milliseconds=20)
"""The times on the wire are whole milliseconds, and the lock itself runs on another clock."""
RENEW, SETTLE = "com.microsoft:renew-lock", "com.microsoft:update-disposition"


def stranger(
    connect: Connect, bus: Bus, queue: str, message: ServiceBusReceivedMessage, **options: object
) -> ServiceBusReceiver:
    """A receiver of another connection, which settles the message over its management link, as the SDK does with every
    message that did not come on the link itself."""
    message._is_deferred_message = True
    return connect(bus.connection_string).receiver(queue, **options)


def received_and_closed(sdk: PythonSdk, queue: str) -> ServiceBusReceivedMessage:
    sender, receiver = sdk.pair(queue)
    sender.send_messages(ServiceBusMessage("a"))
    (message,) = receive(receiver, 1)
    receiver.close()
    return message


@covers("M2")
def test_a_message_whose_receiver_was_closed_comes_again_when_its_lock_is_over(
    small_sdk: PythonSdk, small_bus: Bus
) -> None:
    queue = small_bus.make_queue(lock_duration=LOCK)
    message = received_and_closed(small_sdk, queue)
    (again,) = receive(small_sdk.receiver(queue), 1)
    assert message.locked_until_utc is not None
    assert again.locked_until_utc is not None
    assert again.locked_until_utc - LOCK >= message.locked_until_utc - CLOCK_TICK
    assert again.delivery_count == 1


def complete(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> Counts:
    receiver.complete_message(message)
    return Counts(0)


def abandon(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> Counts:
    receiver.abandon_message(message)
    return Counts(1)


def defer(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> Counts:
    receiver.defer_message(message)
    (again,) = receiver.receive_deferred_messages([message.sequence_number or 0])
    assert body_of(again) == b"a"
    return Counts(1)


def dead_letter(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> Counts:
    receiver.dead_letter_message(message, reason="late")
    return Counts(0, dead=1)


@covers("M2", "M3")
@pytest.mark.parametrize("settle", [complete, abandon, defer, dead_letter])
def test_a_message_whose_receiver_was_closed_is_settled_over_another_connection(
    sdk: PythonSdk,
    connect: Connect,
    bus: Bus,
    settle: Callable[[ServiceBusReceiver, ServiceBusReceivedMessage], Counts],
) -> None:
    queue = bus.make_queue()
    message = received_and_closed(sdk, queue)
    assert bus.counts(queue) == Counts(1)
    expected = settle(stranger(connect, bus, queue, message), message)
    assert bus.counts(queue) == expected
    if settle is abandon:
        assert receive(sdk.receiver(queue), 1)[0].delivery_count == 1


@covers("M2")
def test_a_lock_whose_receiver_was_closed_is_renewed_over_another_connection(
    small_sdk: PythonSdk, connect: Connect, small_bus: Bus
) -> None:
    queue = small_bus.make_queue(lock_duration=LOCK)
    message = received_and_closed(small_sdk, queue)
    renewed = stranger(connect, small_bus, queue, message).renew_message_lock(message)
    (again,) = receive(small_sdk.receiver(queue), 1)
    assert again.locked_until_utc is not None
    assert again.locked_until_utc - LOCK >= renewed - CLOCK_TICK


@covers("M2", "P6")
@pytest.mark.parametrize("mode", ServiceBusReceiveMode)
def test_what_no_client_has_seen_goes_back_at_once_uncounted(
    sdk: PythonSdk, bus: Bus, mode: ServiceBusReceiveMode
) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue, receive_mode=mode)
    for number in range(8):
        sender.send_messages(ServiceBusMessage(f"m{number}", partition_key=f"k{number}"))
    (taken,) = receive(receiver, 1)
    receiver.close()
    others = receive(sdk.receiver(queue), 7)
    assert body_of(taken) not in bodies_of(others)
    assert {message.delivery_count for message in others} == {0}


@covers("M2", "M12")
def test_what_the_client_fetched_ahead_and_released_goes_back_at_once_uncounted(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue, prefetch_count=10)
    sender.send_messages([ServiceBusMessage(f"m{number}", partition_key="k") for number in range(5)])
    (taken,) = receiver.receive_messages(max_message_count=1)
    receiver.close()
    others = receive(sdk.receiver(queue), 4)
    assert body_of(taken) not in bodies_of(others)
    assert {message.delivery_count for message in others} == {0}


@covers("M2", "M7")
def test_a_closed_session_receiver_frees_its_session_and_its_messages_uncounted(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_session=True)
    sdk.sender(queue).send_messages([ServiceBusMessage(body, session_id="s") for body in ("a", "b")])
    receiver = sdk.receiver(queue, session_id="s")
    assert bodies_of(receive(receiver, 2)) == [b"a", b"b"]
    receiver.close()
    again = receive(sdk.receiver(queue, session_id="s"), 2)
    assert [(body_of(message), message.delivery_count) for message in again] == [(b"a", 0), (b"b", 0)]


@covers("M2")
def test_dead_letters_stay_locked_too_when_their_receiver_is_closed(sdk: PythonSdk, connect: Connect, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages(ServiceBusMessage("a"))
    receiver.dead_letter_message(receive(receiver, 1)[0])
    letters = sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    (letter,) = receive(letters, 1)
    letters.close()
    stranger(connect, bus, queue, letter, sub_queue=ServiceBusSubQueue.DEAD_LETTER).complete_message(letter)
    assert bus.counts(queue) == Counts(0)


def detach(client: RawAmqp) -> None:
    client.perform(codes.DETACH, [uint(RECEIVER), True])
    client.expect(codes.DETACH)


def end(client: RawAmqp) -> None:
    client.perform(codes.END, [])
    client.expect(codes.END)


def close(client: RawAmqp) -> None:
    client.perform(codes.CLOSE, [])
    client.expect(codes.CLOSE)


def vanish(client: RawAmqp) -> None:
    """The connection is lost without a word."""


@covers("M2")
@pytest.mark.parametrize("leave", [detach, end, close, vanish])
def test_however_a_receiver_ends_its_token_is_good_over_another_connection(
    raw: RawAmqp, bus: Bus, queue: str, leave: Callable[[RawAmqp], None]
) -> None:
    raw.attach_sender(SENDER, queue)
    assert raw.send_message(SENDER, 0, data_section(b"a")).described(4)[0] == codes.ACCEPTED
    with RawAmqp(bus.running.port) as going:
        going.log_in()
        going.attach_receiver(RECEIVER, queue)
        going.flow(RECEIVER, 1)
        tag = going.receive_message()[0].plain(2)
        assert isinstance(tag, bytes)
        leave(going)
    token = uuid.UUID(bytes_le=tag)
    node = raw.attach_node(f"{queue}/$management")
    assert node.manage(RENEW, {"lock-tokens": Array(0x98, [token])})[0] == 200
    settle: dict[str, object] = {"disposition-status": "completed", "lock-tokens": Array(0x98, [token])}
    assert node.manage(SETTLE, settle)[0] == 200
    assert bus.counts(queue) == Counts(0)
    assert node.manage(SETTLE, settle)[:2] == (410, "com.microsoft:message-lock-lost")


@covers("M2", "M7")
@pytest.mark.parametrize("leave", [detach, end, close, vanish])
def test_however_a_session_receiver_ends_its_session_is_free_with_its_messages_uncounted(
    raw: RawAmqp, bus: Bus, leave: Callable[[RawAmqp], None]
) -> None:
    queue = bus.make_queue(requires_session=True)
    raw.attach_sender(SENDER, queue)
    raw.send_message(SENDER, 0, properties_section("id", group_id="s") + data_section(b"a"))
    with RawAmqp(bus.running.port) as going:
        going.log_in()
        accept(going, queue, "s")
        going.flow(RECEIVER, 1)
        going.receive_message()
        leave(going)
    ask(raw, queue, None)
    assert session_of(raw.expect(codes.ATTACH)) == "s"
    raw.flow(RECEIVER, 1)
    _, again = raw.receive_message()
    assert (again.body, plain((again.header or [])[4])) == (b"a", 0)


@covers("M2", "B1")
@pytest.mark.skipif(
    NODE is None or not (JS / "node_modules" / "@azure" / "service-bus").exists(),
    reason="needs node and @azure/service-bus: `make install` brings them where npm is",
)
def test_javascript_settles_over_another_connection_what_a_closed_receiver_has_received(bus: Bus) -> None:
    prefix = f"javascript-{uuid.uuid4().hex[:8]}-"
    bus.admin.create_queue(f"{prefix}settledElsewhere", **bus.shape.settings)
    environment = {
        **os.environ,
        "CONNECTION_STRING": bus.connection_string,
        "QUEUE_PREFIX": prefix,
        "SCENARIOS": "settledElsewhere",
    }
    assert NODE is not None
    run = subprocess.run([NODE, "messaging.mjs"], cwd=JS, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)["settledElsewhere"]
    assert found == {"isLater": True, "abandoned": 1, "deferred": "message 2"}
    assert bus.counts(f"{prefix}settledElsewhere") == Counts(2, dead=1)
