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
from tandembus.broker.session_reading import hashes_of
from tandembus.message import Message
from tandembus.store.messaging_store import MAIN

SLICE: Final = 4096
"""Numbers looked at, reserved or settled in one go: so many hold nobody up."""
MOST_SLICES: Final = 64
"""Looked at for one request: behind a quarter of a million messages of sessions that receivers hold, the search is
given up until the next request."""
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
        while self._slices_left > 0 and self._messages_left > 0:
            self._slices_left -= 1
            await asyncio.sleep(0)  # others get their turn in between
            lane = self._fragment.lane(self._code)
            most = SLICE if self._fragment.sessions is not None else min(SLICE, self._messages_left)
            numbers = [number for number in lane.next_available(self._at, most) if number <= self._last]
            if not numbers:
                break
            self._at = numbers[-1] + 1
            numbers = await self._unheld(await self._unexpired(numbers))
            numbers = await self._within_bounds(numbers[: self._messages_left])
            if numbers:
                return numbers
        self._messages_left = 0
        return []

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

    async def _unheld(self, numbers: list[int]) -> list[int]:
        """Without those whose session somebody holds."""
        index = self._fragment.sessions
        if self._code != MAIN or index is None or not numbers:
            return numbers
        self.hashes = hashes = await hashes_of(self._broker, self._fragment, self._fragment.lane(self._code), numbers)
        for one in set(hashes.values()):
            if not index.can_reserve(one, self._owner):
                self.passed.add(one)
        return [number for number in numbers if hashes.get(number) not in self.passed]

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
