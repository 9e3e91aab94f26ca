"""A `tandembus` command in a process of its own, such as a namespace: its output is passed on, its end is told.

Imports little, on purpose: whoever starts namespaces should not take longer to load than they do.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Sequence
from typing import Final

from tandembus.node.child_process import child_environment, python_command

READY: Final = "ready "
MAX_LINE_BYTES: Final = 1 << 20
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None
"""Looked up before a process is started: what runs between fork and exec must not load anything."""

Tell = Callable[[str], None]


class NotReady(Exception):
    """A command that ended before it was of use; why, it has said itself."""


class CommandProcess:
    """One life of a command: started, ready where it says so, ended, however that came.

    It belongs to a session of its own, so that Ctrl-C reaches whoever started it and nobody else: they stop it in
    order. When they are gone without having done so, the kernel asks it to stop.
    """

    def __init__(self, label: str, arguments: Sequence[str], tell: Tell) -> None:
        """`arguments`: the command and its options. `tell` is called with every line of its output."""
        self.label: Final = label
        self._arguments: Final = arguments
        self._tell: Final = tell
        self._process: Process | None = None
        self._ready: asyncio.Future[str]
        self._ended: asyncio.Task[int]

    async def start(self) -> None:
        """Returns when there is a process; `ready` when it is of use."""
        self._ready = asyncio.get_running_loop().create_future()
        self._process = await asyncio.create_subprocess_exec(
            *python_command(),
            "-m",
            "tandembus",
            *self._arguments,
            env=child_environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            limit=MAX_LINE_BYTES,
            start_new_session=True,
            preexec_fn=_stop_with_parent,
        )
        self._ended = asyncio.create_task(self._follow(self._process))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and not self._ended.done()

    async def ready(self) -> str:
        """What it says when it is ready: of a namespace, the connection string. Raises `NotReady`."""
        return await asyncio.shield(self._ready)

    async def ended(self) -> int:
        """The exit code, once it is gone and everything that it said is told; minus the signal that ended it."""
        return await asyncio.shield(self._ended)

    def stop(self) -> None:
        """Ask it to finish what it has accepted, and to go."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _follow(self, process: Process) -> int:
        assert process.stdout is not None
        while line := await _next_line(process.stdout):
            text = line.rstrip("\n")
            if text.startswith(READY) and not self._ready.done():
                self._ready.set_result(text.removeprefix(READY))
            else:
                self._tell(text)
        code = await process.wait()
        if not self._ready.done():
            self._ready.set_exception(NotReady(f"the {self.label} could not be started"))
            self._ready.exception()  # it is no mistake not to ask for it
        return code


def described(exit_code: int) -> str:
    """How a process ended, for people."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"ended by signal {-exit_code}"


async def _next_line(output: asyncio.StreamReader) -> str:
    """Empty at the end. A line beyond all bounds is left out: it must not stop those that follow."""
    while True:
        try:
            return (await output.readline()).decode(errors="replace")
        except ValueError:
            continue


def _stop_with_parent() -> None:
    """Runs in the new process. Where there is no such thing, a namespace outlives a parent that was killed."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
