"""What is due: lapsed locks, scheduled messages, expiry, and the look at the store's free room.

Nobody sleeps until a wall time: this wakes at least once a second and compares, so a clock that is set, or a process
that was stopped and continued, does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tandembus.broker.fragment import Fragment
from tandembus.clock import Clock
from tandembus.errors import BusError
from tandembus.message import Message
from tandembus.store.messaging_store import Changes, Due

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

log = logging.getLogger("tandembus.broker")

LONGEST_SLEEP_S = 1.0
SHORTEST_SLEEP_S = 0.01
DUE_SLICE = 500
THIN_SLICE = 64
"""Blocks freed of settled bodies in one go."""
READ_BYTES = 8 * 1024 * 1024


class DueWork:
    def __init__(self, broker: MessageBroker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._commits_seen = 0

    async def run(self) -> None:
        while True:
            delay = LONGEST_SLEEP_S
            if self._broker.failure is None:
                try:
                    await self.work()
                    delay = await self._delay()
                except BusError as error:
                    log.warning("due work is put off: %s", error)
            await asyncio.sleep(delay)

    async def work(self) -> None:
        """One look at everything that may be due now."""
        self._broker.check_room()
        self._broker.check_commit()
        self._broker.check_windows()
        for fragment in self._broker.fragments():
            fragment.lapse()
        now_ms = self._clock.now_ms()
        for due in await self._broker.store.schedules_before(now_ms + 1, DUE_SLICE):
            await self._activate(due)
        for due in await self._broker.store.expiries_before(now_ms + 1, DUE_SLICE):
            await self._sweep(due)
        if self._broker.commit_count == self._commits_seen or self._broker.is_short_of_room:
            await self._thin()
        self._commits_seen = self._broker.commit_count

    async def _thin(self) -> None:
        for _ in range(THIN_SLICE):
            if not await self._broker.thin():
                return
            await asyncio.sleep(0)

    async def _activate(self, due: Due) -> None:
        fragment = await self._broker.open_by_key(due.fragment)
        if fragment is None or not fragment.main.is_live(due.number) or not fragment.main.is_parked(due.number):
            changes = Changes()
            changes.dropped_schedules.append(due)
            await self._broker.forget_due(changes)
            return
        if due.number in fragment.main.held:
            return
        for message in await self._read(fragment, [due.number]):
            fragment.activate(message, due.at_ms)

    async def _sweep(self, due: Due) -> None:
        fragment = await self._broker.open_by_key(due.fragment)
        if fragment is None:
            changes = Changes()
            changes.dropped_expiries.append(due)
            await self._broker.forget_due(changes)
            return
        numbers = fragment.main.numbers_of_block(due.number)
        fragment.sweep(due.number, await self._read(fragment, numbers))

    async def _read(self, fragment: Fragment, numbers: list[int]) -> list[Message]:
        found: list[Message] = []
        position = 0
        while position < len(numbers):
            records = await self._broker.read_messages(fragment, fragment.main, numbers[position:], READ_BYTES)
            position += len(records)
            found += [record for record in records if isinstance(record, Message)]
        return found

    async def _delay(self) -> float:
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        delay = LONGEST_SLEEP_S
        for fragment in self._broker.fragments():
            lapse = fragment.locks.next_lapse()
            if lapse > 0.0:
                delay = min(delay, lapse - now)
        due = await self._broker.store.earliest_due()
        if due > 0:
            delay = min(delay, (due - now_ms) / 1000)
        return max(delay, SHORTEST_SLEEP_S)
