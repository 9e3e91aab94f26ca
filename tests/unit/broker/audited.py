"""What an audit says, against what the store holds: the same messages, place by place, after every commit."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tandembus.store.audit_lines import KINDS
from tandembus.store.audit_trail import BEGAN, DROPPED, DUPLICATE, FIRST_CLOSING, PUBLISHED, AuditEntry, entries_in
from tandembus.store.memory import MemoryDisk
from tandembus.store.messaging_store import AuditPage, Changes

Lane = tuple[int, int]


class KeepingSink:
    """Keeps what it is given, each number once."""

    def __init__(self) -> None:
        self.pages: dict[int, AuditPage] = {}
        self.error: OSError | None = None
        """What writing raises, while it is set."""
        self.finished: int | None = None
        self.is_writing = threading.Event()
        self.may_write = threading.Event()
        self.may_write.set()

    def last_number(self, store_id: bytes) -> int:
        self.finished = None
        return max(self.pages, default=0)

    def append(self, store_id: bytes, pages: Sequence[AuditPage]) -> None:
        self.is_writing.set()
        self.may_write.wait()
        if self.error is not None:
            raise self.error
        for page in pages:
            assert page.number not in self.pages, "handed on twice"
            self.pages[page.number] = page

    def finish(self, store_id: bytes, number: int) -> None:
        if self.error is not None:
            raise self.error
        assert number == max(self.pages)
        self.finished = number

    def entries(self, disk: MemoryDisk) -> list[AuditEntry]:
        """All there is, also what still stands in the store."""
        pages = {**disk.audit_pages, **self.pages}
        assert sorted(pages) == list(range(1, len(pages) + 1)), "numbers without a gap"
        return [entry for number in sorted(pages) for entry in entries_in(pages[number].data)]

    def kinds(self, disk: MemoryDisk) -> list[str]:
        """What happened, in order."""
        return [KINDS[entry.kind] for entry in self.entries(disk)]


class Comparison:
    """Made behind every commit to a disk, so a crash behind any of them finds both alike."""

    def __init__(self, disk: MemoryDisk, topics: Sequence[int] = ()) -> None:
        self._disk = disk
        self._topics = topics
        """Whose own main lane is no place of messages, but for scheduled ones."""
        self.places: dict[Lane, set[int]] = {}
        self.disagreement: str | None = None
        self.commit_count = 0
        disk.after_commit = self._compare

    def _compare(self, changes: Changes) -> None:
        self.commit_count += 1
        for entry in entries_in(changes.audit_page.data) if changes.audit_page is not None else []:
            self._include(entry)
        for lane in {(fragment, lane) for fragment, lane, _ in self._disk.blocks} | set(self.places):
            live, noted = self._live(lane), len(self.places.get(lane, ()))
            if live != noted and not self.disagreement:
                self.disagreement = f"lane {lane} has {live} messages, and {noted} by the audit"

    def _include(self, entry: AuditEntry) -> None:
        places = self.places.setdefault((entry.fragment, entry.lane), set())
        if entry.kind == DROPPED:
            places.clear()
        elif entry.kind in (DUPLICATE, PUBLISHED, BEGAN):
            return
        elif entry.kind < FIRST_CLOSING:
            self._check(entry.number not in places, "taken twice", entry)
            places.add(entry.number)
        else:
            self._check(entry.number in places, "left, and never taken", entry)
            places.discard(entry.number)

    def _check(self, is_well: bool, text: str, entry: AuditEntry) -> None:
        if not is_well and not self.disagreement:
            self.disagreement = f"{text}: number {entry.number} of {entry.fragment}, {KINDS[entry.kind]}"

    def _live(self, lane: Lane) -> int:
        records = [record for key, record in self._disk.blocks.items() if key[:2] == lane]
        if lane[0] in self._topics and lane[1] == 0:
            return sum(record.scheduled_count for record in records)
        return sum(record.live_count for record in records)
