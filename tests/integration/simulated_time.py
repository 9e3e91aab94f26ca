"""An event loop whose time can be put forward while its sockets are real: for what waits with timers of the loop, as
the programs do, over hours and months."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Says when there is nothing to do: everything that was sent has been read, nothing is due."""

    def __init__(self, is_awaited: Callable[[], bool]) -> None:
        super().__init__()
        self._is_awaited = is_awaited

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0) or self._is_awaited():
            return events
        return super().select(timeout)


class SimulatedTimeLoop(asyncio.SelectorEventLoop):
    """Both ends of a connection must live in it, so that it knows when they are quiet."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._quiet: asyncio.Future[None] | None = None
        super().__init__(_Selector(self._is_quiet_awaited))

    def time(self) -> float:
        return time.monotonic() + self._ahead_s

    def jump(self, seconds: float) -> None:
        """So much time has passed: timers that are due then ring as soon as they get their turn."""
        self._ahead_s += seconds

    async def quiet(self) -> None:
        """Until everybody waits for time to pass."""
        self._quiet = self.create_future()
        await self._quiet

    def _is_quiet_awaited(self) -> bool:
        if self._quiet is None:
            return False
        self._quiet.set_result(None)
        self._quiet = None
        return True


def run_simulated(test: Callable[[SimulatedTimeLoop], Coroutine[Any, Any, T]]) -> T:
    loop = SimulatedTimeLoop()
    try:
        return loop.run_until_complete(test(loop))
    finally:
        loop.close()
