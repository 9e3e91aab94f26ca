"""What a tandembus namespace has counted: every operation that the service would charge for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from tandembus.client.atom_requests import AtomRequests

METER: Final = "tandembus/meter"
PAGE_SIZE: Final = 1000


@dataclass(frozen=True, slots=True)
class Counted:
    """One operation of one entity, for one reason; `entity` is empty for the namespace, and in totals for all."""

    entity: str
    operation: str
    reason: str
    calls: int
    messages: int
    operations: int
    """What is billable: a message counts once per started 64 KiB."""
    size_bytes: int


async def since_start(requests: AtomRequests, entity: str | None = None) -> AsyncIterator[Counted]:
    """Since the namespace was started, by entity; of one of them only, if one is named."""
    chosen = "" if entity is None else f"&entity={quote(entity, safe='')}"
    skip = 0
    while True:
        page = await _rows(requests, "since_start", f"&skip={skip}&top={PAGE_SIZE}{chosen}")
        for row in page:
            yield row
        if len(page) < PAGE_SIZE:
            return
        skip += len(page)


async def in_total(requests: AtomRequests) -> list[Counted]:
    """All that was ever counted, of all entities together."""
    return await _rows(requests, "cumulative", "&top=1")


async def _rows(requests: AtomRequests, part: str, query: str) -> list[Counted]:
    found = (await requests.send("GET", METER, query=query)).get(part)
    return [_row(each) for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _row(document: Mapping[str, object]) -> Counted:
    return Counted(
        entity=str(document.get("entity") or ""),
        operation=str(document.get("operation") or ""),
        reason=str(document.get("reason") or ""),
        calls=_number(document, "calls"),
        messages=_number(document, "messages"),
        operations=_number(document, "operations"),
        size_bytes=_number(document, "bytes"),
    )


def _number(document: Mapping[str, object], name: str) -> int:
    value = document.get(name)
    return value if isinstance(value, int) else 0
