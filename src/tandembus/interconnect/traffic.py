"""What a front end does with an entity's messages, wherever its fragments are.

`Traffic` is the hot half of the seam: nothing in it waits. A call starts something, and whoever is named in it is told
later, from the loop that owns the connection to the broker. The cold half, which waits, is `requests.py`.

The same class stands for one fragment in this process, for one behind a socket, and for an entity of sixteen of them:
a link cannot tell which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.locks import MessageLock, SettleReply
from tandembus.broker.operations import Consumer, SendOperation
from tandembus.broker.session import SessionLock
from tandembus.broker.transactions import TransactionOperation
from tandembus.errors import BusError

ANY_FRAGMENT: Final = -1


@final
class SessionHold:
    """A receiver's claim on a session, as a front end knows it."""

    __slots__ = ("index", "is_over", "lock", "locked_until_ms", "number", "session_id")

    def __init__(self, session_id: str, locked_until_ms: i64, index: i64, lock: SessionLock | None = None) -> None:
        self.session_id: Final = session_id
        self.locked_until_ms: i64 = locked_until_ms
        """Wall time; moved on when it is renewed."""
        self.index: i64 = index
        """The fragment that the session lives in."""
        self.lock: Final = lock
        """The lock itself, where the fragment is in this process."""
        self.is_over: bool = False
        self.number: i64 = 0
        """How the channel to its broker knows it, where the fragment is behind one."""

    def is_live(self, now: float) -> bool:
        """As far as is known here; the fragment has the last word. `now`: on the monotonic clock."""
        lock = self.lock
        return not self.is_over and (lock is None or lock.is_live(now))


@final
class SessionWish:
    """Somebody wants a session: the one of this name, or the next available one.

    Told exactly once, perhaps before the call returns, unless it is given up before."""

    __slots__ = ("granted", "is_over", "is_patient", "refused", "session_id", "tag")

    def __init__(
        self,
        session_id: str | None,
        is_patient: bool,
        granted: Callable[[SessionHold], None],
        refused: Callable[[BusError], None],
    ) -> None:
        self.session_id: Final = session_id
        self.is_patient: Final = is_patient
        """Waits in line until there is one; else it is refused with OperationTimeout when there is none now."""
        self.granted: Final = granted
        self.refused: Final = refused
        self.is_over: bool = False
        self.tag: object = None
        """For whoever grants it."""


def _unheard(_index: int) -> None:
    return


@final
class SessionWatch:
    """Somebody looks out for free sessions of several fragments. It holds none of them and takes nobody's turn."""

    __slots__ = ("available", "nothing")

    def __init__(self, available: Callable[[int, int], None], nothing: Callable[[int], None] = _unheard) -> None:
        self.available: Final = available
        """Told the fragment's index and when the first message of its oldest free session was enqueued (wall time in
        milliseconds); once, then the watch has to be set again. There may be none after all when it is asked for."""
        self.nothing: Final = nothing
        """Told the fragment's index, once, when it has none at first: it has been asked, and goes on being watched."""


class Traffic:
    """Messages to and from one entity, or one fragment of it."""

    def __init__(self, index: i64, is_partitioned: bool) -> None:
        self.index: i64 = index
        """Of the fragment; 0 for what has only one, or stands for all of them."""
        self.is_partitioned: bool = is_partitioned
        """Whether this stands for many fragments."""

    def failure(self) -> BusError | None:
        """Why it takes nothing at the moment: its broker or store is out, or a fault says so. None while it does."""
        raise AssertionError("traffic must be implemented")

    def is_out(self) -> bool:
        """Whether there is a failure, for those who ask often and want no error."""
        return self.failure() is not None

    def is_limited(self) -> bool:
        """Whether any part of it takes nothing at the moment."""
        return self.is_out()

    # Sending.

    def send(self, operation: SendOperation) -> None:
        """Raises when it is refused on the spot; else answered through its reply, after the commit.

        `FragmentUnavailable`: not taken, nothing is stored, another fragment may be tried. `OutcomeUnknown`: nobody can
        say. Every other error is a refusal of this message."""
        raise AssertionError("traffic must be implemented")

    def transaction_index(self, operation: SendOperation) -> i64:
        """The fragment in which a transaction with this send has to be carried out; ANY_FRAGMENT where that is for its
        other parts to say. Raises for what is wrong with the messages themselves, and InvalidOperation where a key
        should say which fragment and there is none."""
        raise AssertionError("traffic must be implemented")

    def transaction_key(self, operation: SendOperation) -> str | None:
        """What all messages of a transaction must have in common besides the fragment: the partition key, where the
        entity is partitioned; else nothing."""
        return None

    # Receiving. A consumer's credit is its own; whoever hands messages over takes it down.

    def attach(self, consumer: Consumer, lane: i64) -> None:
        """Stands in line for the lane's messages from now on."""
        raise AssertionError("traffic must be implemented")

    def feed(self, consumer: Consumer, lane: i64, is_draining: bool) -> None:
        """It has other credit than before, or room again. Draining: it is told `drained` when all there is, within its
        credit, has been delivered; then its credit is gone. Not draining: a drain that is not over is taken back."""
        raise AssertionError("traffic must be implemented")

    def is_draining(self, consumer: Consumer, lane: i64) -> bool:
        """Whether it drains, and has not been told `drained` yet."""
        return False

    def detach(self, consumer: Consumer, lane: i64) -> None:
        """It is gone. What was kept ready for it goes to others, uncounted. What was transferred and not settled stays
        locked until its lock lapses: until then its token settles it, whoever shows it."""
        raise AssertionError("traffic must be implemented")

    def handed_over(self, lock: MessageLock) -> None:
        """A message that a consumer kept ready was transferred to a client: from now on it stays locked until it is
        settled or lapses, even if this front end dies. One that was not goes back at once then, uncounted."""
        raise AssertionError("traffic must be implemented")

    # Settling what was delivered, or found by its token (`Requests.find_locks`).

    def check_lock(self, lock: MessageLock) -> None:
        """Raises MessageLockLost or SessionLockLost where that is known here; the fragment has the last word."""
        raise AssertionError("traffic must be implemented")

    def settle(self, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> None:
        """What is to be told with it stands in the lock: reason, description, changes. Raises on the spot, or answered
        through the reply after the commit."""
        raise AssertionError("traffic must be implemented")

    def discharge(self, operation: TransactionOperation) -> None:
        """All parts in one commit of one fragment, the one of its `index`. Raises, or answered through its reply."""
        raise AssertionError("traffic must be implemented")

    # Sessions.

    def wish_session(self, wish: SessionWish) -> None:
        raise AssertionError("traffic must be implemented")

    def give_up_session(self, wish: SessionWish) -> None:
        """Whoever wished for it does so no longer; it is told nothing."""
        raise AssertionError("traffic must be implemented")

    def hold_session(self, hold: SessionHold, consumer: Consumer) -> None:
        """The session's messages go to this consumer from now on, within its credit (`feed`)."""
        raise AssertionError("traffic must be implemented")

    def leave_session(self, hold: SessionHold) -> None:
        """The holder is gone: the session is free at once, and its messages come back, uncounted."""
        raise AssertionError("traffic must be implemented")

    def watch_sessions(self, watch: SessionWatch) -> None:
        """One watch stands at a time; a new one takes the place of the last."""
        raise AssertionError("traffic must be implemented")
