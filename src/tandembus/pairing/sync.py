"""Paired namespaces for blocking code: the same names as in `tandembus.pairing`, for the SDK's blocking clients."""

from __future__ import annotations

from tandembus.pairing.batch import PairedMessageBatch
from tandembus.pairing.blocking import PairedSender, PairedServiceBusClient, pair_namespace
from tandembus.pairing.entity_health import EntityState
from tandembus.pairing.errors import (
    BacklogMessageTooLarge,
    PairClosed,
    PairFaulted,
    PairingError,
    PairingFailed,
    ReservedPropertyName,
    SchedulingUnavailable,
    SendAvailabilityBacklogError,
)
from tandembus.pairing.events import (
    BacklogQueueDropped,
    ClientFaulted,
    EntityHealthy,
    FailoverEngaged,
    PairingEvent,
    PingFailed,
    PingSent,
    SyphonMoved,
)
from tandembus.pairing.options import SendAvailabilityPairedNamespaceOptions

__all__ = [
    "BacklogMessageTooLarge",
    "BacklogQueueDropped",
    "ClientFaulted",
    "EntityHealthy",
    "EntityState",
    "FailoverEngaged",
    "PairClosed",
    "PairFaulted",
    "PairedMessageBatch",
    "PairedSender",
    "PairedServiceBusClient",
    "PairingError",
    "PairingEvent",
    "PairingFailed",
    "PingFailed",
    "PingSent",
    "ReservedPropertyName",
    "SchedulingUnavailable",
    "SendAvailabilityBacklogError",
    "SendAvailabilityPairedNamespaceOptions",
    "SyphonMoved",
    "pair_namespace",
]
