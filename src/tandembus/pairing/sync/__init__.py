"""Paired namespaces for blocking code: the same names as in `tandembus.pairing`, on the SDK's blocking clients.

Everything but `runtime.py` is generated from there by `tools/generate_sync.py`, or is the same.
"""

from __future__ import annotations

from tandembus.pairing.batch import PairedMessageBatch
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
from tandembus.pairing.sync.options import SendAvailabilityPairedNamespaceOptions
from tandembus.pairing.sync.pair import pair_namespace
from tandembus.pairing.sync.paired_client import PairedServiceBusClient
from tandembus.pairing.sync.sender import PairedSender

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
