"""A real failover, reconciled: two namespaces with an audit, a primary that is killed, a syphon, and nothing lost."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

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
    secondary = start_namespace(homes[1], "--audit", "--name", "fabrikam")
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
