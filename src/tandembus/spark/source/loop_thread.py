"""An event loop in a thread of its own: it keeps connections alive and fetches ahead while Spark is busy elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs from the moment it is made: make it where it is used, since Spark copies objects of the data source to
    other processes."""

    def __init__(self) -> None:
        self._loop: Final = _new_loop()
        self._thread: Final = threading.Thread(target=self._loop.run_forever, name="servicebus", daemon=True)
        self._thread.start()

    def __enter__(self) -> LoopThread:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def soon(self, work: Callable[[], object]) -> None:
        """Run it in the loop, and do not wait for it."""
        self._loop.call_soon_threadsafe(work)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the loop and wait for its result."""
        return self.begin(work).result()

    def stop(self) -> None:
        self.call(_finish_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _finish_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
