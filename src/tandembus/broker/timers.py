"""What is due: lapsed locks, scheduled messages, expiry, and the look at the store's free room.

Nobody sleeps until a wall time: this wakes at least once a second and compares, so a clock that is set, or a process
that was stopped and continued, does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tandembus.broker.expiring import activate, end_sweep, sweep
from tandembus.broker.fragment import Fragment
from tandembus.broker.housekeeping import SOURCES_LOOK_S, forget_high_waters, forget_marks, thin
from tandembus.broker.lapsing import lapse, next_lapse
from tandembus.broker.loading import trim_history
from tandembus.broker.reading import read_messages
from tandembus.clock import Clock
from tandembus.errors import StoreFull, StoreUnavailable
from tandembus.message import Message
from tandembus.store.messaging_store import NEVER, Changes, Due

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

log = logging.getLogger("tandembus.broker")

LONGEST_SLEEP_S = 1.0
SHORTEST_SLEEP_S = 0.01
DUE_SLICE = 500
MOST_WAITING = 10_000
"""Due entries that wait (for room, or for an entity that cannot be opened) and are passed over at each look."""
THIN_SLICE = 64
"""Blocks freed of settled bodies in one go."""
SWEEP_SLICE = 32
"""Messages of a block looked at together: a block of large ones must not come into memory as a whole."""
READ_BYTES = 8 * 1024 * 1024
ACTIVATING_BYTES = 4 * 1024 * 1024
"""Scheduled messages that wait for one commit."""


class DueWork:
    def __init__(self, broker: MessageBroker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._commits_seen = 0
        self._sources_looked_at = 0.0
        self._waiting_schedules = 0
        self._waiting_expiries = 0
        """Due entries that had to wait last time: those behind them are looked at all the same."""
        self._stored: set[int] | None = None
        """The fragments that the store has, as of this look; None: nobody has asked."""
        self._leading_nowhere = Changes()
        """Due entries found to be left over: they go together at the end of the turn."""
        self._woken = asyncio.Event()
        self._turned = asyncio.Event()
        self._turns_begun = 0
        self._turns_ended = 0

    async def run(self) -> None:
        while True:
            self._woken.clear()
            self._turns_begun += 1
            delay = LONGEST_SLEEP_S
            if self._broker.failure is None:
                delay = await self._turn()
            self._turns_ended = self._turns_begun
            self._turned.set()
            await self._rest(delay)

    async def _rest(self, delay: float) -> None:
        timer = asyncio.get_running_loop().call_later(delay, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()

    async def catch_up(self) -> None:
        """After the clock was put forward: returns when everything due by now is done, or gets no further."""
        while True:
            commits = self._broker.commit_count
            await self._whole_turn()
            await self._come_to_rest()
            is_anything_due = await self._delay() <= SHORTEST_SLEEP_S
            if not is_anything_due or self._broker.commit_count == commits:
                return

    async def _whole_turn(self) -> None:
        """One that has begun after the call: the present one may have looked at the clock before."""
        wanted = self._turns_begun + 1
        while self._turns_ended < wanted:
            self._turned.clear()
            self._woken.set()
            await self._turned.wait()

    async def _come_to_rest(self) -> None:
        """What became active may be on its way to other entities."""
        broker = self._broker
        await broker.finish_staged()
        while not broker.forwarding.is_quiet() and broker.failure is None:
            await broker.next_turn()
            await broker.finish_staged()

    async def _turn(self) -> float:
        """Returns how long nothing is due. What goes wrong here must not end the lapsing of locks for ever."""
        store = self._broker.store
        try:
            if await self.work():
                return await self._delay()
        except StoreFull as error:
            log.warning("due work is put off: %s", error)
        except StoreUnavailable as error:
            self._broker.give_up(store, error)
        except Exception:
            log.exception("due work is put off")
        return LONGEST_SLEEP_S

    async def work(self) -> bool:
        """One look at everything that may be due now. Returns False when something due has to wait."""
        broker = self._broker
        broker.check_room()
        broker.check_windows()
        for fragment in broker.fragments():
            if lapse(fragment):
                broker.want(fragment)
            await trim_history(broker, fragment)
        broker.forwarding.retry_due()
        await forget_marks(broker)
        if self._clock.monotonic() >= self._sources_looked_at + SOURCES_LOOK_S:
            self._sources_looked_at = self._clock.monotonic()
            await forget_high_waters(broker)
        now_ms = self._clock.now_ms()
        most = DUE_SLICE + min(self._waiting_schedules, MOST_WAITING)
        schedules = await broker.store.schedules_before(now_ms + 1, most)
        self._stored = None
        self._waiting_schedules = [await self._activate(due) for due in schedules].count(False)
        most = DUE_SLICE + min(self._waiting_expiries, MOST_WAITING)
        expiries = await broker.store.expiries_before(now_ms + 1, most)
        self._stored = None
        self._waiting_expiries = [await self._sweep(due) for due in expiries].count(False)
        if self._leading_nowhere.dropped_schedules or self._leading_nowhere.dropped_expiries:
            changes, self._leading_nowhere = self._leading_nowhere, Changes()
            await broker.commit_alone(changes)
        if broker.commit_count == self._commits_seen or broker.is_short_of_room:
            await self._thin()
        self._commits_seen = broker.commit_count
        return self._waiting_schedules == 0 and self._waiting_expiries == 0

    async def _thin(self) -> None:
        for _ in range(THIN_SLICE):
            if not await thin(self._broker):
                return
            await asyncio.sleep(0)

    async def _activate(self, due: Due) -> bool:
        fragment = await self._broker.open_by_key(due.fragment)
        if fragment is None:
            return await self._forget_if_dropped(due, self._leading_nowhere.dropped_schedules)
        if not fragment.main.is_live(due.number) or not fragment.main.is_parked(due.number):
            self._leading_nowhere.dropped_schedules.append(due)
            return True
        if fragment.is_full or due.number in fragment.main.held or fragment.main.is_arriving(due.number):
            return False
        if fragment.staged.activating_bytes > ACTIVATING_BYTES:
            return True  # there is enough for one commit; the next look is soon
        for message in await self._read(fragment, [due.number]):
            activate(fragment, message, due.at_ms)
        return True

    async def _sweep(self, due: Due) -> bool:
        fragment = await self._broker.open_by_key(due.fragment)
        if fragment is None:
            return await self._forget_if_dropped(due, self._leading_nowhere.dropped_expiries)
        if not fragment.main.is_indexed(due.number, due.at_ms):
            self._leading_nowhere.dropped_expiries.append(due)
            return True
        if fragment.is_full and fragment.settings.dead_letter_expired:
            return False
        lane = fragment.main
        numbers = lane.begin_sweep(due.number)
        earliest = NEVER
        position = 0
        while position < len(numbers) and not fragment.is_void and fragment.main is lane:
            messages = await self._read(fragment, numbers[position : position + SWEEP_SLICE])
            position += SWEEP_SLICE
            found = int(sweep(fragment, messages))
            if found != NEVER and (earliest == NEVER or found < earliest):
                earliest = found
        if not fragment.is_void and fragment.main is lane:  # read anew, it knows nothing of this sweep
            end_sweep(fragment, due.number, earliest)
        return True

    async def _forget_if_dropped(self, due: Due, forgotten: list[Due]) -> bool:
        """Of a fragment that nobody knows. Unless the store says that it was dropped, the entry stays: what it leads to
        may be known later, and nothing else would ever activate a scheduled message."""
        if self._stored is None:
            self._stored = {head.fragment for head in await self._broker.store.heads()}
        if due.fragment in self._stored:
            return False
        forgotten.append(due)
        return True

    async def _read(self, fragment: Fragment, numbers: list[int]) -> list[Message]:
        found: list[Message] = []
        position = 0
        while position < len(numbers):
            records = await read_messages(self._broker, fragment, fragment.main, numbers[position:], READ_BYTES)
            position += len(records)
            found += [record for record in records if isinstance(record, Message)]
        return found

    async def _delay(self) -> float:
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        delay = LONGEST_SLEEP_S
        for fragment in self._broker.fragments():
            lapses_at = next_lapse(fragment)
            if lapses_at > 0.0:
                delay = min(delay, lapses_at - now)
        due = await self._broker.store.earliest_due()
        if due > 0:
            delay = min(delay, (due - now_ms) / 1000)
        return max(delay, SHORTEST_SLEEP_S)
