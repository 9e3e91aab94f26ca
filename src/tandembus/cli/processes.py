"""`tandembus` commands in processes of their own: one, such as a namespace, or the two of a pair.

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
DONE: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130
STOPS_WITHIN_S: Final = 15.0
"""A namespace gives itself ten seconds to stop in order; one that takes longer than this hangs."""

Announce = Callable[[Sequence[str]], None]
"""Called with the connection strings, once both accept connections."""

Again = Callable[[str], str]
"""For a label: the command that starts this one again, where it was."""


class NotReady(Exception):
    """A command ended before it was ready; its own output says why."""


class CommandProcess:
    """One run of a command: started, ready once it prints so, ended.

    It belongs to a session of its own, so Ctrl-C reaches only the program that started it, which stops it in order. If
    that program dies first, the kernel asks the command to stop.
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
        """Returns when there is a process; `ready` returns when it accepts connections."""
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
        """Returns what it prints when it is ready: the connection string of a namespace. Raises `NotReady`."""
        return await asyncio.shield(self._ready)

    async def ended(self) -> int:
        """Returns the exit code once all output was passed on; minus the number of the signal that ended it."""
        return await asyncio.shield(self._ended)

    def stop(self) -> None:
        """Asks it to finish what it has accepted, and to end."""
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
            self._ready.exception()  # nobody has to ask for it
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
    """Empty at the end. A line that is too long is left out, and those that follow are read."""
    while True:
        try:
            return (await output.readline()).decode(errors="replace")
        except ValueError:
            continue


def _stop_with_parent() -> None:
    """Runs in the new process. On other systems than Linux a namespace outlives a parent that was killed."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class PairProcesses:
    """Runs two namespaces until it is interrupted. If one ends by itself, that is reported and the other goes on. The
    first interruption stops both in order, the second one at once."""

    def __init__(self, processes: Sequence[CommandProcess], announce: Announce, again: Again, tell: Tell) -> None:
        self._processes: Final = processes
        self._announce: Final = announce
        self._again: Final = again
        self._tell: Final = tell
        self._interruptions = 0
        self._interrupted: Final = asyncio.Event()
        self._exit_code = DONE

    async def run(self) -> int:
        """Returns the exit code: 0 if both ended because they were asked to."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._interrupt)
        try:
            await asyncio.gather(*[one.start() for one in self._processes])
            if await self._become_ready():
                await self._watch()
        finally:
            await self._end()
        return self._exit_code

    def _interrupt(self) -> None:
        self._interruptions += 1
        self._interrupted.set()
        if self._interruptions > 1:
            for one in self._processes:
                one.kill()

    async def _become_ready(self) -> bool:
        ready = asyncio.gather(*[one.ready() for one in self._processes])
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        await asyncio.wait((ready, interrupted), return_when=asyncio.FIRST_COMPLETED)
        interrupted.cancel()
        if not ready.done():
            ready.cancel()
            self._exit_code = INTERRUPTED
            return False
        try:
            self._announce(ready.result())
        except NotReady as error:
            ports = [f"--{one.label}-{port}-port 0" for one in self._processes for port in ("amqp", "amqps", "http")]
            self._tell(
                f"{error}: see above. To take free ports for both: {' '.join(ports)} (with make: UP_ARGS='...'; "
                "`tandembus up --help` lists all options)"
            )
            self._exit_code = FAILED
            return False
        return True

    async def _watch(self) -> None:
        """Until it is interrupted, or none of them is left."""
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        ends = {asyncio.ensure_future(one.ended()): one for one in self._processes}
        while ends and not interrupted.done():
            done, _ = await asyncio.wait({*ends, interrupted}, return_when=asyncio.FIRST_COMPLETED)
            for end in done - {interrupted}:
                self._report_end(ends.pop(end), end.result())
        interrupted.cancel()

    def _report_end(self, process: CommandProcess, exit_code: int) -> None:
        """Unless it was asked to."""
        if self._interrupted.is_set():
            return
        self._exit_code = FAILED
        left = [one.label for one in self._processes if one.is_running]
        rest = f"the {left[0]} goes on" if left else "none is left"
        self._tell(f"the {process.label} has ended by itself ({described(exit_code)}); {rest}")
        if left:
            self._tell(f"to start it again beside this: {self._again(process.label)}")

    async def _end(self) -> None:
        running = [one for one in self._processes if one.is_running]
        for one in running:
            one.stop()
        ends = [asyncio.ensure_future(one.ended()) for one in running]
        if not ends:
            return
        _, late = await asyncio.wait(ends, timeout=STOPS_WITHIN_S)
        for one, end in zip(running, ends, strict=True):
            if end in late:
                self._tell(f"the {one.label} did not stop within {STOPS_WITHIN_S:g} s and is killed")
                one.kill()
        codes = await asyncio.gather(*ends)
        if self._exit_code == DONE and any(codes):
            self._exit_code = FAILED
