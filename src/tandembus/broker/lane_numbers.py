"""The numbers of a lane as they are given out, parked, settled and swept, in blocks that become records.

It keeps bits and counts, which `lane_blocks.py` looks up; what of it is in memory, ready to be handed over, is in
`lane.py`, and what may happen to a message is the fragment's to decide.

A subscription's main lane has a `source`, the topic's: it uses the numbers and bodies of that one, and every number
that did not match counts as settled from the start. The source counts the lanes that still have a number; when
the last of them has settled it, it is settled there, and its body goes as in any other lane.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tandembus.broker.block import Block
from tandembus.broker.lane_blocks import LaneBlocks
from tandembus.broker.references import References
from tandembus.broker.session_columns import TailColumn
from tandembus.store.messaging_store import NEVER, BlockRecord, BodyRange, Changes, Due, Place

MAX_BLOCKS_DROPPED: Final = 4
"""Blocks whose bodies are deleted in one commit: the rest goes with the next ones."""
LARGE_BODY_BYTES: Final = 16384
"""A settled body of this size goes at once: its pages are its own, so deleting it touches no neighbour."""


class LaneNumbers(LaneBlocks):
    def __init__(
        self, fragment: i64, code: i64, block_size: i64, sequence_base: i64, source: LaneNumbers | None
    ) -> None:
        super().__init__(fragment, code, block_size)
        self.source: Final = source
        self.body_fragment: i64 = fragment if source is None else source.fragment
        """Where its bodies are stored."""
        self.sequence_base: i64 = sequence_base
        """The fragment's index in the top 16 bits: what makes a number a sequence number."""
        self.path: str = ""
        """The entity's name, for the audit."""
        self.is_backlog: bool = False
        """Of a backlog queue: its messages say which entity they are for."""
        self.ignores_key_case: bool = False
        """Of the columns: whether SessionIds that differ in case only are of one session."""
        self.newest_enqueued_at: i64 = 0
        self.given_count: i64 = 0
        self.settled_count: i64 = 0
        """Since the last commit: numbers given out, and messages that went."""
        self.column: TailColumn | None = None
        """Which sessions the newest block's messages belong to, where somebody receives session by session."""
        self._fresh_expiry: i64 = NEVER
        """The earliest expiry among the numbers that are not durable yet, which no sweep can look at."""
        self._touched: list[Block] = []
        self._references: Final = References(block_size)
        """Of a topic's lane: how many subscriptions still have each number."""

    def reserved_again(self) -> None:
        """After loading: what the ledger holds is parked. A block that was rebuilt from its bodies knows nothing of it;
        what is gone is not reserved."""
        for owner in self.ledger.owners.values():
            for one in owner.numbers(0, self.next_number, self._block_size, self.next_number):
                if not self.is_live(one):
                    self.ledger.remove(owner, one)
                    self.ledger.touch(owner)
                elif not self.is_parked(one):
                    self.park(one, True)

    def _touch(self, block: Block) -> None:
        if not block.is_touched:
            block.is_touched = True
            self._touched.append(block)

    def give_number(self, size_bytes: i64, expires_at: i64) -> i64:
        """The next number, for a message that is about to be stored as available."""
        number = self.next_number
        block = self._block_for(number)
        self._touch(block)
        self.next_number = number + 1
        block.given += 1
        block.live_count += 1
        block.live_bytes += size_bytes
        block.expire_from(expires_at)
        if expires_at != NEVER and (self._fresh_expiry == NEVER or expires_at < self._fresh_expiry):
            self._fresh_expiry = expires_at
        self.live_count += 1
        self.live_bytes += size_bytes
        self.given_count += 1
        return number

    def promise(self, session_id: str | None, changes: Changes) -> i64:
        """The next number, for a message of this session that may come later. Until then nobody has it."""
        number = self.give_number(0, NEVER)
        if self.column is not None:
            self.column.add(number, session_id)
        self.settle(number, 0, changes)
        self.given_count -= 1
        self.settled_count -= 1
        return number

    def redeem(self, number: i64, size_bytes: i64) -> None:
        """The message that was promised this number is about to be stored."""
        block = self._blocks.get(int(number // self._block_size))
        if block is None:
            block = self._block_for(number)
            while block.given < self._block_size:
                block.settle(block.given)
                block.given += 1
        elif self._is_complete(block):
            self._complete.remove(block)
        self._touch(block)
        block.unsettle(number % self._block_size)
        block.live_count += 1
        block.live_bytes += size_bytes
        self.live_count += 1
        self.live_bytes += size_bytes
        self.given_count += 1
        self.arriving.add(int(number))

    def join(self, number: i64, size_bytes: i64, expires_at: i64) -> None:
        """This lane gets a message of its source; those between it and the one before did not match."""
        source = self.source
        assert source is not None
        assert number >= self.next_number
        newest = self._blocks.get(int((self.next_number - 1) // self._block_size))
        if newest is not None and newest.index != number // self._block_size:
            self._fill(newest, self._block_size)
        self._fill(self._block_for(number), number % self._block_size)
        self.next_number = number
        self.give_number(size_bytes, expires_at)
        source.refer(number)

    def _fill(self, block: Block, end: i64) -> None:
        """Numbers that passed this lane by."""
        if block.given >= end:
            return
        self._touch(block)
        while block.given < end:
            block.settle(block.given)
            block.given += 1
        if self._is_complete(block):
            self._complete.append(block)

    def refer(self, number: i64) -> None:
        """One more subscription has this number."""
        self._references.set(number, self._references.of(number) + 1)

    def unrefer(self, number: i64) -> None:
        """A subscription that is going had this number: if nobody else has it, it is an orphan."""
        left = self._references.of(number) - 1
        if left >= 0:
            self._references.set(number, left)

    def refer_all(self) -> None:
        """After loading: tell the source what this lane still has, or keep it where it is the source itself."""
        source = self if self.source is None else self.source
        for block in self._blocks.values():
            offset: i64 = 0
            while offset < block.given:
                if not block.is_settled(offset):
                    source.refer(block.index * self._block_size + offset)
                offset += 1

    def release(self, number: i64, size_bytes: i64, changes: Changes) -> None:
        """A subscription is done with this number; with the last one it is settled."""
        left = self._references.of(number) - 1
        if left < 0 or not self.is_live(number):
            return  # settled as an orphan already
        self._references.set(number, left)
        if left == 0:
            self.settle(number, size_bytes, changes)

    def orphans(self, start: i64, count: i64) -> list[int]:
        """Up to `count` numbers that no subscription has (any more), from `start` on; `scanned_to` says how far."""
        found: list[int] = []
        for number in self.scan(start, count, True):
            if self._references.of(number) == 0:
                found.append(number)
        return found

    def show(self) -> None:
        """What was given out so far is durable: everybody may see it."""
        self.visible_end = self.next_number
        if self.arriving:
            self.arriving.clear()
        if self.column is not None:
            self.column.show()
        self._fresh_expiry = NEVER

    def take_back_number(self, number: i64, size_bytes: i64) -> None:
        """The newest number was never stored and nobody has seen it."""
        assert number == self.next_number - 1
        if self.column is not None:
            self.column.take_back(number)
        block = self._block_for(number)
        self._touch(block)
        if block.is_parked(number % self._block_size):
            self.unpark(number, False)
        self.next_number = number
        block.given -= 1
        block.live_count -= 1
        block.live_bytes -= size_bytes
        self.live_count -= 1
        self.live_bytes -= size_bytes
        self.given_count -= 1
        if block.given == 0 and int(block.index) - 1 in self._blocks:
            # An empty record here would say that all numbers of the block before were given out. Only where that one is
            # gone does this one stay: somebody must carry the next number.
            del self._blocks[int(block.index)]

    def use_up(self, number: i64, size_bytes: i64, changes: Changes) -> None:
        """Given out, but never stored: nobody will ever have it. In the source, unless its last lane has seen to it."""
        if self.is_live(number):
            if self.is_parked(number):
                self.unpark(number, False)
            self.settle(number, size_bytes, changes)

    def park(self, number: i64, is_deferred: bool) -> None:
        block = self._block_for(number)
        self._touch(block)
        block.park(number % self._block_size)
        if is_deferred:
            block.deferred_count += 1
            self.deferred_count += 1
        else:
            block.scheduled_count += 1
            self.scheduled_count += 1

    def unpark(self, number: i64, is_deferred: bool) -> None:
        block = self._block_for(number)
        self._touch(block)
        block.unpark(number % self._block_size)
        if is_deferred:
            block.deferred_count -= 1
            self.deferred_count -= 1
        else:
            block.scheduled_count -= 1
            self.scheduled_count -= 1

    def settle(self, number: i64, size_bytes: i64, changes: Changes) -> None:
        """This number's message is gone with the coming commit. A parked one is unparked first."""
        block = self._block_for(number)
        self._touch(block)
        block.settle(number % self._block_size)
        block.live_count -= 1
        block.live_bytes -= size_bytes
        self.live_count -= 1
        self.live_bytes -= size_bytes
        self.settled_count += 1
        assert block.live_count >= 0, "more was settled than was there"
        if block.live_count == 0 and block.live_bytes != 0:
            # The size of a damaged body was only guessed: with the last message the guess is made good.
            self.live_bytes -= block.live_bytes
            block.live_bytes = 0
        source = self.source
        if source is not None:
            source.release(number, size_bytes, changes)
        elif size_bytes >= LARGE_BODY_BYTES:
            changes.dropped_bodies.append(BodyRange(int(self.fragment), int(self.code), int(number), int(number)))
        else:
            block.thin_debt += 1
        if self._is_complete(block):
            self._complete.append(block)

    def emit(self, changes: Changes) -> None:
        """Write what changed since the last commit. Complete blocks go, but not the newest: it has the next number."""
        self._drop_complete(changes)
        self._write_touched(changes)
        self.ledger.emit(changes)
        if self.column is not None:
            self.column.emit(self.next_number, changes)

    def emit_again(self, changes: Changes) -> None:
        """Numbers were taken back after they were written into these changes: the later record of a block stands alone.
        A store may put records in any order, so there must never be two of one block."""
        again: list[int] = []
        for block in self._touched:
            again.append(int(block.index))
        kept: list[BlockRecord] = []
        for record in changes.blocks:
            if record.fragment != self.fragment or record.lane != self.code or record.block not in again:
                kept.append(record)
        changes.blocks = kept
        changes.expiries = [due for due in changes.expiries if not self._is_gone(due)]
        self._write_touched(changes)
        if self.column is not None:
            self.column.emit_again(self.next_number, changes)

    def _is_gone(self, due: Due) -> bool:
        """Whether this is the expiry of a block of ours that is no longer there."""
        is_ours = due.fragment == self.fragment and due.lane == self.code
        return is_ours and due.number not in self._blocks

    def _write_touched(self, changes: Changes) -> None:
        for block in self._touched:
            block.is_touched = False
            if self._blocks.get(int(block.index)) is not block:
                continue
            if block.earliest_expiry != block.indexed_expiry:
                self._index_expiry(block, changes)
            changes.blocks.append(block.record(self.fragment, self.code))
        self._touched = []

    def _drop_complete(self, changes: Changes) -> None:
        dropped = 0
        newest = self._newest_block()
        for _ in range(len(self._complete)):
            block = self._complete.popleft()
            if block.index == newest:
                self._complete.append(block)
                continue
            self._drop_block(block, changes)
            dropped += 1
            if dropped == MAX_BLOCKS_DROPPED:
                return

    def _newest_block(self) -> i64:
        return (self.next_number - 1) // self._block_size

    def _drop_block(self, block: Block, changes: Changes) -> None:
        del self._blocks[int(block.index)]
        self._references.drop_block(block.index)
        first = block.index * self._block_size
        fragment, lane = int(self.fragment), int(self.code)
        if self.source is None:
            changes.dropped_bodies.append(BodyRange(fragment, lane, int(first), int(first + self._block_size - 1)))
        changes.dropped_blocks.append(Place(fragment, lane, int(block.index)))
        if self.column is not None:
            changes.dropped_columns.append(BodyRange(fragment, lane, int(block.index), int(block.index)))
        block.earliest_expiry = 0
        if block.indexed_expiry != 0:
            self._index_expiry(block, changes)

    def _index_expiry(self, block: Block, changes: Changes) -> None:
        fragment, lane, index = int(self.fragment), int(self.code), int(block.index)
        if block.indexed_expiry != 0:
            changes.dropped_expiries.append(Due(int(block.indexed_expiry), fragment, lane, index))
        if block.earliest_expiry != 0:
            changes.expiries.append(Due(int(block.earliest_expiry), fragment, lane, index))
        block.indexed_expiry = block.earliest_expiry

    def has_more_to_drop(self) -> bool:
        count = len(self._complete)
        newest = self._blocks.get(int(self._newest_block()))
        if newest is not None and self._is_complete(newest):
            count -= 1
        return count > 0

    def expire_from(self, number: i64, expires_at: i64) -> None:
        """A message that was locked is available again: its time to live counts again, too."""
        block = self._block_for(number)
        if block.is_later(expires_at):
            self._touch(block)
        block.expire_from(expires_at)

    def is_indexed(self, index: i64, expires_at: i64) -> bool:
        """Whether the store's due index names this block for this time. An entry that it does not know of is left
        over from a damaged record."""
        block = self._blocks.get(int(index))
        return block is not None and block.indexed_expiry == expires_at

    def begin_sweep(self, index: i64) -> list[int]:
        """The numbers of a block to be looked at: available ones. Those locked are judged when their lock ends."""
        block = self._blocks.get(int(index))
        if block is None:
            return []
        block.newer_expiry = self._fresh_expiry
        found: list[int] = []
        number = max(index * self._block_size, i64(1))
        end = min(index * self._block_size + block.given, self.visible_end)
        while number < end:
            if self.is_waiting(number):
                found.append(int(number))
            number += 1
        return found

    def end_sweep(self, index: i64, earliest_expiry: i64) -> None:
        """What the sweep found for next time, and what has come to the block meanwhile."""
        block = self._blocks.get(int(index))
        if block is not None:
            self._touch(block)
            block.earliest_expiry = block.newer_expiry
            block.expire_from(earliest_expiry)

    def thin(self, changes: Changes, least_debt: i64) -> bool:
        """Delete settled bodies from one block that stays: because of stragglers, or because it is the newest. Returns
        whether there was one."""
        if self.source is not None:
            return False
        for index in self._blocks:
            block = self._blocks[index]
            if block.thin_debt >= least_debt:
                self._thin_block(block, changes)
                return True
        return False

    def _thin_block(self, block: Block, changes: Changes) -> None:
        block.thin_debt = 0
        first = block.index * self._block_size
        offset: i64 = 0
        start: i64 = -1
        while offset <= block.given:
            is_dead = offset < block.given and block.is_settled(offset)
            if is_dead and start < 0:
                start = offset
            elif not is_dead and start >= 0:
                changes.dropped_bodies.append(
                    BodyRange(int(self.fragment), int(self.code), int(first + start), int(first + offset - 1))
                )
                start = -1
            offset += 1

    def begin_column(self) -> None:
        """From now on it is noted which sessions the messages belong to; nobody asks for those of before."""
        if self.column is None:
            block = self.next_number // self._block_size
            self.column = TailColumn(self.fragment, self.code, self._block_size, block, [], self.ignores_key_case)

    def column_in_memory(self, index: i64) -> bytes | None:
        column = self.column if self.source is None else self.source.column
        return None if column is None else column.entries_of(index)
