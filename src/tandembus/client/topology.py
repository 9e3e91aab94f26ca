"""What a tandembus namespace consists of: processes, messaging stores, and where the fragments of entities are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast
from urllib.parse import quote

from tandembus.client.atom_requests import AtomRequests

TOPOLOGY: Final = "$topology"
PAGE_SIZE: Final = 1000

Record = Mapping[str, object]


@dataclass(slots=True)
class Topology:
    """As the namespace tells it, record by record."""

    namespace: str = ""
    brokers: list[Record] = field(default_factory=list)
    stores: list[Record] = field(default_factory=list)
    front_ends: list[Record] = field(default_factory=list)
    entities: list[Record] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OpenStore:
    epoch: int
    audited: int
    """Number of its newest audit record; 0 without an audit."""


async def topology_of(requests: AtomRequests, entity: str | None = None) -> Topology:
    """All of it, or with the fragments of one entity only. Raises EntityNotFound where that is not there."""
    if entity is not None:
        return _read(await requests.send("GET", TOPOLOGY, query=f"&entity={quote(entity, safe='')}"))
    whole = _read(await requests.send("GET", TOPOLOGY, query=f"&skip=0&top={PAGE_SIZE}"))
    page = whole.entities
    while len(page) == PAGE_SIZE:
        query = f"&skip={len(whole.entities)}&top={PAGE_SIZE}"
        page = _read(await requests.send("GET", TOPOLOGY, query=query)).entities
        whole.entities += page
    return whole


async def open_stores(requests: AtomRequests) -> dict[int, OpenStore]:
    """Each messaging store that is available, by its index."""
    found = _read(await requests.send("GET", TOPOLOGY, query="&skip=0&top=1")).stores
    stores: dict[int, OpenStore] = {}
    for each in found:
        index, epoch, audited = each.get("index"), each.get("epoch"), each.get("audited")
        if each.get("state") == "available" and isinstance(index, int) and isinstance(epoch, int):
            stores[index] = OpenStore(epoch, audited if isinstance(audited, int) else 0)
    return stores


def _read(document: Mapping[str, object]) -> Topology:
    return Topology(
        str(document.get("namespace") or ""),
        *(_records(document, part) for part in ("brokers", "stores", "front_ends", "entities")),
    )


def _records(document: Mapping[str, object], part: str) -> list[Record]:
    found = document.get(part)
    return [cast(Record, each) for each in found if isinstance(each, dict)] if isinstance(found, list) else []
