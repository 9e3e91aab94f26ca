"""The simulated queue with transactions: what was discharged is there whole, or not at all.

A discharge whose answer never came leaves its parts in doubt, but not each by itself: the first one that shows itself,
in a delivery or in a look at the queue, tells what became of all the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.broker.locks import OPEN, CallbackSettleReply, MessageLock
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.transactions import (
    CallbackTransactionReply,
    TransactionOperation,
    TransactionSettlement,
)
from tandembus.errors import BusError, InvalidOperation, MessageLockLost, StoreFull
from tandembus.message import Message, parse_message
from tandembus.store.messaging_store import ACTIVE, DEAD_LETTER, MAIN, SCHEDULED
from tests.simulation.expectations import GONE, Expected, Fate
from tests.simulation.messages import MARK, build_message, key_of, mark_of
from tests.simulation.simulated_queue import Held, Receiver, SimulatedQueue


@dataclass
class Gathered:
    """A transaction before its discharge: the broker knows nothing of it."""

    sends: list[tuple[int | None, int]] = field(default_factory=list)
    settlements: dict[bytes, tuple[Held, int, int]] = field(default_factory=dict)


@dataclass
class Part:
    """One message of a transaction: what it was, and what it becomes."""

    message: Expected
    before: set[Fate]
    after: set[Fate]


@dataclass
class Pact:
    """A transaction from its discharge until its outcome is known."""

    parts: list[Part]

    def is_settled_as(self, is_done: bool) -> None:
        for part in self.parts:
            if part.message.fates == part.before | part.after:
                part.message.fates = set(part.after if is_done else part.before)


class TransactedQueue(SimulatedQueue):
    gathered: list[Gathered]
    discharged: list[Pact]
    doubtful: list[Pact]
    done_count = 0
    rolled_back_count = 0

    def begin_life(self) -> None:
        """What front ends had gathered is gone with the life before."""
        self.gathered = []
        self.discharged = getattr(self, "discharged", [])
        self.doubtful = getattr(self, "doubtful", [])
        super().begin_life()

    def _all_is_in_doubt(self) -> None:
        super()._all_is_in_doubt()
        self.doubtful += self.discharged
        self.discharged = []

    # A transaction's life.

    def gather_sends(self, transaction: Gathered, wishes: Sequence[tuple[int | None, int]]) -> None:
        transaction.sends += wishes

    def gather_settlement(self, transaction: Gathered, held: Held, settlement: int, mark: int) -> None:
        transaction.settlements[held.message.key] = (held, settlement, mark)

    def discharge(self, transaction: Gathered) -> None:
        self.gathered.remove(transaction)
        settlements = list(transaction.settlements.values())
        sent, parsed = self._messages(transaction.sends)
        pact = Pact([])
        operation = TransactionOperation(
            [self._send_operation(one, message) for one, message in zip(sent, parsed, strict=True)],
            [self._settlement(held, settlement, mark) for held, settlement, mark in settlements],
            CallbackTransactionReply(lambda _, error: self._discharge_answered(pact, settlements, error)),
        )
        is_lost = any(_is_over(held.lock, self.clock.monotonic()) for held, _, _ in settlements)
        is_wrong = any(how == TO_DEAD_LETTERS and held.lock.lane == DEAD_LETTER for held, how, _ in settlements)
        changes = [self._settled(held, settlement, mark) for held, settlement, mark in settlements]
        try:
            self.fragment.discharge(operation)
        except BusError as error:
            self._refused(error, is_lost, is_wrong, [held.lock for held, _, _ in settlements])
            return
        is_possible = not is_lost and not is_wrong
        assert is_possible, "a transaction that cannot be carried out was taken"
        for (held, _, _), change in zip(settlements, changes, strict=True):
            held.message.begin(change)
            pact.parts.append(Part(held.message, set(held.message.fates), set(held.message.coming)))
        for one in sent:
            one.coming = {Fate(MAIN, SCHEDULED), Fate(MAIN, ACTIVE)} if one.scheduled_at_ms else {Fate(MAIN)}
            self.messages[one.key] = one
            pact.parts.append(Part(one, {GONE}, set(one.coming)))
        self.discharged.append(pact)

    def _messages(self, wishes: Sequence[tuple[int | None, int]]) -> tuple[list[Expected], list[Message]]:
        sent: list[Expected] = []
        parsed: list[Message] = []
        now_ms = self.clock.now_ms()
        for ttl_ms, delay_ms in wishes:
            key = b"t%07d" % (len(self.messages) + len(sent))
            scheduled_at_ms = now_ms + delay_ms if delay_ms else 0
            message = parse_message(build_message(key, ttl_ms, scheduled_at_ms))
            parsed.append(message)
            self._batch += 1
            sent.append(Expected(key, message.sections, ttl_ms, now_ms, scheduled_at_ms, {GONE}, self._batch))
        return sent, parsed

    def _send_operation(self, one: Expected, message: Message) -> SendOperation:
        def sent(operation: SendOperation, error: BusError | None) -> None:
            if error is None:
                self._accepted(one, operation.messages[0])

        return SendOperation([message], len(message.sections), CallbackSendReply(sent), -1)

    def _settlement(self, held: Held, settlement: int, mark: int) -> TransactionSettlement:
        def settled(_lock: MessageLock, error: BusError | None) -> None:
            if error is None:
                held.message.succeeded()

        changes: dict[str, object] | None = {MARK: mark} if mark else None
        return TransactionSettlement(held.lock, settlement, CallbackSettleReply(settled), changes=changes)

    def _refused(self, error: BusError, is_lost: bool, is_wrong: bool, locks: list[MessageLock]) -> None:
        """Nothing has happened: no lock was taken."""
        self.rolled_back_count += 1
        if isinstance(error, MessageLockLost):
            assert is_lost
        elif isinstance(error, InvalidOperation):
            assert is_wrong
        else:
            self._must_be_unavailable(error)
        now = self.clock.monotonic()
        for lock in locks:
            assert is_lost or not _is_over(lock, now), "a refused transaction took a lock"

    def _discharge_answered(
        self, pact: Pact, settlements: Sequence[tuple[Held, int, int]], error: BusError | None
    ) -> None:
        if pact in self.discharged:
            self.discharged.remove(pact)
        if error is None:
            self.done_count += 1
        for part in pact.parts:
            if error is None:
                assert not part.message.coming, "the transaction was answered before its parts"
            elif isinstance(error, StoreFull):
                part.message.refused()
            else:
                part.message.is_in_doubt()
        if error is not None and not isinstance(error, StoreFull):
            self.doubtful.append(pact)
        for held, _, _ in settlements:
            if self.held.get(held.message.key) is held:
                del self.held[held.message.key]

    # What shows itself.

    def _delivered(self, receiver: Receiver, message: Message, lock: MessageLock) -> None:
        here = Fate(receiver.lane, ACTIVE, int(lock.delivery_count), mark_of(message))
        self._learn_from(self.messages[key_of(message)], here)
        super()._delivered(receiver, message, lock)

    def _learn_from(self, one: Expected, fate: Fate) -> None:
        for pact in list(self.doubtful):
            for part in pact.parts:
                if part.message is one and one.fates == part.before | part.after:
                    is_done, is_lost = self._may_be(one, part.after, fate), self._may_be(one, part.before, fate)
                    if is_done != is_lost:
                        self.doubtful.remove(pact)
                        pact.is_settled_as(is_done)
                        break

    def _may_be(self, one: Expected, fates: set[Fate], fate: Fate) -> bool:
        """Whether it can be found like that, if it was one of these when it was last heard of."""
        known, coming = one.fates, one.coming
        one.fates, one.coming = set(fates), set()
        try:
            return fate in self._drifted(one)
        finally:
            one.fates, one.coming = known, coming

    def _check_batches(self, found: dict[bytes, tuple[Fate, Message]]) -> None:
        super()._check_batches(found)
        for pact in self.doubtful:
            parts = [part for part in pact.parts if part.message.fates == part.before | part.after]
            fates = [found[part.message.key][0] if part.message.key in found else GONE for part in parts]
            pairs = list(zip(parts, fates, strict=True))
            is_done = all(self._may_be(part.message, part.after, fate) for part, fate in pairs)
            is_lost = all(self._may_be(part.message, part.before, fate) for part, fate in pairs)
            keys = [part.message.key for part in parts]
            assert is_done or is_lost, f"a part of a transaction was carried out: {keys} are {fates}"
        self.doubtful = []


def _is_over(lock: MessageLock, now: float) -> bool:
    return lock.settlement != OPEN or lock.locked_until <= now
