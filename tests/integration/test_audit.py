"""`serve --audit` with real clients: what was acknowledged is on record, whenever the namespace dies."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from tandembus.node.waiting import comes_true
from tandembus.spark.jobs.reconcile_in_flight import stores_in
from tests.covers import covers
from tests.integration.audits import Audit
from tests.integration.bus import Bus, Counts
from tests.integration.python_sdk import short_lived
from tests.integration.serving import start_namespace

TOPOLOGIES = pytest.mark.parametrize("options", [(), ("--brokers", "2")], ids=["one process", "two brokers"])


@covers("D5", "F2")
@TOPOLOGIES
def test_what_was_acknowledged_before_a_kill_is_on_record(tmp_path: Path, options: tuple[str, ...]) -> None:
    data = tmp_path / "data"
    namespace = start_namespace(data, "--audit", *options)
    bus = Bus(namespace)
    bus.admin.create_queue("orders", enable_partitioning=True)
    acknowledged: list[str] = []
    completed: list[str] = []
    client = ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0)

    def send() -> None:
        with client.get_queue_sender("orders") as sender:
            for batch in range(100_000):
                messages = [ServiceBusMessage(b"x", message_id=f"{batch}-{index}") for index in range(5)]
                sender.send_messages(messages)
                acknowledged.extend(str(message.message_id) for message in messages)

    def receive() -> None:
        with client.get_queue_receiver("orders") as receiver:
            for message in receiver:
                receiver.complete_message(message)
                completed.append(str(message.message_id))

    threads = [threading.Thread(target=_until_error, args=(work,)) for work in (send, receive)]
    for thread in threads:
        thread.start()
    assert asyncio.run(comes_true(lambda: len(acknowledged) > 300 and len(completed) > 50, 60.0))
    namespace.kill()
    for thread in threads:
        thread.join(60.0)
    client.close()
    bus.close()
    files = list((data / "audit").rglob("*.jsonl"))
    assert not [path for path in files if b'"kind":"ended"' in path.read_bytes()], "nothing says that these are all"

    again = start_namespace(data, "--audit", *options)
    bus = Bus(again)
    left = bus.admin.get_queue_runtime_properties("orders").total_message_count
    bus.close()

    def are_all_in_the_files() -> bool:
        stores = stores_in({"again": (again.connection_string, None)}).get("again", {})
        return {f"store-{index}": store.audited for index, store in stores.items()} == Audit(data).last

    assert asyncio.run(comes_true(are_all_in_the_files, 60.0)), "the namespace says which record is the newest"
    again.stop_in_peace()
    audit = Audit(data)
    assert audit.ended == audit.last, "all were handed on"
    assert list(audit.stores.values()) == [{len(audit.stores)}] * len(audit.stores)
    assert set(acknowledged) <= set(audit.ids["orders"])
    counts = audit.counts["orders"]
    assert audit.pending("orders") == left == counts["accepted"] - counts["completed"]
    assert counts["completed"] >= len(completed)


def _until_error(work: object) -> None:
    try:
        work()  # type: ignore[operator]
    except (ServiceBusError, OSError, ValueError, AttributeError):
        pass  # the namespace is gone


@covers("D5")
@TOPOLOGIES
def test_every_way_of_a_message_balances(tmp_path: Path, options: tuple[str, ...]) -> None:
    data = tmp_path / "data"
    namespace = start_namespace(data, "--audit", *options)
    bus = Bus(namespace)
    bus.admin.create_queue("target", enable_partitioning=True)
    bus.admin.create_queue("source", forward_to="target")
    bus.admin.create_queue("once", requires_duplicate_detection=True)
    bus.admin.create_queue("sessions", requires_session=True)
    bus.admin.create_queue("dead", dead_lettering_on_message_expiration=True)
    bus.admin.create_queue("doomed")
    bus.admin.create_queue("tried", max_delivery_count=1)
    bus.admin.create_topic("news")
    bus.admin.create_subscription("news", "all")
    client = ServiceBusClient.from_connection_string(namespace.connection_string)
    with client:
        _send(client, "source", [ServiceBusMessage("x", message_id=str(n)) for n in range(20)])
        _send(client, "once", [ServiceBusMessage("x", message_id="1")])
        _send(client, "once", [ServiceBusMessage("x", message_id="1")])
        _send(client, "sessions", [ServiceBusMessage("x", session_id=f"s{n % 3}") for n in range(9)])
        _send(client, "dead", [short_lived("x") for _ in range(3)])
        _send(client, "dead", [ServiceBusMessage("y")])
        _send(client, "doomed", [ServiceBusMessage("x")])
        _send(client, "tried", [ServiceBusMessage("x")])
        with client.get_topic_sender("news") as sender:
            sender.send_messages([ServiceBusMessage("n"), ServiceBusMessage("n")])
            later = datetime.now(UTC) + timedelta(seconds=1)
            sender.schedule_messages(ServiceBusMessage("later"), later)
        with client.get_queue_sender("once") as sender:
            scheduled = sender.schedule_messages(ServiceBusMessage("never"), later + timedelta(hours=1))
            sender.cancel_scheduled_messages(scheduled)
        with client.get_queue_receiver("sessions", session_id="s1") as receiver:
            for message in receiver.receive_messages(3, max_wait_time=10):
                receiver.complete_message(message)
        with client.get_queue_receiver("target", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
            taken = 0
            while taken < 20:
                taken += len(receiver.receive_messages(20 - taken, max_wait_time=10))
        assert asyncio.run(comes_true(lambda: bus.counts("dead") == Counts(1, dead=3), 60.0))
        with client.get_queue_receiver("dead") as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=10)
            receiver.dead_letter_message(message, reason="test")
        with client.get_queue_receiver("tried") as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=10)
            receiver.defer_message(message)
        assert asyncio.run(comes_true(lambda: bus.counts_of_subscription("news", "all") == Counts(3), 60.0))
    bus.admin.delete_queue("doomed")
    bus.close()
    namespace.stop_in_peace()

    counts = Audit(data).counts
    assert counts["source"] == {"accepted": 20, "forwarded": 20}
    assert counts["target"] == {"arrived": 20, "removed": 20}
    assert counts["once"] == {"accepted": 1, "duplicate": 1, "scheduled": 1, "cancelled": 1}
    assert counts["sessions"] == {"accepted": 9, "completed": 3}
    assert counts["dead"] == {"accepted": 4, "dead_lettered": 4}
    assert counts["dead/$deadletterqueue"] == {"dead_letter": 4}
    assert counts["tried"] == {"accepted": 1, "dead_lettered": 1}
    assert counts["tried/$deadletterqueue"] == {"dead_letter": 1}
    assert counts["news"] == {"published": 2, "scheduled": 1, "distributed": 1}
    assert Audit(data).pending("news/subscriptions/all") == 3
    assert Audit(data).pending("doomed") == 0
    assert counts["doomed"]["accepted"] == counts["doomed"]["dropped"] == 1


def _send(client: ServiceBusClient, queue: str, messages: list[ServiceBusMessage]) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(messages)
