"""What a front end asks of an entity besides its traffic: requests that wait for an answer.

Sequence numbers are whole ones here: their top 16 bits name the fragment. One that names a fragment which is not there
is one of no message: MessageNotFound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tandembus.broker.locks import MessageLock
from tandembus.broker.transactions import TransactionCancel
from tandembus.interconnect.ledger import FragmentLedger
from tandembus.interconnect.traffic import SessionHold
from tandembus.message import Message


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one fragment or, summed up, of an entity; exact, since they change in the same commit as what they count."""

    active: int = 0
    """With those that are deferred, as the service counts."""
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    size_bytes: int = 0
    deferred: int = 0
    missing_fragments: int = 0
    """Did not answer: what they hold is not counted."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.active + other.active,
            self.dead_letter + other.dead_letter,
            self.scheduled + other.scheduled,
            self.transfer + other.transfer,
            self.transfer_dead_letter + other.transfer_dead_letter,
            self.size_bytes + other.size_bytes,
            self.deferred + other.deferred,
            self.missing_fragments + other.missing_fragments,
        )


@dataclass(frozen=True, slots=True)
class Browsed:
    """A message that was looked at, its whole sequence number and the state it is in."""

    message: Message
    sequence_number: int
    state: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Messages that were waiting and are locked for whoever moves them, in order."""

    messages: Sequence[tuple[MessageLock, Message]]
    next_number: int
    """Whole sequence number: where to go on. The end that was asked for, when there is nothing more before it."""


class Listing:
    """One listing of sessions, page by page. Whoever serves it keeps here how far it has come."""

    __slots__ = ("tag",)

    def __init__(self) -> None:
        self.tag: object = None


class Requests(Protocol):
    @property
    def ledgers(self) -> Sequence[FragmentLedger | None]:
        """The reservations of each fragment; None for one that is known to be out of reach."""

    async def counts(self) -> Counts: ...

    async def peek(
        self, lane: int, from_number: int, count: int, max_bytes: int, session_id: str | None = None
    ) -> Sequence[Browsed]:
        """From a sequence number on, in order, whatever their state; at least one, if there is one."""

    async def find_locks(
        self, tokens: Sequence[bytes], lane: int, hold: SessionHold | None = None
    ) -> list[MessageLock]:
        """The live locks of these tokens, all of this lane and taken in this session, or in none. Raises
        MessageLockLost."""

    async def renew(self, tokens: Sequence[bytes]) -> Sequence[int]:
        """All or none; returns each new `locked_until` as wall time in milliseconds."""

    async def receive_deferred(
        self, lane: int, numbers: Sequence[int], is_destructive: bool, hold: SessionHold | None = None
    ) -> Sequence[tuple[MessageLock, Message]]:
        """All or none. What the client is told of the lock's end stands in `locked_until_ms`."""

    async def schedule(self, messages: list[Message], size_bytes: int) -> Sequence[int]:
        """Send messages whose sequence numbers the sender wants to know: by them, scheduled ones can be cancelled. 0
        for one that was accepted and dropped: a duplicate, or what no subscription takes; and for one that was stored
        for certain, but due or gone before anybody could learn where. Waits out doubt as every send does."""

    async def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        """All or none."""

    async def promise_numbers(self, index: int, session_ids: Sequence[str | None]) -> Sequence[int]:
        """Numbers in the fragment of this index, one for a message of each session, or of none. They are nobody else's
        from now on; the messages come later, or never."""

    async def find_scheduled(self, numbers: Sequence[int]) -> Sequence[TransactionCancel]:
        """What cancels scheduled messages as part of a transaction; all or none are found, in one fragment."""

    async def delete_batch(self, lane: int, count: int, before_ms: int, session_id: str | None = None) -> int: ...

    async def delete_one(self, lane: int, number: int) -> None: ...

    async def ends(self, lane: int) -> Sequence[int]:
        """Of each fragment that can be asked, in order: the first sequence number behind all messages of the lane."""

    async def take_waiting(self, lane: int, from_number: int, to_number: int, count: int, max_bytes: int) -> Taken:
        """Lock what waits from one sequence number up to before another, both of the same fragment, for whoever moves
        it elsewhere. Nothing is counted as delivered: what is not moved is given back with RELEASE."""

    async def session_state(self, hold: SessionHold) -> bytes | None: ...

    async def set_session_state(self, hold: SessionHold, state: bytes | None) -> None: ...

    async def renew_session(self, hold: SessionHold) -> int:
        """Returns the new `locked_until` as wall time in milliseconds, and notes it in the hold."""

    async def list_sessions(self, after_ms: int | None, skip: int, top: int, listing: Listing) -> Sequence[str]:
        """One page of the sessions with messages or a state; with a time, those whose state was set after it.
        `listing` is the same object for all pages of one listing: the next page goes on where the last one ended."""
