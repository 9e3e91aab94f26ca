"""How this process does: memory, processor, and how long its event loop keeps others waiting."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from pathlib import Path
from typing import Final, final

from tandembus import __version__
from tandembus.clock import Clock
from tandembus.node.metrics import families
from tandembus.prometheus import Exposition, Histogram

LOOK_S: Final = 0.25
_STATM: Final = Path("/proc/self/statm")
_FILES: Final = Path("/proc/self/fd")


@final
class ProcessMetrics:
    def __init__(self, clock: Clock) -> None:
        self._started_at: Final = clock.now()
        self._lag: Final = Histogram()

    async def watch(self) -> None:
        """In a task of its own, for as long as the process lives."""
        loop = asyncio.get_running_loop()
        while True:
            began_at = loop.time()
            await asyncio.sleep(LOOK_S)
            self._lag.observe(max(0.0, loop.time() - began_at - LOOK_S))

    def tell(self, out: Exposition) -> None:
        times = os.times()
        out.add(families.BUILD_INFO, 1, __version__)
        out.add(families.PROCESS_START, round(self._started_at, 3))
        out.add(families.PROCESS_CPU, round(times.user + times.system, 3))
        out.add(families.PROCESS_MEMORY, _resident_bytes())
        with contextlib.suppress(OSError):
            out.add(families.PROCESS_FILES, len(os.listdir(_FILES)))
        out.add_histogram(families.LOOP_LAG, self._lag)


def _resident_bytes() -> int:
    """Where the system does not tell the present, the most that it ever was."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
