"""The blocks of a lane: which numbers are live, settled, parked or held, and how to find them.

It only knows; `lane_numbers.py` changes what it knows.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import i64

from tandembus.broker.block import Block, block_of
from tandembus.broker.ledger import Ledger
from tandembus.broker.locks import MessageLock
from tandembus.store.messaging_store import NEVER, BlockRecord


class LaneBlocks:
    def __init__(self, fragment: i64, code: i64, block_size: i64) -> None:
        self.fragment: i64 = fragment
        self.code: i64 = code
        self.next_number: i64 = 1
        self.visible_end: i64 = 1
        """Numbers from here on are given out but not durable yet: nobody may see them."""
        self.live_count: i64 = 0
        self.deferred_count: i64 = 0
        self.scheduled_count: i64 = 0
        self.live_bytes: i64 = 0
        self.held: dict[int, MessageLock] = {}
        self.ledger: Final = Ledger(fragment, code, block_size)
        self.arriving: Final[set[int]] = set()
        """Promised numbers whose messages come with the commit under way: nobody may see them before its end."""
        self._block_size: i64 = block_size
        self._blocks: dict[int, Block] = {}
        self._complete: deque[Block] = deque()
        self._scanned_to: i64 = 0

    def load_blocks(self, records: list[BlockRecord]) -> None:
        for record in records:
            block = block_of(record)
            self._blocks[record.block] = block
            self.live_count += block.live_count
            self.deferred_count += block.deferred_count
            self.scheduled_count += block.scheduled_count
            self.live_bytes += block.live_bytes
            if self._is_complete(block):
                self._complete.append(block)
        if records:
            newest = records[-1]
            self.next_number = newest.block * self._block_size + newest.given
            self.visible_end = self.next_number

    def is_live(self, number: i64) -> bool:
        block = self._blocks.get(int(number // self._block_size))
        if block is None or number >= self.next_number:
            return False
        offset = number % self._block_size
        return offset < block.given and not block.is_settled(offset)

    def is_parked(self, number: i64) -> bool:
        block = self._blocks.get(int(number // self._block_size))
        return block is not None and block.is_parked(number % self._block_size)

    def is_reserved(self, number: i64) -> bool:
        return len(self.ledger.owners) > 0 and self.ledger.owner_of(number) is not None

    def is_free(self, number: i64) -> bool:
        """Durable, not settled, and nobody's at the moment. To be asked again after every wait."""
        if not 0 < number < self.visible_end or not self.is_live(number):
            return False
        return int(number) not in self.held and not self.is_arriving(number)

    def is_arriving(self, number: i64) -> bool:
        return len(self.arriving) > 0 and int(number) in self.arriving

    def is_promised(self, number: i64) -> bool:
        """Whether it was given out and is no message's: it was promised, or its message is gone."""
        return 0 < number < self.visible_end and not self.is_live(number)

    def is_waiting(self, number: i64) -> bool:
        """Available and nobody's: neither locked nor part of a change under way."""
        return self.is_free(number) and not self.is_parked(number)

    def is_resting(self, number: i64) -> bool:
        """Parked (deferred or scheduled) and nobody's."""
        return self.is_free(number) and self.is_parked(number)

    def _block_for(self, number: i64) -> Block:
        index = number // self._block_size
        block = self._blocks.get(int(index))
        if block is None:
            block = Block(index)
            self._blocks[int(index)] = block
            if index == 0:
                # Number 0 is never given: clients start their browsing at 1.
                block.given = 1
                block.settle(0)
        return block

    def _is_complete(self, block: Block) -> bool:
        return block.live_count == 0 and block.given == self._block_size

    def typical_size(self, number: i64) -> i64:
        """The mean size in its block, for a message that is not at hand; the block's last one makes it good."""
        block = self._block_for(number)
        return block.live_bytes // max(block.live_count, i64(1))

    @property
    def scanned_to(self) -> i64:
        return self._scanned_to

    @property
    def block_size(self) -> i64:
        return self._block_size

    def scan(self, start: i64, count: i64, only_available: bool) -> list[int]:
        """Up to `count` live numbers from `start` on; `_scanned_to` says where the search ended."""
        found: list[int] = []
        at = max(start, i64(1))
        while at < self.visible_end and len(found) < count:
            index = at // self._block_size
            block = self._blocks.get(int(index))
            if block is None or block.live_count == 0:
                at = self._next_block(index + 1) * self._block_size
                continue
            offset = at % self._block_size
            is_used_up = only_available and block.live_count == block.deferred_count + block.scheduled_count
            if offset >= block.given or is_used_up:
                at = self._next_block(index + 1) * self._block_size
                continue
            is_wanted = not only_available or (not block.is_parked(offset) and int(at) not in self.held)
            if is_wanted and not block.is_settled(offset) and not self.is_arriving(at):
                found.append(int(at))
            at += 1
        self._scanned_to = min(at, self.visible_end)
        return found

    def available(self, count: i64, last: i64) -> tuple[int, int]:
        """About how many messages wait up to a number, and their size: enough of them to make up `count`."""
        found: i64 = 0
        size: i64 = 0
        for index in sorted(self._blocks):
            if i64(index) * self._block_size > last or found >= count:
                break
            block = self._blocks[index]
            waiting = block.live_count - block.deferred_count - block.scheduled_count
            if waiting > 0:
                found += waiting
                size += block.live_bytes * waiting // block.live_count
        return int(found), int(size)

    def _next_block(self, index: i64) -> i64:
        """The first block at or after `index`: a long-lived queue has long gaps between its stragglers."""
        if int(index) in self._blocks:
            return index
        nearest: i64 = -1
        for candidate in self._blocks:
            if candidate >= index and (nearest < 0 or candidate < nearest):
                nearest = candidate
        return nearest if nearest >= 0 else self.visible_end // self._block_size + 1

    def first_held(self) -> i64:
        """The lowest number that somebody has taken and may give back; 0: none. What is parked stays where it is."""
        first: i64 = 0
        for number in self.held:
            if (first == 0 or number < first) and not self.is_parked(number):
                first = number
        return first

    def oldest(self) -> i64:
        """The first number that is neither settled nor parked, whether or not somebody has it; 0: none."""
        first: i64 = -1
        for index in self._blocks:
            block = self._blocks[index]
            is_used_up = block.live_count == block.deferred_count + block.scheduled_count
            if not is_used_up and (first < 0 or index < first):
                first = index
        if first < 0:
            return 0
        block = self._blocks[int(first)]
        offset: i64 = 0
        while offset < block.given:
            number = first * self._block_size + offset
            if not block.is_settled(offset) and not block.is_parked(offset):
                return number if number < self.visible_end else 0
            offset += 1
        return 0

    def live_blocks(self, number: i64, count: i64) -> list[int]:
        """Up to `count` blocks that have live messages, from the one of `number` on."""
        found: list[int] = []
        index = number // self._block_size
        while index * self._block_size < self.visible_end and len(found) < count:
            block = self._blocks.get(int(index))
            if block is None:
                index = self._next_block(index + 1)
                continue
            if block.live_count > 0:
                found.append(int(index))
            index += 1
        return found

    def live_in_block(self, index: i64) -> list[int]:
        """The live, durable numbers of a block, whatever their state."""
        first = index * self._block_size
        numbers = self.scan(first, self._block_size, False)
        return [number for number in numbers if number < first + self._block_size]

    def next_live(self, number: i64, count: i64) -> list[int]:
        """Up to `count` live numbers from `number` on, whatever their state: for browsing."""
        return self.scan(number, count, False)

    def next_available(self, number: i64, count: i64) -> list[int]:
        """Up to `count` available, unheld numbers from `number` on: for deleting many."""
        return self.scan(number, count, True)

    def held_in_block(self, index: i64) -> list[MessageLock]:
        found: list[MessageLock] = []
        number = index * self._block_size
        end = number + self._block_size
        while number < end:
            lock = self.held.get(int(number))
            if lock is not None:
                found.append(lock)
            number += 1
        return found

    def due_among(self, numbers: list[int], now_ms: i64) -> list[int]:
        """Those of blocks in which something may have expired."""
        due: list[int] = []
        for number in numbers:
            block = self._blocks.get(int(number // self._block_size))
            if block is not None and block.earliest_expiry != NEVER and block.earliest_expiry <= now_ms:
                due.append(number)
        return due
