"""Injected faults in administration: an entity does not change while a fragment of it is out of reach."""

from __future__ import annotations

from typing import final

from tandembus.errors import BusError
from tandembus.faults.board import FaultBoard, FragmentPlace
from tandembus.namespace.entries import Entry, SubscriptionEntry
from tandembus.namespace.store_port import StorePort


def place_of(entry: Entry, index: int) -> FragmentPlace:
    topic = entry.topic_key if isinstance(entry, SubscriptionEntry) else ""
    return FragmentPlace(entry.key, index, entry.stores[index], topic)


@final
class FaultyStorePort:
    """Implements `StorePort`: a broker that a fault makes unreachable cannot be asked, and an entity does not change
    while a part of it is out."""

    def __init__(self, inner: StorePort, board: FaultBoard, change_within_s: float) -> None:
        """`change_within_s`: a change that takes longer fails."""
        self._inner = inner
        self._board = board
        self._change_within_s = change_within_s

    @property
    def index(self) -> int:
        return self._inner.index

    @property
    def newest_key(self) -> int:
        return self._inner.newest_key

    def failure(self) -> BusError | None:
        return self._board.broker_outage(self.index) or self._inner.failure()

    async def make(self, entry: Entry) -> None:
        await self._check(entry, is_new=True)
        await self._inner.make(entry)

    async def check(self, entry: Entry) -> None:
        await self._check(entry)
        await self._inner.check(entry)

    async def _check(self, entry: Entry, is_new: bool = False) -> None:
        places = [place_of(entry, index) for index in entry.indexes_in(self.index)]
        await self._board.hit_change(places, is_new, self._change_within_s)
