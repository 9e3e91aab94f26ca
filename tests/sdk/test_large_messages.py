"""Messages of more than 1 MiB: through everything that carries messages, within a bound on the memory of processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageSizeExceededError
from azure.servicebus.management import SqlRuleAction, TrueRuleFilter

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import (
    data_section,
    decode_message,
    message_annotations_section,
    properties_section,
)
from tandembus.amqp.encoding.values import Array, Typed, int_
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.processes import Processes
from tests.integration.python_sdk import body_of, receive
from tests.integration.raw_amqp import (
    RECEIVER,
    SENDER,
    RawAmqp,
    frames_of_transfer,
    plain,
    rejection,
    state_of,
    texts,
    transfer_frames,
)
from tests.integration.raw_transactions import Transacting
from tests.integration.serving import RunningNamespace, serving
from tests.integration.shapes import PARTITIONED, PLAIN, Shape, Topology, on_shapes
from tests.integration.test_http_messages import Http
from tests.scale import scaled
from tests.sdk.large_load import MIB, LargeSender, memory_of

LARGEST_BYTES = 100 * MIB
CLIENTS = scaled(20, 50, 50)
LOAD_BYTES = scaled(6 * MIB, LARGEST_BYTES - 1024, LARGEST_BYTES - 1024)
BOUND_BYTES = scaled(16 * MIB, 256 * MIB, 256 * MIB)
MOST_BYTES = 5 * BOUND_BYTES
"""Less than all clients send together."""
FRAMES = 1 << 24
"""Enough for all of the large messages."""
HELD_FOR = 200
"""So many small messages are sent until the large ones come to their end: time to read all of them, were there room."""
SETTINGS = f"""
[limits]
largest_message_size_bytes = {LARGEST_BYTES}
large_message_memory_bytes = {BOUND_BYTES}
open_transaction_bytes = {4 * MIB}
"""
TWO_BROKERS = Topology("two-brokers", ("--brokers", "2"))
PLAIN_ON_TWO = Shape("plain-on-two-brokers", TWO_BROKERS)
PARTITIONED_ON_TWO = Shape("partitioned-on-two-brokers", TWO_BROKERS, is_partitioned=True)
LATER_MS = 4_000_000_000_000
LOAD = {
    "max_message_size_in_kilobytes": scaled(8 * 1024, LARGEST_BYTES // 1024, LARGEST_BYTES // 1024),
    "max_size_in_megabytes": scaled(1024, 5 * 1024, 5 * 1024),
}
LARGE = {"max_message_size_in_kilobytes": LARGEST_BYTES // 1024}

pytestmark = on_shapes(PLAIN, PARTITIONED, PLAIN_ON_TWO, PARTITIONED_ON_TWO)


def config_in(folder: Path) -> str:
    path = folder / "config.toml"
    path.write_text(SETTINGS)
    return str(path)


@pytest.fixture(scope="module")
def running_namespace(shape: Shape, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    folder = tmp_path_factory.mktemp("large")
    with serving(folder / "data", "--config", config_in(folder), *shape.topology.options) as namespace:
        yield namespace


@pytest.fixture
def client(running_namespace: RunningNamespace) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(running_namespace.connection_string) as client:
        yield client


def largest_memory(namespace: RunningNamespace) -> int:
    """Of any of its processes."""
    return max(memory_of(namespace.process.pid).values())


def body_of_size(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def payload_of(body: bytes, message_id: str = "large", session_id: str | None = None) -> bytes:
    return properties_section(message_id=message_id, group_id=session_id) + data_section(body)


@covers("M12", "M13")
def test_large_messages_arrive_as_they_were_sent(client: ServiceBusClient, bus: Bus) -> None:
    queue = bus.make_queue(**LARGE)
    body = body_of_size(3 * MIB)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(body, message_id="large"))
        sender.send_messages(ServiceBusMessage(b"small", message_id="small"))
    with client.get_queue_receiver(queue) as receiver:
        found = receive(receiver, 2, max_wait_time=20)
        assert {one.message_id: body_of(one) for one in found} == {"large": body, "small": b"small"}
        for one in found:
            receiver.complete_message(one)
    assert bus.comes_to(queue, Counts(0))


@covers("M12")
def test_what_is_too_large_for_its_entity_is_refused_with_its_size(
    client: ServiceBusClient, raw: RawAmqp, bus: Bus
) -> None:
    queue = bus.make_queue(max_message_size_in_kilobytes=2048)
    with client.get_queue_sender(queue) as sender, pytest.raises(MessageSizeExceededError):
        sender.send_messages(ServiceBusMessage(body_of_size(2 * MIB)))
    attached = raw.attach_sender(SENDER, queue)
    assert attached.plain(10) == 2 * MIB
    batches = cast("dict[object, object]", attached[13])
    assert texts(batches)["com.microsoft:max-message-batch-size"] == Typed(0x80, MIB)
    payload = payload_of(b"x" * (2 * MIB))
    error = rejection(raw.send_message(SENDER, 0, payload))
    assert plain(error[0]) == "amqp:link:message-size-exceeded"
    assert f"{len(payload)} bytes" in str(plain(error[1]))
    assert raw.send_message(SENDER, 1, payload_of(b"x" * (2 * MIB - 100))).described(4)[0] == codes.ACCEPTED


@covers("M12")
def test_an_entitys_limit_can_be_changed(raw: RawAmqp, bus: Bus) -> None:
    queue = bus.make_queue()
    found = bus.admin.get_queue(queue)
    assert found.max_message_size_in_kilobytes == 256
    found.max_message_size_in_kilobytes = 4096
    bus.admin.update_queue(found)
    assert bus.admin.get_queue(queue).max_message_size_in_kilobytes == 4096
    assert raw.attach_sender(SENDER, queue).plain(10) == 4 * MIB
    found.max_message_size_in_kilobytes = LARGEST_BYTES // 1024 + 1
    with pytest.raises(HttpResponseError, match="MaxMessageSizeInKilobytes is 102401; allowed: 1024 to 102400"):
        bus.admin.update_queue(found)


@covers("M12", "M5")
def test_sessions_and_receive_and_delete_take_large_messages(raw: RawAmqp, client: ServiceBusClient, bus: Bus) -> None:
    queue = bus.make_queue(requires_session=True, **LARGE)
    body = body_of_size(3 * MIB)
    raw.attach_sender(SENDER, queue)
    for number in range(3):
        answer = raw.send_message(SENDER, number, payload_of(body, str(number), "one"))
        assert answer.described(4)[0] == codes.ACCEPTED
    with client.get_queue_receiver(queue, session_id="one", receive_mode="receiveanddelete") as receiver:
        found = receive(receiver, 3, max_wait_time=20)
    assert [(one.message_id, body_of(one)) for one in found] == [(str(number), body) for number in range(3)]
    assert bus.comes_to(queue, Counts(0))


@covers("M12", "M8")
def test_subscriptions_get_the_large_messages_of_their_topic(raw: RawAmqp, bus: Bus) -> None:
    topic = bus.make_topic("all", **LARGE)
    body = body_of_size(LARGEST_BYTES - 100)
    raw.attach_sender(SENDER, topic)
    assert raw.send_message(SENDER, 0, payload_of(body)).described(4)[0] == codes.ACCEPTED
    raw.attach_receiver(RECEIVER, f"{topic}/subscriptions/all")
    raw.flow(RECEIVER, 1)
    assert raw.receive_message()[1].body == body


@covers("M12")
def test_a_large_message_is_scheduled_and_peeked_at_the_management_node(raw: RawAmqp, bus: Bus) -> None:
    queue = bus.make_queue(**LARGE)
    body = body_of_size(6 * MIB)
    payload = message_annotations_section({"x-opt-scheduled-enqueue-time": Typed(0x83, LATER_MS)}) + payload_of(body)
    node = raw.attach_node(f"{queue}/$management")
    message = {"message": payload, "message-id": "large"}
    status, _, numbers = node.manage("com.microsoft:schedule-message", {"messages": [message]})
    assert status == 200
    assert len(cast("dict[str, Array]", numbers)["sequence-numbers"].items) == 1
    request = {"message-count": int_(1), "from-sequence-number": 1}
    status, _, found = node.manage("com.microsoft:peek-message", request)
    assert status == 200
    (one,) = cast("dict[str, list[dict[str, bytes]]]", found)["messages"]
    assert decode_message(one["message"]).body == body


@covers("M12", "M7")
def test_a_transaction_may_hold_one_message_that_is_larger_than_a_transaction(raw: RawAmqp, bus: Bus) -> None:
    queue = bus.make_queue(**LARGE)
    key = message_annotations_section({"x-opt-partition-key": "key"})
    transacting = Transacting(raw)
    raw.attach_sender(SENDER, queue)
    transaction = transacting.declare()
    pieces = 6 * MIB // 60_000 + 1
    for body in (body_of_size(6 * MIB), b"small"):
        answer = transacting.transfer(SENDER, key + payload_of(body), transaction, pieces if len(body) > 5 else 1)
        assert answer.described(4)[0] == codes.TRANSACTIONAL_STATE
    transacting.commit(transaction)
    assert bus.comes_to(queue, Counts(2))


@covers("M12", "M9", "M10")
@pytest.mark.parametrize("key", [None, "key"])
def test_large_messages_are_forwarded_and_changed_by_rules(client: ServiceBusClient, bus: Bus, key: str | None) -> None:
    last, topic = bus.make_queue(**LARGE), bus.make_topic(**LARGE)
    bus.admin.create_subscription(topic, "all", forward_to=last)
    bus.admin.delete_rule(topic, "all", "$Default")
    bus.admin.create_rule(topic, "all", "rule", filter=TrueRuleFilter(), action=SqlRuleAction("SET sys.Label = 'new'"))
    first = bus.make_queue(forward_to=topic, **LARGE)
    body = body_of_size(6 * MIB)
    with client.get_queue_sender(first) as sender:
        for _ in range(2):
            sender.send_messages(ServiceBusMessage(body, partition_key=key))
    with client.get_queue_receiver(last) as receiver:
        for _ in range(2):
            (found,) = receive(receiver, 1, max_wait_time=20)
            assert (found.subject, found.partition_key, body_of(found) == body) == ("new", key, True)
            receiver.complete_message(found)


@covers("M12", "M3", "M5", "M8")
def test_large_messages_are_activated_and_settled_in_every_way(client: ServiceBusClient, bus: Bus) -> None:
    queue = bus.make_queue(requires_duplicate_detection=True, **LARGE)
    body = body_of_size(6 * MIB)
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.schedule_messages(ServiceBusMessage(body, message_id="a"), datetime.now(UTC) + timedelta(seconds=1))
        sender.send_messages(ServiceBusMessage(body, message_id="a"))
        (found,) = receive(receiver, 1, max_wait_time=20)
        receiver.abandon_message(found)
        (found,) = receive(receiver, 1, max_wait_time=20)
        receiver.defer_message(found)
        (found,) = receiver.receive_deferred_messages(found.sequence_number or 0)
        assert (found.delivery_count, body_of(found) == body) == (2, True)
        receiver.dead_letter_message(found)
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
        (found,) = receive(letters, 1, max_wait_time=20)
        assert body_of(found) == body
        letters.complete_message(found)
    assert bus.comes_to(queue, Counts(0))


@covers("M12", "M10")
def test_what_is_too_large_for_its_destination_becomes_a_transfer_dead_letter(raw: RawAmqp, bus: Bus) -> None:
    small = bus.make_queue()
    queue = bus.make_queue(forward_to=small, **LARGE)
    raw.attach_sender(SENDER, queue)
    assert raw.send_message(SENDER, 0, payload_of(body_of_size(2 * MIB))).described(4)[0] == codes.ACCEPTED
    raw.attach_receiver(RECEIVER, f"{queue}/$Transfer/$DeadLetterQueue")
    raw.flow(RECEIVER, 1)
    _, message = raw.receive_message()
    assert "takes 262144 at most" in str(message.application_properties)


@covers("M12", "M15")
def test_large_messages_go_over_http(running_namespace: RunningNamespace, bus: Bus) -> None:
    queue = bus.make_queue(**LARGE)
    body = body_of_size(20 * MIB)
    http = Http(running_namespace, uses_tls=False)
    assert http.ask("POST", f"{queue}/messages", body).status == 201
    assert http.ask("POST", f"{bus.make_queue()}/messages", body).status == 403
    found = http.ask("DELETE", f"{queue}/messages/head?timeout=20")
    assert (found.status, found.body == body) == (200, True)


@pytest.mark.chaos
@covers("M12")
def test_senders_of_large_messages_wait_for_room_and_hold_nobody_up(
    running_namespace: RunningNamespace, raw: RawAmqp, bus: Bus
) -> None:
    """Many times what has room is on its way at once: all of it arrives once, while small messages go on."""
    queue, other = bus.make_queue(**LOAD), bus.make_queue()
    body = body_of_size(LOAD_BYTES)
    payload = payload_of(body)
    raw.attach_sender(SENDER, other)
    before = peak = largest_memory(running_namespace)
    is_to_end = threading.Event()
    small_count = 0
    with ThreadPoolExecutor(CLIENTS) as threads:
        senders = [LargeSender(running_namespace.port, queue, payload, is_to_end) for _ in range(CLIENTS)]
        sending = [threads.submit(sender.send) for sender in senders]
        while not all(one.done() for one in sending):
            assert raw.send_message(SENDER, small_count, payload_of(b"small")).described(4)[0] == codes.ACCEPTED
            peak = max(peak, largest_memory(running_namespace))
            small_count += 1
            if small_count == HELD_FOR:
                is_to_end.set()
        for one in sending:
            one.result()
    print(f"{CLIENTS} messages of {LOAD_BYTES // MIB} MiB took {(peak - before) // MIB} MiB beyond {before // MIB} MiB")
    assert peak - before < MOST_BYTES, "its copies on the way count as well"
    assert bus.counts(queue) == Counts(CLIENTS)
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, CLIENTS, window=FRAMES)
    for _ in range(CLIENTS):
        transfer, message = raw.receive_message()
        assert message.body == body
        raw.dispose(transfer.number(1), state_of(codes.ACCEPTED), settled=True)
    assert bus.comes_to(queue, Counts(0))


@pytest.mark.chaos
@covers("M12")
def test_receivers_that_do_not_read_hold_a_bounded_part_of_what_is_delivered(
    running_namespace: RunningNamespace, raw: RawAmqp, bus: Bus
) -> None:
    queue, other = bus.make_queue(lock_duration=timedelta(seconds=5), **LOAD), bus.make_queue(**LOAD)
    body = body_of_size(LOAD_BYTES)
    payload = payload_of(body)
    raw.attach_sender(SENDER, queue)
    for number in range(CLIENTS):
        raw.send_message(SENDER, number, payload)
    before = peak = largest_memory(running_namespace)
    hung = [RawAmqp(running_namespace.port, receive_buffer=65_536) for _ in range(CLIENTS)]
    try:
        for one in hung:
            one.log_in()
            one.attach_receiver(RECEIVER, queue)
            one.flow(RECEIVER, 1000)
        # Others send large messages all the same, and small ones are received.
        raw.attach_sender(10, other)
        for number, sent in enumerate((payload, payload_of(b"small")), CLIENTS):
            assert raw.send_message(10, number, sent).described(4)[0] == codes.ACCEPTED
            peak = max(peak, largest_memory(running_namespace))
        print(
            f"receivers of {CLIENTS} times {LOAD_BYTES // MIB} MiB: {(peak - before) // MIB} beyond {before // MIB} MiB"
        )
        assert peak - before < MOST_BYTES
    finally:
        for one in hung:
            one.socket.close()
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, CLIENTS, window=FRAMES)
    for _ in range(CLIENTS):
        assert raw.receive_message()[1].body == body


@covers("M12", "M14")
def test_large_messages_survive_a_kill(tmp_path: Path, shape: Shape) -> None:
    options = ("--config", config_in(tmp_path), *shape.topology.options)
    processes = Processes(tmp_path / "data", *options)
    bus = Bus(processes.running, shape=shape)
    queue = bus.make_queue(**LARGE)
    bus.close()
    body = body_of_size(20 * MIB)
    LargeSender(processes.running.port, queue, payload_of(body)).send()
    processes.restart(*options, end=RunningNamespace.kill)
    try:
        with RawAmqp(processes.running.port) as raw:
            raw.log_in()
            raw.attach_receiver(RECEIVER, queue)
            raw.flow(RECEIVER, 1)
            assert raw.receive_message()[1].body == body
    finally:
        assert processes.running.stop() == 0


@covers("M12")
def test_who_begins_a_large_message_and_stops_does_not_keep_its_room(tmp_path: Path, shape: Shape) -> None:
    config = tmp_path / "config.toml"
    config.write_text(SETTINGS + "operation_timeout_s = 3.0\n")
    with serving(tmp_path / "data", "--config", str(config), *shape.topology.options) as namespace:
        bus = Bus(namespace, shape=shape)
        queue = bus.make_queue(**LARGE)
        bus.close()
        payload = payload_of(body_of_size(3 * MIB))
        with RawAmqp(namespace.port) as halted:
            halted.log_in()
            halted.attach_sender(SENDER, queue)
            halted.send(transfer_frames(SENDER, 0, payload)[: 2 * MIB])
            LargeSender(namespace.port, queue, payload).send()
            condition, *_ = halted.expect(codes.CLOSE).error(0)
            assert plain(condition) == "amqp:resource-limit-exceeded"


@covers("M12")
def test_a_sender_that_gave_up_while_it_waited_for_room_holds_nobody_up(
    running_namespace: RunningNamespace, client: ServiceBusClient, bus: Bus
) -> None:
    """The Python SDK leaves the socket open on which its send timed out, and retries on another."""
    queue = bus.make_queue(**LARGE)
    frames = list(frames_of_transfer(SENDER, 0, payload_of(body_of_size(3 * MIB))))
    with (
        RawAmqp(running_namespace.port) as first,
        RawAmqp(running_namespace.port) as gone,
        ThreadPoolExecutor(1) as threads,
        client.get_queue_sender(queue) as sender,
    ):
        for one in (first, gone):
            one.log_in()
            one.attach_sender(SENDER, queue)
        first.send(b"".join(frames[:-1]))
        first.attach_sender(RECEIVER, queue)  # answered after the message got its room
        gone.send(b"".join(frames[:-1]))
        sending = threads.submit(sender.send_messages, ServiceBusMessage(body_of_size(3 * MIB)))
        first.send(frames[-1])
        assert first.expect(codes.DISPOSITION).described(4)[0] == codes.ACCEPTED
        condition, *_ = gone.expect(codes.CLOSE).error(0)
        assert plain(condition) == "amqp:resource-limit-exceeded"
        sending.result()
    assert bus.comes_to(queue, Counts(2))
