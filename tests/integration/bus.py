"""A running namespace as tests use it: queues of their own, and what is in them."""

from __future__ import annotations

import time
import uuid
from typing import Any, NamedTuple

from azure.servicebus.management import QueueRuntimeProperties, ServiceBusAdministrationClient

from tests.integration.serving import RunningNamespace
from tests.integration.shapes import PLAIN, Shape

COMES_WITHIN_S = 20.0


class Counts(NamedTuple):
    active: int
    scheduled: int = 0
    dead: int = 0


class Bus:
    def __init__(self, running: RunningNamespace, connection_string: str | None = None, shape: Shape = PLAIN) -> None:
        self.running = running
        self.shape = shape
        self.connection_string = connection_string or running.connection_string
        self.admin = ServiceBusAdministrationClient.from_connection_string(
            self.connection_string, connection_verify=str(running.ca_path)
        )

    def make_queue(self, **settings: Any) -> str:
        """A queue nobody else has. It stays until the namespace goes: links may still be closing."""
        name = f"queue-{uuid.uuid4().hex[:12]}"
        self.admin.create_queue(name, **{**self.shape.settings, **settings})
        return name

    def make_topic(self, *subscriptions: str, **settings: Any) -> str:
        """A topic nobody else has, with these subscriptions; it stays, too."""
        name = f"topic-{uuid.uuid4().hex[:12]}"
        self.admin.create_topic(name, **{**self.shape.settings, **settings})
        for subscription in subscriptions:
            self.admin.create_subscription(name, subscription)
        return name

    def counts_of_subscription(self, topic: str, subscription: str) -> Counts:
        found = self.admin.get_subscription_runtime_properties(topic, subscription)
        return Counts(found.active_message_count or 0, 0, found.dead_letter_message_count or 0)

    def properties(self, queue: str) -> QueueRuntimeProperties:
        return self.admin.get_queue_runtime_properties(queue)

    def counts(self, queue: str) -> Counts:
        found = self.properties(queue)
        return Counts(
            found.active_message_count or 0, found.scheduled_message_count or 0, found.dead_letter_message_count or 0
        )

    def comes_to(self, queue: str, expected: Counts) -> bool:
        """Whether the counts become these: for what a client does without being told when it is done."""
        give_up_at = time.monotonic() + COMES_WITHIN_S
        while self.counts(queue) != expected:
            if time.monotonic() > give_up_at:
                return False
        return True

    def connection_string_of(self, policy: str, key: str) -> str:
        """For somebody else than the root policy."""
        endpoint = f"Endpoint=sb://localhost:{self.running.port}/"
        return f"{endpoint};SharedAccessKeyName={policy};SharedAccessKey={key};UseDevelopmentEmulator=true"

    def close(self) -> None:
        self.admin.close()
