"""Sessions under everything at once: a store that is slow, full or fails, clocks that move, crashes at any moment.
Whatever happens, a session has one holder, and its messages come in order."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tandembus.store.embedded import EmbeddedSettings, LmdbStore
from tandembus.store.memory import MemoryDisk, MemoryStore
from tandembus.store.messaging_store import MessagingStore
from tests.covers import covers
from tests.scale import scaled
from tests.simulation.faulty_store import Failure
from tests.simulation.simulated_sessions import SETTLEMENTS, Holder, SimulatedSessions, session_settings
from tests.simulation.still_loop import ENOUGH

SESSIONS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
PICK = st.integers(0, 1 << 20)
CREDITS = st.sampled_from([0, 1, 2, 5, 100])
MAX_WAITING = 3


class SessionMachine(RuleBasedStateMachine):
    """The rules; each kind of store has a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: SimulatedSessions
        self.patience = ENOUGH

    def open_store(self) -> MessagingStore:
        raise NotImplementedError

    @initialize(max_sessions=st.sampled_from([2, 4, 100]), max_numbers=st.sampled_from([1, 3, 100]))
    def start(self, max_sessions: int, max_numbers: int) -> None:
        self.queue = SimulatedSessions(self.open_store, session_settings(max_sessions, max_numbers))

    def go_on(self) -> None:
        self.queue.turn(self.patience)

    def a_holder(self, pick: int) -> Holder | None:
        holders = list(self.queue.holders.values())
        return holders[pick % len(holders)] if holders else None

    @rule(session_ids=st.lists(SESSIONS, min_size=1, max_size=6))
    def send(self, session_ids: list[str]) -> None:
        self.queue.send(session_ids)
        self.go_on()

    @rule(session_id=SESSIONS, count=st.integers(5, 20))
    def send_many(self, session_id: str, count: int) -> None:
        for _ in range(count):
            self.queue.send([session_id])
        self.go_on()

    @rule()
    def accept_next(self) -> None:
        if len(self.queue.waiting) < MAX_WAITING:
            self.queue.accept_next()
            self.go_on()

    @rule(pick=PICK)
    def give_up_waiting(self, pick: int) -> None:
        if self.queue.waiting:
            self.queue.give_up_waiting(self.queue.waiting[pick % len(self.queue.waiting)])

    @rule(session_id=SESSIONS)
    def accept_named(self, session_id: str) -> None:
        self.queue.accept_named(session_id)
        self.go_on()

    @rule(session_id=SESSIONS, credit=CREDITS)
    def accept_and_take(self, session_id: str, credit: int) -> None:
        self.queue.accept_named(session_id)
        holder = self.queue.holders.get(session_id)
        if holder is not None:
            self.queue.flow(holder, credit)
        self.go_on()

    @rule(credit=CREDITS)
    def everybody_takes(self, credit: int) -> None:
        for holder in list(self.queue.holders.values()):
            self.queue.flow(holder, credit)
        self.go_on()

    @rule(pick=PICK, credit=CREDITS)
    def give_credit(self, pick: int, credit: int) -> None:
        holder = self.a_holder(pick)
        if holder is not None:
            self.queue.flow(holder, credit)
            self.go_on()

    @rule(pick=PICK, settlement=st.sampled_from(SETTLEMENTS))
    def settle(self, pick: int, settlement: int) -> None:
        holder = self.a_holder(pick)
        if holder is not None and holder.open:
            keys = list(holder.open)
            self.queue.settle(holder, keys[pick % len(keys)], settlement)
            self.go_on()

    @rule(settlement=st.sampled_from(SETTLEMENTS), credit=CREDITS)
    def settle_the_first_and_take(self, settlement: int, credit: int) -> None:
        """At once: what is on its way back must not be overtaken."""
        for holder in list(self.queue.holders.values()):
            for key in sorted(holder.open)[:1]:
                self.queue.settle(holder, key, settlement)
            self.queue.flow(holder, credit)
            self.queue.fragment.pump()
        self.go_on()

    @rule(settlement=st.sampled_from(SETTLEMENTS), is_in_order=st.booleans())
    def settle_everything(self, settlement: int, is_in_order: bool) -> None:
        for holder in list(self.queue.holders.values()):
            for key in sorted(holder.open, reverse=not is_in_order):
                self.queue.settle(holder, key, settlement)
        self.go_on()

    @rule(pick=PICK, settlement=st.sampled_from(SETTLEMENTS))
    def settle_some_and_leave(self, pick: int, settlement: int) -> None:
        holder = self.a_holder(pick)
        if holder is not None:
            for key in list(holder.open)[1:]:
                self.queue.settle(holder, key, settlement)
            self.queue.leave(holder)
            self.go_on()

    @rule(pick=PICK)
    def renew(self, pick: int) -> None:
        holder = self.a_holder(pick)
        if holder is not None:
            self.queue.renew(holder)

    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        holder = self.a_holder(pick)
        if holder is not None:
            self.queue.leave(holder)
            self.go_on()

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        self.queue.pass_time(seconds)

    @rule(failure=st.sampled_from(list(Failure)), after=st.integers(1, 3))
    def fail_a_commit(self, failure: Failure, after: int) -> None:
        self.queue.script.fail_next(failure, after)

    @rule(commit_rounds=st.integers(0, 6), read_rounds=st.integers(0, 6), patience=st.sampled_from([0, 1, 3, ENOUGH]))
    def be_slow(self, commit_rounds: int, read_rounds: int, patience: int) -> None:
        self.queue.script.commit_rounds, self.queue.script.read_rounds = commit_rounds, read_rounds
        self.patience = patience

    @rule(rounds=st.integers(1, 5))
    def turn(self, rounds: int) -> None:
        self.queue.turn(rounds)

    @rule(end=st.sampled_from(["", "", "", "written", "lost", "orderly"]))
    def end_life(self, end: str) -> None:
        if end == "orderly":
            self.queue.restart()
        elif end:
            self.queue.crash(end == "written")

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self.queue.drain_everything()
        finally:
            self.queue.dispose()


class MemorySessionMachine(SessionMachine):
    def __init__(self) -> None:
        super().__init__()
        self._disk = MemoryDisk()

    def open_store(self) -> MessagingStore:
        return MemoryStore(self._disk)


class LmdbSessionMachine(SessionMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._settings = EmbeddedSettings(map_bytes=64 << 20, block_size=8, commit_mode="loop")

    def open_store(self) -> MessagingStore:
        return LmdbStore.open(Path(self._folder.name), self._settings)

    def teardown(self) -> None:
        super().teardown()
        self._folder.cleanup()


def run(machine: type[SessionMachine], examples: int, steps: int) -> None:
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


@covers("M7", "F3")
def test_sessions_are_exclusive_and_in_order_whatever_happens_to_the_store() -> None:
    run(MemorySessionMachine, scaled(60, 5_000, 50_000), scaled(50, 80, 100))


@covers("M7", "F3")
def test_sessions_are_exclusive_and_in_order_on_the_embedded_store() -> None:
    run(LmdbSessionMachine, scaled(10, 500, 5_000), scaled(40, 80, 100))
