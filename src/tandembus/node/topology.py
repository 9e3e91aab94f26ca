"""Which processes make up the namespace, which stores they own, and where each entity's fragments are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, final

from tandembus.errors import BusError, EntityNotFound, StoreFull, StoreUnavailable
from tandembus.faults.board import FaultBoard
from tandembus.front_end.http.topology import TopologyQuery
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.entries import Entry, TopicEntry
from tandembus.namespace.faulty_fragments import place_of

AVAILABLE: Final = "available"
UNAVAILABLE: Final = "unavailable"

StoreFailure = Callable[[int], BusError | None]
"""Why a store, by its number, is out of reach; None while it is not."""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One process as its supervisor knows it."""

    index: int
    pid: int | None
    state: str
    restarts: int = 0
    last_exit: str | None = None
    """How its last life ended; None in its first."""


@dataclass(frozen=True, slots=True)
class FrontEndFacts(ProcessFacts):
    connections: int = 0
    """AMQP connections of clients."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    index: int
    broker: int
    state: str
    epoch: int | None = None
    """Grows by one with every life of its owner."""
    reason: str | None = None
    """Why it is not available."""
    audited: int | None = None
    """Number of its newest audit record; None without an audit."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the namespace consists of at the moment."""

    name: str
    brokers: Sequence[ProcessFacts]
    stores: Sequence[StoreFacts]
    front_ends: Sequence[FrontEndFacts]


@final
class Failures:
    """Why fragments are out of reach: their store or broker is, or a fault that somebody has injected says so."""

    def __init__(self, of_store: StoreFailure, faults: FaultBoard) -> None:
        self._of_store = of_store
        self._faults = faults

    def of_fragment(self, entry: Entry, index: int) -> str | None:
        failure = self._of_store(entry.stores[index]) or self._faults.outage_of(place_of(entry, index))
        is_out = isinstance(failure, StoreUnavailable) and not isinstance(failure, StoreFull)
        return str(failure) if is_out else None


def topology_document(
    parts: Parts, catalog: CatalogView, failures: Failures, query: TopologyQuery, receivers: int = 0
) -> dict[str, object]:
    """Processes and stores whole, entities a page at a time. Raises EntityNotFound where one is asked for and is not
    there. `receivers`: how many the one that is asked for has."""
    broker_of = {store.index: store.broker for store in parts.stores}
    entries = _page(catalog, query)
    entities = [_entity(entry, catalog, broker_of, failures) for entry in entries]
    if query.entity is not None:
        entities[0]["receivers"] = receivers
    return {
        "namespace": parts.name,
        "brokers": [_broker(broker, parts.stores) for broker in parts.brokers],
        "stores": [asdict(store) for store in parts.stores],
        "front_ends": [asdict(front_end) for front_end in parts.front_ends],
        "entity_count": catalog.queue_count() + catalog.topic_count(),
        "entities": entities,
    }


def _page(catalog: CatalogView, query: TopologyQuery) -> Sequence[Entry]:
    """Queues first, then topics. A subscription's fragments lie where its topic's do: it is told when it is asked
    for."""
    if query.entity is not None:
        entry = catalog.find(query.entity)
        if entry is None:
            raise EntityNotFound(f"The messaging entity '{query.entity}' could not be found.")
        return [entry]
    queues: Sequence[Entry] = catalog.queues(query.skip, query.top)
    topics_before = max(0, query.skip - catalog.queue_count())
    return [*queues, *catalog.topics(topics_before, query.top - len(queues))]


def _broker(broker: ProcessFacts, stores: Sequence[StoreFacts]) -> dict[str, object]:
    owned = [store for store in stores if store.broker == broker.index]
    return {
        **asdict(broker),
        "store": owned[0].index if owned else None,
        "stores": [store.index for store in owned],
        "epoch": owned[0].epoch if owned else None,
    }


def _entity(entry: Entry, catalog: CatalogView, broker_of: Mapping[int, int], failures: Failures) -> dict[str, object]:
    reasons = [failures.of_fragment(entry, index) for index in range(len(entry.stores))]
    told: dict[str, object] = {
        "path": entry.description.path,
        "kind": entry.kind.value,
        "partitioned": entry.is_partitioned,
        "availability": "Limited" if any(reasons) else "Available",
        "fragments": [
            {
                "index": index,
                "store": store,
                "broker": broker_of.get(store),
                "state": UNAVAILABLE if reasons[index] else AVAILABLE,
                "reason": reasons[index],
            }
            for index, store in enumerate(entry.stores)
        ],
    }
    if isinstance(entry, TopicEntry):
        told["subscriptions"] = catalog.subscription_count(entry.key)
    return told
