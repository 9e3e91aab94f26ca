"""SessionIds and partition keys as SDKs send them: empty ones, ones that stand where no session is, ones in binary."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import data_section, message_annotations_section, properties_section
from tandembus.amqp.encoding.values import Array, int_, symbol, uint
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import with_sync_client
from tests.integration.python_sdk import PythonSdk, bodies_of, receive
from tests.integration.raw_amqp import RECEIVER, SENDER, RawAmqp, state_of, texts
from tests.integration.shapes import Shape, on_every_shape

pytestmark = on_every_shape

JS = Path(__file__).parents[1] / "integration" / "js"
NODE = shutil.which("node")
SESSION_FILTER = "com.microsoft:session-filter"
LONG, UUID = 0x81, 0x98


# A SessionId where there are no sessions.


@covers("M3", "M7")
@pytest.mark.parametrize("status", ["completed", "abandoned", "defered", "suspended"])
@pytest.mark.parametrize("session_id", ["s", "another"])
def test_a_request_names_a_session_where_there_is_none(raw: RawAmqp, queue: str, status: str, session_id: str) -> None:
    raw.attach_sender(SENDER, queue)
    raw.send_message(SENDER, 0, properties_section("id", group_id="s") + data_section(b"x"))
    node = raw.attach_node(f"{queue}/$management")
    _, _, peeked = node.manage(
        "com.microsoft:peek-message", {"from-sequence-number": 1, "message-count": int_(1), "session-id": session_id}
    )
    assert isinstance(peeked, dict)
    assert len(peeked["messages"]) == 1
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 1)
    delivery, message = raw.receive_message()
    number = texts(message.message_annotations)["x-opt-sequence-number"]
    raw.dispose(delivery.number(1), state_of(codes.MODIFIED, None, True))
    raw.expect(codes.DISPOSITION)
    asked = {"sequence-numbers": Array(LONG, [number]), "receiver-settle-mode": uint(1), "session-id": session_id}
    code, _, found = node.manage("com.microsoft:receive-by-sequence-number", asked)
    assert code == 200
    assert isinstance(found, dict)
    token = found["messages"][0]["lock-token"]
    body = {"disposition-status": status, "lock-tokens": Array(UUID, [token]), "session-id": session_id}
    assert node.manage("com.microsoft:update-disposition", body)[0] == 200
    assert node.manage("com.microsoft:update-disposition", body)[:2] == (410, "com.microsoft:message-lock-lost")


@covers("M3", "M7")
def test_a_dead_letter_of_a_session_is_deferred_and_settled(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_session=True)
    sdk.sender(queue).send_messages(ServiceBusMessage(b"x", session_id="s"))
    receiver = sdk.receiver(queue, session_id="s")
    receiver.dead_letter_message(receive(receiver, 1)[0])
    letters = sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    (letter,) = receive(letters, 1)
    assert letter.session_id == "s"
    letters.defer_message(letter)
    (deferred,) = letters.receive_deferred_messages([letter.sequence_number or 0])
    letters.complete_message(deferred)
    assert bus.comes_to(queue, Counts(active=0, dead=0))


# An empty SessionId.


def in_empty_session(body: str, key: str | None, message_id: str | None = None) -> ServiceBusMessage:
    """The SDK takes the empty one for set, and refuses another key itself; in the message below it does not look."""
    message = ServiceBusMessage(body.encode(), message_id=message_id, session_id="")
    if key is not None:
        message.raw_amqp_message.annotations = {"x-opt-partition-key": key}
    return message


@covers("M7", "P10")
@with_sync_client
def test_an_empty_session_id_is_a_session(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_session=True)
    sender = sdk.sender(queue)
    for number, key in enumerate([None, "a", "b", None]):
        sender.send_messages(in_empty_session(f"{number}", key))
    sender.send_messages(ServiceBusMessage(b"other", session_id="other"))
    receiver = sdk.receiver(queue, session_id=NEXT_AVAILABLE_SESSION)
    assert receiver.session.session_id == ""
    received = receive(receiver, 4)
    assert bodies_of(received) == [b"0", b"1", b"2", b"3"]
    assert [(one.session_id, one.partition_key) for one in received] == [("", None), ("", "a"), ("", "b"), ("", None)]
    receiver.session.set_state(b"of the empty one")
    assert receiver.session.get_state() == b"of the empty one"
    assert len(receiver.peek_messages(10, sequence_number=1)) == 4
    for one in received:
        receiver.complete_message(one)
    assert bus.comes_to(queue, Counts(active=1))
    receiver.close()
    sender.send_messages(in_empty_session("again", "c"))
    named = sdk.receiver(queue, session_id="")
    assert (named.session.session_id, bodies_of(receive(named, 1))) == ("", [b"again"])
    assert named.session.get_state() == b"of the empty one"


@covers("M7", "P10")
@with_sync_client
def test_the_empty_session_of_a_subscription_is_whole(sdk: PythonSdk, bus: Bus) -> None:
    topic = bus.make_topic()
    sender = sdk.topic_sender(topic)
    sender.send_messages(in_empty_session("before", "a"))  # the topic is in use now
    bus.admin.create_subscription(topic, "sessions", requires_session=True)
    for number, key in enumerate(["a", "b", None, "c"]):
        sender.send_messages(in_empty_session(f"{number}", key))
    receiver = sdk.subscription_receiver(topic, "sessions", session_id=NEXT_AVAILABLE_SESSION)
    assert bodies_of(receive(receiver, 4)) == [b"0", b"1", b"2", b"3"]


@covers("P10", "P11")
@with_sync_client
def test_an_empty_session_id_is_none_where_no_session_is_required(sdk: PythonSdk, bus: Bus, shape: Shape) -> None:
    queue = bus.make_queue(requires_duplicate_detection=True)
    sender, receiver = sdk.pair(queue)
    for key in (None, "a", "b", "a"):
        sender.send_messages(in_empty_session(f"{key}", key, message_id="m"))
    sender.send_messages(ServiceBusMessage(b"None", message_id="m"))
    expected = [b"None", b"a", b"b"] if shape.is_partitioned else [b"None"]
    assert sorted(bodies_of(receive(receiver, len(expected)))) == expected
    assert bus.counts(queue).active == len(expected)


@covers("M8", "P10")
@with_sync_client
def test_the_empty_session_id_is_the_key_of_its_duplicates_where_sessions_are_required(
    sdk: PythonSdk, bus: Bus, shape: Shape
) -> None:
    queue = bus.make_queue(requires_duplicate_detection=True, requires_session=True)
    sender = sdk.sender(queue)
    for key in (None, "a", "b"):
        sender.send_messages(in_empty_session("x", key, message_id="m"))
    assert bus.counts(queue).active == 1
    sender.send_messages(ServiceBusMessage(b"x", message_id="m", session_id="s"))
    assert bus.counts(queue).active == (2 if shape.is_partitioned else 1)


@covers("M8", "M9", "P10")
@with_sync_client
def test_the_empty_session_id_is_the_key_of_its_duplicates_on_a_topic_with_sessions(sdk: PythonSdk, bus: Bus) -> None:
    topic = bus.make_topic(requires_duplicate_detection=True)
    bus.admin.create_subscription(topic, "sessions", requires_session=True)
    sender = sdk.topic_sender(topic)
    for key in (None, "a", "b"):
        sender.send_messages(in_empty_session("x", key, message_id="m"))
    assert bus.counts_of_subscription(topic, "sessions") == Counts(1)


@covers("P11")
@with_sync_client
def test_keys_that_are_set_and_differ_are_refused(impatient_sdk: PythonSdk, queue: str) -> None:
    message = in_empty_session("x", "p")
    message.raw_amqp_message.properties.group_id = "s"  # type: ignore[union-attr]
    with pytest.raises(ServiceBusError, match="must be equal"):
        impatient_sdk.sender(queue).send_messages(message)


# Keys in binary.


@covers("P10", "P11")
@with_sync_client
@pytest.mark.parametrize("session_id", [None, "key"])
def test_a_received_message_is_sent_on_as_it_is(sdk: PythonSdk, bus: Bus, session_id: str | None) -> None:
    # From a partitioned queue the SDK cannot: it has no encoding for the long sequence number among the annotations.
    first, second = bus.make_queue(enable_partitioning=False), bus.make_queue(requires_session=session_id is not None)
    sender, receiver = sdk.pair(first)
    sender.send_messages(ServiceBusMessage(b"x", session_id=session_id, partition_key="key"))
    (received,) = receive(receiver, 1)
    sdk.sender(second).send_messages(received)
    (again,) = receive(sdk.receiver(second, session_id=session_id), 1)
    assert (again.partition_key, again.session_id, bodies_of([again])) == ("key", session_id, [b"x"])


@covers("P5", "P10")
@pytest.mark.parametrize("value", [b"key", symbol("key"), "key"])
def test_a_key_of_any_text_type_is_delivered_as_a_string(raw: RawAmqp, queue: str, value: object) -> None:
    raw.attach_sender(SENDER, queue)
    keys = {"x-opt-partition-key": value, "x-opt-via-partition-key": value}
    for number in range(3):
        raw.send_message(SENDER, number, message_annotations_section(keys) + data_section(str(number).encode()))
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 3)
    for number in range(3):
        _, message = raw.receive_message()
        annotations = texts(message.message_annotations)
        assert message.body == str(number).encode(), "one key, one fragment, one order"
        assert annotations["x-opt-partition-key"] == annotations["x-opt-via-partition-key"] == "key"


@covers("P11")
@pytest.mark.parametrize("value", [b"\xff", b"x" * 129, uint(7), ["key"]])
def test_a_key_that_is_no_text_is_refused(raw: RawAmqp, queue: str, value: object) -> None:
    raw.attach_sender(SENDER, queue)
    for name in ("x-opt-partition-key", "x-opt-via-partition-key"):
        answer = raw.send_message(SENDER, 0, message_annotations_section({name: value}) + data_section(b"x"))
        assert answer.described(4)[0] == codes.REJECTED


# JavaScript, which names the message's session when it settles.


class Seen:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._prefix = f"ids-{uuid.uuid4().hex[:8]}-"
        for name in ("deferred", "letters"):
            bus.admin.create_queue(self._prefix + name, requires_session=name != "deferred", **bus.shape.settings)
        environment = {**os.environ, "CONNECTION_STRING": bus.connection_string, "QUEUE_PREFIX": self._prefix}
        assert NODE is not None
        command = [NODE, "session_ids.mjs"]
        run = subprocess.run(command, cwd=JS, env=environment, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stderr
        self.results: dict[str, Any] = json.loads(run.stdout)

    def counts(self, name: str) -> Counts:
        return self._bus.counts(self._prefix + name)


@pytest.fixture(scope="module")
def seen(bus: Bus) -> Seen:
    if NODE is None or not (JS / "node_modules" / "@azure" / "service-bus").exists():
        pytest.skip("needs node and @azure/service-bus: `make install` brings them where npm is")
    return Seen(bus)


@covers("M3", "M7", "B1")
@pytest.mark.parametrize("name", ["deferred", "letters"])
def test_javascript_settles_a_deferred_message_that_carries_a_session_id(seen: Seen, name: str) -> None:
    assert seen.results[name] == {"sessionId": "s", "bodies": ["x"]}
    assert seen.counts(name) == Counts(active=0, dead=0)
