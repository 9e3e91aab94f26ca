"""The open transactions of one connection: what they have gathered so far, and for how long they may.

Nothing of a transaction reaches the broker before its discharge, so rolling back is forgetting. A refused part dooms
the whole: a client that sends ahead of the answers must not commit half of what it asked for.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.delivery_states import Outcome
from tandembus.amqp.encoding.descriptors import TRANSACTIONAL_STATE
from tandembus.broker.locks import ABANDON
from tandembus.broker.operations import SendOperation
from tandembus.broker.transactions import (
    PartReply,
    TransactionCancel,
    TransactionOperation,
    TransactionPart,
    TransactionReply,
    TransactionSettlement,
    TransactionState,
)
from tandembus.clock import Clock
from tandembus.errors import (
    BusError,
    InvalidOperation,
    QuotaExceeded,
    ServerBusy,
    TransactionNotFound,
    TransactionRolledBack,
    TransactionTimedOut,
)
from tandembus.interconnect.traffic import ANY_FRAGMENT, SessionHold, Traffic
from tandembus.large_messages import LARGE_BYTES, LargeMemory, counted
from tandembus.message_encoding import encode_changes

ID_BYTES: Final = 16
MAX_REMEMBERED: Final = 100
"""Ids of transactions that timed out: so many are told from ids that never were."""
SETTLEMENT_BYTES: Final = 256
"""What a gathered settlement costs besides the properties that it sets."""


DIFFERENT_VIA_KEYS: Final = (
    "All messages that a transaction sends via a partitioned entity must have the same ViaPartitionKey."
)
NO_VIA_KEY: Final = (
    "A transaction that only sends via a partitioned entity needs a ViaPartitionKey (TransactionPartitionKey): it says "
    "which partition its messages pass through."
)


@final
class TransactionLimits:
    __slots__ = ("max_bytes", "max_open", "max_operations", "timeout_s")

    def __init__(self, max_operations: i64, max_bytes: i64, max_open: i64, timeout_s: float) -> None:
        self.max_operations: i64 = max_operations
        self.max_bytes: i64 = max_bytes
        self.max_open: i64 = max_open
        self.timeout_s: float = timeout_s


@final
class TransactionMemory:
    """What the transactions of all connections hold together."""

    __slots__ = ("large", "max_bytes", "used_bytes")

    def __init__(self, max_bytes: i64, large: LargeMemory) -> None:
        self.max_bytes: i64 = max_bytes
        self.used_bytes: i64 = 0
        """Of large messages only the first 1 MiB: `large` bounds the rest."""
        self.large: Final = large


@final
class TransactionParty:
    """A link, or a management node, that takes part in transactions."""

    __slots__ = ("check", "family", "hold", "session_id", "traffic")

    def __init__(
        self,
        traffic: Traffic,
        check: Callable[[], None],
        hold: Callable[[], Callable[[], None]],
        session_id: str | None = None,
        family: str = "",
    ) -> None:
        self.traffic: Final = traffic
        self.family: Final = family
        """What it has in common with all others of a transaction: its entity or, for a subscription, the topic's."""
        self.session_id: Final = session_id
        """The session in which it settles messages, if it does so in one."""
        self.check: Final = check
        """Raises when it is no longer allowed what it did: its claim is gone, or the entity is disabled."""
        self.hold: Final = hold
        """Keeps the entity in memory until the function that it returns is called."""


@final
class Transaction:
    __slots__ = (
        "_changes",
        "_counted_bytes",
        "_large_bytes",
        "_let_go",
        "_limits",
        "_memory",
        "_parties",
        "_send_traffics",
        "_settlement_bytes",
        "_taken_bytes",
        "_traffic_of",
        "_via_keys",
        "count",
        "doom",
        "index",
        "key",
        "owner",
        "sends",
        "settlements",
        "size_bytes",
        "txn_id",
        "until",
        "when_done",
    )

    def __init__(
        self, txn_id: bytes, owner: object, until: float, limits: TransactionLimits, memory: TransactionMemory
    ) -> None:
        self.txn_id: Final = txn_id
        self.owner: Final = owner
        """The control link that declared it."""
        self.until: Final = until
        self.count: i64 = 0
        self.size_bytes: i64 = 0
        self._counted_bytes: i64 = 0
        self._taken_bytes: i64 = 0
        """Of the large messages in it."""
        self._large_bytes: i64 = 0
        """Of the one message that may be larger than a transaction."""
        self.doom: BusError | None = None
        """Why it can only be rolled back."""
        self.index: i64 = ANY_FRAGMENT
        """The fragment in which all of it is to be carried out."""
        self.key: str | None = None
        """The partition key that all its messages have, where the entity is partitioned."""
        self._changes: Final[list[tuple[Traffic, TransactionCancel | TransactionState]]] = []
        self.when_done: Final[list[Callable[[], None]]] = []
        """Called when it was carried out."""
        self._via_keys: Final[dict[str, int]] = {}
        """Fragments by the keys of what is sent via a partitioned entity."""
        self.sends: Final[list[SendOperation]] = []
        self.settlements: Final[dict[bytes, TransactionSettlement]] = {}
        self._settlement_bytes: Final[dict[bytes, int]] = {}
        self._traffic_of: Final[dict[bytes, Traffic]] = {}
        """By the tokens of what is settled."""
        self._send_traffics: Final[list[Traffic]] = []
        self._parties: Final[list[TransactionParty]] = []
        self._limits: Final = limits
        self._memory: Final = memory
        self._let_go: Final[dict[Traffic, Callable[[], None]]] = {}

    @property
    def traffic(self) -> Traffic | None:
        """Of the first entity that it is about; None while it is about none."""
        return self._parties[0].traffic if self._parties else None

    def send(self, party: TransactionParty, operation: SendOperation) -> None:
        """Raises when it cannot be part of this transaction."""
        traffic = party.traffic
        index, key = traffic.transaction_index(operation), traffic.transaction_key(operation)
        if operation.is_via and traffic.is_partitioned:
            self._admit(party, ANY_FRAGMENT, None, len(operation.messages), operation.size_bytes)
            if key is not None:
                self._via_keys[key] = int(index)
        else:
            self._admit(party, index, key, len(operation.messages), operation.size_bytes)
        if operation.size_bytes > LARGE_BYTES:
            self._taken_bytes += operation.size_bytes
            self._memory.large.take(operation.size_bytes)
        self.sends.append(operation)
        self._send_traffics.append(traffic)

    def settle(self, party: TransactionParty, settlement: TransactionSettlement) -> None:
        """The latest word on a message counts: until the discharge, none is final."""
        size: i64 = SETTLEMENT_BYTES
        if settlement.changes is not None:
            for name, value in encode_changes(settlement.changes).items():
                size += len(name) + len(value)
        lock = settlement.lock
        token = lock.token
        before = self._settlement_bytes.get(token)
        if before is None:
            self._admit(party, lock.index, party.session_id, 1, size)
        else:
            self._admit(party, lock.index, party.session_id, 0, size - before)
        self._settlement_bytes[token] = int(size)
        self.settlements[token] = settlement
        self._traffic_of[token] = party.traffic

    def cancel(self, party: TransactionParty, index: i64, found: list[TransactionCancel]) -> None:
        """Take scheduled messages out."""
        self._admit(party, index, None, len(found), SETTLEMENT_BYTES * len(found))
        for one in found:
            self._changes.append((party.traffic, one))

    def set_state(self, party: TransactionParty, hold: SessionHold, state: bytes | None) -> None:
        """The latest word on a session counts."""
        size: i64 = SETTLEMENT_BYTES
        if state is not None:
            size += len(state)
        self._admit(party, hold.index, party.session_id, 1, size)
        change = TransactionState(hold.session_id, state, hold.lock, hold.number)
        self._changes.append((party.traffic, change))

    def _admit(self, party: TransactionParty, index: i64, key: str | None, count: i64, size_bytes: i64) -> None:
        limits, memory = self._limits, self._memory
        if self.doom is not None:
            raise TransactionRolledBack(f"The transaction can only be rolled back: {self.doom}")
        if self._parties and self._parties[0].family != party.family:
            raise InvalidOperation(
                "A transaction can be about one entity only. Messages for another entity can be sent via it."
            )
        if party.traffic.is_partitioned:
            self._check_place(index, key)
        if self.count + count > limits.max_operations:
            raise QuotaExceeded(f"A transaction may hold at most {limits.max_operations} messages.")
        is_too_large = self.size_bytes + size_bytes > limits.max_bytes + self._large_bytes
        if is_too_large and (size_bytes <= LARGE_BYTES or self._large_bytes > 0):
            raise QuotaExceeded(f"A transaction may hold at most {limits.max_bytes} bytes, or one larger message.")
        if memory.used_bytes + counted(size_bytes) > memory.max_bytes:
            raise ServerBusy("The open transactions of the namespace hold too much. Please wait and retry.")
        if party not in self._parties:
            self._parties.append(party)
        if party.traffic not in self._let_go:
            self._let_go[party.traffic] = party.hold()
        if index != ANY_FRAGMENT:
            self.index = index
        if key is not None:
            self.key = key
        self.count += count
        self.size_bytes += size_bytes
        if is_too_large:
            self._large_bytes = size_bytes
        self._counted_bytes += counted(size_bytes)
        memory.used_bytes += counted(size_bytes)

    def _check_place(self, index: i64, key: str | None) -> None:
        """On a partitioned entity a transaction is one of one fragment, and that by its key rather than by chance."""
        if key is not None and self.key is not None and key != self.key:
            raise InvalidOperation(
                "All messages of a transaction with a partitioned entity must have the same partition key or session."
            )
        if index != ANY_FRAGMENT and self.index != ANY_FRAGMENT and index != self.index:
            raise InvalidOperation(
                "A transaction with a partitioned entity can be about one of its fragments only: this message is in "
                "another one."
            )

    def check(self) -> None:
        """Whether all that took part may still do what it did."""
        if self.doom is not None:
            raise TransactionRolledBack(str(self.doom))
        for party in self._parties:
            party.check()

    def choose_fragment(self) -> None:
        """Before it is carried out: what it sends via a partitioned entity goes where its settlements are, or else
        where its via partition key says. Raises InvalidOperation where these say nothing, or two things."""
        traffic = self.traffic
        if traffic is None or not traffic.is_partitioned or self.doom is not None:
            return
        if len(self._via_keys) > 1:
            raise InvalidOperation(DIFFERENT_VIA_KEYS)
        for index in self._via_keys.values():
            self._check_place(index, None)
            self.index = index
        if self.index == ANY_FRAGMENT:
            raise InvalidOperation(NO_VIA_KEY)

    def operation(self, reply: TransactionReply) -> TransactionOperation:
        sends: dict[Traffic, list[SendOperation]] = {party.traffic: [] for party in self._parties}
        settlements: dict[Traffic, list[TransactionSettlement]] = {party.traffic: [] for party in self._parties}
        for position in range(len(self.sends)):
            sends[self._send_traffics[position]].append(self.sends[position])
        for token, settlement in self.settlements.items():
            settlements[self._traffic_of[token]].append(settlement)
        first = self._parties[0].traffic
        others: list[TransactionPart] = []
        for traffic in sends:
            if traffic is not first:
                part = TransactionOperation(sends[traffic], settlements[traffic], PartReply())
                self._add_changes(traffic, part)
                others.append(TransactionPart(traffic, part))
        operation = TransactionOperation(sends[first], settlements[first], reply, others)
        self._add_changes(first, operation)
        operation.index = self.index
        return operation

    def _add_changes(self, traffic: Traffic, operation: TransactionOperation) -> None:
        for of_traffic, change in self._changes:
            if of_traffic is traffic:
                if isinstance(change, TransactionCancel):
                    operation.cancels.append(change)
                else:
                    operation.states.append(change)

    def give_back(self) -> None:
        """After a rollback. Whoever still has a delivery may settle it again; what the client has settled in advance
        comes again, as after any delivery that failed."""
        for token, settlement in self.settlements.items():
            if settlement.is_quiet:
                try:
                    self._traffic_of[token].settle(settlement.lock, ABANDON, None)
                except BusError:
                    pass  # somebody else has settled it, or the lock is lost: it comes again anyway

    def release(self) -> None:
        """It is over, one way or the other."""
        self._memory.used_bytes -= self._counted_bytes
        self._counted_bytes = 0
        self._memory.large.end_taking(self._taken_bytes)
        self._taken_bytes = 0
        self.size_bytes = 0
        for let_go in self._let_go.values():
            let_go()
        self._let_go.clear()


@final
class Transactions:
    """By their ids, which are valid on all sessions of the connection."""

    def __init__(self, limits: TransactionLimits, memory: TransactionMemory, clock: Clock) -> None:
        self._limits: Final = limits
        self._memory: Final = memory
        self._clock: Final = clock
        self._open: dict[bytes, Transaction] = {}
        self._timed_out: deque[bytes] = deque()
        self._discharging_count: i64 = 0

    def __len__(self) -> int:
        return len(self._open)

    def declare(self, owner: object) -> Transaction:
        if i64(len(self._open)) + self._discharging_count >= self._limits.max_open:
            raise QuotaExceeded(f"A connection may have at most {self._limits.max_open} open transactions.")
        until = self._clock.monotonic() + self._limits.timeout_s
        transaction = Transaction(os.urandom(ID_BYTES), owner, until, self._limits, self._memory)
        self._open[transaction.txn_id] = transaction
        return transaction

    def find(self, txn_id: bytes) -> Transaction:
        transaction = self._open.get(txn_id)
        if transaction is not None and transaction.until <= self._clock.monotonic():
            self._time_out(transaction)
            transaction = None
        if transaction is not None:
            return transaction
        if txn_id in self._timed_out:
            raise TransactionTimedOut(f"The transaction was open for {self._limits.timeout_s:g} s and is rolled back.")
        raise TransactionNotFound("There is no open transaction with this id on this connection.")

    def find_in(self, state: Outcome) -> Transaction:
        return self.find(state.txn_id or b"")

    def doom(self, state: Outcome | None, error: BusError) -> None:
        """A part of a transaction was refused, whatever the part was."""
        if state is None or state.code != TRANSACTIONAL_STATE:
            return
        transaction = self._open.get(state.txn_id or b"")
        if transaction is not None and transaction.doom is None:
            transaction.doom = error

    def settled_by_client(self, token: bytes) -> bool:
        """The client has settled a delivery without another word. Returns whether its outcome is a transaction's to
        say; then it wants no answer any more."""
        for transaction in self._open.values():
            settlement = transaction.settlements.get(token)
            if settlement is not None:
                settlement.is_quiet = True
                return True
        return False

    def begin_discharge(self, transaction: Transaction) -> None:
        """No more operations; it counts as open until it is answered."""
        del self._open[transaction.txn_id]
        self._discharging_count += 1

    def end_discharge(self, transaction: Transaction, is_done: bool) -> None:
        self._discharging_count -= 1
        if not is_done:
            transaction.give_back()
        else:
            for told in transaction.when_done:
                told()
        transaction.release()

    def forget(self, transaction: Transaction) -> None:
        """Roll back."""
        if self._open.pop(transaction.txn_id, None) is not None:
            transaction.give_back()
            transaction.release()

    def forget_all_of(self, owner: object) -> None:
        for transaction in list(self._open.values()):
            if transaction.owner is owner:
                self.forget(transaction)

    def forget_all(self) -> None:
        for transaction in list(self._open.values()):
            self.forget(transaction)

    def tick(self, now: float) -> None:
        if not self._open:
            return
        for transaction in list(self._open.values()):
            if transaction.until <= now:
                self._time_out(transaction)

    def _time_out(self, transaction: Transaction) -> None:
        self.forget(transaction)
        self._timed_out.append(transaction.txn_id)
        if len(self._timed_out) > MAX_REMEMBERED:
            self._timed_out.popleft()
