"""Paired namespaces: senders that go on when an entity of the primary cannot be sent to, and the syphon behind them.

For asyncio here, for blocking code in `tandembus.pairing.sync` with the same names. Nothing of the SDK is imported
before it is asked for: the program `tandembus syphon` does without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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
    from tandembus.pairing.options import SendAvailabilityPairedNamespaceOptions
    from tandembus.pairing.pair import pair_namespace
    from tandembus.pairing.paired_client import PairedServiceBusClient
    from tandembus.pairing.sender import PairedSender

_PLACES: Final = {
    "BacklogMessageTooLarge": "errors",
    "BacklogQueueDropped": "events",
    "ClientFaulted": "events",
    "EntityHealthy": "events",
    "EntityState": "entity_health",
    "FailoverEngaged": "events",
    "PairClosed": "errors",
    "PairFaulted": "errors",
    "PairedMessageBatch": "batch",
    "PairedSender": "sender",
    "PairedServiceBusClient": "paired_client",
    "PairingError": "errors",
    "PairingEvent": "events",
    "PairingFailed": "errors",
    "PingFailed": "events",
    "PingSent": "events",
    "ReservedPropertyName": "errors",
    "SchedulingUnavailable": "errors",
    "SendAvailabilityBacklogError": "errors",
    "SendAvailabilityPairedNamespaceOptions": "options",
    "SyphonMoved": "events",
    "pair_namespace": "pair",
}

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


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_PLACES[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "azure":
            raise
        raise ImportError(
            "paired namespaces work on the SDK azure-servicebus, which is not installed: pip install tandembus[pairing]"
        ) from error
    return getattr(module, name)
