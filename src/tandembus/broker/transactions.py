"""Transactions as a fragment sees them: one operation of many parts, carried out in one commit or not at all.

A front end gathers sends and settlements; nothing of them is here before the discharge. Then the fragment checks every
part, takes every lock, and lets the broker read the bodies that are needed; all parts are written into the same commit,
which holds nothing but transactions. That is what makes a full store simple: nothing was written, so the fragment takes
up its state from the store again, and no part has to be undone by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from tandembus.broker.locks import MessageLock, SettleReply
from tandembus.broker.operations import SendOperation
from tandembus.broker.session import SessionLock
from tandembus.errors import BusError
from tandembus.message import Message

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment

MAX_MOVED_BYTES: Final = 64 << 20
"""Messages that one transaction dead-letters or changes: all of them are in memory until its commit. A single one may
be larger."""


@final
class TransactionSettlement:
    """What is to become of one locked message. The lock itself knows nothing of it before the discharge: after a
    rollback it is as it was."""

    __slots__ = ("changes", "description", "encoded_changes", "is_quiet", "lock", "reason", "reply", "settlement")

    def __init__(
        self,
        lock: MessageLock,
        settlement: i64,
        reply: SettleReply | None = None,
        is_quiet: bool = False,
        reason: str | None = None,
        description: str | None = None,
        changes: dict[str, object] | None = None,
    ) -> None:
        self.lock: Final = lock
        self.settlement: i64 = settlement
        self.reply: Final = reply
        self.is_quiet: bool = is_quiet
        """The client has settled the delivery already: it wants no answer, and cannot settle it again."""
        self.reason: Final = reason
        self.description: Final = description
        self.changes: Final = changes
        self.encoded_changes: dict[bytes, bytes] | None = None


class TransactionReply:
    """Told what became of a transaction as a whole; its parts' own replies are called only when it was carried out."""

    def collected(self, operation: TransactionOperation) -> None:
        """All of it goes into the coming commit; its parts are not told so themselves."""

    def discharged(self, operation: TransactionOperation, error: BusError | None) -> None:
        raise AssertionError("a reply must be implemented")


@final
class CallbackTransactionReply(TransactionReply):
    def __init__(
        self,
        callback: Callable[[TransactionOperation, BusError | None], None],
        when_collected: Callable[[TransactionOperation], None] | None = None,
    ) -> None:
        self.callback: Final = callback
        self.when_collected: Final = when_collected

    def collected(self, operation: TransactionOperation) -> None:
        if self.when_collected is not None:
            self.when_collected(operation)

    def discharged(self, operation: TransactionOperation, error: BusError | None) -> None:
        self.callback(operation, error)


@final
class TransactionCancel:
    """A scheduled message that is to be taken out."""

    __slots__ = ("due_ms", "number", "size_bytes")

    def __init__(self, number: i64, size_bytes: i64, due_ms: i64) -> None:
        self.number: i64 = number
        self.size_bytes: i64 = size_bytes
        self.due_ms: i64 = due_ms


@final
class TransactionState:
    """A session's new state. Whoever sets it holds the session."""

    __slots__ = ("hold_number", "lock", "session_id", "state")

    def __init__(self, session_id: str, state: bytes | None, lock: SessionLock | None, hold_number: i64) -> None:
        self.session_id: Final = session_id
        self.state: Final = state
        self.lock: Final = lock
        """Where the fragment is in this process."""
        self.hold_number: i64 = hold_number
        """How the channel to its broker knows the hold, where the fragment is behind one."""


@final
class PartReply(TransactionReply):
    """Of what is part of a larger transaction, whose own reply is told."""

    def discharged(self, operation: TransactionOperation, error: BusError | None) -> None:
        return


@final
class TransactionPart:
    """What a transaction does on another member of a topic's family: the topic and its subscriptions."""

    __slots__ = ("fragment", "fragment_key", "operation", "traffic")

    def __init__(self, traffic: object, operation: TransactionOperation) -> None:
        self.traffic: object = traffic
        """The way to the member, as far as it has been gone."""
        self.fragment: Fragment | None = None
        self.fragment_key: i64 = 0
        self.operation: Final = operation


@final
class TransactionOperation:
    """All parts of one transaction, of one entity or of one topic's family."""

    __slots__ = (
        "bodies",
        "cancels",
        "index",
        "needing_body",
        "others",
        "reply",
        "sends",
        "settled",
        "settlements",
        "size_bytes",
        "states",
    )

    def __init__(
        self,
        sends: list[SendOperation],
        settlements: list[TransactionSettlement],
        reply: TransactionReply,
        others: list[TransactionPart] | None = None,
    ) -> None:
        self.sends: Final = sends
        self.settlements: Final = settlements
        self.reply: Final = reply
        self.cancels: list[TransactionCancel] = []
        self.states: list[TransactionState] = []
        self.others: Final[list[TransactionPart]] = others if others is not None else []
        """Carried out in the same commit as this."""
        self.index: i64 = 0
        """The fragment in which all of it is carried out, where the entity has several."""
        self.size_bytes: i64 = 0
        for send in sends:
            self.size_bytes += send.size_bytes
        # Its settlements once their locks are taken: by what they need.
        self.settled: list[MessageLock] = []
        self.needing_body: list[MessageLock] = []
        self.bodies: list[tuple[MessageLock, Message]] = []

    def commit_bytes(self) -> i64:
        size = self.size_bytes
        for lock in self.needing_body:
            size += lock.size_bytes
        for part in self.others:
            size += part.operation.commit_bytes()
        return size

    def commit_operations(self) -> i64:
        count: i64 = len(self.settlements) + len(self.cancels) + len(self.states)
        for send in self.sends:
            count += len(send.messages)
        for part in self.others:
            count += part.operation.commit_operations()
        return count


@final
class StagedTransactions:
    """The transactions of one fragment between their discharge and their answer."""

    __slots__ = ("committing", "staged", "taken")

    def __init__(self) -> None:
        self.staged: list[TransactionOperation] = []
        self.taken: list[TransactionOperation] = []
        """For the coming commit; their bodies may still be on the way."""
        self.committing: list[TransactionOperation] = []

    def is_empty(self) -> bool:
        return not (self.staged or self.taken or self.committing)

    def take(self, max_operations: i64, max_bytes: i64) -> list[TransactionPart]:
        """Choose what goes into the coming commit, up to its bounds but at least one: a transaction is never split.
        Returns the parts of it that other fragments have to take along."""
        taken: list[TransactionOperation] = []
        count: i64 = 0
        size: i64 = 0
        for operation in self.staged:
            count += operation.commit_operations()
            size += operation.commit_bytes()
            if taken and (count > max_operations or size > max_bytes):
                break
            taken.append(operation)
        del self.staged[: len(taken)]
        self.taken += taken
        others: list[TransactionPart] = []
        for operation in taken:
            others += operation.others
        return others

    def needing_body(self) -> list[MessageLock]:
        """The settlements that need the message itself."""
        needing: list[MessageLock] = []
        for operation in self.taken:
            needing += operation.needing_body
        return needing

    def bodies_arrived(self, arrived: list[tuple[MessageLock, Message]]) -> None:
        """All that could be read. What is damaged cannot be moved: its record is taken out, as it would be without a
        transaction."""
        by_token: dict[bytes, Message] = {}
        for lock, message in arrived:
            by_token[lock.token] = message
        for operation in self.taken:
            for lock in operation.needing_body:
                found = by_token.get(lock.token)
                if found is not None:
                    operation.bodies.append((lock, found))
                else:
                    operation.settled.append(lock)
            operation.needing_body = []

    def begin_commit(self) -> list[TransactionOperation]:
        self.committing = self.taken
        self.taken = []
        return self.committing

    def end_commit(self) -> list[TransactionOperation]:
        committed = self.committing
        self.committing = []
        return committed

    def clear(self) -> list[TransactionOperation]:
        """All of them, whose outcome nobody will learn here."""
        everything = self.committing + self.taken + self.staged
        self.staged = []
        self.taken = []
        self.committing = []
        return everything
