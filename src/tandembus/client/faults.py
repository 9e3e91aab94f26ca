"""Faults of a tandembus namespace: make a part of it fail on purpose, and heal it again.

Other services do not know these requests and say so with `EntityNotFound` or `InvalidArgument`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tandembus.client.atom_requests import AtomRequests

FAULTS: Final = "$faults"
KINDS: Final = ("unavailable", "slow", "throttled", "disk-full")


@dataclass(frozen=True, slots=True)
class InjectedFault:
    id: str
    target: str
    """`namespace`, `entity/NAME`, `fragment/NAME/INDEX`, `broker/INDEX` or `store/INDEX`."""
    kind: str
    """One of `KINDS`."""
    latency_ms: int | None = None
    probability: float = 1.0
    for_s: float | None = None
    ends_in_s: float | None = None
    """How long it still lasts; None: until it is cleared."""
    state: str = "active"
    """`pending` while its entity is not there."""
    started_at: str | None = None


class Faults:
    def __init__(self, requests: AtomRequests) -> None:
        self._requests: Final = requests

    async def put(
        self,
        fault_id: str,
        target: str,
        kind: str,
        *,
        latency_ms: int | None = None,
        probability: float | None = None,
        for_s: float | None = None,
    ) -> InjectedFault:
        """From now on, in the place of the fault with this id, if there is one. `InvalidArgument` with the reason."""
        wanted = {
            "target": target,
            "kind": kind,
            "latency_ms": latency_ms,
            "probability": probability,
            "for_s": for_s,
        }
        document = {name: value for name, value in wanted.items() if value is not None}
        return _fault(await self._requests.send("PUT", _path(fault_id), document))

    async def get(self, fault_id: str) -> InjectedFault:
        return _fault(await self._requests.send("GET", _path(fault_id)))

    async def all(self) -> list[InjectedFault]:
        """By their ids."""
        found = (await self._requests.send("GET", FAULTS)).get("faults")
        return [_fault(each) for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    async def remove(self, fault_id: str) -> None:
        """`EntityNotFound` if there is none."""
        await self._requests.send("DELETE", _path(fault_id))

    async def clear(self) -> int:
        """All of them; returns how many there were."""
        cleared = (await self._requests.send("DELETE", FAULTS)).get("cleared")
        return cleared if isinstance(cleared, int) else 0


def _path(fault_id: str) -> str:
    return f"{FAULTS}/{fault_id}"


def _fault(document: Mapping[str, object]) -> InjectedFault:
    latency_ms = document.get("latency_ms")
    return InjectedFault(
        id=str(document.get("id") or ""),
        target=str(document.get("target") or ""),
        kind=str(document.get("kind") or ""),
        latency_ms=latency_ms if isinstance(latency_ms, int) else None,
        probability=_number(document, "probability") or 1.0,
        for_s=_number(document, "for_s"),
        ends_in_s=_number(document, "ends_in_s"),
        state=str(document.get("state") or "active"),
        started_at=str(document["started_at"]) if document.get("started_at") else None,
    )


def _number(document: Mapping[str, object], name: str) -> float | None:
    value = document.get(name)
    return float(value) if isinstance(value, int | float) else None
