"""Which messages a request may reserve: those that wait, in order, slice by slice, within its bounds.

It reads columns and sizes, and bodies only where a time to live may be over. What happened to them meanwhile is for
the commit to judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tandembus.broker.expiring import expire
from tandembus.broker.fragment import Fragment
from tandembus.broker.lane import Lane
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.reading import read_messages
from tandembus.broker.session_columns import end_of_run, entry_count, hash_at, offset_at
from tandembus.broker.session_reading import read_columns
from tandembus.message import Message
from tandembus.store.messaging_store import MAIN

SLICE: Final = 4096
"""Numbers looked at, reserved or settled in one go: so many hold nobody up."""
MOST_SLICES: Final = 64
"""Looked at for one request once it has got something: the rest is left for the next one. Until then the search goes on
to the end, however many messages of sessions that receivers hold lie before."""
READ_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    max_messages: int
    max_bytes: int
    last: int
    """No number beyond this one."""


class Candidates:
    """The slices for one request of an owner."""

    def __init__(self, broker: MessageBroker, fragment: Fragment, code: int, owner: str, wanted: Wanted) -> None:
        self._broker = broker
        self._fragment = fragment
        self._code = code
        self._owner = owner
        self._last = wanted.last
        self._messages_left = wanted.max_messages
        self._bytes_left = wanted.max_bytes
        self._at = 1
        self._is_first = True
        self._slices_left = MOST_SLICES
        self.passed: set[bytes] = set()
        """Sessions that were passed over: also when they become free, since their earlier messages stay behind."""
        self.hashes: dict[int, bytes] = {}
        """Of the sessions of the last slice, where there are any."""

    async def following(self) -> list[int]:
        """The next slice; empty when there is none. At least one message in all, whatever its size."""
        while self._messages_left > 0 and (self._slices_left > 0 or self._is_first):
            if not self._is_first:
                self._slices_left -= 1
            await asyncio.sleep(0)  # others get their turn in between
            first = self._fragment.lane(self._code).next_available(self._at, 1)
            if not first or first[0] > self._last:
                break
            self._at = first[0]
            if self._code == MAIN and self._fragment.sessions is not None:
                numbers = await self._of_free_sessions()
            else:
                numbers = self._next_numbers()
            numbers = await self._within_bounds((await self._unexpired(numbers))[: self._messages_left])
            if numbers:
                return numbers
        self._messages_left = 0
        return []

    def _next_numbers(self) -> list[int]:
        lane = self._fragment.lane(self._code)
        numbers = lane.next_available(self._at, min(SLICE, self._messages_left))
        self._at = numbers[-1] + 1
        return [number for number in numbers if number <= self._last]

    async def _of_free_sessions(self) -> list[int]:
        """Those of the next columns whose session nobody holds. Of a session that is held a block takes one look."""
        lane = self._fragment.lane(self._code)
        size, end = int(lane.block_size), int(lane.visible_end)
        blocks = lane.live_blocks(self._at, max(SLICE // size, 1))
        columns = await read_columns(self._broker, self._fragment, lane, blocks)
        lane, index = self._fragment.lane(self._code), self._fragment.sessions
        last = min(self._last, end - 1)
        self.hashes = {}
        for block, entries in zip(blocks, columns, strict=True):
            position, count = 0, int(entry_count(entries))
            while position < count:
                following = int(end_of_run(entries, position))
                hash_of_id = hash_at(entries, position)
                if index is not None and not index.can_reserve(hash_of_id, self._owner):
                    self.passed.add(hash_of_id)
                if hash_of_id not in self.passed:
                    for place in range(position, following):
                        number = block * size + int(offset_at(entries, place))
                        if self._at <= number <= last and lane.is_waiting(number):
                            self.hashes[number] = hash_of_id
                position = following
        self._at = min((blocks[-1] + 1) * size, end)  # what came while they were read is next
        return sorted(self.hashes)

    async def _unexpired(self, numbers: list[int]) -> list[int]:
        """What has expired leaves now, though no sweep has come by yet."""
        fragment, lane = self._fragment, self._fragment.lane(self._code)
        if self._code != MAIN:
            return numbers
        due = lane.due_among(numbers, fragment.clock.now_ms())
        gone: set[int] = set()
        position = 0
        while position < len(due):
            records = await read_messages(self._broker, fragment, lane, due[position:], READ_BYTES)
            position += len(records)
            for record in records:
                if isinstance(record, Message) and fragment.is_expired(record):
                    gone.add(int(record.number))
                    if not fragment.is_void and fragment.main.is_waiting(record.number):
                        expire(fragment, record)
        return [number for number in numbers if number not in gone] if gone else numbers

    async def _within_bounds(self, numbers: list[int]) -> list[int]:
        found: list[int] = []
        for number, size in zip(
            numbers, await sizes(self._broker, self._fragment.lane(self._code), numbers), strict=True
        ):
            if size > self._bytes_left and not self._is_first:
                self._messages_left = 0
                return found
            self._is_first = False
            found.append(number)
            self._bytes_left -= size
        self._messages_left -= len(found)
        return found


async def sizes(broker: MessageBroker, lane: Lane, numbers: Sequence[int]) -> Sequence[int]:
    return await broker.store.sizes(int(lane.body_fragment), int(lane.code), numbers)
