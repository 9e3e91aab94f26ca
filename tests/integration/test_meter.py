"""The meter of a running namespace: what it holds after a kill, and what it says about the gap."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from tandembus.clock import SystemClock
from tandembus.security.sas import ROOT_POLICY, make_token
from tests.covers import covers
from tests.integration.serving import RunningNamespace, start_namespace
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

WRITTEN_WITHIN_S = 30.0


def live(running: RunningNamespace) -> Any:
    token = make_token(running.http_url, ROOT_POLICY, running.key, SystemClock().now() + 60.0)
    request = urllib.request.Request(f"{running.http_url}/tandembus/meter", headers={"Authorization": token})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def lines(data: Path) -> list[Any]:
    files = sorted((data / "meter").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def operations(data: Path, operation: str) -> int:
    return sum(line["operations"] for line in lines(data) if line.get("operation") == operation)


def wait_until_written(data: Path, operation: str, count: int) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + WRITTEN_WITHIN_S
    while operations(data, operation) < count:
        assert clock.monotonic() < deadline, f"{operation} is not in the files: {lines(data)}"


@covers("F2")
def test_a_kill_loses_at_most_the_last_second_and_the_next_start_says_so(tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = start_namespace(data)
    with ServiceBusAdministrationClient.from_connection_string(
        first.admin_connection_string, connection_verify=str(first.ca_path)
    ) as admin:
        admin.create_queue("orders")
    with (
        ServiceBusClient.from_connection_string(first.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        for size in (10, 65_000, 100_000, 200_000):
            sender.send_messages(ServiceBusMessage(b"x" * size))
    sent = sum(row["operations"] for row in live(first)["cumulative"] if row["operation"] == "send")
    assert sent == 1 + 1 + 2 + 4
    wait_until_written(data, "send", sent)
    first.kill()
    second = start_namespace(data)
    try:
        document = live(second)
        assert document["gap"] is not None
        assert [line["gap"]["from"] for line in lines(data) if "gap" in line] == [document["gap"]["from"]]
        cumulative = {row["operation"]: row["operations"] for row in document["cumulative"]}
        assert cumulative["send"] == operations(data, "send") == sent
    finally:
        assert second.stop() == 0


def test_a_clean_stop_writes_everything_and_leaves_no_gap(tmp_path: Path) -> None:
    data = tmp_path / "data"
    running = start_namespace(data)
    with ServiceBusAdministrationClient.from_connection_string(
        running.admin_connection_string, connection_verify=str(running.ca_path)
    ) as admin:
        for number in range(5):
            admin.create_queue(f"queue-{number}")
    assert running.stop() == 0
    assert operations(data, "manage") == 5
    again = start_namespace(data)
    try:
        assert live(again)["gap"] is None
    finally:
        assert again.stop() == 0


@covers("M10")
def test_every_hop_of_a_forwarded_message_is_counted_where_it_leaves(tmp_path: Path) -> None:
    running = start_namespace(tmp_path / "data")
    with ServiceBusAdministrationClient.from_connection_string(
        running.admin_connection_string, connection_verify=str(running.ca_path)
    ) as admin:
        admin.create_queue("end")
        admin.create_queue("Middle", forward_to="end")
        admin.create_queue("start", forward_to="middle")
    with (
        ServiceBusClient.from_connection_string(running.connection_string) as client,
        client.get_queue_sender("start") as sender,
        client.get_queue_receiver("end", max_wait_time=20) as receiver,
    ):
        sender.send_messages([ServiceBusMessage(b"x" * size) for size in (10, 100_000)])
        assert len({next(receiver).message_id, next(receiver).message_id}) == 2
    hops = {row["entity"]: row for row in live(running)["since_start"] if row["operation"] == "forward"}
    assert {entity: (row["messages"], row["operations"]) for entity, row in hops.items()} == {
        "start": (2, 3),
        "middle": (2, 3),
    }
    running.stop_in_peace()
