"""The audit of one store: what was accepted and what became of it, noted in the commit that does it, then handed on.

Pages stand in the store until they are in files, where anybody can read them; the sink writes these. What is handed
on and not yet trimmed when the broker dies is known by its number. While the sink cannot write, the pages wait in the
store: nothing is acknowledged without its record, and none is given up. A store that runs full so refuses sends, as
any full store does, and goes on settling.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from tandembus.errors import StoreFull, StoreUnavailable
from tandembus.store.audit_trail import BEGAN, DROPPED, AuditTrail, page_of
from tandembus.store.messaging_store import BLOCK_SIZE, LANES, AuditPage, Changes, MessagingStore
from tandembus.tasks import uninterrupted

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

log = logging.getLogger("tandembus.broker")

EXPORT_INTERVAL_S: Final = 1.0
EXPORT_BYTES: Final = 1 << 20
"""Pages handed on at once: they are in memory meanwhile."""
LAST_RETRY_S: Final = 30.0


class AuditSink(Protocol):
    """Where records go for people and programs to read. Called beside the loop."""

    def last_number(self, store_id: bytes) -> int:
        """Of the newest page of this store that is there; 0 where there is none."""

    def append(self, store_id: bytes, pages: Sequence[AuditPage]) -> None:
        """Durably; raises OSError when that is not certain, and is then asked again with the same pages."""

    def finish(self, store_id: bytes, number: int) -> None:
        """Note durably that the records end with this one, until `last_number` is asked for again. Raises OSError."""


class Audit:
    def __init__(self, broker: MessageBroker, sink: AuditSink) -> None:
        self._broker = broker
        self._sink = sink
        self._next_number = 1
        self._exported: int | None = None
        """The newest page that is in the sink; None: to be asked."""
        self._trimmed = 0
        self._waiting: AuditTrail | None = None
        """What is to be said of the beginning, where the store had no room for it."""
        self._is_new = True
        """No store was opened yet, so nobody is writing to the sink."""
        self._exporting = asyncio.Lock()

    @property
    def last_number(self) -> int:
        """Of the newest record that is durable, in the store or in the sink by now."""
        return self._next_number - 1

    async def opened(self, store: MessagingStore) -> None:
        """A life of the store begins, and nobody else has it yet. The records go on where they ended, or begin anew if
        the store was open without an audit in between: what is there by then was accepted without a record."""
        newest = await store.newest_audit_page()
        self._next_number = 1 if newest is None else newest.number + 1
        self._exported, self._trimmed = None, 0
        trail = AuditTrail()
        is_behind = self._is_new and await self._goes_on_behind_files(store)
        self._is_new = False
        if is_behind or newest is None or newest.epoch != store.epoch - 1:
            await _note_beginning(store, trail)
        self._waiting = trail
        changes = Changes()
        self.write_page(changes, store.epoch)
        try:
            await store.commit(changes)
            self.committed(changes)
        except StoreFull:
            log.warning("the audit has no room to begin: its first record comes with the next commit")

    async def _goes_on_behind_files(self, store: MessagingStore) -> bool:
        """Whether the store is an older copy than the records in the sink: no number is used twice, or new records
        would be taken for those that are there."""
        try:
            last = await asyncio.to_thread(self._sink.last_number, store.store_id)
        except OSError:
            return False  # told when records are handed on
        if last < self._next_number:
            return False
        log.warning("the messaging store is older than its audit: records go on behind number %d", last)
        self._next_number = last + 1
        return True

    def write_page(self, changes: Changes, epoch: int) -> None:
        """Into a commit: whatever was noted for it."""
        trails = [trail for trail in (self._waiting, changes.audit) if trail is not None]
        if changes.audit is not None and changes.audit.more is not None:
            trails.append(changes.audit.more)
        data = page_of(trails)
        changes.audit_page = None
        if data or self._waiting is not None:
            now_ms = self._broker.clock.now_ms()
            changes.audit_page = AuditPage(self._next_number, epoch, now_ms, data)

    def committed(self, changes: Changes) -> None:
        if changes.audit_page is not None:
            self._next_number += 1
            self._waiting = None

    def note_dropped(self, key: int, changes: Changes) -> None:
        """An entity's fragment goes with all that it holds."""
        trail = changes.audit or AuditTrail()
        changes.audit = trail
        for lane in LANES:
            trail.closes(DROPPED, key, lane, 0, 0)

    # Handing on.

    async def run(self) -> None:
        delay = EXPORT_INTERVAL_S
        while True:
            await asyncio.sleep(delay)
            try:
                await self.export()
                delay = EXPORT_INTERVAL_S
            except StoreUnavailable:
                delay = EXPORT_INTERVAL_S  # it is opened again, and the pages are still there
            except OSError as error:
                delay = min(delay * 2, LAST_RETRY_S)
                log.error("audit records cannot be written, and wait in the messaging store: %s", error)

    @uninterrupted
    async def export(self) -> None:
        """Hand on all pages that are durable by now. A thread that writes does not stop when its caller does: whoever
        comes next waits for it, and goes on behind it."""
        async with self._exporting:
            store = self._broker.store
            if self._exported is None:
                self._exported = await asyncio.to_thread(self._sink.last_number, store.store_id)
            while pages := await store.audit_pages(self._exported + 1, EXPORT_BYTES):
                await asyncio.to_thread(self._sink.append, store.store_id, pages)
                if self._broker.store is not store:
                    return
                self._exported = pages[-1].number
            await self._trim(store)

    async def finish(self) -> None:
        """Hand on the rest, and note that it is all: the store is closed in order."""
        await self.export()
        if self._exported and self._exported == self._next_number - 1:
            await asyncio.to_thread(self._sink.finish, self._broker.store.store_id, self._exported)
        self._is_new = True

    async def _trim(self, store: MessagingStore) -> None:
        """What is in the sink need not be in the store; but for the newest, by which the number is known."""
        end = min(self._exported or 0, self._next_number - 1)
        while self._trimmed < end:
            left = await store.audit_pages(0, 0)
            if not left or left[0].number >= end:
                self._trimmed = end
                return
            changes = Changes()
            changes.trimmed_audit = end
            await self._broker.commit_alone(changes)


async def _note_beginning(store: MessagingStore, trail: AuditTrail) -> None:
    for head in await store.heads():
        for lane in LANES:
            blocks = await store.blocks(head.fragment, lane)
            if blocks:
                next_number = blocks[-1].block * BLOCK_SIZE + blocks[-1].given
                live_count = sum([block.live_count for block in blocks])
                trail.closes(BEGAN, head.fragment, lane, next_number, live_count)
