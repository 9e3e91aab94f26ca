"""Which backlog queue takes the next message: pure decisions, the dice are passed in."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from typing import final

from tandembus.clock import Clock


@final
class Rotation:
    """The backlog queues that are in use, for all senders of a client at once (N6, N7).

    One that refused a message is out. Those who are out stay out while others do the work. Only when all are out does
    time bring them back, together: otherwise a secondary that was away for a moment would be lost for good.
    """

    def __init__(self, queues: Sequence[str], readmission_s: float, clock: Clock, dice: random.Random) -> None:
        self._queues = tuple(queues)
        self._readmission_s = readmission_s
        self._clock = clock
        self._dice = dice
        self._available = list(queues)
        self._last_dropped_at = 0.0

    @property
    def available(self) -> tuple[str, ...]:
        self._readmit()
        return tuple(self._available)

    def pick(self, previous: str | None = None) -> str | None:
        """The sender's own queue as long as it is in use, else any other by chance; None if all are out."""
        self._readmit()
        if previous is not None and previous in self._available:
            return previous
        return self._dice.choice(self._available) if self._available else None

    def pick_for_key(self, key: str) -> str | None:
        """The same queue for the same key, in every process, so that the order within a key is kept. While that one is
        out, the next behind it."""
        self._readmit()
        first = zlib.crc32(key.encode()) % len(self._queues)
        for queue in (*self._queues[first:], *self._queues[:first]):
            if queue in self._available:
                return queue
        return None

    def drop(self, queue: str) -> bool:
        """Whether it was in use until now: many sends may fail on it together."""
        if queue not in self._available:
            return False
        self._available.remove(queue)
        self._last_dropped_at = self._clock.monotonic()
        return True

    def restore(self) -> None:
        """All are in use again."""
        self._available = list(self._queues)

    def _readmit(self) -> None:
        if not self._available and self._clock.monotonic() >= self._last_dropped_at + self._readmission_s:
            self.restore()
