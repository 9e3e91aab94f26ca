"""A queue under everything at once: senders, receivers, clocks that move apart, a store that is slow, full or fails,
and crashes at any moment. Whatever happens, what was acknowledged is true."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tandembus.broker.locks import ABANDON, COMPLETE, DEAD_LETTER, DEFER, RELEASE
from tandembus.store.embedded import EmbeddedSettings, LmdbStore
from tandembus.store.memory import MemoryDisk, MemoryStore
from tandembus.store.messaging_store import DEAD_LETTER as DEAD_LETTER_LANE
from tandembus.store.messaging_store import DEFERRED, MAIN, SCHEDULED, MessagingStore
from tests.covers import covers
from tests.scale import scaled
from tests.simulation.faulty_store import Failure
from tests.simulation.simulated_broker import small_settings
from tests.simulation.simulated_queue import Held, Receiver, SimulatedQueue
from tests.simulation.still_loop import ENOUGH

MAX_RECEIVERS = 4
TTLS_MS = st.sampled_from([None, None, None, 2_000, 20_000, 90_000])
DELAYS_MS = st.sampled_from([0, 0, 0, 0, 4_000, 60_000])
WISHES = st.lists(st.tuples(TTLS_MS, DELAYS_MS), min_size=1, max_size=5)
CREDITS = st.sampled_from([0, 1, 1, 2, 5, 4_294_967_295])
SETTLEMENTS = st.sampled_from([COMPLETE, COMPLETE, ABANDON, ABANDON, DEFER, DEAD_LETTER, RELEASE])
LANES = st.sampled_from([MAIN, MAIN, MAIN, DEAD_LETTER_LANE])
PICK = st.integers(0, 1 << 20)


class QueueMachine(RuleBasedStateMachine):
    """The rules; each kind of store has a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: SimulatedQueue
        self.patience = ENOUGH

    def open_store(self) -> MessagingStore:
        raise NotImplementedError

    @initialize(dead_letter_expired=st.booleans())
    def start(self, dead_letter_expired: bool) -> None:
        self.queue = SimulatedQueue(self.open_store, small_settings(dead_letter_expired))

    def go_on(self) -> None:
        self.queue.turn(self.patience)

    def a_receiver(self, pick: int) -> Receiver | None:
        receivers = self.queue.receivers
        return receivers[pick % len(receivers)] if receivers else None

    def a_lock(self, pick: int) -> Held | None:
        held = list(self.queue.held.values())
        return held[pick % len(held)] if held else None

    @rule(wishes=WISHES)
    def send(self, wishes: list[tuple[int | None, int]]) -> None:
        self.queue.send(wishes)
        self.go_on()

    @rule(wishes=WISHES, more=WISHES)
    def send_twice_at_once(self, wishes: list[tuple[int | None, int]], more: list[tuple[int | None, int]]) -> None:
        self.queue.send(wishes)
        self.queue.send(more)
        self.go_on()

    @rule()
    def ping(self) -> None:
        self.queue.ping()
        self.go_on()

    @rule(lane=LANES, is_destructive=st.sampled_from([False, False, True]), credit=CREDITS)
    def attach(self, lane: int, is_destructive: bool, credit: int) -> None:
        if len(self.queue.receivers) < MAX_RECEIVERS:
            self.queue.flow(self.queue.attach(lane, is_destructive), credit)
            self.go_on()

    @rule(pick=PICK, credit=CREDITS, is_drain=st.booleans())
    def give_credit(self, pick: int, credit: int, is_drain: bool) -> None:
        receiver = self.a_receiver(pick)
        if receiver is not None:
            self.queue.flow(receiver, credit, is_drain)
            self.go_on()

    @rule(pick=PICK)
    def detach(self, pick: int) -> None:
        receiver = self.a_receiver(pick)
        if receiver is not None:
            self.queue.detach(receiver)
            self.go_on()

    @rule(pick=PICK, settlement=SETTLEMENTS, mark=st.sampled_from([0, 0, 1, 2]))
    def settle(self, pick: int, settlement: int, mark: int) -> None:
        held = self.a_lock(pick)
        if held is not None:
            can_mark = settlement in (ABANDON, DEFER)
            self.queue.settle(held, settlement, mark if can_mark else 0)
            self.go_on()

    @rule(settlement=SETTLEMENTS)
    def settle_everything(self, settlement: int) -> None:
        for held in list(self.queue.held.values()):
            self.queue.settle(held, settlement, 0)
        self.go_on()

    @rule(pick=PICK)
    def renew(self, pick: int) -> None:
        held = self.a_lock(pick)
        if held is not None:
            self.queue.renew(held)

    @rule(pick=PICK, is_destructive=st.booleans())
    def receive_deferred(self, pick: int, is_destructive: bool) -> None:
        deferred = [one for one in self.queue.messages.values() if one.is_surely(MAIN, DEFERRED)]
        if deferred:
            self.queue.receive_deferred(deferred[pick % len(deferred)], is_destructive)
            self.go_on()

    @rule(pick=PICK, count=st.integers(1, 3))
    def cancel(self, pick: int, count: int) -> None:
        scheduled = [one for one in self.queue.messages.values() if one.is_surely(MAIN, SCHEDULED)]
        if scheduled:
            start = pick % len(scheduled)
            self.queue.cancel(scheduled[start : start + count])
            self.go_on()

    @rule(count=st.sampled_from([1, 3, 1_000]))
    def purge(self, count: int) -> None:
        self.queue.purge(count)
        self.go_on()

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        self.queue.pass_time(seconds)

    @rule(seconds=st.sampled_from([-3_600.0, -10.0, 10.0, 3_600.0]))
    def set_wall_clock(self, seconds: float) -> None:
        self.queue.set_wall_clock(seconds)

    @rule(failure=st.sampled_from(list(Failure)), after=st.integers(1, 3), is_repeated=st.booleans())
    def fail_a_commit(self, failure: Failure, after: int, is_repeated: bool) -> None:
        self.queue.script.fail_next(failure, after)
        if is_repeated:
            self.queue.script.fail_next(failure, after + 1)

    @rule(is_hanging=st.booleans())
    def hang(self, is_hanging: bool) -> None:
        self.queue.script.hang(is_hanging)
        self.go_on()

    @rule(commit_rounds=st.integers(0, 6), read_rounds=st.integers(0, 6), patience=st.sampled_from([0, 1, 3, ENOUGH]))
    def be_slow(self, commit_rounds: int, read_rounds: int, patience: int) -> None:
        self.queue.script.commit_rounds, self.queue.script.read_rounds = commit_rounds, read_rounds
        self.patience = patience

    @rule(rounds=st.integers(1, 5))
    def turn(self, rounds: int) -> None:
        self.queue.turn(rounds)

    @rule(is_written=st.booleans())
    def crash(self, is_written: bool) -> None:
        self.queue.crash(is_written)

    @rule()
    def restart(self) -> None:
        self.queue.restart()

    @rule()
    def check(self) -> None:
        self.queue.check()

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self.queue.check()
                self.queue.drain_everything()
                self.queue.restart()
                self.queue.send([(None, 0)])
                self.queue.check()
        finally:
            self.queue.dispose()


class MemoryQueueMachine(QueueMachine):
    def __init__(self) -> None:
        super().__init__()
        self._disk = MemoryDisk()

    def open_store(self) -> MessagingStore:
        return MemoryStore(self._disk)


class LmdbQueueMachine(QueueMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._settings = EmbeddedSettings(map_bytes=64 << 20, block_size=8, commit_mode="loop")

    def open_store(self) -> MessagingStore:
        return LmdbStore.open(Path(self._folder.name), self._settings)

    def teardown(self) -> None:
        super().teardown()
        self._folder.cleanup()


def run(machine: type[QueueMachine], examples: int, steps: int) -> None:
    """The same runs on every commit; others at night."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=os.environ.get("SCALE", "ci") == "ci",
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@covers("M1", "M2", "M3", "M4", "M5", "M6", "F3", "F9")
def test_a_queue_keeps_its_word_whatever_happens_to_its_store() -> None:
    run(MemoryQueueMachine, scaled(80, 5_000, 50_000), scaled(50, 80, 100))


@covers("M1", "M2", "F3")
def test_a_queue_keeps_its_word_on_the_embedded_store() -> None:
    run(LmdbQueueMachine, scaled(12, 500, 5_000), scaled(40, 80, 100))
