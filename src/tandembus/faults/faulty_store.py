"""A messaging store that an injected fault can take away, slow down or fill up, where its owner uses it.

What follows is the owner's own doing, as with a real failure: it gives the store up, answers everything as failed, and
tries to open it again until that succeeds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tandembus.errors import StoreUnavailable
from tandembus.faults.board import FaultBoard, fault_text
from tandembus.faults.fault import Kind
from tandembus.message import Message
from tandembus.store.messaging_store import (
    AuditPage,
    BlockRecord,
    Changes,
    CommitCost,
    Damage,
    Due,
    FragmentHead,
    HighWater,
    HistoryRecord,
    Mark,
    MessagingStore,
    Overlay,
    Place,
    Room,
    SessionColumn,
    SessionState,
)
from tandembus.store.owner_records import OwnerRecord, ReservedRecord


class StoreOwner(Protocol):
    """The message broker, as far as it has to be told of a store's faults."""

    def lose_store(self, error: StoreUnavailable) -> None:
        """The store that is open has failed, although nobody was committing anything."""

    def reopen_soon(self) -> None:
        """The next try to open the store need not be waited for."""

    def check_room(self) -> None: ...


class StoreFaults:
    """The faults of one store."""

    def __init__(self, board: FaultBoard, index: int) -> None:
        self._board = board
        self._index = index

    def check(self) -> None:
        """Raises StoreUnavailable when it is hit."""
        for fault in self._board.of_store(self._index):
            if fault.kind is Kind.UNAVAILABLE and self._board.hits(fault):
                raise StoreUnavailable(fault_text(fault))

    def check_reach(self) -> None:
        """Raises StoreUnavailable while nothing gets through."""
        outage = self.outage()
        if outage is not None:
            raise outage

    def outage(self) -> StoreUnavailable | None:
        """While nothing gets through to it at all."""
        for fault in self._board.of_store(self._index):
            if fault.kind is Kind.UNAVAILABLE and fault.probability >= 1.0:
                return StoreUnavailable(fault_text(fault))
        return None

    def shortage(self) -> str:
        """Why it is full; empty while it is not. A disk that is full is full for everybody: chance has no part in
        it."""
        full = (fault for fault in self._board.of_store(self._index) if fault.kind is Kind.DISK_FULL)
        return next(map(fault_text, full), "")

    def _is_slow(self) -> bool:
        if self.outage() is not None:
            return False  # what waits must learn of it
        return any(fault.kind is Kind.SLOW for fault in self._board.of_store(self._index))

    async def delay(self) -> None:
        slow = [fault for fault in self._board.of_store(self._index) if fault.kind is Kind.SLOW]
        latency_ms = sum(fault.latency_ms for fault in slow if self._board.hits(fault))
        if latency_ms:
            await self._board.delay(latency_ms / 1000, self._is_slow)

    def opening(self, open_store: Callable[[], Awaitable[MessagingStore]]) -> Callable[[], Awaitable[MessagingStore]]:
        """The same, with these faults from the first moment on."""

        async def open_faulty() -> MessagingStore:
            self.check_reach()
            return FaultyStore(await open_store(), self)

        return open_faulty

    def watch(self, owner: StoreOwner) -> Callable[[], None]:
        """The owner learns at once of what begins and ends, not only when it commits. Returns what ends it."""

        def look() -> None:
            outage = self.outage()
            if outage is not None:
                owner.lose_store(outage)
            else:
                owner.reopen_soon()
                owner.check_room()

        return self._board.listen(look)


class FaultyStore:
    """One life of the broker's hold on a store, with its faults."""

    def __init__(self, inner: MessagingStore, faults: StoreFaults) -> None:
        self.inner = inner
        self._faults = faults

    @property
    def epoch(self) -> int:
        return self.inner.epoch

    @property
    def last_commit(self) -> CommitCost:
        return self.inner.last_commit

    async def commit(self, changes: Changes) -> None:
        faults = self._faults
        faults.check()
        await faults.delay()
        faults.check_reach()
        await self.inner.commit(changes)

    async def heads(self) -> Sequence[FragmentHead]:
        self._faults.check_reach()
        return await self.inner.heads()

    async def blocks(self, fragment: int, lane: int) -> Sequence[BlockRecord]:
        self._faults.check_reach()
        return await self.inner.blocks(fragment, lane)

    async def bodies(
        self, fragment: int, lane: int, numbers: Sequence[int], max_bytes: int
    ) -> Sequence[Message | Damage]:
        self._faults.check_reach()
        return await self.inner.bodies(fragment, lane, numbers, max_bytes)

    async def overlays(self, fragment: int, lane: int, first: int, last: int) -> Sequence[Overlay]:
        self._faults.check_reach()
        return await self.inner.overlays(fragment, lane, first, last)

    async def overlays_at(self, fragment: int, lane: int, numbers: Sequence[int]) -> Sequence[Overlay]:
        self._faults.check_reach()
        return await self.inner.overlays_at(fragment, lane, numbers)

    async def columns(self, fragment: int, lane: int, blocks: Sequence[int]) -> Sequence[SessionColumn | None]:
        self._faults.check_reach()
        return await self.inner.columns(fragment, lane, blocks)

    async def session_state(self, fragment: int, session_id: str) -> SessionState | None:
        self._faults.check_reach()
        return await self.inner.session_state(fragment, session_id)

    async def session_states(self, fragment: int, after: str | None, limit: int) -> Sequence[SessionState]:
        self._faults.check_reach()
        return await self.inner.session_states(fragment, after, limit)

    async def schedules_before(self, at_ms: int, limit: int) -> Sequence[Due]:
        self._faults.check_reach()
        return await self.inner.schedules_before(at_ms, limit)

    async def expiries_before(self, at_ms: int, limit: int) -> Sequence[Due]:
        self._faults.check_reach()
        return await self.inner.expiries_before(at_ms, limit)

    async def earliest_due(self) -> int:
        self._faults.check_reach()
        return await self.inner.earliest_due()

    async def bodies_left(self, fragment: int, lane: int, limit: int) -> Sequence[int]:
        self._faults.check_reach()
        return await self.inner.bodies_left(fragment, lane, limit)

    async def history(self, fragment: int, at_ms: int, number: int, max_bytes: int) -> Sequence[HistoryRecord]:
        self._faults.check_reach()
        return await self.inner.history(fragment, at_ms, number, max_bytes)

    async def marks(self) -> Sequence[Mark]:
        self._faults.check_reach()
        return await self.inner.marks()

    async def high_waters(self, fragment: int) -> Sequence[HighWater]:
        self._faults.check_reach()
        return await self.inner.high_waters(fragment)

    @property
    def store_id(self) -> bytes:
        return self.inner.store_id

    async def audit_pages(self, first: int, max_bytes: int) -> Sequence[AuditPage]:
        self._faults.check_reach()
        return await self.inner.audit_pages(first, max_bytes)

    async def newest_audit_page(self) -> AuditPage | None:
        self._faults.check_reach()
        return await self.inner.newest_audit_page()

    async def enqueued_times(self, places: Sequence[Place]) -> Sequence[int]:
        self._faults.check_reach()
        return await self.inner.enqueued_times(places)

    async def sizes(self, fragment: int, lane: int, numbers: Sequence[int]) -> Sequence[int]:
        self._faults.check_reach()
        return await self.inner.sizes(fragment, lane, numbers)

    async def owners(self, fragment: int, lane: int) -> Sequence[OwnerRecord]:
        self._faults.check_reach()
        return await self.inner.owners(fragment, lane)

    async def reserved(self, fragment: int, lane: int) -> Sequence[ReservedRecord]:
        self._faults.check_reach()
        return await self.inner.reserved(fragment, lane)

    def room(self) -> Room:
        room = self.inner.room()
        shortage = self._faults.shortage()
        return Room(0, max(room.reserve_bytes, 1), shortage, room.used_bytes) if shortage else room

    async def close(self) -> None:
        await self.inner.close()
