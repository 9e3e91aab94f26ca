"""A process of the namespace as its supervisor holds it: started, given its orders, ended, awaited.

Its standard input is one end of a socket pair, its *lifeline*. Over it the child is given its orders, which hold keys
and so must not stand on a command line; one that is kept as a spare gets them later. The child gives two signs over it:
when it is loaded, and when it has its orders. After that nothing is said on it: when the child finds it closed, its
supervisor is gone, and so must it be; when the supervisor finds it closed, the child has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import site
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol, final

from tandembus.node.lifeline import MEANT_FOR_SUPERVISOR

CHILD_MODULE: Final = "tandembus.node.child"
STANDARD_ERROR: Final = 2
"""All processes log to the same place, and nothing but the supervisor's own answers goes to standard output."""


class Process(Protocol):
    """As `subprocess.Popen` has it: an exit code, or minus the signal that ended it."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...

    def kill(self) -> None: ...


@final
class ChildProcess:
    """One life of one process. Killing is not enough: only `wait` says that it owns nothing any more."""

    def __init__(self, process: Process, lifeline: socket.socket) -> None:
        self._process = process
        self._lifeline = lifeline
        self._lifeline.setblocking(False)
        self._signs = 0
        self._look_away: Callable[[], object] = _nothing
        self.pid = process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def is_loaded(self) -> bool:
        """Whether it has only to be given its orders."""
        self._hear()
        return self._signs >= 1

    def has_orders(self) -> bool:
        """Whether it has read them."""
        self._hear()
        return self._signs >= 2

    def give(self, orders: dict[str, object]) -> None:
        """What it needs to know, keys included."""
        content = json.dumps({**orders, "supervisor_pid": os.getpid()}).encode()
        self._lifeline.setblocking(True)
        try:
            self._lifeline.sendall(len(content).to_bytes(4, "big") + content)
        except OSError:
            pass  # It has ended already, which `wait` will tell.
        self._lifeline.setblocking(False)

    def kill(self) -> None:
        """Also ends a process that is stopped and answers to nothing else."""
        if self._process.poll() is None:
            self._process.kill()

    async def wait(self) -> int:
        """Returns the exit code once the process is gone with all that it held; minus the signal that ended it."""
        loop = asyncio.get_running_loop()
        if self._lifeline.fileno() >= 0:
            closed = loop.create_future()
            loop.add_reader(self._lifeline.fileno(), self._look, closed)
            self._look_away = functools.partial(loop.remove_reader, self._lifeline.fileno())
            try:
                await closed
            finally:
                self._stop_looking()
        # Its files are closed a moment before it is gone.
        code = await asyncio.to_thread(self._process.wait)
        self._lifeline.close()
        return code

    def _look(self, closed: asyncio.Future[None]) -> None:
        if self._hear() and not closed.done():
            closed.set_result(None)

    def _hear(self) -> bool:
        """Takes its signs; returns whether the lifeline is closed."""
        try:
            signs = self._lifeline.recv(16)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True
        self._signs += len(signs)
        return not signs

    def _stop_looking(self) -> None:
        """Once: later the lifeline's number may be somebody else's."""
        look_away, self._look_away = self._look_away, _nothing
        look_away()

    def let_go(self) -> None:
        """Closes the lifeline: the child ends by itself as soon as it notices."""
        self._stop_looking()
        self._lifeline.close()


def start_child(role: str, label: str, namespace_name: str, module: str = CHILD_MODULE) -> ChildProcess:
    """It loads what its role needs, and waits for its orders. Label and name are for the list of processes."""
    ours, theirs = socket.socketpair()
    command = [*python_command(), "-m", module, role, label, namespace_name]
    try:
        with held_back(MEANT_FOR_SUPERVISOR):
            process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=STANDARD_ERROR, env=child_environment())
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return ChildProcess(process, ours)


@contextlib.contextmanager
def held_back(signals: frozenset[signal.Signals]) -> Iterator[None]:
    """A process that is started meanwhile does not get them until it asks for them (`lifeline.py`): they must not end
    one that is still loading. We get ours right after."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _nothing() -> None:
    return


def python_command() -> list[str]:
    """Nothing is to be imported from whatever folder this was started in."""
    return [sys.executable, "-P"]


def child_environment() -> dict[str, str]:
    """The child imports the same package, also where that is not installed."""
    package_root = str(Path(__file__).resolve().parents[2])
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    environment = dict(os.environ)
    if package_root not in installed:
        paths = [package_root, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    return environment
