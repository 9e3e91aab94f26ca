"""The switch of a messaging store: what injected faults do to it, where the broker that owns it uses it.

The rest is the broker's own doing, as after a real failure: it gives the store up, answers everything as failed, and
tries to open it again until that succeeds.
"""

from __future__ import annotations

import functools
from typing import Protocol

from tandembus.errors import StoreUnavailable
from tandembus.faults.board import FaultBoard
from tandembus.faults.fault import Kind


class StoreOwner(Protocol):
    """The message broker."""

    fault: StoreFaults | None

    def lose_store(self, error: StoreUnavailable) -> None:
        """The open store has failed, although nobody was committing anything."""

    def reopen_soon(self) -> None:
        """The next attempt to open the store may succeed."""

    def check_room(self) -> None: ...


class StoreFaults:
    """The faults of one store."""

    def __init__(self, board: FaultBoard, index: int) -> None:
        self._board = board
        self._index = index

    def watch(self, owner: StoreOwner) -> None:
        """Tell the owner at once when a fault begins or ends, not only when it commits."""
        self._board.listen(functools.partial(self._look, owner))
        self._look(owner)

    def _look(self, owner: StoreOwner) -> None:
        owner.fault = self if self._board.of_store(self._index) else None
        outage = self.outage()
        if outage is not None:
            owner.lose_store(outage)
        else:
            owner.reopen_soon()
            owner.check_room()

    def outage(self) -> StoreUnavailable | None:
        """The fault that keeps everything from the store."""
        for fault in self._board.of_store(self._index):
            if fault.is_outage:
                return StoreUnavailable(fault.text)
        return None

    def check_reach(self) -> None:
        """Raises StoreUnavailable while nothing reaches the store."""
        outage = self.outage()
        if outage is not None:
            raise outage

    async def pass_commit(self) -> None:
        """Before a commit: takes its time, or raises StoreUnavailable."""
        faults = self._board.of_store(self._index)
        for fault in faults:
            if fault.kind is Kind.UNAVAILABLE and self._board.hits(fault):
                raise StoreUnavailable(fault.text)
        slow = [fault for fault in faults if fault.kind is Kind.SLOW]
        latency_ms = sum(fault.latency_ms for fault in slow if self._board.hits(fault))
        if latency_ms:
            await self._board.delay(latency_ms / 1000, self._is_slow)
            self.check_reach()

    def _is_slow(self) -> bool:
        """Not while the store is out: a commit that waits must learn of it."""
        faults = self._board.of_store(self._index)
        return self.outage() is None and any(fault.kind is Kind.SLOW for fault in faults)

    def shortage(self) -> str:
        """Why the store is full; empty while it is not. A full disk is full for everybody: chance has no part in it."""
        faults = self._board.of_store(self._index)
        return next((fault.text for fault in faults if fault.kind is Kind.DISK_FULL), "")
