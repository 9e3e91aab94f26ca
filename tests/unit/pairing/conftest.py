"""A pair of scripted namespaces."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus.aio import ServiceBusClient

from tandembus.pairing.aliases import backlog_path
from tandembus.pairing.backlog_queues import BacklogQueues
from tandembus.pairing.events import PairingEvent
from tandembus.pairing.options import SendAvailabilityPairedNamespaceOptions
from tandembus.pairing.paired_client import PairedServiceBusClient
from tandembus.pairing.rotation import Rotation
from tests.unit.pairing.scripted import ManualRuntime, ScriptedNamespace, unused_admin


class ScriptedPair:
    """What `pair_namespace` makes, of scripted parts. The secondary's client of the options is replaced: those insist
    on the SDK's own."""

    def __init__(self, **options: Any) -> None:
        self.runtime = ManualRuntime()
        self.primary, self.secondary = ScriptedNamespace(), ScriptedNamespace()
        self.queues = [backlog_path("contoso", index) for index in range(options.get("backlog_queue_count", 3))]
        secondary_client = options.pop("secondary_client", None)
        dice = random.Random(options.pop("seed", 1))
        never_used = ServiceBusClient("fabrikam.example", unused_admin())  # type: ignore[arg-type]
        self.options = SendAvailabilityPairedNamespaceOptions(unused_admin(), never_used, **options)
        object.__setattr__(self.options, "secondary_client", secondary_client or self.secondary.client)
        self.primary_client = self.primary.client
        self.events: list[PairingEvent] = []
        self.options.on_event(self.events.append)
        rotation = Rotation(self.queues, self.options.ping_primary_interval.total_seconds(), self.runtime.clock, dice)
        backlog = BacklogQueues(rotation, self.options.backlog_queue_by_key, self.runtime, self.options.listeners)
        self.client = PairedServiceBusClient(self.primary_client, "contoso", self.options, backlog, self.runtime)

    def told(self, kind: type[PairingEvent]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def in_backlog(self) -> list[str]:
        return [text for queue in self.queues for text in self.secondary.bodies(queue)]


@pytest.fixture
async def pair() -> ScriptedPair:
    return ScriptedPair(failover_interval=timedelta(seconds=60))
