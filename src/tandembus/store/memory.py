"""A messaging store in memory, for tests: the same promises, and failures on demand.

`MemoryDisk` is what survives; a `MemoryStore` is one life of a broker's hold on it. A test scripts the disk:
the k-th commit fails as full, fails with an unknown outcome (kept or lost), or hangs; reads answer when the
test lets them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import Enum
from typing import final

from tandembus.errors import StoreFull, StoreUnavailable
from tandembus.message import Message, copy_of
from tandembus.store.messaging_store import (
    AUDIT_TRIM,
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
    Overlay,
    Place,
    Room,
    SessionColumn,
    SessionState,
)
from tandembus.store.owner_records import OwnerRecord, ReservedRecord

PlaceKey = tuple[int, int, int]
DueKey = tuple[int, int, int, int]


class Fault(Enum):
    """How a commit goes wrong."""

    FULL = "nothing is written, the store stays usable"
    UNKNOWN_LOST = "the outcome is unknown to the caller, and nothing was written"
    UNKNOWN_KEPT = "the outcome is unknown to the caller, and everything was written"
    HANG = "the commit waits until the test lets it go on, then succeeds"


@final
class MemoryDisk:
    """What outlives a store object, and the script of what goes wrong with it."""

    def __init__(self, free_bytes: int = 1 << 40, reserve_bytes: int = 0) -> None:
        self.free_bytes = free_bytes
        self.reserve_bytes = reserve_bytes
        self.epoch = 0
        self.is_held = False
        self.commit_count = 0
        """Commits tried so far, over all lives."""
        self.faults: dict[int, Fault] = {}
        """What happens to the k-th commit from now on, counted by `commit_count` from 1."""
        self.is_hanging = asyncio.Event()
        """Set while a commit hangs."""
        self.go_on = asyncio.Event()
        """Set by the test: commits that hang go on."""
        self.before_read: Callable[[], Awaitable[None]] | None = None
        """Awaited before each read, for stores that answer late and out of order."""
        self.after_commit: Callable[[Changes], None] | None = None
        """Told of each commit that was written."""
        self.damaged: set[PlaceKey] = set()
        """Bodies whose bytes went bad."""
        self.bodies: dict[PlaceKey, Message] = {}
        self.blocks: dict[PlaceKey, BlockRecord] = {}
        self.overlays: dict[PlaceKey, Overlay] = {}
        self.schedules: set[DueKey] = set()
        self.expiries: set[DueKey] = set()
        self.heads: dict[int, FragmentHead] = {}
        self.quarantine: dict[PlaceKey, Message] = {}
        self.columns: dict[PlaceKey, SessionColumn] = {}
        self.damaged_columns: set[PlaceKey] = set()
        self.session_states: dict[tuple[int, str], SessionState] = {}
        self.history: dict[PlaceKey, HistoryRecord] = {}
        self.marks: dict[bytes, Mark] = {}
        self.high_waters: dict[PlaceKey, HighWater] = {}
        """By fragment, source and lane of the source."""
        self.audit_pages: dict[int, AuditPage] = {}
        self.store_id = os.urandom(16)
        self.owners: dict[PlaceKey, OwnerRecord] = {}
        self.reserved: dict[DueKey, ReservedRecord] = {}
        """By fragment, lane, slot and block."""

    def apply(self, changes: Changes) -> None:
        self._drop(changes)
        for put in changes.bodies:
            # A copy: what the fragment does to its own object later is not durable.
            self.bodies[put.fragment, put.lane, put.message.number] = copy_of(put.message)
        for block in changes.blocks:
            self.blocks[block.fragment, block.lane, block.block] = block
        for overlay in changes.overlays:
            self.overlays[overlay.fragment, overlay.lane, overlay.number] = overlay
        self.schedules.update(map(_due_key, changes.schedules))
        self.expiries.update(map(_due_key, changes.expiries))
        for head in changes.heads:
            self.heads[head.fragment] = head
        for column in changes.columns:
            self.columns[column.fragment, column.lane, column.block] = column
        for state in changes.session_states:
            self.session_states.pop((state.fragment, state.session_id), None)
            if state.state is not None:
                self.session_states[state.fragment, state.session_id] = state
        for record in changes.history:
            self.history[record.fragment, record.at_ms, record.number] = record
        self.marks.update({mark.channel: mark for mark in changes.marks})
        self.high_waters.update({_high_water_key(one): one for one in changes.high_waters})
        if changes.audit_page is not None:
            self.audit_pages[changes.audit_page.number] = changes.audit_page
        if self.after_commit is not None:
            self.after_commit(changes)
        self.owners.update({(one.fragment, one.lane, one.slot): one for one in changes.owners})
        for reserved in changes.reserved:
            self.reserved[reserved.fragment, reserved.lane, reserved.slot, reserved.block] = reserved
            if not reserved.bits:
                del self.reserved[reserved.fragment, reserved.lane, reserved.slot, reserved.block]

    def _drop(self, changes: Changes) -> None:
        for place in changes.quarantined:
            body = self.bodies.pop(_place_key(place), None)
            if body is not None:
                self.quarantine[_place_key(place)] = body
        for dropped in changes.dropped_bodies:
            for key in _between(self.bodies, dropped.fragment, dropped.lane, dropped.first, dropped.last):
                del self.bodies[key]
        for place in changes.dropped_blocks:
            self.blocks.pop(_place_key(place), None)
        for place in changes.dropped_overlays:
            self.overlays.pop(_place_key(place), None)
        self.schedules.difference_update(map(_due_key, changes.dropped_schedules))
        self.expiries.difference_update(map(_due_key, changes.dropped_expiries))
        for fragment in changes.dropped_heads:
            self.heads.pop(fragment, None)
        for dropped in changes.dropped_columns:
            for key in _between(self.columns, dropped.fragment, dropped.lane, dropped.first, dropped.last):
                del self.columns[key]
        for trim in changes.trimmed_history:
            old = [key for key in sorted(self.history) if key[0] == trim.fragment and key[1] < trim.before_ms]
            for key in old[: trim.limit]:
                del self.history[key]
        for number in sorted(self.audit_pages)[:AUDIT_TRIM]:
            if number < changes.trimmed_audit:
                del self.audit_pages[number]
        for channel in changes.dropped_marks:
            self.marks.pop(channel, None)
        for high_water in changes.dropped_high_waters:
            self.high_waters.pop(_high_water_key(high_water), None)
        for place in changes.dropped_owners:
            self.owners.pop(_place_key(place), None)


@final
class MemoryStore:
    """One hold on a `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk) -> None:
        if disk.is_held:
            raise StoreUnavailable("the memory store is in use: close the other one first")
        disk.is_held = True
        disk.epoch += 1
        self._disk = disk
        self._epoch = disk.epoch
        self._last_commit = CommitCost()
        self._refusal: str | None = None

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def last_commit(self) -> CommitCost:
        return self._last_commit

    async def commit(self, changes: Changes) -> None:
        self._refuse_if_unusable()
        self._disk.commit_count += 1
        fault = self._disk.faults.get(self._disk.commit_count)
        if fault is Fault.HANG:
            await self._hang()
        if self._epoch != self._disk.epoch:
            raise self._unusable("another broker has opened it since: this one has lost it")
        if fault is Fault.FULL:
            raise StoreFull("the memory store is full")
        if fault is not Fault.UNKNOWN_LOST:
            self._disk.apply(changes)
            self._last_commit.put_bytes = sum([len(put.message.sections) for put in changes.bodies])
        if fault is Fault.UNKNOWN_LOST or fault is Fault.UNKNOWN_KEPT:
            raise self._unusable("a commit failed and its outcome is unknown")

    async def heads(self) -> Sequence[FragmentHead]:
        await self._before_read()
        return [self._disk.heads[fragment] for fragment in sorted(self._disk.heads)]

    async def blocks(self, fragment: int, lane: int) -> Sequence[BlockRecord]:
        await self._before_read()
        return [self._disk.blocks[key] for key in sorted(self._disk.blocks) if key[:2] == (fragment, lane)]

    async def bodies(
        self, fragment: int, lane: int, numbers: Sequence[int], max_bytes: int
    ) -> Sequence[Message | Damage]:
        await self._before_read()
        found: list[Message | Damage] = []
        size_bytes = 0
        for number in numbers:
            found.append(self._body((fragment, lane, number)))
            body = self._disk.bodies.get((fragment, lane, number))
            size_bytes += 0 if body is None else len(body.sections)
            if size_bytes > max_bytes:
                break
        return found

    async def overlays(self, fragment: int, lane: int, first: int, last: int) -> Sequence[Overlay]:
        await self._before_read()
        return [self._disk.overlays[key] for key in _between(self._disk.overlays, fragment, lane, first, last)]

    async def overlays_at(self, fragment: int, lane: int, numbers: Sequence[int]) -> Sequence[Overlay]:
        await self._before_read()
        found = [self._disk.overlays.get((fragment, lane, number)) for number in numbers]
        return [overlay for overlay in found if overlay is not None]

    async def columns(self, fragment: int, lane: int, blocks: Sequence[int]) -> Sequence[SessionColumn | None]:
        await self._before_read()
        keys = [(fragment, lane, block) for block in blocks]
        return [None if key in self._disk.damaged_columns else self._disk.columns.get(key) for key in keys]

    async def session_state(self, fragment: int, session_id: str) -> SessionState | None:
        await self._before_read()
        return self._disk.session_states.get((fragment, session_id))

    async def session_states(self, fragment: int, after: str | None, limit: int) -> Sequence[SessionState]:
        await self._before_read()
        ids = sorted(key[1] for key in self._disk.session_states if key[0] == fragment)
        if after is not None:
            ids = [one for one in ids if one > after]
        states = [self._disk.session_states[fragment, one] for one in ids[:limit]]
        return [SessionState(fragment, one.session_id, b"", one.changed_at) for one in states]

    async def schedules_before(self, at_ms: int, limit: int) -> Sequence[Due]:
        await self._before_read()
        return [Due(*key) for key in sorted(self._disk.schedules) if key[0] < at_ms][:limit]

    async def expiries_before(self, at_ms: int, limit: int) -> Sequence[Due]:
        await self._before_read()
        return [Due(*key) for key in sorted(self._disk.expiries) if key[0] < at_ms][:limit]

    async def earliest_due(self) -> int:
        await self._before_read()
        return min([key[0] for key in self._disk.schedules | self._disk.expiries], default=0)

    async def bodies_left(self, fragment: int, lane: int, limit: int) -> Sequence[int]:
        await self._before_read()
        return sorted(key[2] for key in self._disk.bodies if key[:2] == (fragment, lane))[:limit]

    async def history(self, fragment: int, at_ms: int, number: int, max_bytes: int) -> Sequence[HistoryRecord]:
        await self._before_read()
        found: list[HistoryRecord] = []
        size_bytes = 0
        for key in sorted(self._disk.history):
            if key[0] == fragment and key[1:] >= (at_ms, number):
                found.append(self._disk.history[key])
                size_bytes += len(found[-1].hashes)
                if size_bytes > max_bytes:
                    break
        return found

    async def marks(self) -> Sequence[Mark]:
        await self._before_read()
        return [self._disk.marks[channel] for channel in sorted(self._disk.marks)]

    async def high_waters(self, fragment: int) -> Sequence[HighWater]:
        await self._before_read()
        keys = [key for key in sorted(self._disk.high_waters) if key[0] == fragment]
        return [self._disk.high_waters[key] for key in keys]

    @property
    def store_id(self) -> bytes:
        return self._disk.store_id

    async def audit_pages(self, first: int, max_bytes: int) -> Sequence[AuditPage]:
        await self._before_read()
        found: list[AuditPage] = []
        size_bytes = 0
        for number in sorted(self._disk.audit_pages):
            if number >= first:
                found.append(self._disk.audit_pages[number])
                size_bytes += len(found[-1].data)
                if size_bytes > max_bytes:
                    break
        return found

    async def newest_audit_page(self) -> AuditPage | None:
        await self._before_read()
        return self._disk.audit_pages[max(self._disk.audit_pages)] if self._disk.audit_pages else None

    async def enqueued_times(self, places: Sequence[Place]) -> Sequence[int]:
        await self._before_read()
        bodies = [self._disk.bodies.get((place.fragment, place.lane, place.number)) for place in places]
        return [0 if body is None else int(body.enqueued_at) for body in bodies]

    async def sizes(self, fragment: int, lane: int, numbers: Sequence[int]) -> Sequence[int]:
        await self._before_read()
        bodies = [self._disk.bodies.get((fragment, lane, number)) for number in numbers]
        return [0 if body is None else len(body.sections) for body in bodies]

    async def owners(self, fragment: int, lane: int) -> Sequence[OwnerRecord]:
        await self._before_read()
        return [self._disk.owners[key] for key in sorted(self._disk.owners) if key[:2] == (fragment, lane)]

    async def reserved(self, fragment: int, lane: int) -> Sequence[ReservedRecord]:
        await self._before_read()
        return [self._disk.reserved[key] for key in sorted(self._disk.reserved) if key[:2] == (fragment, lane)]

    def room(self) -> Room:
        self._refuse_if_unusable()
        return Room(self._disk.free_bytes, self._disk.reserve_bytes)

    async def close(self) -> None:
        if self._refusal != _CLOSED:
            self._refusal = _CLOSED
            self._disk.is_held = False

    def _body(self, key: PlaceKey) -> Message | Damage:
        body = self._disk.bodies.get(key)
        if body is None:
            return Damage(key[2], "the record is not there", True)
        if key in self._disk.damaged:
            return Damage(key[2], "the checksum is wrong", False)
        return copy_of(body)

    async def _hang(self) -> None:
        self._disk.is_hanging.set()
        try:
            await self._disk.go_on.wait()
        finally:
            self._disk.is_hanging.clear()

    async def _before_read(self) -> None:
        self._refuse_if_unusable()
        if self._disk.before_read is not None:
            await self._disk.before_read()

    def _unusable(self, reason: str) -> StoreUnavailable:
        self._refusal = self._refusal or reason
        return StoreUnavailable(f"the memory store cannot be used: {reason}")

    def _refuse_if_unusable(self) -> None:
        if self._refusal is not None:
            raise StoreUnavailable(f"the memory store cannot be used: {self._refusal}")


_CLOSED = "it is closed"


def _between(records: Collection[PlaceKey], fragment: int, lane: int, first: int, last: int) -> list[PlaceKey]:
    """The keys of a lane's records from one number to another, in order. Browsing asks for one number at a time: then
    looking at all records would take a time that grows with the square of their count."""
    if last - first < len(records):
        return [key for number in range(first, last + 1) if (key := (fragment, lane, number)) in records]
    return sorted(key for key in records if key[:2] == (fragment, lane) and first <= key[2] <= last)


def _place_key(place: Place) -> PlaceKey:
    return place.fragment, place.lane, place.number


def _high_water_key(high_water: HighWater) -> PlaceKey:
    return high_water.fragment, high_water.source, high_water.lane


def _due_key(due: Due) -> DueKey:
    return due.at_ms, due.fragment, due.lane, due.number
