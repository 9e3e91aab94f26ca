"""A namespace inside the test process, with the SDK's clients and with time that jumps."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver, ServiceBusSender, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from tandembus.config import ConfigurationError, Limits
from tandembus.errors import EntityNotFound, InvalidArgument
from tandembus.testing import AsyncEmbeddedNamespace, EmbeddedNamespace
from tests.covers import covers

WAIT_S = 20
CONFIG = {
    "UserConfig": {
        "Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "queue.1"}], "Topics": []}],
        "Logging": {"Type": "File"},
    }
}


@pytest.fixture
def namespace() -> Iterator[EmbeddedNamespace]:
    with EmbeddedNamespace() as namespace:
        yield namespace


@pytest.fixture(params=["memory", "lmdb"])
def either_namespace(request: pytest.FixtureRequest) -> Iterator[EmbeddedNamespace]:
    with EmbeddedNamespace(store=request.param) as namespace:
        yield namespace


class Links:
    """A sender and receivers of one queue that end with the test. Opened and closed at the same time: the SDK takes
    half a second for each, spent in waits of its own."""

    def __init__(self, namespace: EmbeddedNamespace, queue: str, **options: Any) -> None:
        self._client = ServiceBusClient.from_connection_string(namespace.connection_string, **options)
        self._queue = queue
        self.sender: ServiceBusSender = self._client.get_queue_sender(queue)
        self.receiver: ServiceBusReceiver = self._client.get_queue_receiver(queue, max_wait_time=WAIT_S)
        self._links: list[Any] = [self.sender, self.receiver]
        self._at_once(lambda link: link.__enter__())

    def more(self) -> ServiceBusReceiver:
        receiver: ServiceBusReceiver = self._client.get_queue_receiver(self._queue, max_wait_time=WAIT_S)
        self._links.append(receiver)
        return receiver.__enter__()

    def _at_once(self, act: Callable[[Any], object]) -> None:
        with ThreadPoolExecutor(len(self._links)) as threads:
            list(threads.map(act, self._links))

    def __enter__(self) -> Links:
        return self

    def __exit__(self, *_: object) -> None:
        self._at_once(lambda link: link.close())
        self._client.close()


@covers("B6", "B1")
def test_the_sdk_sends_and_receives(either_namespace: EmbeddedNamespace) -> None:
    namespace = either_namespace
    assert namespace.create_queue("orders", max_delivery_count=3) == "orders"
    with Links(namespace, "orders") as links:
        links.sender.send_messages([ServiceBusMessage(f"message {number}") for number in range(100)])
        received: list[str] = []
        while len(received) < 100:
            for message in links.receiver.receive_messages(100):
                received.append(str(message))
                links.receiver.complete_message(message)
        assert received == [f"message {number}" for number in range(100)]
    assert namespace.counts("orders").active == 0


@covers("B6", "B1")
def test_the_administration_client_and_websockets_work_too(namespace: EmbeddedNamespace) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        namespace.tls_connection_string, connection_verify=str(namespace.ca_path)
    ) as admin:
        admin.create_queue("orders", lock_duration=timedelta(seconds=20))
        assert admin.get_queue("orders").lock_duration == timedelta(seconds=20)
    address = f"sb://localhost:{namespace.port}"
    with Links(
        namespace, "orders", transport_type=TransportType.AmqpOverWebsocket, custom_endpoint_address=address
    ) as links:
        links.sender.send_messages(ServiceBusMessage("hello"))
        assert [str(message) for message in links.receiver.receive_messages()] == ["hello"]


@covers("B6", "B1")
async def test_the_asynchronous_sdk_works_with_a_namespace_in_its_own_loop() -> None:
    async with AsyncEmbeddedNamespace() as namespace:
        await namespace.create_queue("orders", lock_duration=30)
        async with (
            AsyncServiceBusClient.from_connection_string(namespace.connection_string) as client,
            client.get_queue_sender("orders") as sender,
            client.get_queue_receiver("orders", max_wait_time=WAIT_S) as receiver,
        ):
            await sender.send_messages(ServiceBusMessage("hello"))
            (message,) = await receiver.receive_messages()
            await namespace.clock.advance(31)
            (again,) = await receiver.receive_messages()
            assert (str(message), str(again), again.delivery_count) == ("hello", "hello", 1)
            await receiver.complete_message(again)
        assert (await namespace.counts("orders")).active == 0
        await namespace.reset()
        with pytest.raises(EntityNotFound):
            await namespace.counts("orders")


@covers("B6", "M9")
def test_topics_subscriptions_and_rules_can_be_made(namespace: EmbeddedNamespace) -> None:
    namespace.create_topic("events", default_message_time_to_live=timedelta(hours=1))
    everything = namespace.create_subscription("events", "everything", max_delivery_count=2)
    urgent = namespace.create_subscription("events", "urgent", sql="priority > 5")
    namespace.create_rule("events", "urgent", "audit", "kind = 'audit'", "SET audited = TRUE")
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_topic_sender("events") as sender,
        client.get_subscription_receiver("events", "urgent", max_wait_time=WAIT_S) as receiver,
    ):
        sender.send_messages(ServiceBusMessage("hello", application_properties={"priority": 1}))
        sender.send_messages(ServiceBusMessage("hello", application_properties={"priority": 9}))
        sender.send_messages(ServiceBusMessage("hello", application_properties={"kind": "audit"}))
        assert (namespace.counts(everything).active, namespace.counts(urgent).active) == (3, 2)
        received = [receiver.receive_messages(1)[0].application_properties for _ in range(2)]
        assert received == [{b"priority": 9}, {b"kind": b"audit", b"audited": True, b"RuleName": b"audit"}]
        namespace.clock.advance(timedelta(hours=2))
        assert namespace.counts(everything).active == 0
    namespace.reset()
    with pytest.raises(EntityNotFound):
        namespace.counts(everything)


@covers("B6", "M7")
def test_a_session_is_free_when_the_clock_jumps_over_its_lock(namespace: EmbeddedNamespace) -> None:
    namespace.create_queue("orders", requires_session=True, lock_duration=30)
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("hello", session_id="s"))
        with client.get_queue_receiver("orders", session_id="s", max_wait_time=WAIT_S) as first:
            assert len(first.receive_messages()) == 1
            namespace.clock.advance(31)
            with client.get_queue_receiver("orders", session_id="s", max_wait_time=WAIT_S) as second:
                assert [str(message) for message in second.receive_messages()] == ["hello"]


@covers("B6", "M8")
def test_duplicates_are_forgotten_when_the_clock_jumps(namespace: EmbeddedNamespace) -> None:
    window = timedelta(minutes=10)
    namespace.create_queue("orders", requires_duplicate_detection=True, duplicate_detection_history_time_window=window)
    with Links(namespace, "orders") as links:
        for _ in range(2):
            links.sender.send_messages(ServiceBusMessage("hello", message_id="same"))
        assert namespace.counts("orders").active == 1
        namespace.clock.advance(window)
        links.sender.send_messages(ServiceBusMessage("hello", message_id="same"))
        assert namespace.counts("orders").active == 2


@covers("B6", "M10")
def test_what_a_jump_brings_is_forwarded_when_it_is_over(namespace: EmbeddedNamespace) -> None:
    namespace.create_queue("second")
    namespace.create_queue("first", forward_to="second")
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_sender("first") as sender,
        client.get_queue_receiver("second", max_wait_time=WAIT_S) as receiver,
    ):
        sender.schedule_messages(ServiceBusMessage("later"), namespace.clock.now() + timedelta(hours=1))
        namespace.clock.advance(timedelta(hours=1))
        assert (namespace.counts("first").scheduled, namespace.counts("second").active) == (0, 1)
        assert [str(message) for message in receiver.receive_messages()] == ["later"]


# Time.


@covers("B6", "M2")
def test_a_lock_lapses_when_the_clock_jumps(namespace: EmbeddedNamespace) -> None:
    namespace.create_queue("orders", lock_duration=timedelta(minutes=5))
    with Links(namespace, "orders") as links:
        links.sender.send_messages(ServiceBusMessage("hello"))
        (first,) = links.receiver.receive_messages()
        namespace.clock.advance(timedelta(minutes=5))
        other = links.more()
        (second,) = other.receive_messages()
        assert second.delivery_count == 1
        with pytest.raises(ServiceBusError):
            links.receiver.complete_message(first)
        other.complete_message(second)


@covers("B6", "M6")
def test_messages_expire_when_the_clock_jumps(namespace: EmbeddedNamespace) -> None:
    namespace.create_queue("orders", dead_lettering_on_message_expiration=True)
    with Links(namespace, "orders") as links:
        links.sender.send_messages(ServiceBusMessage("short", time_to_live=timedelta(hours=1)))
        links.sender.send_messages(ServiceBusMessage("long", time_to_live=timedelta(days=9)))
        namespace.clock.advance(timedelta(hours=1))
        counts = namespace.counts("orders")
        assert (counts.active, counts.dead_letter) == (1, 1)


@covers("B6", "M5")
def test_scheduled_messages_arrive_when_the_clock_jumps(either_namespace: EmbeddedNamespace) -> None:
    namespace = either_namespace
    namespace.create_queue("orders")
    with Links(namespace, "orders") as links:
        at = datetime.now(UTC) + timedelta(days=30)
        links.sender.schedule_messages(ServiceBusMessage("later"), at)
        namespace.clock.advance(timedelta(days=29))
        assert namespace.counts("orders").scheduled == 1
        namespace.clock.advance(timedelta(days=1))
        assert namespace.counts("orders").active == 1
        (message,) = links.receiver.receive_messages()
        assert message.enqueued_time_utc is not None
        assert message.enqueued_time_utc >= at - timedelta(seconds=1)


@covers("B6")
def test_a_receiver_that_waits_gets_what_a_jump_brings(namespace: EmbeddedNamespace) -> None:
    namespace.create_queue("orders")
    with Links(namespace, "orders") as links:
        links.sender.schedule_messages(ServiceBusMessage("later"), namespace.clock.now() + timedelta(hours=1))
        threading.Timer(0.1, namespace.clock.advance, [3600]).start()
        began = time.monotonic()
        (message,) = links.receiver.receive_messages()
        assert (str(message), time.monotonic() - began < 10.0) == ("later", True)


@covers("B6", "M15")
def test_neither_connections_nor_tokens_age_with_a_jump(namespace: EmbeddedNamespace) -> None:
    namespace.create_queue("orders")
    with Links(namespace, "orders", retry_total=0) as links:
        namespace.clock.advance(timedelta(days=365))
        links.sender.send_messages(ServiceBusMessage("hello"))
        assert len(links.receiver.receive_messages()) == 1
        assert len(links.more().peek_messages(1)) == 1


@covers("B6", "M14")
def test_an_entity_that_nobody_uses_is_deleted_when_the_clock_jumps(namespace: EmbeddedNamespace) -> None:
    namespace.create_queue("passing", auto_delete_on_idle=timedelta(minutes=10))
    namespace.create_queue("staying")
    namespace.clock.advance(timedelta(minutes=9))
    namespace.counts("passing")
    namespace.clock.advance(timedelta(minutes=10))
    with pytest.raises(EntityNotFound):
        namespace.counts("passing")
    namespace.counts("staying")


# Life.


@covers("B6")
def test_two_namespaces_know_nothing_of_each_other() -> None:
    with EmbeddedNamespace() as first, EmbeddedNamespace() as second:
        first.create_queue("orders")
        assert first.port != second.port
        assert first.connection_string != second.connection_string
        with pytest.raises(EntityNotFound):
            second.counts("orders")
        first.clock.advance(60)
        assert first.clock.now() - second.clock.now() > timedelta(seconds=59)


@covers("B6")
def test_a_reset_takes_everything_away_and_the_namespace_goes_on(namespace: EmbeddedNamespace) -> None:
    for number in range(20):
        namespace.create_queue(f"queue-{number}")
    with Links(namespace, "queue-1", retry_total=0) as links:
        links.sender.send_messages([ServiceBusMessage("hello") for _ in range(50)])
        namespace.clock.advance(timedelta(days=2))
        namespace.reset()
        with pytest.raises(ServiceBusError):
            links.sender.send_messages(ServiceBusMessage("hello"))
    assert abs(namespace.clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
    namespace.create_queue("queue-1")
    assert namespace.counts("queue-1").active == 0
    with Links(namespace, "queue-1") as links:
        links.sender.send_messages(ServiceBusMessage("again"))
        assert [str(message) for message in links.receiver.receive_messages()] == ["again"]


@covers("B6", "B2")
def test_entities_can_come_from_a_file_of_the_emulator_and_come_back_after_a_reset(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    path.write_text(json.dumps(CONFIG))
    with EmbeddedNamespace(config=path) as namespace:
        namespace.create_queue("other")
        namespace.reset()
        assert namespace.counts("queue.1").active == 0
        with pytest.raises(EntityNotFound):
            namespace.counts("other")
    path.write_text("{}")
    with pytest.raises(ConfigurationError, match="'UserConfig' is missing"):
        EmbeddedNamespace(config=path)


@covers("B6")
def test_nothing_is_left_behind() -> None:
    before = set(threading.enumerate())
    namespace = EmbeddedNamespace(store="lmdb")
    namespace.start()
    folder = namespace.ca_path.parent
    assert folder.exists()
    namespace.stop()
    namespace.stop()
    assert not folder.exists()
    assert set(threading.enumerate()) <= before
    with pytest.raises(RuntimeError, match="not running"):
        namespace.counts("orders")
    namespace.start()
    namespace.create_queue("orders")
    namespace.stop()


@covers("B6")
def test_settings_are_named_as_in_the_sdk_and_refused_otherwise() -> None:
    with EmbeddedNamespace(limits=Limits(min_lock_duration_s=1.0)) as namespace:
        namespace.create_queue("orders", lock_duration=1, status="SendDisabled", user_metadata="mine")
        with pytest.raises(TypeError, match=r"'lock_time' is no setting of a QueueDescription; there are .*lock_dur"):
            namespace.create_queue("other", lock_time=5)
        with pytest.raises(InvalidArgument, match="LockDuration is 600 s"):
            namespace.create_queue("other", lock_duration=timedelta(minutes=10))
        with pytest.raises(ValueError, match="put forward"):
            namespace.clock.advance(-1)
    with pytest.raises(ValueError, match="'memory' or 'lmdb'"):
        EmbeddedNamespace(store="disk")  # type: ignore[arg-type]


@covers("B6")
async def test_it_can_be_used_from_a_running_loop() -> None:
    """Calls are short; what they wait for runs in another thread."""
    with EmbeddedNamespace() as namespace:
        namespace.create_queue("orders")
        namespace.clock.advance(1)
        await asyncio.sleep(0)
        assert namespace.counts("orders").active == 0
