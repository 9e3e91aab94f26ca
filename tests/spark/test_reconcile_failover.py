"""A real failover, reconciled: two namespaces with an audit, a primary that is killed, a syphon, and nothing lost."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tandembus.cli.failures import NOT_PROVEN
from tandembus.node.waiting import comes_true
from tandembus.pairing import FailoverEngaged, SendAvailabilityBacklogError
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.pairs import Form, Pair
from tests.integration.python_sdk import LoopThread
from tests.integration.serving import start_namespace
from tests.spark.reconciling import figures, reconciled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SYPHONED_WITHIN_S = 60.0


@pytest.fixture
def form() -> Iterator[Form]:
    loop = LoopThread()
    form = Form("sync", loop)
    yield form
    form.close()
    loop.stop()


@covers("D5", "N11", "F2")
def test_after_a_failover_the_records_of_both_namespaces_show_that_nothing_was_lost(
    spark: SparkSession, tmp_path: Path, form: Form
) -> None:
    homes = [tmp_path / "primary", tmp_path / "secondary"]
    primary = start_namespace(homes[0], "--audit", "--name", "contoso")
    # One of its stores has nothing to be browsed.
    secondary = start_namespace(homes[1], "--audit", "--name", "fabrikam", "--stores", "2")
    bus = Bus(primary)
    bus.admin.create_queue("orders", requires_duplicate_detection=True)
    bus.close()
    pair = Pair(
        form,
        form.client(primary.connection_string),
        form.client(secondary.connection_string),
        form.admin(secondary.connection_string, secondary.ca_path),
        primary_name="contoso",
    )
    sender = pair.sender("orders")
    accepted = [send(sender, f"before-{number}") for number in range(20)]
    primary.kill()
    # Sends fail until the failover is engaged; whoever sends goes on trying, with the same id.
    accepted += [send(sender, f"meanwhile-{number}") for number in range(30)]
    assert pair.events.of(FailoverEngaged)
    primary = start_namespace(homes[0], "--audit", "--name", "contoso", port=primary.port)
    syphon(primary.connection_string, secondary.connection_string)
    receiver = form.client(primary.connection_string).get_queue_receiver("orders")
    for message in receiver.receive_messages(25, max_wait_time=20):
        receiver.complete_message(message)
    receiver.close()
    pair.close()

    connections = ("--primary", primary.connection_string, "--secondary", secondary.connection_string)
    answer = reconciled(0, *homes, "--browse", *connections, "--exactly-once")
    assert answer["verdict"] == "well"
    orders = figures(answer, "orders")
    assert orders["accepted"] == len(accepted) == 50
    assert orders["settled"] + orders["pending"] == 50
    assert orders["settled"] > 0
    assert {*orders} <= {"accepted", "settled", "pending", "dropped_as_duplicate", "late"}
    primary.stop_in_peace()
    secondary.stop_in_peace()


@covers("D5", "F2")
def test_records_are_complete_after_an_orderly_stop_and_not_after_a_kill(
    spark: SparkSession, tmp_path: Path, form: Form
) -> None:
    for name in ("stopped", "killed"):
        namespace = start_namespace(tmp_path / name, "--audit", "--stores", "2", "--name", name)
        bus = Bus(namespace)
        bus.admin.create_queue("orders")
        bus.close()
        with form.client(namespace.connection_string).get_queue_sender("orders") as sender:
            send(sender, "a")
        namespace.stop_in_peace()
    start_namespace(tmp_path / "killed", "--audit", "--stores", "2", "--name", "killed").kill()
    answer = reconciled(NOT_PROVEN, tmp_path)
    assert [(one["kind"], one["namespace"]) for one in answer["exceptions"]] == [("unknown_end", "killed")] * 2


@covers("D5")
def test_records_of_a_running_namespace_that_lack_the_newest_are_not_called_complete(
    spark: SparkSession, tmp_path: Path, form: Form
) -> None:
    data, copy = tmp_path / "running", tmp_path / "copy"
    namespace = start_namespace(data, "--audit", "--name", "running")
    bus = Bus(namespace)
    bus.admin.create_queue("orders")
    bus.close()
    client = form.client(namespace.connection_string)
    with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        send(sender, "a")
        recorded = comes_true(lambda: any(b'"ids":["a"]' in each.read_bytes() for each in data.rglob("*.jsonl")), 30.0)
        assert asyncio.run(recorded)
        shutil.copytree(data / "audit", copy / "audit")
        for message_id in ("b", "c"):
            send(sender, message_id)
        for message in receiver.receive_messages(2, max_wait_time=20):
            receiver.complete_message(message)
    answer = reconciled(NOT_PROVEN, copy, "--browse", "--primary", namespace.connection_string)
    assert [one["kind"] for one in answer["exceptions"]][:2] == ["missing_records", "unknown_end"]
    assert figures(answer, "orders", "running") == {"accepted": 1, "unjudged": 1}
    namespace.stop_in_peace()


def send(sender: object, message_id: str) -> str:
    """Until it is acknowledged."""
    give_up = threading.Event()
    for _ in range(300):
        try:
            sender.send_messages(ServiceBusMessage("x", message_id=message_id))  # type: ignore[attr-defined]
        except (ServiceBusError, SendAvailabilityBacklogError):
            give_up.wait(0.05)
        else:
            return message_id
    raise AssertionError(f"{message_id} was never accepted")


def syphon(primary: str, secondary: str) -> None:
    command = [sys.executable, "-m", "tandembus", "syphon", "--once", "--primary-name", "contoso"]
    command += ["--primary", primary, "--secondary", secondary]
    subprocess.run(command, check=True, timeout=SYPHONED_WITHIN_S, capture_output=True)
