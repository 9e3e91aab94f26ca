"""How late this program itself is: on a busy machine it waits for its turn, and so does everything that it measures."""

from __future__ import annotations

import asyncio
from typing import Final

from tandembus.clock import Clock

RING_S: Final = 0.02
WORTH_KEEPING_S: Final = 0.005


class HoldUps:
    """A timer that should ring every 20 ms, and keeps account of when it did not."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._hold_ups: Final[list[tuple[float, float]]] = []
        """When it should have rung, and when it did."""

    async def run(self) -> None:
        while True:
            due_at = self._clock.monotonic() + RING_S
            await asyncio.sleep(RING_S)
            self.rang(due_at, self._clock.monotonic())

    def rang(self, due_at: float, at: float) -> None:
        if at - due_at >= WORTH_KEEPING_S:
            self._hold_ups.append((due_at, at))

    def held_up_s(self, start: float, end: float) -> float:
        """The longest that the program waited for its turn at some time between these two."""
        return max([at - due_at for due_at, at in self._hold_ups if due_at <= end and at >= start], default=0.0)
