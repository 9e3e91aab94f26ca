"""One script of transactions, again and again: each time another of its commits goes wrong, in every way it can."""

from __future__ import annotations

import pytest

from tandembus.broker.locks import ABANDON, COMPLETE, DEAD_LETTER, DEFER, OPEN, RELEASE
from tandembus.store.memory import MemoryDisk, MemoryStore
from tandembus.store.messaging_store import DEAD_LETTER as DEAD_LETTER_LANE
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.simulation.simulated_broker import LOCK_DURATION_S, small_settings
from tests.simulation.test_failing_commits import Steps, Trouble, commits_of, run_with
from tests.simulation.transacted_queue import Gathered, TransactedQueue

Wishes = list[tuple[int | None, int]]
PLAIN: Wishes = [(None, 0)]
TIMED: Wishes = [(None, 0), (2_000, 0), (None, 5_000), (None, 60_000)]


class TransactionScript(Steps):
    def __init__(self) -> None:
        disk = MemoryDisk()
        queue = TransactedQueue(lambda: MemoryStore(disk), small_settings(dead_letter_expired=True))
        self.queue: TransactedQueue = queue
        self.steps = (
            lambda: queue.send(PLAIN * 9),
            lambda: self.receive(MAIN, 9),
            lambda: self.transact(TIMED, COMPLETE, ABANDON, DEFER, DEAD_LETTER),
            lambda: self.transact(PLAIN),
            lambda: self.transact([], RELEASE, COMPLETE),
            lambda: self.transact([]),
            lambda: queue.pass_time(6.0),
            lambda: self.receive(MAIN, 6),
            lambda: self.side_by_side(),
            lambda: self.receive(DEAD_LETTER_LANE, 3),
            lambda: self.transact(PLAIN * 8, *[COMPLETE] * 12),
            lambda: queue.pass_time(LOCK_DURATION_S + 1.0),
            lambda: queue.send(PLAIN * 2),
            lambda: self.receive(MAIN, 12),
            lambda: self.transact(PLAIN, *[DEAD_LETTER] * 3, mark=0),
            lambda: self.transact(PLAIN, *[ABANDON] * 3, mark=2),
        )

    def receive(self, lane: int, credit: int) -> None:
        self.queue.flow(self.queue.attach(lane, is_destructive=False), credit)

    def transact(self, wishes: Wishes, *settlements: int, mark: int = 1) -> None:
        """With as many locks as there are."""
        transaction = Gathered()
        self.queue.gathered.append(transaction)
        self.queue.gather_sends(transaction, wishes)
        held = [one for one in self.queue.held.values() if one.lock.settlement == OPEN]
        for one, settlement in zip(held, settlements, strict=False):
            is_marked = settlement in (ABANDON, DEFER)
            self.queue.gather_settlement(transaction, one, settlement, mark if is_marked else 0)
        self.queue.discharge(transaction)

    def side_by_side(self) -> None:
        """Two transactions and ordinary work, all in one turn."""
        self.transact(PLAIN, COMPLETE)
        self.queue.send(PLAIN * 2)
        for one in [one for one in self.queue.held.values() if one.lock.settlement == OPEN][:1]:
            self.queue.settle(one, COMPLETE, 0)
        self.transact(PLAIN * 2, DEAD_LETTER)


@covers("M11", "M1", "F2", "F3")
@pytest.mark.parametrize("trouble", list(Trouble), ids=lambda trouble: trouble.name)
def test_whichever_commit_meets_trouble_every_transaction_is_whole(trouble: Trouble) -> None:
    commits = commits_of(TransactionScript)
    assert commits >= 12
    done = 0
    for commit in range(2, commits + 1):
        queue = run_with(trouble, commit, TransactionScript())
        assert isinstance(queue, TransactedQueue)
        done += queue.done_count
    assert done > commits
