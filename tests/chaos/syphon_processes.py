"""Syphons that can be killed: the program, and an application whose pair brings the messages home itself.

Run as a module, this is that application: `python -m tests.chaos.syphon_processes PRIMARY SECONDARY CA_PATH`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable
from typing import Protocol

from tandembus.cli.command_process import CommandProcess
from tests.chaos.pairs import BACKLOG_QUEUES, PRIMARY, Ends, paired
from tests.integration.serving import die_with_the_tests, python_path

PROGRAM, IN_PROCESS = "program", "in-process"
Tell = Callable[[str], None]


class SyphonProcess(Protocol):
    @property
    def pid(self) -> int: ...

    @property
    def is_running(self) -> bool: ...

    async def start(self) -> None: ...

    async def ended(self) -> int: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


def syphon_process(kind: str, ends: Ends, tell: Tell) -> SyphonProcess:
    if kind == IN_PROCESS:
        return ApplicationProcess(ends, tell)
    options = ["--primary", ends.primary, "--secondary", ends.secondary]
    options += ["--primary-name", PRIMARY, "--backlog-queues", str(BACKLOG_QUEUES)]
    return CommandProcess("syphon", ["syphon", *options], tell)


class ApplicationProcess:
    """It sends nothing, and has a syphon: `enable_syphon=True`."""

    def __init__(self, ends: Ends, tell: Tell) -> None:
        self._ends = ends
        self._tell = tell
        self._process: Process | None = None

    async def start(self) -> None:
        module = "tests.chaos.syphon_processes"
        command = [sys.executable, "-m", module, self._ends.primary, self._ends.secondary, self._ends.ca_path]
        self._process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, **python_path(module)},
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            preexec_fn=die_with_the_tests,
        )
        self._ended = asyncio.create_task(self._follow(self._process))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and not self._ended.done()

    async def ended(self) -> int:
        return await asyncio.shield(self._ended)

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    async def _follow(self, process: Process) -> int:
        assert process.stdout is not None
        async for line in process.stdout:
            self._tell(line.decode(errors="replace").rstrip())
        return await process.wait()


async def _run(ends: Ends) -> None:
    is_over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_over.set)
    async with paired(ends, enable_syphon=True):
        await is_over.wait()


if __name__ == "__main__":
    asyncio.run(_run(Ends(*sys.argv[1:])))
