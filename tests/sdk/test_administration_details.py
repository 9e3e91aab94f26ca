"""What the SDKs' own tests look at in descriptions and dead letters."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.command_line import Run
from tests.integration.conftest import with_sync_client
from tests.integration.python_sdk import PythonSdk, receive
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape


@covers("B1")
def test_a_dead_letter_queue_has_no_description(bus: Bus) -> None:
    queue, topic = bus.make_queue(), bus.make_topic("all")
    for ask in (
        lambda: bus.admin.get_queue(f"{queue}/$DeadLetterQueue"),
        lambda: bus.admin.get_queue_runtime_properties(f"{queue}/$Transfer/$deadletterqueue"),
        lambda: bus.admin.get_subscription(topic, "all/$DeadLetterQueue"),
    ):
        with pytest.raises(HttpResponseError) as refused:
            ask()
        assert refused.value.status_code == 400


@covers("B1", "M9")
def test_a_topic_is_accessed_when_somebody_subscribes(bus: Bus) -> None:
    topic = bus.make_topic()
    before = bus.admin.get_topic_runtime_properties(topic)
    assert before.accessed_at_utc is not None
    bus.admin.create_subscription(topic, "all")
    after = bus.admin.get_topic_runtime_properties(topic)
    assert after.accessed_at_utc is not None
    assert after.accessed_at_utc > before.accessed_at_utc
    assert after.updated_at_utc == before.updated_at_utc


@covers("M3")
@with_sync_client
@pytest.mark.parametrize("is_deferred", [False, True])
@pytest.mark.parametrize("value", [7, True, 2.5, b"raw"], ids=repr)
def test_a_reason_that_is_no_string_keeps_its_type(sdk: PythonSdk, bus: Bus, value: Any, is_deferred: bool) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages(ServiceBusMessage("m", application_properties={"kept": 1}))
    (message,) = receive(receiver, 1)
    if is_deferred:  # then it is settled over the management node
        receiver.defer_message(message)
        (message,) = receiver.receive_deferred_messages([message.sequence_number or 0])
    receiver.dead_letter_message(message, reason=value, error_description="a string")
    (dead,) = receive(sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER), 1)
    properties = dead.application_properties or {}
    found = properties[b"DeadLetterReason"]
    assert (type(found), found) == (type(value), value)
    assert (properties[b"DeadLetterErrorDescription"], properties[b"kept"]) == (b"a string", 1)


@covers("M3")
@with_sync_client
@pytest.mark.parametrize("value", [7, True], ids=repr)
def test_a_property_of_the_sender_that_is_called_so_stays_where_no_reason_is_given(
    sdk: PythonSdk, bus: Bus, value: Any
) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages(ServiceBusMessage("m", application_properties={"DeadLetterReason": value}))
    (message,) = receive(receiver, 1)
    receiver.dead_letter_message(message)
    (dead,) = receive(sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER), 1)
    assert (dead.application_properties or {})[b"DeadLetterReason"] is value


@covers("B1")
def test_ca_says_how_dotnet_trusts_the_namespace(run: Run, bus: Bus) -> None:
    lines = run("ca", "--data", str(bus.running.data)).stdout.splitlines()
    assert any(line.startswith("export SSL_CERT_FILE=") and ".NET on Linux" in line for line in lines)
