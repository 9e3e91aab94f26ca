"""Where a message broker finds fragments to forward to: in its own stores at once, in others' over channels."""

from __future__ import annotations

from typing import final

from tandembus.interconnect.requests import Requests
from tandembus.interconnect.traffic import Traffic
from tandembus.namespace.entries import Entry
from tandembus.namespace.fragment_source import FragmentSource


@final
class NearSource:
    """Implements `FragmentSource`."""

    def __init__(self, near: FragmentSource, own_stores: frozenset[int], far: FragmentSource) -> None:
        self._near = near
        self._own_stores = own_stores
        self._far = far

    async def open(self, entry: Entry, index: int) -> tuple[Traffic, Requests]:
        return await self._of(entry, index).open(entry, index)

    def close(self, entry: Entry, index: int) -> None:
        self._of(entry, index).close(entry, index)

    def _of(self, entry: Entry, index: int) -> FragmentSource:
        return self._near if entry.stores[index] in self._own_stores else self._far
