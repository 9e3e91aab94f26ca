"""Session columns: which sessions the messages of a block belong to, ten bytes for each message.

The column of a full block is a record of the store; that of the lane's newest block grows here. So the messages of one
session are found without reading any other's, and the next session behind ten million messages of another within a
second.
"""

from __future__ import annotations

import hashlib
from typing import Final, final

from mypy_extensions import i64

from tandembus.message import compared
from tandembus.store.messaging_store import SESSION_ENTRY_BYTES, SESSION_HASH_BYTES, Changes, SessionColumn


def session_hash(session_id: str) -> bytes:
    """Finds candidates; whether they belong to the session is for their bodies to say. The id is as it is compared."""
    return hashlib.blake2b(session_id.encode(), digest_size=SESSION_HASH_BYTES).digest()


def column_entry(hash_of_id: bytes, offset: i64) -> bytes:
    return hash_of_id + bytes((int(offset >> 8), int(offset & 255)))


def column_of(entries: list[bytes]) -> bytes:
    return b"".join(sorted(entries))


def hash_at(entries: bytes, position: i64) -> bytes:
    at = position * SESSION_ENTRY_BYTES
    return entries[at : at + SESSION_HASH_BYTES]


def offset_at(entries: bytes, position: i64) -> i64:
    at = position * SESSION_ENTRY_BYTES + SESSION_HASH_BYTES
    return i64(entries[at]) << 8 | i64(entries[at + 1])


def entry_count(entries: bytes) -> i64:
    return len(entries) // SESSION_ENTRY_BYTES


def first_of(entries: bytes, hash_of_id: bytes) -> i64:
    """Position of the first entry of this hash, or of where it would stand."""
    low: i64 = 0
    high = entry_count(entries)
    while low < high:
        middle = (low + high) // 2
        if hash_at(entries, middle) < hash_of_id:
            low = middle + 1
        else:
            high = middle
    return low


def end_of_run(entries: bytes, position: i64) -> i64:
    """Behind the last entry that has the hash of the one at `position`. A block of one session takes one look."""
    hash_of_id = hash_at(entries, position)
    end = entry_count(entries)
    if hash_at(entries, end - 1) == hash_of_id:
        return end
    position += 1
    while hash_at(entries, position) == hash_of_id:
        position += 1
    return position


def offsets_of(entries: bytes, hash_of_id: bytes) -> list[int]:
    """The offsets in the block that may belong to the session, in order."""
    offsets: list[int] = []
    position = first_of(entries, hash_of_id)
    end = entry_count(entries)
    while position < end and hash_at(entries, position) == hash_of_id:
        offsets.append(int(offset_at(entries, position)))
        position += 1
    return offsets


@final
class TailColumn:
    """The column of a lane's newest block, and those of blocks that were filled by the commit under way."""

    def __init__(
        self, fragment: i64, lane: i64, block_size: i64, block: i64, entries: list[bytes], ignores_case: bool
    ) -> None:
        self._fragment: i64 = fragment
        self._lane: i64 = lane
        self._block_size: i64 = block_size
        self._ignores_case: bool = ignores_case
        self.block: i64 = block
        self._entries: list[bytes] = entries
        self._numbers: list[int] = []
        """Of the entries that are not durable yet: they may be taken back."""
        self._filled: dict[int, list[bytes]] = {}

    def add(self, number: i64, session_id: str | None) -> None:
        """A message takes its number. One without a session only moves on."""
        block = number // self._block_size
        if block != self.block:
            self._move_to(block)
        if session_id is not None:
            hash_of_id = session_hash(compared(session_id, self._ignores_case))
            self._entries.append(column_entry(hash_of_id, number % self._block_size))
            self._numbers.append(int(number))

    def _move_to(self, block: i64) -> None:
        self._filled[int(self.block)] = self._entries
        self._entries = []
        self.block = block

    def take_back(self, number: i64) -> None:
        """The newest number was never stored."""
        if self._numbers and self._numbers[-1] == number:
            self._numbers.pop()
            block = number // self._block_size
            if block != self.block:
                self._entries = self._filled.pop(int(block))
                self.block = block
            self._entries.pop()

    def emit(self, next_number: i64, changes: Changes) -> None:
        """Write the columns of the blocks that are given out completely."""
        block = next_number // self._block_size
        if block != self.block:
            self._move_to(block)
        for filled in self._filled:
            column = SessionColumn(int(self._fragment), int(self._lane), filled, column_of(self._filled[filled]))
            changes.columns.append(column)

    def emit_again(self, next_number: i64, changes: Changes) -> None:
        """Numbers were taken back: what was written of blocks that are not full now was too early."""
        first_open = next_number // self._block_size
        if self.block != first_open:
            self._entries = self._filled.pop(int(first_open), [])
            self.block = first_open
        self._filled = {block: self._filled[block] for block in self._filled if block < first_open}
        kept: list[SessionColumn] = []
        for column in changes.columns:
            is_ours = column.fragment == self._fragment and column.lane == self._lane
            if not is_ours or column.block < first_open:
                kept.append(column)
        changes.columns = kept

    def show(self) -> None:
        """What was added is durable."""
        self._numbers = []
        if self._filled:
            self._filled = {}

    def entries_of(self, block: i64) -> bytes | None:
        """The column of this block, where it is here and not in the store."""
        if block == self.block:
            return column_of(self._entries)
        filled = self._filled.get(int(block))
        return column_of(filled) if filled is not None else None


@final
class Run:
    """Entries of one hash in the column of a block whose numbers are looked at up to `end`."""

    __slots__ = ("end", "entries", "first", "position", "position_end")

    def __init__(self, entries: bytes, position: i64, position_end: i64, first: i64, end: i64) -> None:
        self.entries: Final = entries
        self.position: i64 = position
        self.position_end: i64 = position_end
        self.first: i64 = first
        self.end: i64 = end
