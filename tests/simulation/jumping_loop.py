"""An event loop that never waits: when nobody can go on, it is the time at which somebody can."""

from __future__ import annotations

import asyncio


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        ready: object = self._ready  # type: ignore[attr-defined]
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if not ready and scheduled:
            self._now = max(self._now, min(each.when() for each in scheduled if not each.cancelled()))
        super()._run_once()  # type: ignore[misc]


class LoopClock:
    """The loop's time, on both clocks."""

    def __init__(self, loop: JumpingLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return self._loop.time()

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()
