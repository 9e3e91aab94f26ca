"""The first message brokers as forks of the process that starts them: what they need is loaded once for all of them.

Loading is most of what a start costs, and a namespace has more processes than a small machine has cores. Only a process
without threads and without a loop may fork, so this serves the start alone; whoever is started later is started anew
(`child_process.py`). Apart from how it came to be, a fork is a child like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import traceback
from typing import Final, NoReturn, final

from tandembus.node.child import Life, load
from tandembus.node.child_process import STANDARD_ERROR, ChildProcess, held_back
from tandembus.node.lifeline import MEANT_FOR_SUPERVISOR, Lifeline

STANDARD_INPUT: Final = 0
STANDARD_OUTPUT: Final = 1
BROKE_DOWN: Final = 1
UNKNOWN: Final = 0
"""The exit code where the system does not tell: whoever started this process does not want to know of its children."""
ARGUMENTS_AT: Final = 48 - 3
"""Where the place of the command line stands in `/proc/self/stat`, behind the name in brackets (proc(5))."""


def may_fork() -> bool:
    """Elsewhere than on Linux a fork cannot use all of the system's libraries."""
    return sys.platform == "linux" and threading.active_count() == 1 and not _is_in_loop()


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def fork_child(role: str, label: str, namespace_name: str) -> ChildProcess:
    """Like `start_child`. Loads what the role needs into this process, too."""
    life = load(role)
    ours, theirs = socket.socketpair()
    try:
        with held_back(MEANT_FOR_SUPERVISOR):
            pid = _fork()
            if pid == 0:
                _live(life, theirs, f"tandembus {role} {label} {namespace_name}")
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return ChildProcess(ForkedProcess(pid), ours)


def _fork() -> int:
    """What was printed so far is printed once."""
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fork()


def _live(life: Life, lifeline: socket.socket, title: str) -> NoReturn:
    """The whole life of a fork. It never goes back to where it came from: there the supervisor's work goes on."""
    code = BROKE_DOWN
    try:
        os.dup2(lifeline.fileno(), STANDARD_INPUT)
        os.dup2(STANDARD_ERROR, STANDARD_OUTPUT)
        _close_others()
        _show_as(title)
        code = life(Lifeline())
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)


def _close_others() -> None:
    """The lifelines of those started before, above all: nobody but the supervisor may keep them open."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > STANDARD_ERROR:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _show_as(title: str) -> None:
    """In the list of processes, where there would be the supervisor's command line once more."""
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        start, end = int(fields[ARGUMENTS_AT]), int(fields[ARGUMENTS_AT + 1])
        room = end - start
        if start > 0 and room > 1:
            ctypes.memmove(start, title.encode()[: room - 1].ljust(room, b"\0"), room)


@final
class ForkedProcess:
    """What `subprocess.Popen` is for those that were started anew."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None
        self._turn = threading.Lock()
        """An exit is told once, and one thread may wait for it while another asks."""

    def poll(self) -> int | None:
        if self._turn.acquire(blocking=False):
            try:
                self._hear(os.WNOHANG)
            finally:
                self._turn.release()
        return self._code

    def wait(self) -> int:
        with self._turn:
            self._hear(0)
        assert self._code is not None
        return self._code

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _hear(self, options: int) -> None:
        if self._code is not None:
            return
        try:
            pid, status = os.waitpid(self.pid, options)
        except ChildProcessError:
            self._code = UNKNOWN
            return
        if pid == self.pid:
            self._code = os.waitstatus_to_exitcode(status)
