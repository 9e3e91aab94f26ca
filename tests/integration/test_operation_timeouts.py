"""How long an operation may take: what a client says, and what it is told when a fragment does not answer in time."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator

import pytest

from tandembus.amqp.encoding.sections import message_annotations_section
from tandembus.amqp.encoding.values import uint
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.raw_amqp import MESSAGE, RawAmqp
from tests.integration.serving import RunningNamespace
from tests.integration.shapes import PARTITIONED, PARTITIONED_ON_BROKERS, on_shapes
from tests.integration.test_http_messages import Http

pytestmark = on_shapes(PARTITIONED, PARTITIONED_ON_BROKERS)

KEY, FRAGMENT = "a", 3
ANOTHER_KEY = "b"
SLOW_MS = 6000
SOON_S = 5.0
TIMEOUT = "com.microsoft:timeout"


@pytest.fixture
def queue(bus: Bus) -> str:
    return bus.make_queue()


@pytest.fixture
def http_client(running_namespace: RunningNamespace) -> Http:
    return Http(running_namespace, False)


@pytest.fixture
def slow_fragment(http_client: Http, queue: str) -> Iterator[None]:
    """One fragment of the queue takes its time."""
    path = f"$faults/{uuid.uuid4().hex}"
    fault = {"target": f"fragment/{queue}/{FRAGMENT}", "kind": "slow", "latency_ms": SLOW_MS, "for_s": 60}
    answer = http_client.ask("PUT", path, json.dumps(fault).encode(), Content_Type="application/json")
    assert answer.status in (200, 201), answer.body
    yield
    http_client.ask("DELETE", path)


def send(http: Http, queue: str, key: str | None, query: str = "") -> int:
    properties = json.dumps({} if key is None else {"PartitionKey": key})
    return http.ask("POST", f"{queue}/messages{query}", b"one", BrokerProperties=properties).status


@covers("P15", "P20")
@pytest.mark.usefixtures("slow_fragment")
def test_a_send_over_http_waits_as_long_as_it_says(http_client: Http, bus: Bus, queue: str) -> None:
    began_at = time.monotonic()
    assert send(http_client, queue, KEY, "?timeout=0.5") == 504
    assert time.monotonic() - began_at < SOON_S
    assert send(http_client, queue, ANOTHER_KEY, "?timeout=5") == 201
    assert send(http_client, queue, KEY) == 201
    assert time.monotonic() - began_at >= SLOW_MS / 1000
    # What timed out was under way all the same: its outcome was unknown, and it was stored.
    assert bus.comes_to(queue, Counts(3))


def scheduled(raw: RawAmqp, queue: str, key: str, timeout_ms: int) -> tuple[int, str | None, object]:
    node = raw.attach_node(f"{queue}/$management")
    payload = message_annotations_section({"x-opt-partition-key": key}) + MESSAGE
    properties = {"com.microsoft:server-timeout": uint(timeout_ms)}
    return node.manage("com.microsoft:schedule-message", {"messages": [{"message": payload}]}, **properties)


@covers("P15", "P20")
@pytest.mark.usefixtures("slow_fragment")
def test_a_request_is_answered_within_its_server_timeout(raw: RawAmqp, bus: Bus, queue: str) -> None:
    began_at = time.monotonic()
    status, condition, _ = scheduled(raw, queue, KEY, 500)
    assert (status, condition) == (408, TIMEOUT)
    assert time.monotonic() - began_at < SOON_S
    with RawAmqp(bus.running.port) as other:
        other.log_in()
        assert scheduled(other, queue, ANOTHER_KEY, 5_000)[0] == 200
    with RawAmqp(bus.running.port) as patient:
        patient.log_in()
        assert scheduled(patient, queue, KEY, 30_000)[0] == 200


@covers("P13", "P15", "P20")
@pytest.mark.usefixtures("slow_fragment")
def test_a_slow_fragment_holds_up_no_receive(http_client: Http, queue: str) -> None:
    for key in (KEY, ANOTHER_KEY):
        assert send(http_client, queue, key) == 201
    began_at = time.monotonic()
    answer = http_client.ask("DELETE", f"{queue}/messages/head?timeout=4")
    assert answer.status == 200
    assert time.monotonic() - began_at < SOON_S
