"""Where injected faults stand between a namespace and its fragments: a gate before each, a word in administration."""

from __future__ import annotations

from typing import final

from tandembus.errors import BusError
from tandembus.faults.board import FaultBoard, FragmentPlace
from tandembus.faults.gate import FaultGate
from tandembus.faults.requests import FaultyRequests
from tandembus.interconnect.requests import Requests
from tandembus.interconnect.traffic import Traffic
from tandembus.namespace.entries import Entry, SubscriptionEntry
from tandembus.namespace.fragment_source import FragmentSource
from tandembus.namespace.store_port import StorePort


def place_of(entry: Entry, index: int) -> FragmentPlace:
    topic = entry.topic_key if isinstance(entry, SubscriptionEntry) else ""
    return FragmentPlace(entry.key, index, entry.stores[index], topic)


@final
class FaultySource:
    """Implements `FragmentSource`: fragments of another one, each behind a gate."""

    def __init__(self, inner: FragmentSource, board: FaultBoard) -> None:
        self._inner = inner
        self._board = board
        self._gates: dict[int, FaultGate] = {}
        """By fragment key, until they are closed."""

    async def open(self, entry: Entry, index: int) -> tuple[Traffic, Requests]:
        traffic, requests = await self._inner.open(entry, index)
        gate = self._board.gate(traffic, place_of(entry, index))
        self._gates[entry.fragment_key + index] = gate
        return gate, FaultyRequests(requests, gate.faults, self._board)

    def close(self, entry: Entry, index: int) -> None:
        gate = self._gates.pop(entry.fragment_key + index, None)
        if gate is not None:
            gate.close()
        self._inner.close(entry, index)


@final
class FaultyStorePort:
    """Implements `StorePort`: a broker that a fault makes unreachable cannot be asked either, and nothing of an entity
    changes while a part of it is out."""

    def __init__(self, inner: StorePort, board: FaultBoard, change_within_s: float) -> None:
        """`change_within_s`: what is slower than this has not changed."""
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
