"""Public calls of the Python SDK that no other test makes."""

from __future__ import annotations

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import AutoLockRenewer, ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.shapes import PARTITIONED, PLAIN, on_shapes

pytestmark = on_shapes(PLAIN, PARTITIONED)


@covers("M7", "B1")
def test_the_sessions_of_a_subscription_can_be_listed(bus: Bus) -> None:
    topic = bus.make_topic()
    bus.admin.create_subscription(topic, "sub", requires_session=True)
    with ServiceBusClient.from_connection_string(bus.connection_string) as client:
        with client.get_topic_sender(topic) as sender:
            sender.send_messages([ServiceBusMessage("x", session_id="one")])
            sender.send_messages([ServiceBusMessage("x", session_id="two")])
        assert sorted(client.list_subscription_sessions(topic, "sub")) == ["one", "two"]


@covers("M2", "B1")
def test_a_renewer_that_is_closed_leaves_the_lock_to_its_holder(bus: Bus, queue: str) -> None:
    with ServiceBusClient.from_connection_string(bus.connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("kept"))
        with client.get_queue_receiver(queue) as receiver:
            renewer = AutoLockRenewer()
            (message,) = receiver.receive_messages()
            renewer.register(receiver, message)
            renewer.close()
            receiver.complete_message(message)
    assert bus.counts(queue) == Counts(0)


@covers("B1")
def test_an_administration_client_is_closed(bus: Bus, queue: str) -> None:
    admin = ServiceBusAdministrationClient.from_connection_string(
        bus.connection_string, connection_verify=str(bus.running.ca_path)
    )
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue(f"{queue}-other")
    admin.close()
