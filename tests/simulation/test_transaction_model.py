"""A queue with transactions under everything at once: whatever happens, each is carried out whole or not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tandembus.broker.locks import ABANDON, DEFER, OPEN
from tandembus.store.embedded import EmbeddedSettings, LmdbStore
from tandembus.store.memory import MemoryDisk, MemoryStore
from tandembus.store.messaging_store import MAIN, MessagingStore
from tests.covers import covers
from tests.scale import scaled
from tests.simulation.faulty_store import Failure
from tests.simulation.simulated_broker import small_settings
from tests.simulation.test_queue_model import PICK, SETTLEMENTS, WISHES, QueueMachine, run
from tests.simulation.transacted_queue import Gathered, TransactedQueue

MAX_OPEN = 3
FAILURES = st.sampled_from([*Failure, None])
MARKS = st.sampled_from([0, 0, 1, 2])


class TransactionMachine(QueueMachine):
    """All that happens to a queue, and transactions: gathered step by step, then discharged or forgotten."""

    queue: TransactedQueue

    @initialize(dead_letter_expired=st.booleans())
    def start(self, dead_letter_expired: bool) -> None:
        self.queue = TransactedQueue(self.open_store, small_settings(dead_letter_expired))

    def a_transaction(self, pick: int) -> Gathered:
        gathered = self.queue.gathered
        if not gathered or (pick % 5 == 0 and len(gathered) < MAX_OPEN):
            gathered.append(Gathered())
        return gathered[pick % len(gathered)]

    @rule(pick=PICK, wishes=WISHES)
    def send_in_transaction(self, pick: int, wishes: list[tuple[int | None, int]]) -> None:
        self.queue.gather_sends(self.a_transaction(pick), wishes)

    @rule(pick=PICK, which=PICK, settlement=SETTLEMENTS, mark=MARKS)
    def settle_in_transaction(self, pick: int, which: int, settlement: int, mark: int) -> None:
        held = self.a_lock(which)
        if held is not None:
            can_mark = settlement in (ABANDON, DEFER)
            self.queue.gather_settlement(self.a_transaction(pick), held, settlement, mark if can_mark else 0)

    @rule(wishes=WISHES)
    def send_and_receive(self, wishes: list[tuple[int | None, int]]) -> None:
        """There is always something to be settled, even if most that happens is bad."""
        receivers = [one for one in self.queue.receivers if one.lane == MAIN and not one.is_destructive]
        receiver = receivers[0] if receivers else self.queue.attach(MAIN, is_destructive=False)
        self.queue.send(wishes)
        self.go_on()
        self.queue.flow(receiver, 5)
        self.go_on()

    @rule(wishes=WISHES, settlements=st.lists(SETTLEMENTS, min_size=1, max_size=4), mark=MARKS)
    def transact(self, wishes: list[tuple[int | None, int]], settlements: list[int], mark: int) -> None:
        """All in one go: sends, and settlements of locks that may well be live."""
        transaction = Gathered()
        self.queue.gathered.append(transaction)
        self.queue.gather_sends(transaction, wishes)
        held = [one for one in self.queue.held.values() if one.lock.settlement == OPEN]
        for one, settlement in zip(held, settlements, strict=False):
            can_mark = settlement in (ABANDON, DEFER)
            self.queue.gather_settlement(transaction, one, settlement, mark if can_mark else 0)
        self.queue.discharge(transaction)
        self.go_on()

    @rule(wishes=WISHES, settlements=st.lists(SETTLEMENTS, min_size=1, max_size=4), failure=FAILURES)
    def transact_and_fail(
        self, wishes: list[tuple[int | None, int]], settlements: list[int], failure: Failure | None
    ) -> None:
        """In a quiet moment, so that it is this transaction's commit that fails, or is cut by a crash."""
        self.queue.come_to_rest()
        self.send_and_receive([(None, 0)] * 3)
        self.queue.come_to_rest()
        if failure is not None:
            self.queue.script.fail_next(failure)
            self.transact(wishes, settlements, 1)
        else:
            patience, self.patience = self.patience, 2
            self.queue.script.commit_rounds = 6
            self.transact(wishes, settlements, 1)
            self.queue.crash(is_written=len(wishes) % 2 == 0)
            self.patience = patience

    @rule(pick=PICK, settlement=SETTLEMENTS)
    def settle_everything_in_transaction(self, pick: int, settlement: int) -> None:
        transaction = self.a_transaction(pick)
        for held in list(self.queue.held.values()):
            self.queue.gather_settlement(transaction, held, settlement, 0)

    @rule(pick=PICK)
    def discharge(self, pick: int) -> None:
        if self.queue.gathered:
            self.queue.discharge(self.a_transaction(pick if pick % 5 else pick + 1))
            self.go_on()

    @rule()
    def discharge_everything(self) -> None:
        for transaction in list(self.queue.gathered):
            self.queue.discharge(transaction)
        self.go_on()

    @rule(pick=PICK)
    def forget(self, pick: int) -> None:
        if self.queue.gathered:
            self.queue.gathered.remove(self.a_transaction(pick if pick % 5 else pick + 1))


class MemoryTransactionMachine(TransactionMachine):
    def __init__(self) -> None:
        super().__init__()
        self._disk = MemoryDisk()

    def open_store(self) -> MessagingStore:
        return MemoryStore(self._disk)


class LmdbTransactionMachine(TransactionMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._settings = EmbeddedSettings(map_bytes=64 << 20, block_size=8, commit_mode="loop")

    def open_store(self) -> MessagingStore:
        return LmdbStore.open(Path(self._folder.name), self._settings)

    def teardown(self) -> None:
        super().teardown()
        self._folder.cleanup()


@covers("M11", "M1", "M2", "M3", "F3")
def test_a_transaction_is_whole_whatever_happens_to_the_store() -> None:
    run(MemoryTransactionMachine, scaled(70, 5_000, 50_000), scaled(60, 80, 100))


@covers("M11", "F3")
def test_a_transaction_is_whole_on_the_embedded_store() -> None:
    run(LmdbTransactionMachine, scaled(12, 500, 5_000), scaled(50, 80, 100))
