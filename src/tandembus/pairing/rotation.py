"""Which backlog queue takes the next message. Pure decisions: the dice and the clock are passed in."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from typing import final

from tandembus.clock import Clock


@final
class Rotation:
    """The backlog queues in use, for all senders of a client at once (N6, N7).

    A queue that refused a message is out, and stays out while others take messages. When all are out they come back
    together after a while: otherwise a secondary that was away for a moment would never be used again.
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
        """Returns the sender's own queue while it is in use, else a random other one; None if all are out."""
        self._readmit()
        if previous is not None and previous in self._available:
            return previous
        return self._dice.choice(self._available) if self._available else None

    def pick_for_key(self, key: str) -> str | None:
        """Returns the same queue for the same key in every process, which keeps the order within a key. While that
        queue is out, the next one after it."""
        self._readmit()
        first = zlib.crc32(key.encode()) % len(self._queues)
        for queue in (*self._queues[first:], *self._queues[:first]):
            if queue in self._available:
                return queue
        return None

    def drop(self, queue: str) -> bool:
        """Returns whether the queue was in use until now: many sends may fail on it at once."""
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
