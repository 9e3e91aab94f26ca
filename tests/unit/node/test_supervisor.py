"""The supervisor with real processes: started, killed when silent, awaited, started again, never orphaned."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tandembus.clock import SystemClock
from tandembus.node.child_process import ChildProcess, start_child
from tandembus.node.lifeline import SUPERVISOR_GONE
from tandembus.node.supervision import START_TIMEOUT_S, ProcessState
from tandembus.node.supervisor import ProcessId, Role, Supervisor
from tandembus.tasks import carry_on
from tests.covers import covers

ROOT = Path(__file__).parents[3]
COMES_WITHIN_S = 20.0
BROKER = ProcessId(Role.BROKER, 1)
STAND_IN = "tests.unit.node.stand_in"


class Stage:
    """A supervisor of stand-ins, and what they left in their folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.supervisors: list[Supervisor] = []
        self.orders: dict[str, object] = {"folder": str(folder)}
        self.refusals = 0
        """So many times from now on the machine has no process to spare."""
        self.spare: ChildProcess | None = None

    def supervisor(self, restart_delay_s: float = 0.0, heartbeat_timeout_s: float = 30.0) -> Supervisor:
        made = Supervisor([BROKER], self.start, SystemClock(), restart_delay_s, heartbeat_timeout_s)
        self.supervisors.append(made)
        made.start([BROKER])
        made.keep([BROKER], carry_on)
        return made

    def start(self, one: ProcessId) -> ChildProcess:
        if self.refusals > 0:
            self.refusals -= 1
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        child = self.spare or start_child(one.role.value, str(one.index), "shop", STAND_IN)
        self.spare = None
        child.give(self.orders)
        return child

    async def load_spare(self) -> ChildProcess:
        """To take the next one's place."""
        spare = self.spare = start_child("broker", "1", "shop", STAND_IN)
        await comes(spare.is_loaded)
        assert not spare.has_orders()
        return spare

    def pids(self) -> list[int]:
        """Of all lives that came so far as to hold the lock, oldest first."""
        found = sorted(self.folder.glob("broker-1.*"), key=lambda path: path.stat().st_mtime_ns)
        return [int(path.suffix[1:]) for path in found]

    async def close(self) -> None:
        for one in self.supervisors:
            one.expect_stop([BROKER])
            one.kill([BROKER])
            await one.until_stopped([BROKER], 0.0)


async def comes(condition: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + COMES_WITHIN_S
    while not condition():
        assert time.monotonic() < give_up_at, "it did not come"
        await asyncio.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    stage = Stage(tmp_path / "store")
    yield stage
    await stage.close()


@covers("P3")
async def test_a_process_that_is_killed_is_started_again(stage: Stage) -> None:
    supervisor = stage.supervisor()
    await comes(lambda: len(stage.pids()) == 1)
    os.kill(stage.pids()[0], signal.SIGKILL)
    await comes(lambda: len(stage.pids()) == 2)
    process = supervisor.processes[BROKER]
    assert process.lives.pid == stage.pids()[1]
    assert process.last_exit == "was ended by signal 9"
    assert process.lives.restart_count == 1


@covers("P3")
async def test_a_process_that_is_stopped_and_silent_is_killed_before_another_takes_its_place(stage: Stage) -> None:
    supervisor = stage.supervisor(heartbeat_timeout_s=0.5)
    await comes(lambda: len(stage.pids()) == 1)
    first = stage.pids()[0]
    os.kill(first, signal.SIGSTOP)
    supervisor.became_ready(BROKER, first)
    # The second life can only have come so far if the first one's lock was free.
    await comes(lambda: len(stage.pids()) == 2)
    assert is_gone(first)


@covers("P3")
async def test_a_loaded_process_that_does_not_read_its_orders_is_not_waited_for_as_if_it_were_loading(
    stage: Stage,
) -> None:
    spare = await stage.load_spare()
    os.kill(spare.pid, signal.SIGSTOP)
    supervisor = stage.supervisor(heartbeat_timeout_s=0.5)
    process = supervisor.processes[BROKER]
    assert process.lives.pid == spare.pid
    await comes(lambda: len(stage.pids()) == 1)
    assert stage.pids() != [spare.pid]
    assert process.last_exit == "was ended by signal 9"


@covers("P3")
async def test_a_loaded_process_that_has_read_its_orders_may_take_its_time(stage: Stage) -> None:
    spare = await stage.load_spare()
    supervisor = stage.supervisor(heartbeat_timeout_s=0.2)
    await comes(spare.has_orders)
    lives = supervisor.processes[BROKER].lives
    await comes(lambda: lives.silent_until() == lives.state_since + START_TIMEOUT_S)
    assert (lives.pid, lives.state) == (spare.pid, ProcessState.STARTING)


async def test_who_is_heard_is_left_alone(stage: Stage) -> None:
    supervisor = stage.supervisor(heartbeat_timeout_s=0.5)
    await comes(lambda: len(stage.pids()) == 1)
    pid = stage.pids()[0]
    silent_for_long_at = time.monotonic() + 1.2

    def has_been_heard_for_long() -> bool:
        supervisor.heard(BROKER, pid)
        return time.monotonic() > silent_for_long_at

    await comes(has_been_heard_for_long)
    assert stage.pids() == [pid]


async def test_an_earlier_life_has_nothing_to_say_any_more(stage: Stage) -> None:
    supervisor = stage.supervisor()
    await comes(lambda: len(stage.pids()) == 1)
    supervisor.became_ready(BROKER, stage.pids()[0] + 1)
    assert supervisor.processes[BROKER].lives.state is ProcessState.STARTING
    assert not supervisor.is_current(BROKER, stage.pids()[0] + 1)
    assert supervisor.is_current(BROKER, stage.pids()[0])


async def test_a_process_that_never_becomes_ready_keeps_nobody_waiting_for_ever(stage: Stage) -> None:
    stage.orders["exit_code"] = 3
    supervisor = stage.supervisor(restart_delay_s=60.0)
    await asyncio.wait_for(supervisor.until_settled([BROKER]), COMES_WITHIN_S)
    assert supervisor.processes[BROKER].last_exit == "ended with exit code 3"
    assert supervisor.processes[BROKER].lives.state is ProcessState.DOWN


async def test_who_waits_goes_on_when_all_are_ready(stage: Stage) -> None:
    supervisor = stage.supervisor()
    waiting = asyncio.ensure_future(supervisor.until_settled([BROKER]))
    await asyncio.sleep(0)
    assert not waiting.done()
    pid = supervisor.processes[BROKER].lives.pid
    assert pid is not None
    supervisor.became_ready(BROKER, pid)
    await asyncio.wait_for(waiting, COMES_WITHIN_S)


async def test_a_process_that_ended_on_request_is_not_started_again(stage: Stage) -> None:
    supervisor = stage.supervisor()
    await comes(lambda: len(stage.pids()) == 1)
    supervisor.expect_stop([BROKER])
    os.kill(stage.pids()[0], signal.SIGKILL)
    await asyncio.wait_for(supervisor.until_stopped([BROKER], COMES_WITHIN_S), COMES_WITHIN_S)
    assert supervisor.processes[BROKER].lives.state is ProcessState.STOPPED


async def test_a_process_that_does_not_end_in_time_is_killed(stage: Stage) -> None:
    supervisor = stage.supervisor()
    await comes(lambda: len(stage.pids()) == 1)
    supervisor.expect_stop([BROKER])
    await asyncio.wait_for(supervisor.until_stopped([BROKER], 0.05), COMES_WITHIN_S)
    assert is_gone(stage.pids()[0])


async def test_a_process_that_waits_for_its_restart_is_stopped_at_once(stage: Stage) -> None:
    stage.orders["exit_code"] = 0
    supervisor = stage.supervisor(restart_delay_s=600.0)
    await supervisor.until_settled([BROKER])
    supervisor.expect_stop([BROKER])
    await asyncio.wait_for(supervisor.until_stopped([BROKER], COMES_WITHIN_S), COMES_WITHIN_S)


async def test_neither_an_interrupt_nor_a_termination_reaches_a_child(stage: Stage) -> None:
    child = stage.start(BROKER)
    await comes(lambda: len(stage.pids()) == 1)
    os.kill(child.pid, signal.SIGINT)
    os.kill(child.pid, signal.SIGTERM)
    child.let_go()
    assert await child.wait() == SUPERVISOR_GONE, "which is what ended it"


SUPERVISING = f"""
import sys, time
from tandembus.node.child_process import start_child
child = start_child("broker", "1", "shop", "{STAND_IN}")
child.give({{"folder": sys.argv[1]}})
sys.stdin.read()
"""


@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped"])
@covers("P3")
async def test_a_child_does_not_outlive_its_supervisor(stage: Stage, is_stopped: bool) -> None:
    supervisor = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SUPERVISING, str(stage.folder), stdin=subprocess.PIPE
    )
    await comes(lambda: len(stage.pids()) == 1)
    pid = stage.pids()[0]
    if is_stopped:
        os.kill(pid, signal.SIGSTOP)
    supervisor.kill()
    await supervisor.wait()
    await comes(lambda: is_gone(pid))


async def test_a_child_whose_supervisor_only_lets_go_of_it_ends_too(stage: Stage) -> None:
    child = stage.start(BROKER)
    await comes(lambda: len(stage.pids()) == 1)
    child.let_go()
    await comes(lambda: is_gone(child.pid))
    assert await child.wait() == SUPERVISOR_GONE


async def test_a_start_that_fails_lets_go_of_those_it_waits_for_without_a_word(stage: Stage) -> None:
    mistakes: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: mistakes.append(context))
    child = stage.start(BROKER)
    waiting = asyncio.ensure_future(child.wait())
    await asyncio.sleep(0)
    child.kill()
    child.let_go()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await comes(lambda: is_gone(child.pid))
    assert mistakes == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_to_all_processes_ends_none_that_is_still_loading(stage: Stage, number: signal.Signals) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    child = start_child("broker", "1", "shop", STAND_IN)
    os.kill(child.pid, number)
    await comes(lambda: child.is_loaded() or not child.is_alive())
    assert child.is_alive()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    child.kill()
    assert await child.wait() == -signal.SIGKILL


@covers("P3")
async def test_a_process_that_cannot_be_started_now_is_started_later(stage: Stage) -> None:
    supervisor = stage.supervisor()
    await comes(lambda: len(stage.pids()) == 1)
    broken: list[BaseException] = []
    keeper = supervisor.processes[BROKER].keeper
    assert keeper is not None
    keeper.add_done_callback(lambda done: broken.append(done.exception() or AssertionError("it ended")))
    stage.refusals = 2
    os.kill(stage.pids()[0], signal.SIGKILL)
    await comes(lambda: stage.refusals == 0)
    process = supervisor.processes[BROKER]
    await comes(lambda: process.last_exit is not None and "could not be started" in process.last_exit)
    assert process.lives.state is ProcessState.DOWN
    await comes(lambda: len(stage.pids()) == 2)
    assert broken == []


async def test_a_spare_waits_for_its_orders_and_ends_with_its_supervisor_too(stage: Stage) -> None:
    spare = start_child("broker", "1", "shop", STAND_IN)
    await comes(spare.is_loaded)
    assert spare.is_alive()
    assert stage.pids() == []
    spare.give(stage.orders)
    await comes(lambda: stage.pids() == [spare.pid])
    other = start_child("broker", "1", "shop", STAND_IN)
    for one in (spare, other):
        one.let_go()
        await comes(functools.partial(is_gone, one.pid))


async def test_orders_for_a_process_that_has_ended_already_harm_nobody(stage: Stage) -> None:
    child = start_child("broker", "1", "shop", STAND_IN)
    child.kill()
    await comes(lambda: not child.is_alive())
    child.give(stage.orders)
    assert await child.wait() == -signal.SIGKILL
