"""A store that takes its time and fails when told to, around any store; what it says is what a real one would say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TypeVar, final

from tandembus.errors import StoreFull, StoreUnavailable
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

T = TypeVar("T")


class Failure(Enum):
    """How a commit goes wrong."""

    FULL = "nothing is written, the store stays usable"
    LOST = "the outcome is unknown to the broker, and nothing was written"
    KEPT = "the outcome is unknown to the broker, and everything was written"


@final
class Script:
    """What goes wrong next, over all lives of the store."""

    def __init__(self) -> None:
        self.commit_count = 0
        """Commits tried so far."""
        self.failures: dict[int, Failure] = {}
        """What happens to the k-th commit, counted from 1."""
        self.hang_at = 0
        """The k-th commit hangs until it is told to go on."""
        self.commit_rounds = 0
        """Rounds of the loop that each commit takes."""
        self.read_rounds = 0
        self.answers = asyncio.Event()
        """Commits hang while this is not set."""
        self.answers.set()
        self.room = Room(1 << 40, 1 << 20)
        self.under_way: Changes | None = None
        """What a commit that is waiting would write: a crash may come before or behind the write."""

    def hang(self, is_hanging: bool) -> None:
        if is_hanging:
            self.answers.clear()
        else:
            self.answers.set()

    def fail_next(self, failure: Failure, after: int = 1) -> None:
        self.failures[self.commit_count + after] = failure


@final
class FaultyStore:
    def __init__(self, inner: MessagingStore, script: Script) -> None:
        self._inner = inner
        self._script = script
        self._is_lost = False

    @property
    def epoch(self) -> int:
        return self._inner.epoch

    async def commit(self, changes: Changes) -> None:
        self._refuse_if_lost()
        script = self._script
        script.commit_count += 1
        failure = script.failures.pop(script.commit_count, None)
        script.under_way = changes
        if script.commit_count == script.hang_at:
            script.hang(True)
        try:
            await self._wait(script.commit_rounds)
            await script.answers.wait()
        finally:
            script.under_way = None
        if failure is Failure.FULL:
            raise StoreFull("the store is full")
        if failure is not Failure.LOST:
            await self._inner.commit(changes)
        if failure is not None:
            self._is_lost = True
            raise StoreUnavailable("a commit failed and its outcome is unknown")

    async def heads(self) -> Sequence[FragmentHead]:
        return await self._read(self._inner.heads)

    async def blocks(self, fragment: int, lane: int) -> Sequence[BlockRecord]:
        return await self._read(lambda: self._inner.blocks(fragment, lane))

    async def bodies(
        self, fragment: int, lane: int, numbers: Sequence[int], max_bytes: int
    ) -> Sequence[Message | Damage]:
        return await self._read(lambda: self._inner.bodies(fragment, lane, numbers, max_bytes))

    async def overlays(self, fragment: int, lane: int, first: int, last: int) -> Sequence[Overlay]:
        return await self._read(lambda: self._inner.overlays(fragment, lane, first, last))

    async def overlays_at(self, fragment: int, lane: int, numbers: Sequence[int]) -> Sequence[Overlay]:
        return await self._read(lambda: self._inner.overlays_at(fragment, lane, numbers))

    async def columns(self, fragment: int, lane: int, blocks: Sequence[int]) -> Sequence[SessionColumn | None]:
        return await self._read(lambda: self._inner.columns(fragment, lane, blocks))

    async def session_state(self, fragment: int, session_id: str) -> SessionState | None:
        return await self._read(lambda: self._inner.session_state(fragment, session_id))

    async def session_states(self, fragment: int, after: str | None, limit: int) -> Sequence[SessionState]:
        return await self._read(lambda: self._inner.session_states(fragment, after, limit))

    async def schedules_before(self, at_ms: int, limit: int) -> Sequence[Due]:
        return await self._read(lambda: self._inner.schedules_before(at_ms, limit))

    async def expiries_before(self, at_ms: int, limit: int) -> Sequence[Due]:
        return await self._read(lambda: self._inner.expiries_before(at_ms, limit))

    async def earliest_due(self) -> int:
        return await self._read(self._inner.earliest_due)

    async def bodies_left(self, fragment: int, lane: int, limit: int) -> Sequence[int]:
        return await self._read(lambda: self._inner.bodies_left(fragment, lane, limit))

    async def history(self, fragment: int, at_ms: int, number: int, max_bytes: int) -> Sequence[HistoryRecord]:
        return await self._read(lambda: self._inner.history(fragment, at_ms, number, max_bytes))

    async def marks(self) -> Sequence[Mark]:
        return await self._read(self._inner.marks)

    async def high_waters(self, fragment: int) -> Sequence[HighWater]:
        return await self._read(lambda: self._inner.high_waters(fragment))

    @property
    def store_id(self) -> bytes:
        return self._inner.store_id

    async def audit_pages(self, first: int, max_bytes: int) -> Sequence[AuditPage]:
        return await self._read(lambda: self._inner.audit_pages(first, max_bytes))

    async def newest_audit_page(self) -> AuditPage | None:
        return await self._read(self._inner.newest_audit_page)

    @property
    def last_commit(self) -> CommitCost:
        return self._inner.last_commit

    async def enqueued_times(self, places: Sequence[Place]) -> Sequence[int]:
        return await self._read(lambda: self._inner.enqueued_times(places))

    async def sizes(self, fragment: int, lane: int, numbers: Sequence[int]) -> Sequence[int]:
        return await self._read(lambda: self._inner.sizes(fragment, lane, numbers))

    async def owners(self, fragment: int, lane: int) -> Sequence[OwnerRecord]:
        return await self._read(lambda: self._inner.owners(fragment, lane))

    async def reserved(self, fragment: int, lane: int) -> Sequence[ReservedRecord]:
        return await self._read(lambda: self._inner.reserved(fragment, lane))

    def room(self) -> Room:
        self._refuse_if_lost()
        return self._script.room

    async def close(self) -> None:
        await self._inner.close()

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T:
        """What is read is what was true at some moment of the reading; it may be over when it arrives."""
        self._refuse_if_lost()
        rounds = self._script.read_rounds
        await self._wait(rounds // 2)
        found = await read()
        await self._wait(rounds - rounds // 2)
        return found

    async def _wait(self, rounds: int) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)

    def _refuse_if_lost(self) -> None:
        if self._is_lost:
            raise StoreUnavailable("a commit failed and its outcome is unknown")
