"""One counter of the meter, and what is counted in it.

The hot paths hold their slot, so counting an operation is a handful of additions: no look-up, no lock, no
clock. Everything else (seconds, files, live totals) is the `Meter`'s.
"""

from __future__ import annotations

from typing import Final, final

UNIT_BYTES: Final = 65_536

SEND: Final = "send"
RECEIVE: Final = "receive"
EMPTY_RECEIVE: Final = "empty_receive"
COMPLETE: Final = "complete"
ABANDON: Final = "abandon"
DEFER: Final = "defer"
DEAD_LETTER: Final = "dead_letter"
RENEW_LOCK: Final = "renew_lock"
PEEK: Final = "peek"
SCHEDULE: Final = "schedule"
CANCEL: Final = "cancel"
RECEIVE_DEFERRED: Final = "receive_deferred"
DELETE_BATCH: Final = "delete_batch"
RENEW_SESSION_LOCK: Final = "renew_session_lock"
SESSION_STATE: Final = "session_state"
LIST_SESSIONS: Final = "list_sessions"
RULES: Final = "rules"
FORWARD: Final = "forward"
MANAGE: Final = "manage"
RESERVE: Final = "reserve"

OPERATIONS: Final = (
    SEND,
    RECEIVE,
    EMPTY_RECEIVE,
    COMPLETE,
    ABANDON,
    DEFER,
    DEAD_LETTER,
    RENEW_LOCK,
    PEEK,
    SCHEDULE,
    CANCEL,
    RECEIVE_DEFERRED,
    DELETE_BATCH,
    RENEW_SESSION_LOCK,
    SESSION_STATE,
    LIST_SESSIONS,
    RULES,
    FORWARD,
    MANAGE,
    RESERVE,
)

NORMAL: Final = "normal"
FAILOVER: Final = "failover"
PING: Final = "ping"
LONGPOLL: Final = "longpoll"
SYPHON: Final = "syphon"

REASONS: Final = (NORMAL, FAILOVER, PING, LONGPOLL, SYPHON)


def operations_for(size_bytes: int, unit: int = UNIT_BYTES) -> int:
    """What one message of this size costs.

    Ask per message: the units of a sum are not the sum of the units.
    """
    if size_bytes <= unit:
        return 1
    return (size_bytes + unit - 1) // unit


@final
class MeterSlot:
    """Everything counted for one entity, operation and reason since the meter was opened.

    Belongs to the loop's thread. The first addition after the slot was last taken puts it on the meter's list
    of changed slots, so an idle entity costs the meter nothing, however many of them there are.
    """

    __slots__ = (
        "_changed",
        "calls",
        "entity",
        "messages",
        "operation",
        "operations",
        "reason",
        "size_bytes",
        "taken_calls",
        "taken_messages",
        "taken_operations",
        "taken_size_bytes",
    )

    def __init__(self, entity: str, operation: str, reason: str, changed: list[MeterSlot]) -> None:
        self.entity: Final = entity
        self.operation: Final = operation
        self.reason: Final = reason
        self.calls = 0
        self.messages = 0
        self.operations = 0
        self.size_bytes = 0
        self.taken_calls = 0
        self.taken_messages = 0
        self.taken_operations = 0
        self.taken_size_bytes = 0
        self._changed: Final = changed

    def add(self, messages: int, operations: int, size_bytes: int) -> None:
        """Count one call: so many messages, priced message by message at so many operations."""
        if self.calls == self.taken_calls:
            self._changed.append(self)
        self.calls += 1
        self.messages += messages
        self.operations += operations
        self.size_bytes += size_bytes

    def untaken(self) -> Count:
        """What came in since the last take."""
        return Count(
            self.calls - self.taken_calls,
            self.messages - self.taken_messages,
            self.operations - self.taken_operations,
            self.size_bytes - self.taken_size_bytes,
        )

    def take(self) -> Count:
        taken = self.untaken()
        self.taken_calls = self.calls
        self.taken_messages = self.messages
        self.taken_operations = self.operations
        self.taken_size_bytes = self.size_bytes
        return taken


@final
class Count:
    """Four figures that are only ever added up together."""

    __slots__ = ("calls", "messages", "operations", "size_bytes")

    def __init__(self, calls: int = 0, messages: int = 0, operations: int = 0, size_bytes: int = 0) -> None:
        self.calls = calls
        self.messages = messages
        self.operations = operations
        self.size_bytes = size_bytes

    def include(self, other: Count) -> None:
        self.calls += other.calls
        self.messages += other.messages
        self.operations += other.operations
        self.size_bytes += other.size_bytes
