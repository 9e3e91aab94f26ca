"""What a front end asks of a fragment, as plain data, and whom the fragment answers.

The answer to an operation travels through a native base class rather than a future: a commit answers hundreds of
operations at once, and their links merge those answers into ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.locks import MessageLock, OwnedLocks
from tandembus.broker.session import Session
from tandembus.errors import BusError
from tandembus.message import Message


class SendReply:
    """Told what became of a send, after its commit."""

    def collected(self, operation: SendOperation) -> None:
        """It goes into the coming commit. Whatever is answered then, before this it was not carried out, and an error
        that comes after it, unless the store is merely full, means that nobody knows."""

    def sent(self, operation: SendOperation, error: BusError | None) -> None:
        raise AssertionError("a reply must be implemented")


@final
class TransferSource:
    """Where forwarded messages come from: a lane of a fragment in another store. `numbers` are theirs there, one for
    each message of the operation, ascending.

    The fragment that takes them remembers the highest, so whoever never got an answer sends them again, and what was
    taken already is answered as done and not stored twice. That needs strict order: nothing is sent to a fragment while
    anything of the same lane, for the same fragment, with a lower number is still to come."""

    __slots__ = ("fragment", "lane", "numbers")

    def __init__(self, fragment: i64, lane: i64, numbers: list[int]) -> None:
        self.fragment: i64 = fragment
        self.lane: i64 = lane
        self.numbers: Final = numbers


@final
class SendOperation:
    """One transfer: a message, or a batch that is stored whole or not at all."""

    __slots__ = ("delivery_id", "error", "is_via", "messages", "promised", "reply", "size_bytes", "source")

    def __init__(
        self,
        messages: list[Message],
        size_bytes: i64,
        reply: SendReply,
        delivery_id: i64,
        is_via: bool = False,
        source: TransferSource | None = None,
    ) -> None:
        self.messages: Final = messages
        self.is_via: Final = is_via
        """For another entity: to the transfer lane, with the destination in each message."""
        self.source: Final = source
        """Of what is forwarded: its messages keep their hops, original number, time to live and schedule."""
        self.promised: list[int] | None = None
        """The numbers that its messages take, one for each, where their sender knows them already."""
        self.size_bytes: i64 = size_bytes
        self.reply: Final = reply
        self.delivery_id: i64 = delivery_id
        self.error: BusError | None = None
        """Why it was refused when its turn came; it is answered in its order all the same."""


@final
class StateOperation:
    """A session's new state; None clears it. The reply is told what became of it, after its commit."""

    __slots__ = ("reply", "session_id", "state")

    def __init__(self, session_id: str, state: bytes | None, reply: Callable[[BusError | None], None]) -> None:
        self.session_id: Final = session_id
        self.state: Final = state
        self.reply: Final = reply


@final
class PromiseOperation:
    """Numbers for messages that may come later: one for each of these session ids. What was promised is given to nobody
    else, whether or not it is ever used."""

    __slots__ = ("numbers", "reply", "session_ids")

    def __init__(self, session_ids: list[str | None], reply: Callable[[BusError | None], None]) -> None:
        self.session_ids: Final = session_ids
        self.numbers: Final[list[int]] = []
        self.reply: Final = reply
        """Told what became of it, after its commit."""


class Consumer:
    """Somebody with credit for a lane. The fragment takes credit down as it hands messages over."""

    def __init__(self, is_destructive: bool) -> None:
        self.credit: i64 = 0
        self.is_destructive: bool = is_destructive
        self.removing_count: i64 = 0
        """Receive-and-deletes that are being committed and will be delivered."""
        self.session: Session | None = None
        """The session it holds, in a lane that has sessions."""
        self.locks: Final = OwnedLocks()
        self.keeps_ready: bool = False
        """It keeps what it is given for others, and tells `Traffic.handed_over` what really left: until then it goes
        back at once, and uncounted, when this leaves or the lock lapses. All others hand over what they are given at
        once."""

    def can_take(self) -> bool:
        """Credit is not all: a connection that does not read must not be filled."""
        return self.credit > 0

    def has_room_for(self, size_bytes: i64) -> bool:
        """Asked before a large message is read for it. Without room it takes nothing at all, and is fed when there is
        some."""
        return True

    def deliver(self, message: Message, lock: MessageLock) -> None:
        raise AssertionError("a consumer must be implemented")

    def session_lost(self, error: BusError) -> None:
        """It no longer holds its session, and gets nothing more."""

    def locks_lost(self) -> None:
        """What it was given and has not handed over is void: its broker is gone, or another life of it has begun. Its
        credit is its own as before, and new messages come when the broker is back."""

    def drained(self) -> None:
        """Everything there was, within the credit, has been delivered."""

    def flush(self) -> None:
        """Called once after a run of deliveries."""


@final
class CallbackSendReply(SendReply):
    """For the cold paths (management, HTTP, tests): one callback."""

    def __init__(
        self,
        callback: Callable[[SendOperation, BusError | None], None],
        when_collected: Callable[[SendOperation], None] | None = None,
    ) -> None:
        self.callback: Final = callback
        self.when_collected: Final = when_collected

    def collected(self, operation: SendOperation) -> None:
        if self.when_collected is not None:
            self.when_collected(operation)

    def sent(self, operation: SendOperation, error: BusError | None) -> None:
        self.callback(operation, error)


def _nothing() -> None:
    return


def _always(_size_bytes: int) -> bool:
    return True


@final
class CallbackConsumer(Consumer):
    def __init__(
        self,
        is_destructive: bool,
        callback: Callable[[Message, MessageLock], None],
        when_drained: Callable[[], None] = _nothing,
        when_session_lost: Callable[[BusError], None] | None = None,
        when_locks_lost: Callable[[], None] = _nothing,
    ) -> None:
        super().__init__(is_destructive)
        self.when_session_lost: Final = when_session_lost
        self.when_locks_lost: Final = when_locks_lost
        self.callback: Final = callback
        self.when_drained: Final = when_drained
        self.is_full: bool = False
        """It takes nothing at the moment, whatever its credit."""
        self.room: Callable[[int], bool] = _always
        """Whether there is room for a large message of so many bytes."""

    def can_take(self) -> bool:
        return self.credit > 0 and not self.is_full

    def has_room_for(self, size_bytes: i64) -> bool:
        return self.room(int(size_bytes))

    def locks_lost(self) -> None:
        self.when_locks_lost()

    def deliver(self, message: Message, lock: MessageLock) -> None:
        self.callback(message, lock)

    def drained(self) -> None:
        self.when_drained()

    def session_lost(self, error: BusError) -> None:
        if self.when_session_lost is not None:
            self.when_session_lost(error)
