"""An event loop in which processes, the lines between them and the time belong to the test.

Time stands still unless the test moves it, threads do not exist, sockets are pipes in memory, and a process can be
killed between two steps of any of its tasks. A run is the same every time. When nothing can go on and nobody moves the
time, the test waits for something that never comes, and fails at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
STEPS = 200
"""An advance of the time stops at no more timers than these."""


class Killed(Exception):
    """The process ended before it answered."""


class Process:
    """Code that runs as if it were in a process of its own. Whatever it starts belongs to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.tasks: set[asyncio.Task[Any]] = set()
        self.callers: set[asyncio.Future[Any]] = set()
        self.context = copy_context()
        self.context.run(_PROCESS.set, self)

    def run(self, function: Callable[..., T], *args: object) -> T:
        """Call `function` inside the process."""
        if self.is_dead:
            raise Killed(self.name)
        return self.context.copy().run(function, *args)

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` inside the process. Raises Killed if the process ends before the work does."""
        if self.is_dead:
            work.close()
            raise Killed(self.name)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        task = loop.create_task(work, context=self.context.copy())
        task.add_done_callback(lambda _: _answer(done))
        self.callers.add(done)
        try:
            await done
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self.callers.discard(done)
        return task.result()

    def kill(self) -> None:
        """As SIGKILL does: nothing of it runs again, not even a `finally`, and its connections break."""
        self.is_dead = True
        loop = asyncio.get_running_loop()
        assert isinstance(loop, StillLoop)
        loop.forget(self)
        for caller in list(self.callers):
            if not caller.done():
                caller.set_exception(Killed(self.name))
        for task in list(self.tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            asyncio.tasks._unregister_task(task)
            # Closed here, where nothing that it does on its way out has an effect, and not when memory is collected.
            with contextlib.suppress(BaseException):
                self.context.copy().run(task.get_coro().close)


class StillLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        self._listeners: dict[str, Listener] = {}
        self._ends: set[PipeEnd] = set()
        self._when_quiet: list[asyncio.Future[None]] = []
        self.set_task_factory(_task_of_process)  # type: ignore[arg-type]

    # Time.

    def time(self) -> float:
        return self._now

    async def quiet(self) -> None:
        """Returns when nothing can go on without time passing."""
        waiting = self.create_future()
        self._when_quiet.append(waiting)
        await waiting

    async def advance(self, seconds: float) -> None:
        """Let time pass; timers run in their order, each at its time (a long advance takes them in larger steps)."""
        end = self._now + seconds
        await self.quiet()
        while self._now < end:
            timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
            due = min((one.when() for one in timers if not one.cancelled()), default=end)
            self._now = min(max(due, self._now + seconds / STEPS), end)
            await self.quiet()

    def skip(self, seconds: float) -> None:
        """Time passes of which nobody notices anything until it has passed."""
        self._now += seconds

    def _run_once(self) -> None:
        if not self._can_go_on():
            waiting, self._when_quiet = self._when_quiet, []
            for one in waiting:
                _answer(one)
            if not self._can_go_on():
                raise AssertionError("the test waits for something that never comes")
        super()._run_once()  # type: ignore[misc]

    def _can_go_on(self) -> bool:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return bool(self._ready) or any(one.when() <= self._now for one in timers)  # type: ignore[attr-defined]

    # Processes.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        if _is_dead(handle):
            handle.cancel()
        return handle

    def run_in_executor(self, _executor: object, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """What would run in a thread runs at once."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def forget(self, process: Process) -> None:
        for handle in [*self._ready, *self._scheduled]:  # type: ignore[attr-defined]
            if _is_dead(handle):
                handle.cancel()
        for path, listener in list(self._listeners.items()):
            if listener.process is process:
                del self._listeners[path]
        for end in list(self._ends):
            if end.process is process:
                end.break_off()

    # Lines between processes.

    async def create_unix_server(self, factory: Any, path: Any = None, *, sock: Any = None, **_: Any) -> Any:  # type: ignore[override]
        name = path if sock is None else sock.getsockname()
        if sock is not None:
            sock.close()
        listener = Listener(self, str(name), factory)
        self._listeners[str(name)] = listener
        return listener

    async def create_unix_connection(self, factory: Any, path: Any = None, **_: Any) -> Any:  # type: ignore[override]
        listener = self._listeners.get(str(path))
        if listener is None:
            raise ConnectionRefusedError("Nobody listens.")
        near = PipeEnd(self, _PROCESS.get(), factory(), str(path))
        far = PipeEnd(self, listener.process, listener.process.run(listener.factory), str(path))
        near.other, far.other = far, near
        self._ends |= {near, far}
        for end in (near, far):
            end.call(end.protocol.connection_made, end)
        return near, near.protocol

    def cut(self, path: Path, after_bytes: int | None, is_outward: bool) -> None:
        """The connections to this listener break once so many more bytes went to it (or came from it); None: never."""
        for end in self._ends:
            if end.path == str(path) and (end.process is not self._listeners[end.path].process) is is_outward:
                end.bytes_left = after_bytes

    def closed(self, end: PipeEnd) -> None:
        self._ends.discard(end)


class Listener:
    """Stands for a listening socket."""

    def __init__(self, loop: StillLoop, path: str, factory: Callable[[], asyncio.Protocol]) -> None:
        process = _PROCESS.get()
        assert process is not None
        self.process = process
        self.factory = factory
        self._loop = loop
        self._path = path

    def close(self) -> None:
        self._loop._listeners.pop(self._path, None)

    async def wait_closed(self) -> None:
        return


class PipeEnd(asyncio.Transport):
    """One end of a connection in memory."""

    def __init__(self, loop: StillLoop, process: Process | None, protocol: asyncio.Protocol, path: str) -> None:
        super().__init__()
        assert process is not None
        self.process = process
        self.protocol = protocol
        self.path = path
        self.other: PipeEnd
        self.bytes_left: int | None = None
        self._loop = loop
        self._is_closing = False

    def call(self, callback: Callable[..., object], *args: object) -> None:
        self._loop.call_soon(callback, *args, context=self.process.context.copy())

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        if self.bytes_left is not None:
            data = bytes(data)[: self.bytes_left]
            self.bytes_left -= len(data)
        if data:
            self.other.call(self.other.protocol.data_received, bytes(data))
        if self.bytes_left == 0:
            self.break_off()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.closed(self)
            self.call(self.protocol.connection_lost, None)
            self.other.call(self.other.close)

    def abort(self) -> None:
        self.close()

    def break_off(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return


def _answer(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _is_dead(handle: asyncio.Handle) -> bool:
    context: Context = handle._context  # type: ignore[attr-defined]
    process = context.get(_PROCESS)
    return process is not None and process.is_dead


def _task_of_process(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], context: Context | None = None
) -> asyncio.Task[T]:
    task: asyncio.Task[T] = asyncio.Task(work, loop=loop, context=context)
    process = _PROCESS.get() if context is None else context.get(_PROCESS)
    if process is not None:
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard)
    return task
