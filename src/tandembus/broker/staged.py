"""What a fragment has taken on and not yet answered: waiting for a commit, or part of the one under way."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.consumers import Removal
from tandembus.broker.ledger_operations import LedgerOperation
from tandembus.broker.locks import MessageLock
from tandembus.broker.operations import PromiseOperation, SendOperation, StateOperation
from tandembus.large_messages import LARGE_BYTES
from tandembus.message import Message


@final
class Activation:
    """A scheduled message on its way to the tail; the lock keeps others off it until then."""

    __slots__ = ("due_ms", "lock", "message")

    def __init__(self, message: Message, due_ms: i64, lock: MessageLock) -> None:
        self.message: Final = message
        self.due_ms: i64 = due_ms
        self.lock: Final = lock


@final
class Staged:
    def __init__(self) -> None:
        self.sends: list[SendOperation] = []
        self.settled: list[MessageLock] = []
        self.needing_body: list[MessageLock] = []
        """Settlements that cannot be carried out without the message itself."""
        self.awaiting_body: list[MessageLock] = []
        self.with_body: list[tuple[MessageLock, Message]] = []
        self.activations: list[Activation] = []
        self.activating_bytes: i64 = 0
        self.session_states: list[StateOperation] = []
        self.promises: list[PromiseOperation] = []
        self.ledger: list[LedgerOperation] = []
        # What the commit under way holds, to be answered when it is over.
        self.committing_sends: list[SendOperation] = []
        self.committing_locks: list[MessageLock] = []
        self.committing_removals: list[Removal] = []
        self.committing_arrivals: list[Message] = []
        self.committing_dead: list[Message] = []
        self.committing_states: list[StateOperation] = []
        self.committing_promises: list[PromiseOperation] = []
        self.committing_ledger: list[LedgerOperation] = []

    def is_empty(self) -> bool:
        """Nothing waits, and nothing is on its way to the store."""
        return not (
            self.sends
            or self.settled
            or self.needing_body
            or self.awaiting_body
            or self.with_body
            or self.activations
            or self.session_states
            or self.promises
            or self.ledger
            or self.committing_sends
            or self.committing_locks
            or self.committing_removals
            or self.committing_states
            or self.committing_promises
            or self.committing_ledger
        )

    def has_large(self) -> bool:
        """Whether the next commit would hold a large message."""
        if self.sends and self.sends[0].size_bytes > LARGE_BYTES:
            return True
        if self.activations and len(self.activations[0].message.sections) > LARGE_BYTES:
            return True
        return len(self.needing_body) > 0 and self.needing_body[0].size_bytes > LARGE_BYTES

    def locks(self) -> list[MessageLock]:
        """Every settlement that waits for its answer."""
        locks = self.committing_locks + self.settled + self.needing_body + self.awaiting_body
        for lock, _ in self.with_body:
            locks.append(lock)
        return locks

    def forget_waiting(self) -> None:
        self.sends = []
        self.settled = []
        self.needing_body = []
        self.awaiting_body = []
        self.with_body = []
        self.activations = []
        self.activating_bytes = 0
        self.session_states = []
        self.promises = []
        self.ledger = []

    def forget_commit(self) -> None:
        self.committing_sends = []
        self.committing_locks = []
        self.committing_removals = []
        self.committing_arrivals = []
        self.committing_dead = []
        self.committing_states = []
        self.committing_promises = []
        self.committing_ledger = []
