"""One script of everything a queue does, again and again: each time another of its commits goes wrong, in every way a
commit can."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import pytest

from tandembus.broker.locks import ABANDON, COMPLETE, DEAD_LETTER, DEFER, RELEASE
from tandembus.store.memory import MemoryDisk, MemoryStore
from tandembus.store.messaging_store import DEAD_LETTER as DEAD_LETTER_LANE
from tandembus.store.messaging_store import DEFERRED, MAIN, SCHEDULED
from tests.covers import covers
from tests.simulation.faulty_store import Failure
from tests.simulation.simulated_broker import LOCK_DURATION_S, small_settings
from tests.simulation.simulated_queue import SimulatedQueue
from tests.simulation.still_loop import ENOUGH

OUTAGE_S = 6.0


class Trouble(Enum):
    FULL = "there is no room for what grows"
    NO_ROOM_AT_ALL = "there is no room for anything"
    LOST = "the outcome is unknown, and nothing was written"
    KEPT = "the outcome is unknown, and everything was written"
    HANG = "no answer for longer than an outage takes, then all is well"
    DEATH_BEFORE = "the process dies before the write"
    DEATH_BEHIND = "the process dies behind the write"


FAILURES = {Trouble.FULL: Failure.FULL, Trouble.LOST: Failure.LOST, Trouble.KEPT: Failure.KEPT}


class Steps:
    """What is done, one step after the other; trouble may come in between."""

    queue: SimulatedQueue
    steps: tuple[Callable[[], None], ...]

    def run(self, after_step: Callable[[], None]) -> None:
        for step in self.steps:
            step()
            self.queue.turn(ENOUGH)
            after_step()


class Script(Steps):
    """The steps; each looks for what it needs and does without where trouble took it away."""

    def __init__(self, queue: SimulatedQueue) -> None:
        self.queue = queue
        self.steps: tuple[Callable[[], None], ...] = (
            lambda: queue.send([(None, 0), (None, 0), (2_000, 0), (None, 5_000), (None, 60_000)]),
            lambda: queue.send([(None, 0)] * 9),
            queue.ping,
            lambda: self.receive(MAIN, 6),
            lambda: self.settle(COMPLETE, 1),
            lambda: self.settle(ABANDON, 1, mark=1),
            lambda: self.settle(DEFER, 1, mark=2),
            lambda: self.settle(DEAD_LETTER, 1),
            lambda: self.settle(RELEASE, 1),
            lambda: queue.pass_time(6.0),
            lambda: self.receive_deferred(is_destructive=False),
            lambda: self.settle(ABANDON, 2),
            lambda: self.receive(DEAD_LETTER_LANE, 3),
            lambda: self.settle(ABANDON, 1),
            lambda: self.cancel(),
            lambda: self.receive(MAIN, 3),
            lambda: queue.pass_time(LOCK_DURATION_S + 1.0),
            lambda: self.remove(2),
            lambda: self.receive_deferred(is_destructive=True),
            lambda: queue.send([(None, 0)] * 4),
            lambda: queue.purge(2),
            lambda: self.receive(MAIN, 2),
            lambda: self.let_go(),
            lambda: queue.pass_time(LOCK_DURATION_S + 1.0),
            lambda: self.receive(MAIN, 2),
            lambda: self.settle(RELEASE, 1),
            lambda: self.settle(COMPLETE, 1),
            lambda: queue.send([(None, 0), (1_000, 0)]),
        )

    def receive(self, lane: int, credit: int) -> None:
        self.queue.flow(self.queue.attach(lane, is_destructive=False), credit)

    def remove(self, credit: int) -> None:
        self.queue.flow(self.queue.attach(MAIN, is_destructive=True), credit)

    def settle(self, settlement: int, count: int, mark: int = 0) -> None:
        for held in [held for held in self.queue.held.values() if held.lock.lane == MAIN][:count]:
            self.queue.settle(held, settlement, mark)

    def receive_deferred(self, is_destructive: bool) -> None:
        for one in [one for one in self.queue.messages.values() if one.is_surely(MAIN, DEFERRED)][:1]:
            self.queue.receive_deferred(one, is_destructive)

    def cancel(self) -> None:
        self.queue.cancel([one for one in self.queue.messages.values() if one.is_surely(MAIN, SCHEDULED)][:1])

    def let_go(self) -> None:
        for receiver in list(self.queue.receivers):
            self.queue.detach(receiver)


def new_script() -> Script:
    disk = MemoryDisk()
    return Script(SimulatedQueue(lambda: MemoryStore(disk), small_settings(dead_letter_expired=True)))


def commits_of(new_steps: Callable[[], Steps]) -> int:
    steps = new_steps()
    try:
        steps.run(_nothing)
        return steps.queue.script.commit_count
    finally:
        steps.queue.dispose()


def _nothing() -> None:
    return


def run_with(trouble: Trouble, commit: int, steps: Steps) -> SimulatedQueue:
    """The script with trouble at this commit; then a look at everything, and all that waits is received."""
    queue = steps.queue
    script = queue.script

    def meet() -> None:
        if script.under_way is None:
            return
        script.hang_at = 0
        if trouble is Trouble.HANG:
            queue.pass_time(OUTAGE_S)
            assert queue.fragment.failure is not None, "nobody noticed that the store does not answer"
            script.hang(False)
            queue.turn(ENOUGH)
        else:
            queue.crash(is_written=trouble is Trouble.DEATH_BEHIND)

    if trouble in FAILURES:
        script.failures[commit] = FAILURES[trouble]
    elif trouble is Trouble.NO_ROOM_AT_ALL:
        script.failures[commit] = script.failures[commit + 1] = Failure.FULL
    else:
        script.hang_at = commit
    try:
        steps.run(meet)
        queue.check()
        queue.drain_everything()
        queue.restart()
        return queue
    finally:
        queue.dispose()


@covers("M1", "M2", "M3", "F2", "F3")
@pytest.mark.parametrize("trouble", list(Trouble), ids=lambda trouble: trouble.name)
def test_whichever_commit_meets_trouble_the_queue_keeps_its_word(trouble: Trouble) -> None:
    commits = commits_of(new_script)
    assert commits >= 20
    for commit in range(2, commits + 1):
        queue = run_with(trouble, commit, new_script())
        assert queue.accepted_count > 0
