"""The only place that reads the time.

Two clocks on purpose: locks run on the monotonic one, so that nobody's lock lapses because an administrator set the
time; schedules and time to live run on the wall clock, because that is what their senders meant.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

LONGEST_JUMP_S: Final = 100 * 365 * 86_400.0
"""Times behind it would be no times for clients."""


class Clock(Protocol):
    def now(self) -> float:
        """Wall time, seconds since 1970 UTC."""

    def now_ms(self) -> int:
        """Wall time in whole milliseconds, as AMQP timestamps count it."""

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""


class SystemClock:
    def now(self) -> float:
        return time.time()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """Moves when told; wall and monotonic time can be moved apart."""

    def __init__(self, now: float = 1_700_000_000.0, monotonic: float = 1_000.0) -> None:
        self._now = now
        self._monotonic = monotonic

    def now(self) -> float:
        return self._now

    def now_ms(self) -> int:
        return int(self._now * 1000)

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Time passes, on both clocks."""
        self._now += seconds
        self._monotonic += seconds

    def shift_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock; no time passes."""
        self._now += seconds


class JumpingClock:
    """Runs as another clock does, and can be put forward: for tests that do not want to wait, with clients that have
    clocks of their own."""

    def __init__(self, running: Clock | None = None) -> None:
        self._running: Clock = running or SystemClock()
        self._ahead_s = 0.0
        self._ahead_monotonic_s = 0.0

    def now(self) -> float:
        return self._running.now() + self._ahead_s

    def now_ms(self) -> int:
        return self._running.now_ms() + round(self._ahead_s * 1000)

    def monotonic(self) -> float:
        return self._running.monotonic() + self._ahead_monotonic_s

    def jump(self, seconds: float) -> None:
        """Time has passed, on both clocks."""
        if not 0.0 <= seconds < LONGEST_JUMP_S:
            raise ValueError(f"a clock is put forward by 0 to {LONGEST_JUMP_S:.0f} seconds, not by {seconds}")
        self._ahead_s += seconds
        self._ahead_monotonic_s += seconds

    def set_right(self) -> None:
        """The wall time is the other clock's again; the monotonic one cannot go back."""
        self._ahead_s = 0.0
