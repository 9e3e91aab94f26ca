"""A real broker with one fragment, on a store that does as a script says and clocks that the test moves.

Lives and deaths of the broker, and time; what its queue must hold is accounted for elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from tandembus.broker.fragment import Fragment
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.settings import FragmentSettings
from tandembus.clock import ManualClock
from tandembus.store.messaging_store import MessagingStore
from tests.simulation.alarm import Alarm
from tests.simulation.expectations import MAX_DELIVERY_COUNT
from tests.simulation.faulty_store import FaultyStore, Script
from tests.simulation.still_loop import ENOUGH, StillLoop

KEY, INDEX = 7, 0
LOCK_DURATION_S = 30.0
REOPENS_WITHIN_S = 80


def small_settings(dead_letter_expired: bool = False) -> FragmentSettings:
    """Every edge within a few steps: a window of 4 messages, blocks of 8 numbers, commits of 5 operations."""
    return FragmentSettings(
        lock_duration_s=LOCK_DURATION_S,
        max_delivery_count=MAX_DELIVERY_COUNT,
        dead_letter_expired=dead_letter_expired,
        max_locks=12,
        commit_operations=5,
        window_messages=4,
        block_size=8,
    )


class SimulatedBroker:
    def __init__(self, open_store: Callable[[], MessagingStore], settings: FragmentSettings) -> None:
        self.loop = StillLoop()
        self.clock = ManualClock()
        self.script = Script()
        self.settings = settings
        self.latest_ms = self.highest_ms = self.clock.now_ms()
        """The latest that the wall clock showed since the last look at the queue, and ever."""
        self._open_store = open_store
        self._work: list[asyncio.Task[None]] = []
        self._alarm = Alarm()
        self.store: MessagingStore
        self.broker: MessageBroker
        self.fragment: Fragment
        self.begin_life()
        self.loop.run(self.broker.make_fragment(KEY, 1, INDEX))

    async def _open(self) -> MessagingStore:
        self.store = self._open_store()
        return FaultyStore(self.store, self.script)

    async def _fragment_of(self, key: int) -> Fragment | None:
        return await self.broker.open_fragment(key, INDEX, self.settings) if key == KEY else None

    def begin_life(self) -> None:
        self.broker = MessageBroker(self._open, self.clock)
        self.broker.open_by_key = self._fragment_of
        self.loop.run(self.broker.start())
        self.fragment = self.loop.run(self.broker.open_fragment(KEY, INDEX, self.settings))

    def cut_life(self, is_written: bool) -> None:
        """The process dies; a commit under way may just have been written."""
        changes = self.script.under_way
        self.loop.end()
        if changes is not None and is_written:
            self.loop.run(self.store.commit(changes))
        self.loop.run(self.store.close())
        self.reset_script()

    def end_life(self) -> None:
        """The process stops in an orderly way: everything staged is committed and answered."""
        self.reset_script()
        self.wait_until_open()
        self.loop.run(self.broker.stop())
        self.loop.end()

    def reset_script(self) -> None:
        """From here on the store is quick and works."""
        script = self.script
        script.failures.clear()
        script.hang_at = 0
        script.hang(False)
        script.commit_rounds = script.read_rounds = 0

    def wait_until_open(self) -> None:
        for _ in range(REOPENS_WITHIN_S):
            if self.broker.failure is None and not self.fragment.is_void and self.fragment.failure is None:
                return
            self.pass_time(1.0)
        raise AssertionError("the store is not opened again")

    def dispose(self) -> None:
        self._alarm.dispose()
        self.loop.end()
        self.loop.run(self.store.close())
        self.loop.dispose()

    # Time.

    def turn(self, rounds: int) -> None:
        self.loop.turn(rounds)
        self.take_note()

    def pass_time(self, seconds: float) -> None:
        """Both clocks of the broker and the timers of the loop move on together."""
        self.clock.advance(seconds)
        self.loop.pass_time(seconds)
        self._see_time()
        self.turn(ENOUGH)

    def set_wall_clock(self, seconds: float) -> None:
        self.clock.shift_wall(seconds)
        self._see_time()
        self.turn(1)

    def _see_time(self) -> None:
        self.latest_ms = max(self.latest_ms, self.clock.now_ms())
        self.highest_ms = max(self.highest_ms, self.latest_ms)

    def begin(self, work: Coroutine[object, object, None]) -> None:
        """Something that waits for the store, and may be overtaken by anything."""
        self._work.append(self.loop.create_task(work))
        self.turn(1)

    def is_working(self) -> bool:
        return any(not task.done() for task in self._work)

    def take_note(self) -> None:
        """Of everything that went wrong since the last time."""
        for task in [task for task in self._work if task.done()]:
            self._work.remove(task)
            if not task.cancelled():
                task.result()
        self._alarm.ring()
