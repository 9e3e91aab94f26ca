"""Two namespaces on this machine, from their start to their end: both, or neither of them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from typing import Final

from tandembus.cli.command_process import CommandProcess, NotReady, Tell, described

DONE: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130
STOPS_WITHIN_S: Final = 15.0
"""A namespace gives itself ten seconds to stop in order; one that takes longer than this hangs."""

Announce = Callable[[Sequence[str]], None]
"""Told the connection strings, once both of them are of use."""

Again = Callable[[str], str]
"""For a label: the command that starts this one again, where it was."""


class PairProcesses:
    """Runs until it is interrupted. A namespace that ends by itself is told, and the other goes on: a pair is there to
    outlive that. The first interruption stops both in order, the second one at once."""

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
                "`tandembus up --help` tells all options)"
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
                self._tell_end(ends.pop(end), end.result())
        interrupted.cancel()

    def _tell_end(self, process: CommandProcess, exit_code: int) -> None:
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
