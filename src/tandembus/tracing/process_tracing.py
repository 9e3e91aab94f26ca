"""Tracing of one process, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Final, final

from opentelemetry.sdk.trace import TracerProvider

from tandembus.tracing.exporting import new_provider
from tandembus.tracing.spans import Spans

FLUSHES_WITHIN_S: Final = 2.0
"""Spans that nobody takes by then are lost: a namespace does not wait for a collector that is out."""


@final
class ProcessTracing:
    def __init__(self, provider: TracerProvider) -> None:
        self._provider: Final = provider
        self.spans: Final = Spans(provider)

    @classmethod
    def of(cls, process: str) -> ProcessTracing:
        return cls(new_provider(process))

    async def stop(self) -> None:
        """In a thread of its own, which the process need not wait for."""
        loop, is_done = asyncio.get_running_loop(), asyncio.Event()
        threading.Thread(target=self._shut_down, args=(loop, is_done), daemon=True).start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(is_done.wait(), FLUSHES_WITHIN_S)

    def _shut_down(self, loop: asyncio.AbstractEventLoop, is_done: asyncio.Event) -> None:
        self._provider.shutdown()
        with contextlib.suppress(RuntimeError):  # nobody has waited for it
            loop.call_soon_threadsafe(is_done.set)
