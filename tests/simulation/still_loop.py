"""An event loop whose time stands still unless the test moves it: the same run, every time, and no waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")

ENOUGH = 40
"""Rounds of the loop in which everything that can happen without time passing has happened."""


class StillLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def pass_time(self, seconds: float) -> None:
        self._now += seconds

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run to its end what needs no time to pass. Other tasks run beside it, as in a real loop."""
        task = self.create_task(work)
        for _ in range(100 * ENOUGH):
            if task.done():
                return task.result()
            self.turn(1)
        raise AssertionError("this waits for something that never comes")

    def turn(self, rounds: int = ENOUGH) -> None:
        """Let every task go on, `rounds` times."""
        self.run_until_complete(_rounds(rounds))

    def end(self) -> None:
        """As a crash would: whatever runs is cut off."""
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        self.turn(5)

    def dispose(self) -> None:
        self.end()
        self.close()


async def _rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
