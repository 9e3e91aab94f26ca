"""The embedded messaging store: LMDB, one durable transaction per group commit.

It only remembers. Which messages may be given out, counted or expired is the fragment's business; here are
keys, records, one transaction at a time, and an honest answer about what is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar, final

import lmdb

from tandembus.clock import Clock, SystemClock
from tandembus.errors import StoreFull, StoreUnavailable
from tandembus.message import Message
from tandembus.store.embedded import audit_reader, body_heads, lane_reader, ledger_reader, mark_reader
from tandembus.store.embedded.environment import (
    EmbeddedSettings,
    OpenedStore,
    disk_free_bytes,
    open_environment,
)
from tandembus.store.embedded.keys import (
    EXPIRY,
    META_KEY,
    QUARANTINE,
    SCHEDULE,
    SESSION_COLUMN,
    audit_key,
    body_key,
    history_key,
    place_key,
)
from tandembus.store.embedded.lane_reader import DamagedRecord
from tandembus.store.embedded.ledger_records import dropped_ledger_keys, encode_ledger
from tandembus.store.embedded.records import dropped_state_keys, encode_bodies, encode_log, encode_state, size_of
from tandembus.store.embedded.room import measure_room
from tandembus.store.messaging_store import (
    AUDIT_TRIM,
    AuditPage,
    BlockRecord,
    BodyRange,
    Changes,
    CommitCost,
    Damage,
    Due,
    FragmentHead,
    HighWater,
    HistoryRecord,
    HistoryTrim,
    Mark,
    Overlay,
    Place,
    Room,
    SessionColumn,
    SessionState,
)
from tandembus.store.owner_records import OwnerRecord, ReservedRecord

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

DAMAGE: Final = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.CursorFullError,
    lmdb.PageFullError,
    lmdb.InvalidError,
    SystemError,
)
"""Errors raised for pages that contradict each other; SystemError by a cursor that cannot delete a record."""
LONG_COMMIT_BYTES: Final = 8 << 20
"""A commit of so much runs in a thread, however fast the disk is."""
GROWTH: Final = 2
"""What a commit may take of the volume, against the bytes it puts: pages are not full, and paths to them are
copied."""


def log_damage(damage: DamagedRecord) -> None:
    _log.error("%s", damage)


@final
class LmdbStore:
    """One store folder, held alone. Opened by `open`, usable until `close` or until an outcome is unknown."""

    def __init__(
        self,
        opened: OpenedStore,
        folder: Path,
        settings: EmbeddedSettings,
        report_damage: Callable[[DamagedRecord], None],
        clock: Clock | None = None,
    ) -> None:
        self._opened = opened
        self._clock = clock or SystemClock()
        self._last_commit = CommitCost()
        self._folder = folder
        self._settings = settings
        self._report_damage = report_damage
        self._refusal: str | None = None
        self.has_met_damage = False
        """LMDB itself has found a page that cannot be: all of them are to be read before it is opened again."""
        self._known_room_bytes = 0
        self._writer: ThreadPoolExecutor | None = None
        self._large_writer: ThreadPoolExecutor | None = None
        """For commits that would hold up the loop by their size alone; made when there is one."""
        self._reader: ThreadPoolExecutor | None = None
        if _commits_in_thread(opened, settings):
            self._writer = ThreadPoolExecutor(1, "store-commit")
            self._reader = ThreadPoolExecutor(1, "store-read")

    @classmethod
    def open(
        cls,
        folder: Path,
        settings: EmbeddedSettings | None = None,
        clock: Clock | None = None,
        report_damage: Callable[[DamagedRecord], None] = log_damage,
    ) -> LmdbStore:
        """Returns once the new epoch is durable, so whoever held the store before can no longer commit."""
        settings = settings or EmbeddedSettings()
        clock = clock or SystemClock()
        return cls(open_environment(folder, settings, clock), folder, settings, report_damage, clock)

    @property
    def epoch(self) -> int:
        return self._opened.epoch

    @property
    def store_id(self) -> bytes:
        return self._opened.store_id

    @property
    def last_commit(self) -> CommitCost:
        return self._last_commit

    @property
    def commits_in_thread(self) -> bool:
        return self._writer is not None

    async def commit(self, changes: Changes) -> None:
        self._refuse_if_unusable()
        loop = asyncio.get_running_loop()
        if self._writer is not None:
            await loop.run_in_executor(self._writer, self._write, changes)
            return
        puts = _Puts(changes)
        if puts.growth_bytes < LONG_COMMIT_BYTES:
            self._write(changes, puts)
            return
        if self._large_writer is None:
            self._large_writer = ThreadPoolExecutor(1, "store-commit")
        await loop.run_in_executor(self._large_writer, self._write, changes, puts)

    async def heads(self) -> Sequence[FragmentHead]:
        return await self._read(lambda txn: lane_reader.read_heads(txn, self._opened, self._report_damage))

    async def blocks(self, fragment: int, lane: int) -> Sequence[BlockRecord]:
        return await self._read(
            lambda txn: lane_reader.read_blocks(txn, self._opened, fragment, lane, self._report_damage)
        )

    async def bodies(
        self, fragment: int, lane: int, numbers: Sequence[int], max_bytes: int
    ) -> Sequence[Message | Damage]:
        return await self._read(
            lambda txn: lane_reader.read_bodies(txn, self._opened, fragment, lane, numbers, max_bytes)
        )

    async def overlays(self, fragment: int, lane: int, first: int, last: int) -> Sequence[Overlay]:
        return await self._read(
            lambda txn: lane_reader.read_overlays(txn, self._opened, fragment, lane, first, last, self._report_damage)
        )

    async def overlays_at(self, fragment: int, lane: int, numbers: Sequence[int]) -> Sequence[Overlay]:
        return await self._read(
            lambda txn: lane_reader.read_overlays_at(txn, self._opened, fragment, lane, numbers, self._report_damage)
        )

    async def columns(self, fragment: int, lane: int, blocks: Sequence[int]) -> Sequence[SessionColumn | None]:
        return await self._read(
            lambda txn: lane_reader.read_columns(txn, self._opened, fragment, lane, blocks, self._report_damage)
        )

    async def session_state(self, fragment: int, session_id: str) -> SessionState | None:
        return await self._read(
            lambda txn: lane_reader.read_session_state(txn, self._opened, fragment, session_id, self._report_damage)
        )

    async def session_states(self, fragment: int, after: str | None, limit: int) -> Sequence[SessionState]:
        return await self._read(
            lambda txn: lane_reader.read_session_states(txn, self._opened, fragment, after, limit, self._report_damage)
        )

    async def schedules_before(self, at_ms: int, limit: int) -> Sequence[Due]:
        return await self._read(
            lambda txn: lane_reader.read_due(txn, self._opened, SCHEDULE, at_ms, limit, self._report_damage)
        )

    async def expiries_before(self, at_ms: int, limit: int) -> Sequence[Due]:
        return await self._read(
            lambda txn: lane_reader.read_due(txn, self._opened, EXPIRY, at_ms, limit, self._report_damage)
        )

    async def earliest_due(self) -> int:
        return await self._read(lambda txn: lane_reader.read_earliest_due(txn, self._opened))

    async def bodies_left(self, fragment: int, lane: int, limit: int) -> Sequence[int]:
        return await self._read(lambda txn: lane_reader.read_numbers(txn, self._opened, fragment, lane, limit))

    async def history(self, fragment: int, at_ms: int, number: int, max_bytes: int) -> Sequence[HistoryRecord]:
        return await self._read(
            lambda txn: lane_reader.read_history(
                txn, self._opened, fragment, at_ms, number, max_bytes, self._report_damage
            )
        )

    async def marks(self) -> Sequence[Mark]:
        return await self._read(lambda txn: mark_reader.read_marks(txn, self._opened, self._report_damage))

    async def high_waters(self, fragment: int) -> Sequence[HighWater]:
        return await self._read(
            lambda txn: mark_reader.read_high_waters(txn, self._opened, fragment, self._report_damage)
        )

    async def audit_pages(self, first: int, max_bytes: int) -> Sequence[AuditPage]:
        return await self._read(
            lambda txn: audit_reader.read_pages(txn, self._opened, first, max_bytes, self._report_damage)
        )

    async def newest_audit_page(self) -> AuditPage | None:
        return await self._read(lambda txn: audit_reader.read_newest(txn, self._opened, self._report_damage))

    async def enqueued_times(self, places: Sequence[Place]) -> Sequence[int]:
        self._refuse_if_unusable()
        if self._reader is None:
            return self._read_times(places)
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._read_times, places)

    def _read_times(self, places: Sequence[Place]) -> list[int]:
        return self._lent(lambda txn: body_heads.read_enqueued_times(txn, self._opened, places))

    async def sizes(self, fragment: int, lane: int, numbers: Sequence[int]) -> Sequence[int]:
        self._refuse_if_unusable()
        if self._reader is None:
            return self._read_sizes(fragment, lane, numbers)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, self._read_sizes, fragment, lane, numbers)

    def _read_sizes(self, fragment: int, lane: int, numbers: Sequence[int]) -> list[int]:
        return self._lent(lambda txn: ledger_reader.read_sizes(txn, self._opened, fragment, lane, numbers))

    def _lent(self, read: Callable[[lmdb.Transaction[memoryview]], _T]) -> _T:
        """In a transaction that lends the bodies and copies none."""
        self._refuse_if_unusable()
        try:
            with self._opened.environment.begin(buffers=True) as txn:
                return read(txn)
        except lmdb.Error as error:
            raise self._failed(f"a read failed: {error}", error) from error

    async def owners(self, fragment: int, lane: int) -> Sequence[OwnerRecord]:
        return await self._read(
            lambda txn: ledger_reader.read_owners(txn, self._opened, fragment, lane, self._report_damage)
        )

    async def reserved(self, fragment: int, lane: int) -> Sequence[ReservedRecord]:
        return await self._read(
            lambda txn: ledger_reader.read_reserved(txn, self._opened, fragment, lane, self._report_damage)
        )

    async def quarantined(self, limit: int) -> Sequence[tuple[Place, bytes]]:
        """Damaged bodies that were put aside, with their raw bytes: for people."""
        return await self._read(lambda txn: lane_reader.read_quarantined(txn, self._opened, limit))

    def room(self) -> Room:
        """Asked every second, and so the place to let go of what a reader holds that was killed, such as a backup."""
        self._refuse_if_unusable()
        self._opened.environment.reader_check()
        return measure_room(self._opened, self._folder, self._settings)

    async def close(self) -> None:
        """Waits for a commit under way. Closing twice does no harm."""
        if self._refusal == _CLOSED:
            return
        self._refusal = _CLOSED
        for executor in (self._writer, self._large_writer, self._reader):
            if executor is not None:
                await asyncio.to_thread(executor.shutdown)
        self._opened.environment.close()
        self._opened.lock.release()

    async def _read(self, read: Callable[[lmdb.Transaction[bytes]], _T]) -> _T:
        """Where commits are slow so is the disk: then a read of cold pages must not hold up the loop
        either."""
        self._refuse_if_unusable()
        if self._reader is None:
            return self._read_now(read)
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._read_now, read)

    def _read_now(self, read: Callable[[lmdb.Transaction[bytes]], _T]) -> _T:
        """In a transaction that ends with the call: an open reader keeps every page deleted after it from
        reuse."""
        self._refuse_if_unusable()
        try:
            with self._opened.environment.begin() as txn:
                return read(txn)
        except lmdb.Error as error:
            raise self._failed(f"a read failed: {error}", error) from error

    def _write(self, changes: Changes, puts: _Puts | None = None) -> None:
        self._refuse_if_unusable()
        if puts is None:
            puts = _Puts(changes)
        self._require_room(puts.growth_bytes)
        try:
            self._transact(changes, puts)
        except StoreFull:
            # What grows is refused; what only settles gets the last room there is.
            if puts.growth_bytes or not self._opened.ballast.drop():
                raise
            self._transact(changes, puts)

    def _transact(self, changes: Changes, puts: _Puts) -> None:
        try:
            with self._opened.environment.begin(write=True) as txn:
                self._require_epoch(txn)
                self._drop(txn, changes)
                self._put(txn, puts)
                began_at = self._clock.monotonic()
            # Leaving the block writes and syncs.
            self._last_commit.sync_s = self._clock.monotonic() - began_at
            self._last_commit.put_bytes = puts.growth_bytes
        except (lmdb.Error, SystemError) as error:
            raise self._judge(error, puts.growth_bytes) from error

    def _require_epoch(self, txn: lmdb.Transaction[bytes]) -> None:
        if txn.get(META_KEY, db=self._opened.state) != self._opened.meta:
            raise self._unusable("another broker has opened it since: this one has lost it")

    def _drop(self, txn: lmdb.Transaction[bytes], changes: Changes) -> None:
        for place in changes.quarantined:
            self._put_aside(txn, place)
        if changes.dropped_bodies:
            _drop_ranges(txn, self._opened.body, [_body_bounds(dropped) for dropped in changes.dropped_bodies])
        if changes.dropped_columns:
            _drop_ranges(txn, self._opened.log, [_column_bounds(dropped) for dropped in changes.dropped_columns])
        for key in dropped_state_keys(changes) + dropped_ledger_keys(changes):
            txn.delete(key, db=self._opened.state)
        for trim in changes.trimmed_history:
            _trim_history(txn, self._opened.log, trim)
        if changes.trimmed_audit:
            _trim(txn, self._opened.log, audit_key(0), audit_key(changes.trimmed_audit), AUDIT_TRIM)

    def _put_aside(self, txn: lmdb.Transaction[bytes], place: Place) -> None:
        value = txn.pop(body_key(place.fragment, place.lane, place.number), db=self._opened.body)
        if value is not None:
            key = place_key(QUARANTINE, place.fragment, place.lane, place.number)
            txn.put(key, value, db=self._opened.state)

    def _put(self, txn: lmdb.Transaction[bytes], puts: _Puts) -> None:
        if puts.bodies:
            with txn.cursor(self._opened.body) as cursor:
                # Appending fills pages completely, but works only behind every key of the whole tree.
                is_behind_all = not cursor.last() or cursor.key() < puts.bodies[0][0]
                cursor.putmulti(puts.bodies, append=is_behind_all)
        if puts.log:
            with txn.cursor(self._opened.log) as cursor:
                cursor.putmulti(puts.log)
        if puts.state:
            with txn.cursor(self._opened.state) as cursor:
                cursor.putmulti(puts.state)
        elif not puts.bodies and not puts.log:
            # A transaction without changes would not touch the disk, and so prove nothing about it.
            txn.put(META_KEY, self._opened.meta, db=self._opened.state)

    def _require_room(self, put_bytes: int) -> None:
        """Growth stops while there is still room to delete. Looked at only after as much was put as was free
        then."""
        if not put_bytes:
            return
        needed = put_bytes * GROWTH
        if needed > self._known_room_bytes:
            self._known_room_bytes = self._measured_free_bytes() - self._settings.settling_bytes
            if needed > self._known_room_bytes:
                raise StoreFull(f"the messaging store in {self._folder} has no room for {put_bytes} more bytes")
        self._known_room_bytes -= needed

    def _measured_free_bytes(self) -> int:
        try:
            self._opened.ballast.take(disk_free_bytes(self._folder))
            return measure_room(self._opened, self._folder, self._settings).free_bytes
        except (lmdb.Error, OSError) as error:
            raise self._unusable(f"its room cannot be measured: {error}") from error

    def _judge(self, error: lmdb.Error | SystemError, put_bytes: int) -> StoreUnavailable:
        """Full, or worse? A full disk shows up as an input/output error, so the error's number says little:
        what counts is whether room really is short, and whether LMDB still takes transactions."""
        self._known_room_bytes = 0
        if isinstance(error, lmdb.MapFullError) or (self._is_short(put_bytes) and self._takes_transactions()):
            return StoreFull(f"the messaging store in {self._folder} is full: {error}")
        return self._failed(f"a commit failed and its outcome is unknown: {error}", error)

    def _is_short(self, put_bytes: int) -> bool:
        try:
            return disk_free_bytes(self._folder) < put_bytes * GROWTH + self._settings.settling_bytes
        except OSError:
            return False

    def _takes_transactions(self) -> bool:
        try:
            self._opened.environment.begin(write=True).abort()
        except lmdb.Error:
            return False
        return True

    def _failed(self, reason: str, error: lmdb.Error | SystemError) -> StoreUnavailable:
        self.has_met_damage = self.has_met_damage or isinstance(error, DAMAGE)
        return self._unusable(reason)

    def _unusable(self, reason: str) -> StoreUnavailable:
        self._refusal = self._refusal or reason
        return StoreUnavailable(f"the messaging store in {self._folder} cannot be used: {reason}")

    def _refuse_if_unusable(self) -> None:
        if self._refusal is not None:
            raise StoreUnavailable(f"the messaging store in {self._folder} cannot be used: {self._refusal}")


_CLOSED: Final = "it is closed"


def _commits_in_thread(opened: OpenedStore, settings: EmbeddedSettings) -> bool:
    if settings.commit_mode == "auto":
        return opened.commit_s > settings.loop_commit_limit_s
    return settings.commit_mode == "thread"


@final
class _Puts:
    """What a commit puts into each tree, encoded, in key order."""

    def __init__(self, changes: Changes) -> None:
        self.bodies = encode_bodies(changes.bodies)
        self.state = encode_state(changes) + encode_ledger(changes)
        self.log = encode_log(changes)
        self.growth_bytes = size_of(self.bodies) + sum(len(one.state or b"") for one in changes.session_states)
        if self.bodies and changes.audit_page is not None:
            self.growth_bytes += len(changes.audit_page.data)
        """What clients add. The rest is small, or goes with the messages it is about."""


def _body_bounds(dropped: BodyRange) -> tuple[bytes, bytes]:
    first = body_key(dropped.fragment, dropped.lane, dropped.first)
    return first, body_key(dropped.fragment, dropped.lane, dropped.last)


def _column_bounds(dropped: BodyRange) -> tuple[bytes, bytes]:
    first = place_key(SESSION_COLUMN, dropped.fragment, dropped.lane, dropped.first)
    return first, place_key(SESSION_COLUMN, dropped.fragment, dropped.lane, dropped.last)


def _trim_history(txn: lmdb.Transaction[bytes], tree: lmdb._Database, trim: HistoryTrim) -> None:
    end = history_key(trim.fragment, trim.before_ms, 0)
    _trim(txn, tree, history_key(trim.fragment, 0, 0), end, trim.limit)


def _trim(txn: lmdb.Transaction[bytes], tree: lmdb._Database, first: bytes, end: bytes, limit: int) -> None:
    with txn.cursor(tree) as cursor:
        found = cursor.set_range(first)
        for _ in range(limit):
            if not found or cursor.key() >= end:
                return
            cursor.delete()
            found = bool(cursor.key())


def _drop_ranges(txn: lmdb.Transaction[bytes], tree: lmdb._Database, bounds: list[tuple[bytes, bytes]]) -> None:
    """In key order with one cursor: neighbours lie in the same pages, which are then touched once."""
    with txn.cursor(tree) as cursor:
        for first, last in sorted(bounds):
            cursor.set_range(first)
            key = cursor.key()
            while key and key <= last:
                cursor.delete()
                key = cursor.key()
