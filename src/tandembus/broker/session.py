"""A session and the claim on it: plain data, without a word of where its messages are.

A session is the messages that share a SessionId. One receiver at a time holds it, by a lock of its own that covers all
messages received under it: those do not lapse one by one, they go back together when the session is let go or lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from tandembus.errors import BusError, InvalidOperation
from tandembus.message import Message, session_id_of

if TYPE_CHECKING:
    from tandembus.broker.locks import MessageLock
    from tandembus.broker.operations import Consumer

# How much of a session's messages is known in memory.
FOLLOWING: Final = 0
"""All that the lane's index has come to."""
ALONE: Final = 1
"""All below `searched_to`; the rest has to be searched for in the columns."""
AHEAD: Final = 2
"""All there are, although the index has not come as far yet."""


@final
class SessionLock:
    """One receiver's claim on a session. In memory only, like every lock."""

    __slots__ = ("is_over", "listed_until", "locked_until", "locked_until_ms", "session")

    def __init__(self, session: Session, locked_until: float, locked_until_ms: i64) -> None:
        self.session: Final = session
        self.locked_until: float = locked_until
        """On the monotonic clock."""
        self.locked_until_ms: i64 = locked_until_ms
        """What the client is told: wall time."""
        self.listed_until: float = 0.0
        """Where it stands in the order of lapses: at its end, or before it if it was renewed since."""
        self.is_over: bool = False

    def is_live(self, now: float) -> bool:
        return not self.is_over and self.locked_until > now


@final
class SessionWatcher:
    """Somebody who looks out for free sessions of a fragment, and waits in no line for them."""

    __slots__ = ("available", "is_answered", "nothing")

    def __init__(self, available: Callable[[int, int], None], nothing: Callable[[int], None]) -> None:
        self.available: Final = available
        """Told the fragment's index and when the oldest one's first message was enqueued; then the watch is over."""
        self.nothing: Final = nothing
        """Told the fragment's index, once, when there is none at first; the watch goes on."""
        self.is_answered: bool = False


@final
class Session:
    __slots__ = (
        "consumer",
        "hash",
        "held",
        "id",
        "is_stirred",
        "lock",
        "mode",
        "numbers",
        "offered_at",
        "returning_count",
        "same_hash",
        "searched_to",
        "shown",
    )

    def __init__(self, session_id: str | None, session_hash: bytes, mode: i64, searched_to: i64) -> None:
        self.id: str | None = session_id
        """As it is compared. None while only columns have spoken of it: the first body read will tell."""
        self.shown: str | None = None
        """As it was sent."""
        self.hash: Final = session_hash
        self.same_hash: Session | None = None
        """Another session whose id has the same hash."""
        self.mode: i64 = mode
        self.searched_to: i64 = searched_to
        self.numbers: list[int] = []
        """Available messages that are known of, in order."""
        self.held: dict[int, MessageLock] = {}
        """Messages that are locked under this session, or on their way back to it."""
        self.returning_count: i64 = 0
        """Those on their way back: nothing behind them is handed out before they are there, since they are next."""
        self.lock: SessionLock | None = None
        self.consumer: Consumer | None = None
        self.offered_at: i64 = -1
        """Its place in the order of the sessions that wait for a receiver; -1 while it has none."""
        self.is_stirred: bool = False

    @property
    def name(self) -> str:
        """For whoever accepts the next available session."""
        assert self.id is not None, "nobody holds a session whose id is not known"
        return self.id if self.shown is None else self.shown


@final
class SessionAccept:
    """Somebody waits for the next available session. Told exactly once, unless it gives up before."""

    __slots__ = ("granted", "is_over", "refused")

    def __init__(self, granted: Callable[[SessionLock], None], refused: Callable[[BusError], None]) -> None:
        self.granted: Final = granted
        self.refused: Final = refused
        self.is_over: bool = False
        """Granted, refused or given up."""


def check_sessions(messages: list[Message]) -> None:
    """What is sent to an entity that requires sessions needs one."""
    for message in messages:
        if message.session_id is None:
            raise InvalidOperation("The entity requires sessions: every message sent to it needs a SessionId.")


def id_noted_in(message: Message) -> str:
    """The session it belongs to, which stands in the message from now on."""
    session_id = session_id_of(message) or ""
    message.session_id = session_id
    return session_id
