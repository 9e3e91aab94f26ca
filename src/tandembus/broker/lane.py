"""A lane: one ordered stock of messages in a fragment (the queue itself, its dead letters).

`window_end` splits the numbers. Below it, every available message is in `ready`, in `returned` (available again, its
body not in memory) or in `held` (locked, or part of a change that is being committed). At or above it nothing is in
memory: a queue may be far larger than that.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import final

from mypy_extensions import i64

from tandembus.broker.lane_numbers import LaneNumbers
from tandembus.broker.locks import MessageLock
from tandembus.large_messages import LARGE_BYTES
from tandembus.message import Message
from tandembus.store.messaging_store import BlockRecord


@final
class Lane(LaneNumbers):
    def __init__(
        self, fragment: i64, code: i64, block_size: i64, sequence_base: i64, source: LaneNumbers | None = None
    ) -> None:
        super().__init__(fragment, code, block_size, sequence_base, source)
        self.window_end: i64 = 1
        self.ready: deque[Message] = deque()
        self.ready_bytes: i64 = 0
        self.is_thinned: bool = False
        """Something in `ready` may have been taken out of the queue meanwhile: look before handing over."""
        self.returned: list[int] = []
        self.reading: list[int] = []
        """Taken from the window's edge or from `returned`, their bodies on the way from the store."""

    def load(self, records: list[BlockRecord]) -> None:
        """Take over what the store holds; nothing is in memory yet but the blocks."""
        self.load_blocks(records)
        if records:
            self.window_end = max(records[0].block * self.block_size, i64(1))

    def enter(self, message: Message, max_messages: i64, max_bytes: i64) -> None:
        """A stored message becomes available: into memory if the window reaches the tail and has room. A large one is
        read from the store when somebody has room for it."""
        if self.source is not None and self.window_end < message.number:
            self._pass_by(message.number)
        if self.window_end == message.number and len(self.ready) < max_messages and self.ready_bytes < max_bytes:
            size: i64 = len(message.sections)
            if size > LARGE_BYTES:
                return
            self.window_end = message.number + 1
            self.ready.append(message)
            self.ready_bytes += size

    def _pass_by(self, number: i64) -> None:
        """The window goes on over numbers that did not match, up to this one; not over any that is waiting."""
        found = self.scan(self.window_end, 1, True)
        if found and found[0] == number:
            self.window_end = number

    def give_back(self, number: i64) -> None:
        """Available again; its body has to be read again."""
        if number < self.window_end:
            heapq.heappush(self.returned, int(number))

    def hold(self, number: i64, lock: MessageLock) -> None:
        """Take a message by its number, wherever it is."""
        self.held[int(number)] = lock
        if number < self.window_end and self.ready:
            self.is_thinned = True

    def pop_ready(self) -> Message:
        message = self.ready.popleft()
        self.ready_bytes -= len(message.sections)
        return message

    def has_next(self) -> bool:
        """Whether the next message is in memory. What came back, or is being read, may come before what is ready."""
        if not self.ready:
            return False
        number = self.ready[0].number
        if self.returned and self.returned[0] < number:
            return False
        return not self.reading or number < self.reading[0]

    def wants_refill(self, low_messages: i64, low_bytes: i64) -> bool:
        if len(self.returned) > 0:
            return True
        is_low = len(self.ready) < low_messages and self.ready_bytes < low_bytes
        return self.window_end < self.visible_end and is_low

    def is_exhausted(self) -> bool:
        """Nothing available, in memory, on its way there, or in the store."""
        if self.ready or self.returned or self.reading:
            return False
        return self.window_end >= self.visible_end

    def plan_refill(self, count: i64) -> list[int]:
        """Numbers to read next: what came back first, then on from the window's end. The window moves over them."""
        numbers: list[int] = []
        while self.returned and len(numbers) < count:
            numbers.append(heapq.heappop(self.returned))
        if not numbers:
            numbers = self.scan(self.window_end, count, True)
            self.window_end = self.scanned_to
        self.reading = numbers
        return numbers

    def unplan(self, numbers: list[int], were_returned: bool) -> None:
        """Planned, but not read: there was no room for more."""
        if were_returned:
            for number in numbers:
                heapq.heappush(self.returned, number)
        elif numbers:
            self.window_end = numbers[0]

    def refill(self, messages: list[Message]) -> None:
        """Bodies read for planned numbers, in order. What happened to them meanwhile decides, not the plan."""
        self.reading = []
        usable: list[Message] = []
        for message in messages:
            if self.is_waiting(message.number):
                usable.append(message)
                self.ready_bytes += len(message.sections)
        if not usable:
            return
        if self.ready and usable[0].number < self.ready[-1].number:
            self._merge(usable)
            return
        self.ready.extend(usable)

    def _merge(self, usable: list[Message]) -> None:
        merged: deque[Message] = deque()
        position = 0
        for message in self.ready:
            while position < len(usable) and usable[position].number < message.number:
                merged.append(usable[position])
                position += 1
            merged.append(message)
        while position < len(usable):
            merged.append(usable[position])
            position += 1
        self.ready = merged

    def evict(self) -> None:
        """Forget the bodies in memory: the window goes back to the first of them, and is read again when asked for."""
        if self.ready and not self.reading:
            self.window_end = self.ready[0].number
            self.returned = [number for number in self.returned if number < self.window_end]
            heapq.heapify(self.returned)
            self.ready = deque()
            self.ready_bytes = 0

    def rewind(self, number: i64) -> None:
        """Available again, and perhaps many more behind it: the window goes back to it, and forgets what lies above.
        Without a note for each, which would pile up where nobody receives."""
        if number >= self.window_end:
            return
        if self.reading:
            self.give_back(number)
            return
        self.window_end = number
        self.returned = [one for one in self.returned if one < number]
        heapq.heapify(self.returned)
        while self.ready and self.ready[-1].number >= number:
            self.ready_bytes -= len(self.ready.pop().sections)
