"""An event loop in a thread of its own, for code that has none or is busy elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs from the moment it is made, so make it in the process that uses it: threads do not survive a fork, and Spark
    copies objects to other processes."""

    def __init__(self, name: str = "servicebus") -> None:
        self._loop: Final = _new_loop()
        self._thread: Final = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def __enter__(self) -> LoopThread:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def soon(self, work: Callable[[], object]) -> None:
        """Run it in the loop, and do not wait for it."""
        self._loop.call_soon_threadsafe(work)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the loop and return its result. If the caller is interrupted, it is cancelled."""
        if self.is_current:
            work.close()
            raise RuntimeError(f"a blocking call in the thread {self._thread.name!r} would wait for itself")
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        self.call(_finish_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _finish_others() -> None:
    """Cancelled tasks run to their end, or Python reports them; and no thread is left."""
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
