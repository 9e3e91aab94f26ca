"""Keeps the namespace's other processes running: starts them, kills those that fall silent, starts those that ended.

A process is started again only when the exit of its last life is known: until then it may still own its stores, even
if it is stopped and says nothing. When this process ends, so do they (`lifeline.py`).
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, final

from tandembus.clock import Clock
from tandembus.node.child_process import ChildProcess
from tandembus.node.supervision import ProcessLives, ProcessState
from tandembus.tasks import WhenBroken, essential

log = logging.getLogger("tandembus.node")

LATE_S: Final = 1.0
"""Woken so much later than asked for, the supervisor itself was stopped or starved."""
CRASHES: Final = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})
"""Signals that a process gets for what it does itself; others are sent to it."""
LOOPING_AFTER: Final = 3
"""So many ends in a row, and people have to be told."""


class Role(Enum):
    BROKER = "broker"
    FRONT_END = "front-end"


@dataclass(frozen=True, slots=True)
class ProcessId:
    """Which process of the namespace, life after life."""

    role: Role
    index: int

    def __str__(self) -> str:
        return f"{self.role.value} {self.index}"


StartChild = Callable[[ProcessId], ChildProcess]


@final
class SupervisedProcess:
    def __init__(self, process_id: ProcessId, lives: ProcessLives) -> None:
        self.id = process_id
        self.lives = lives
        self.child: ChildProcess | None = None
        self.last_exit: str | None = None
        self.is_stopping = False
        self.keeper: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        """Set when its state changes, for whoever waits for one."""

    @property
    def has_failed_once(self) -> bool:
        return self.last_exit is not None


@final
class Supervisor:
    def __init__(
        self,
        processes: Iterable[ProcessId],
        start: StartChild,
        clock: Clock,
        restart_delay_s: float,
        heartbeat_timeout_s: float,
    ) -> None:
        self._start_child = start
        self._clock = clock
        self.processes: dict[ProcessId, SupervisedProcess] = {
            one: SupervisedProcess(one, ProcessLives(restart_delay_s, heartbeat_timeout_s)) for one in processes
        }
        self.on_ended: Callable[[ProcessId], None] = _nothing

    def start(self, processes: Iterable[ProcessId]) -> None:
        """Returns at once; needs no loop yet, so that they load while this process does."""
        for one in processes:
            self._start_one(self.processes[one])

    def of(self, role: Role) -> list[ProcessId]:
        return [one for one in self.processes if one.role is role]

    def keep(self, processes: Iterable[ProcessId], when_broken: WhenBroken) -> None:
        """From now on whoever of these is not there is started, and started again whenever it has ended."""
        for one in processes:
            process = self.processes[one]
            process.keeper = essential(self._keep(process), f"keeping {process.id}", when_broken)

    # What the control connection tells.

    def heard(self, process_id: ProcessId, pid: int) -> None:
        process = self._living(process_id, pid)
        if process is not None:
            process.lives.heard(self._clock.monotonic())

    def became_ready(self, process_id: ProcessId, pid: int) -> None:
        process = self._living(process_id, pid)
        if process is not None and process.lives.state is not ProcessState.READY:
            process.lives.became_ready(self._clock.monotonic())
            process.changed.set()
            log.info("%s is ready (process %d)", process_id, pid)

    def resyncs(self, process_id: ProcessId, pid: int) -> None:
        """It was cut off, and is on its way back."""
        process = self._living(process_id, pid)
        if process is not None:
            process.lives.resyncs(self._clock.monotonic())

    def is_current(self, process_id: ProcessId, pid: int) -> bool:
        """Whether this is the process's present life: an earlier one has nothing to say any more."""
        return self._living(process_id, pid) is not None

    def _living(self, process_id: ProcessId, pid: int) -> SupervisedProcess | None:
        process = self.processes.get(process_id)
        return process if process is not None and process.lives.pid == pid else None

    # Waiting, and stopping.

    async def until_settled(self, processes: Iterable[ProcessId]) -> None:
        """Returns when each of these is ready or has failed to become so: then there is nothing to wait for."""
        for one in processes:
            process = self.processes[one]
            while process.lives.state is not ProcessState.READY and not process.has_failed_once:
                process.changed.clear()
                await process.changed.wait()

    def expect_stop(self, processes: Sequence[ProcessId]) -> None:
        """Whoever of these ends from now on is not started again."""
        for one in processes:
            process = self.processes[one]
            process.is_stopping = True
            if process.child is None and process.keeper is not None:
                process.keeper.cancel()

    async def until_stopped(self, processes: Sequence[ProcessId], within_s: float) -> None:
        """Returns when these have ended; those that have not in time are killed."""
        keepers = [keeper for one in processes if (keeper := self.processes[one].keeper) is not None]
        if keepers:
            await asyncio.wait(keepers, timeout=within_s)
        self.kill(processes)
        await asyncio.gather(*keepers, return_exceptions=True)

    def kill(self, processes: Iterable[ProcessId]) -> None:
        for one in processes:
            child = self.processes[one].child
            if child is not None:
                child.kill()

    def let_go(self) -> None:
        """For a start that failed: nobody stays behind."""
        for process in self.processes.values():
            process.is_stopping = True
            if process.keeper is not None:
                process.keeper.cancel()
            if process.child is not None:
                process.child.kill()
                process.child.let_go()

    # One process, life after life.

    def _start_one(self, process: SupervisedProcess) -> None:
        child = process.child = self._start_child(process.id)
        process.lives.started(child.pid, self._clock.monotonic(), child.is_loaded())

    async def _keep(self, process: SupervisedProcess) -> None:
        while True:
            told = await self._live(process)
            if process.is_stopping:
                process.lives.stopped(self._clock.monotonic())
                return
            await self._rest(process, told)

    async def _live(self, process: SupervisedProcess) -> str:
        """One life, or that there was none: a machine short of memory or processes has them again later."""
        try:
            if process.child is None:
                self._start_one(process)
        except OSError as error:
            return f"could not be started: {error}"
        assert process.child is not None
        code = await self._until_end(process, process.child)
        process.child = None
        if -code in CRASHES:
            process.lives.crashed(self._clock.monotonic())
        self.on_ended(process.id)
        return _told(code)

    async def _until_end(self, process: SupervisedProcess, child: ChildProcess) -> int:
        ended = asyncio.ensure_future(child.wait())
        lives = process.lives
        try:
            while True:
                wake_at = lives.look_again_at(self._clock.monotonic())
                await asyncio.wait([ended], timeout=max(0.0, wake_at - self._clock.monotonic()))
                if ended.done():
                    return ended.result()
                now = self._clock.monotonic()
                if child.has_orders():
                    lives.has_orders()
                if now - wake_at > LATE_S and lives.we_slept(now):
                    continue
                if now >= lives.silent_until():
                    self._give_up(process, child, now)
                    return await ended
        finally:
            ended.cancel()

    def _give_up(self, process: SupervisedProcess, child: ChildProcess, now: float) -> None:
        log.warning("%s (process %d) is silent and is killed", process.id, child.pid)
        process.lives.given_up(now)
        child.kill()

    async def _rest(self, process: SupervisedProcess, told: str) -> None:
        now = self._clock.monotonic()
        restart_at = process.lives.ended(now)
        process.last_exit = told
        process.changed.set()
        level = logging.ERROR if process.lives.short_lives >= LOOPING_AFTER else logging.WARNING
        log.log(level, "%s %s; it is started again in %.2g s", process.id, process.last_exit, restart_at - now)
        await asyncio.sleep(restart_at - now)


def _told(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _nothing(_process: ProcessId) -> None:
    return
