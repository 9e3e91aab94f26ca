"""The unmodified SDKs over WebSockets: Python with both clients, plain and in TLS; JavaScript, always in TLS."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue, TransportType
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusConnectionError

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import Connect
from tests.integration.python_sdk import PythonSdk, bodies_of, body_of, receive

JS = Path(__file__).parent / "js"
NODE = shutil.which("node")


@pytest.fixture(params=["ws", "wss"])
def web_sdk(request: pytest.FixtureRequest, connect: Connect, bus: Bus) -> PythonSdk:
    """Without the custom address the SDK would go to the port of HTTP or HTTPS."""
    options: dict[str, object] = {
        "transport_type": TransportType.AmqpOverWebsocket,
        "custom_endpoint_address": f"sb://localhost:{bus.running.port}",
        "retry_total": 0,
    }
    if request.param == "ws":
        return connect(bus.connection_string, **options)
    return connect(in_tls(bus.connection_string), connection_verify=str(bus.running.ca_path), **options)


def in_tls(connection_string: str) -> str:
    return connection_string.replace(";UseDevelopmentEmulator=true", "")


@covers("B1", "M1", "M2", "M3", "M12")
def test_messages_of_all_sizes_are_sent_received_and_settled(web_sdk: PythonSdk, bus: Bus, queue: str) -> None:
    sender, receiver = web_sdk.pair(queue)
    sizes = [0, 1, 125, 126, 65_535, 65_536, 200_000]
    for size in sizes:
        sender.send_messages(ServiceBusMessage(b"x" * size))
    sender.send_messages([ServiceBusMessage(f"batched {number}") for number in range(50)])
    messages = receive(receiver, len(sizes) + 50)
    assert [len(body_of(message)) for message in messages[: len(sizes)]] == sizes
    receiver.dead_letter_message(messages[0], reason="tried")
    receiver.abandon_message(messages[1])
    for message in messages[2:]:
        receiver.complete_message(message)
    assert bus.comes_to(queue, Counts(1, dead=1))
    dead = web_sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert receive(dead, 1)[0].dead_letter_reason == "tried"


@covers("B1", "M4", "M5")
def test_requests_to_the_management_node_work(web_sdk: PythonSdk, queue: str) -> None:
    sender, receiver = web_sdk.pair(queue)
    sender.send_messages([ServiceBusMessage(f"message {number}") for number in range(3)])
    assert bodies_of(receiver.peek_messages(3)) == [b"message 0", b"message 1", b"message 2"]
    (message,) = receive(receiver, 1)
    receiver.renew_message_lock(message)
    receiver.defer_message(message)
    (deferred,) = receiver.receive_deferred_messages(message.sequence_number or 0)
    assert body_of(deferred) == b"message 0"


@covers("B1", "M12", "M15")
def test_refusals_reach_the_client(web_sdk: PythonSdk, queue: str) -> None:
    sender = web_sdk.sender(queue)
    with pytest.raises(MessageSizeExceededError):
        sender.send_messages(ServiceBusMessage(b"x" * 300_000))
    with pytest.raises(ServiceBusConnectionError) as refused:
        web_sdk.sender("not-there")
    # Over a WebSocket the SDK takes every refused token for a fault of the connection; what it was told is the same.
    assert "could not be found" in str(refused.value.inner_exception)


# JavaScript.

SCENARIOS = ["properties", "bodiesOfAllKinds", "subscription", "deadLetters", "defer", "peek", "schedule", "tooLarge"]


@pytest.fixture(scope="module")
def seen(bus: Bus) -> dict[str, Any]:
    if NODE is None or not (JS / "node_modules" / "ws").exists():
        pytest.skip("needs node, @azure/service-bus and ws: `make install` brings them where npm is")
    prefix = f"javascript-{uuid.uuid4().hex[:8]}-"
    for name in SCENARIOS:
        bus.admin.create_queue(prefix + name)
    environment = {
        **os.environ,
        "CONNECTION_STRING": in_tls(bus.connection_string),
        "QUEUE_PREFIX": prefix,
        "SCENARIOS": ",".join(SCENARIOS),
        "WEB_SOCKETS": "1",
        "NODE_EXTRA_CA_CERTS": str(bus.running.ca_path),
    }
    run = subprocess.run([NODE, "messaging.mjs"], cwd=JS, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    results: dict[str, Any] = json.loads(run.stdout)
    return results


@covers("B1")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_javascript_works_over_a_websocket(seen: dict[str, Any], scenario: str) -> None:
    found = seen[scenario]
    assert not (isinstance(found, dict) and "failed" in found), found


@covers("B1", "M12")
def test_javascript_sees_the_same_over_a_websocket_as_over_a_socket(seen: dict[str, Any]) -> None:
    assert [found["body"] for found in seen["bodiesOfAllKinds"]][-1] == 200_000
    assert seen["properties"]["applicationProperties"]["long"] == 2**40
    assert seen["tooLarge"]["code"] == "MessageSizeExceeded"
    assert seen["schedule"]["left"] == []
    assert len(seen["subscription"]) == 6
