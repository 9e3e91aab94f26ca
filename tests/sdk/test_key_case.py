"""SessionIds and PartitionKeys that differ in case only are one key on queues and topics of this version, and delivered
as they were sent. MessageIds are compared exactly. Entities of older versions compare keys exactly, as they did."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError, SessionCannotBeLockedError
from azure.servicebus.management import ServiceBusAdministrationClient

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import data_section, properties_section
from tandembus.amqp.encoding.values import int_, symbol, timestamp, ubyte, uint
from tandembus.namespace.partitioning import fragment_of_key
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import with_sync_client
from tests.integration.python_sdk import PythonSdk, bodies_of, receive
from tests.integration.raw_amqp import RECEIVER, SENDER, RawAmqp, source_of, target_of
from tests.integration.serving import RunningNamespace, serving
from tests.integration.shapes import Shape, on_every_shape
from tests.integration.test_older_data import DATA, unpack

IDS = ("Straße-7", "STRASSE-7", "strasse-7", "sTraSSe-7")
"""One under str.casefold(), not under str.lower()."""
SESSION_FILTER = "com.microsoft:session-filter"
EVERY_SESSION = timestamp(253_402_300_800_000)


@covers("M7", "P10")
@on_every_shape
@with_sync_client
def test_session_ids_that_differ_in_case_are_one_session(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_session=True)
    sender = sdk.sender(queue)
    for session_id in IDS:
        sender.send_messages(ServiceBusMessage(session_id.encode(), session_id=session_id))
    receiver = sdk.receiver(queue, session_id=NEXT_AVAILABLE_SESSION)
    assert receiver.session.session_id == IDS[0]
    received = receive(receiver, len(IDS))
    assert [(one.session_id, str(one)) for one in received] == [(one, one) for one in IDS]
    assert [one.session_id for one in receiver.peek_messages(10, sequence_number=1)] == list(IDS)
    receiver.session.set_state(b"its state")
    receiver.defer_message(received[0])
    (deferred,) = receiver.receive_deferred_messages(received[0].sequence_number or 0)
    for one in [deferred, *received[1:]]:
        receiver.complete_message(one)
    receiver.session.renew_lock()
    receiver.close()
    named = sdk.receiver(queue, session_id="STRASSE-7")
    assert (named.session.session_id, named.session.get_state()) == ("STRASSE-7", b"its state")
    assert bus.comes_to(queue, Counts(active=0))


@covers("M7")
@on_every_shape
@with_sync_client
def test_a_session_is_held_in_every_case(impatient_sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_session=True)
    impatient_sdk.receiver(queue, session_id="Mine")
    with pytest.raises(SessionCannotBeLockedError):
        impatient_sdk.receiver(queue, session_id="mINE")


@covers("M7")
@on_every_shape
@pytest.mark.parametrize("has_state", [False, True])
def test_requests_name_the_session_in_any_case_and_it_is_listed_once(raw: RawAmqp, bus: Bus, has_state: bool) -> None:
    queue = bus.make_queue(requires_session=True)
    raw.attach_sender(SENDER, queue)
    for number, session_id in enumerate(("Order", "ORDER")):
        raw.send_message(SENDER, number, properties_section("id", group_id=session_id) + data_section(b"x"))
    session_filter = {symbol(SESSION_FILTER): "oRDER"}
    source = source_of(queue, None, None, None, None, None, None, session_filter)
    raw.perform(codes.ATTACH, ["link", uint(RECEIVER), True, ubyte(0), ubyte(1), source, target_of("client")])
    attached = raw.expect(codes.ATTACH)
    assert attached.described(5)[1][7] == session_filter, "the session as the client named it"
    node = raw.attach_node(f"{queue}/$management")
    if has_state:
        body = {"session-id": "ordeR", "session-state": b"state"}
        assert node.manage("com.microsoft:set-session-state", body)[0] == 200
        read = node.manage("com.microsoft:get-session-state", {"session-id": "ORDER"})
        assert read == (200, None, {"session-state": b"state"})
    assert node.manage("com.microsoft:renew-session-lock", {"session-id": "order"})[0] == 200
    listing = {"last-updated-time": EVERY_SESSION, "skip": int_(0), "top": int_(10)}
    _, _, listed = node.manage("com.microsoft:get-message-sessions", listing)
    assert isinstance(listed, dict)
    assert listed["sessions-ids"].items == ["Order"]


@covers("P5", "P10")
@on_every_shape
@with_sync_client
def test_partition_keys_that_differ_in_case_are_one_key(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    batch = [ServiceBusMessage(key.encode(), partition_key=key) for key in IDS]
    sender.send_messages(batch)
    for key in IDS:
        sender.send_messages(ServiceBusMessage(key.encode(), partition_key=key))
    received = receive(receiver, 2 * len(IDS))
    assert [(one.partition_key, str(one)) for one in received] == [(one, one) for one in IDS] * 2
    assert len({(one.sequence_number or 0) >> 48 for one in received}) == 1


@covers("P11")
@on_every_shape
@with_sync_client
def test_a_session_id_and_a_partition_key_may_differ_in_case(impatient_sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_session=True)
    message = ServiceBusMessage(b"x", session_id="Order")
    message.raw_amqp_message.annotations = {"x-opt-partition-key": "oRDER"}
    sender = impatient_sdk.sender(queue)
    sender.send_messages(message)
    (received,) = receive(impatient_sdk.receiver(queue, session_id="order"), 1)
    assert (received.session_id, received.partition_key) == ("Order", "oRDER")
    message.raw_amqp_message.annotations = {"x-opt-partition-key": "other"}
    with pytest.raises(ServiceBusError, match="must be equal"):
        sender.send_messages(message)


@covers("M8", "P10")
@on_every_shape
@with_sync_client
def test_duplicates_are_found_under_keys_in_any_case_and_ids_count_exactly(sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_duplicate_detection=True)
    sender = sdk.sender(queue)
    for key in IDS:
        sender.send_messages(ServiceBusMessage(b"x", message_id="m", partition_key=key))
    assert bus.counts(queue).active == 1
    sender.send_messages(ServiceBusMessage(b"x", message_id="M", partition_key=IDS[0]))
    assert bus.counts(queue).active == 2


@covers("P10")
@on_every_shape
@with_sync_client
def test_the_message_id_selects_its_fragment_exactly(sdk: PythonSdk, bus: Bus, shape: Shape) -> None:
    queue = bus.make_queue(requires_duplicate_detection=True)
    sender, receiver = sdk.pair(queue)
    for message_id in IDS:
        sender.send_messages(ServiceBusMessage(b"x", message_id=message_id))
    sender.send_messages([ServiceBusMessage(b"x", message_id=f"{one}, in a batch") for one in IDS])
    received = receive(receiver, 2 * len(IDS))
    places = {str(one.message_id): (one.sequence_number or 0) >> 48 for one in received}
    keys = [*IDS, *[f"{one}, in a batch" for one in IDS]]
    assert places == {key: int(fragment_of_key(key)) if shape.is_partitioned else 0 for key in keys}


@covers("M7", "M9")
@on_every_shape
@with_sync_client
def test_the_sessions_of_a_subscription_and_of_a_forwarding_target_ignore_case(sdk: PythonSdk, bus: Bus) -> None:
    topic, target = bus.make_topic(), bus.make_queue(requires_session=True)
    bus.admin.create_subscription(topic, "sessions", requires_session=True)
    bus.admin.create_subscription(topic, "forwards", forward_to=target)
    sender = sdk.topic_sender(topic)
    for session_id in IDS:
        sender.send_messages(ServiceBusMessage(session_id.encode(), session_id=session_id))
    of_subscription = sdk.subscription_receiver(topic, "sessions", session_id="STRASSE-7")
    assert bodies_of(receive(of_subscription, len(IDS))) == [one.encode() for one in IDS]
    of_target = sdk.receiver(target, session_id="STRASSE-7")
    assert bodies_of(receive(of_target, len(IDS))) == [one.encode() for one in IDS]


@covers("M7", "P10")
def test_sessions_in_every_case_are_one_after_a_restart(tmp_path: Path) -> None:
    for stores in ((), ("--stores", "2")):
        data = tmp_path / f"data{len(stores)}"
        with serving(data, *stores) as namespace:
            _administer(namespace).create_queue("q", requires_session=True, enable_partitioning=bool(stores))
            with _client(namespace) as client, client.get_queue_sender("q") as sender:
                for session_id in IDS:
                    sender.send_messages(ServiceBusMessage(session_id, session_id=session_id))
            with _client(namespace) as client, client.get_queue_receiver("q", session_id=IDS[0]) as receiver:
                receiver.session.set_state(b"state")
        with (
            serving(data, *stores) as namespace,
            _client(namespace) as client,
            client.get_queue_receiver("q", session_id=NEXT_AVAILABLE_SESSION) as receiver,
        ):
            assert receiver.session.session_id == IDS[0]
            assert receiver.session.get_state() == b"state"
            assert bodies_of(receive(receiver, len(IDS))) == [one.encode() for one in IDS]


# Entities of an older version.


def _client(namespace: RunningNamespace) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0)


def _administer(namespace: RunningNamespace) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        namespace.connection_string, connection_verify=str(namespace.ca_path)
    )


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    with serving(unpack(DATA / "ead7bcb.tar.xz", tmp_path_factory.mktemp("older"))) as namespace:
        yield namespace


@covers("M7", "P10")
@pytest.mark.parametrize("kind", ["plain", "partitioned"])
def test_sessions_of_an_older_version_stay_apart(older: RunningNamespace, kind: str) -> None:
    queue = f"{kind}-sessions"
    with _client(older) as client:
        with client.get_queue_sender(queue) as sender:
            for number in range(2):
                sender.send_messages(ServiceBusMessage(f"new {number}", session_id="S1"))
        with (
            client.get_queue_receiver(queue, session_id="s1") as small,
            client.get_queue_receiver(queue, session_id="S1") as large,
        ):
            assert [str(one) for one in receive(small, 4)] == ["1", "4", "7", "10"]
            assert [str(one) for one in receive(large, 2)] == ["new 0", "new 1"]
        with client.get_queue_receiver(queue, session_id="s0") as receiver:
            assert receiver.session.get_state() == b"state of s0"
        with client.get_queue_receiver(queue, session_id="S0") as receiver:
            assert receiver.session.get_state() is None


@covers("P10", "P11")
@pytest.mark.parametrize("kind", ["plain", "partitioned"])
def test_keys_of_an_older_version_are_compared_exactly(older: RunningNamespace, kind: str) -> None:
    key = next(one for n in range(1000) if fragment_of_key(one := f"Key-{n}") != fragment_of_key(one.casefold()))
    with _client(older) as client, client.get_queue_sender(kind) as sender, client.get_queue_receiver(kind) as receiver:
        while receiver.receive_messages(100, max_wait_time=1):
            pass  # they stay locked
        sender.send_messages(ServiceBusMessage(b"x", partition_key=key))
        (received,) = receive(receiver, 1)
        expected = int(fragment_of_key(key)) if kind == "partitioned" else 0
        assert (received.sequence_number or 0) >> 48 == expected
        message = ServiceBusMessage(b"x", session_id="Order")
        message.raw_amqp_message.annotations = {"x-opt-partition-key": "oRDER"}
        with pytest.raises(ServiceBusError, match="must be equal"):
            sender.send_messages(message)


@covers("M7", "M9", "P10")
@pytest.mark.parametrize("kind", ["plain", "partitioned"])
def test_a_new_subscription_of_an_older_topic_follows_its_topic(older: RunningNamespace, kind: str) -> None:
    topic, name = f"{kind}-topic", f"new-{uuid.uuid4().hex[:8]}"
    _administer(older).create_subscription(topic, name, requires_session=True)
    with _client(older) as client:
        with client.get_topic_sender(topic) as sender:
            for session_id in ("Order", "ORDER", "Order"):
                sender.send_messages(ServiceBusMessage(session_id, session_id=session_id))
        for session_id, count in (("Order", 2), ("ORDER", 1)):
            with client.get_subscription_receiver(topic, name, session_id=session_id) as receiver:
                assert [str(one) for one in receive(receiver, count)] == [session_id] * count


@covers("M7")
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_new_entities_in_an_older_namespace_ignore_case(older: RunningNamespace, is_partitioned: bool) -> None:
    queue = f"new-{uuid.uuid4().hex[:8]}"
    _administer(older).create_queue(queue, requires_session=True, enable_partitioning=is_partitioned)
    with _client(older) as client:
        with client.get_queue_sender(queue) as sender:
            for session_id in IDS:
                sender.send_messages(ServiceBusMessage(session_id, session_id=session_id))
        with client.get_queue_receiver(queue, session_id=IDS[1]) as receiver:
            assert [str(one) for one in receive(receiver, len(IDS))] == list(IDS)
