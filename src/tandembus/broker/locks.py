"""Lock tokens and their expiry.

A lock is one receiver's claim on one message. It lives in memory only: a broker's death ends it, and a token of an
earlier epoch is lost without a look-up. Locks lapse on the monotonic clock.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.session import Session, SessionLock
from tandembus.errors import BusError
from tandembus.large_messages import LargeMemory
from tandembus.store.messaging_store import MAIN

# What a lock ends in. OPEN: nobody has settled it yet.
OPEN: Final = 0
COMPLETE: Final = 1
ABANDON: Final = 2
DEFER: Final = 3
DEAD_LETTER: Final = 4
RELEASE: Final = 5
LAPSE: Final = 6
EXPIRE: Final = 7
REMOVE: Final = 8
"""Taken out of the queue by its owner or by a receive-and-delete; no settlement of a client."""

TOKEN_BYTES: Final = 16
RANDOM_BYTES: Final = 10
TOKENS_AT_ONCE: Final = 64
LOCK_LOST: Final = (
    "The lock is lost: it lapsed, the message was settled already, or the broker was restarted. "
    "Receive the message again."
)

LEAST_OVER: Final = 1024
"""Entries of locks that are over, before it is worth the while to look for them."""


class SettleReply:
    """Told what became of a settlement, after its commit."""

    def is_wanted(self) -> bool:
        """Asked of a removal that had to wait, before the fragment is told of it. When whoever was to get the message
        is gone, it is given back instead, and nobody is told."""
        return True

    def collected(self, lock: MessageLock) -> None:
        """It goes into the coming commit."""

    def settled(self, lock: MessageLock, error: BusError | None) -> None:
        raise AssertionError("a reply must be implemented")


@final
class CallbackSettleReply(SettleReply):
    def __init__(
        self,
        callback: Callable[[MessageLock, BusError | None], None],
        when_collected: Callable[[MessageLock], None] | None = None,
    ) -> None:
        self.callback: Final = callback
        self.when_collected: Final = when_collected

    def collected(self, lock: MessageLock) -> None:
        if self.when_collected is not None:
            self.when_collected(lock)

    def settled(self, lock: MessageLock, error: BusError | None) -> None:
        self.callback(lock, error)


@final
class MessageLock:
    """A locked message: about 200 bytes, no body. Its own settlement, once there is one, is kept in it."""

    __slots__ = (
        "application_properties",
        "asked",
        "changes",
        "counted_in",
        "delivery_count",
        "delivery_id",
        "description",
        "encoded_changes",
        "expires_at",
        "index",
        "is_damaged",
        "is_deferred",
        "is_kept_ready",
        "is_quiet",
        "is_returning",
        "is_scheduled",
        "lane",
        "locked_until",
        "locked_until_ms",
        "next_owned",
        "number",
        "owner",
        "previous_owned",
        "push_number",
        "reason",
        "removal",
        "reply",
        "session",
        "session_lock",
        "settlement",
        "size_bytes",
        "token",
    )

    def __init__(
        self, token: bytes, lane: i64, number: i64, locked_until: float, size_bytes: i64, expires_at: i64
    ) -> None:
        self.token: Final = token
        self.index: i64 = fragment_index_of(token)
        """The fragment that gave it: any front end can tell from the token."""
        self.lane: i64 = lane
        self.number: i64 = number
        self.locked_until: float = locked_until
        self.locked_until_ms: i64 = 0
        """What the client is told: wall time; the lock itself runs on the monotonic clock."""
        self.size_bytes: i64 = size_bytes
        self.expires_at: i64 = expires_at
        self.delivery_count: i64 = 0
        self.application_properties: bytes = b""
        self.is_deferred: bool = False
        self.is_scheduled: bool = False
        self.is_damaged: bool = False
        """Its record cannot be read: it goes to quarantine."""
        self.owner: OwnedLocks | None = None
        """Those of the consumer that holds it; None for a lock taken through the management node."""
        self.next_owned: MessageLock | None = None
        self.previous_owned: MessageLock | None = None
        self.is_kept_ready: bool = False
        """Whoever holds it has not handed the message over yet: should that never happen, nothing was delivered."""
        self.delivery_id: i64 = -1
        self.settlement: i64 = OPEN
        self.asked: i64 = OPEN
        """What the client asked for; `settlement` is what it comes to (an abandon may end among the dead letters)."""
        self.reply: SettleReply | None = None
        self.is_quiet: bool = False
        """The peer has settled already and wants no answer."""
        self.reason: str | None = None
        self.description: str | None = None
        self.changes: dict[str, object] | None = None
        """Properties that the settlement sets on the message."""
        self.encoded_changes: dict[bytes, bytes] | None = None
        self.session: Session | None = None
        """Where the message goes back to, in a lane that has sessions."""
        self.session_lock: SessionLock | None = None
        """The lock that covers this one: it ends when that one does, and not before."""
        self.is_returning: bool = False
        self.removal: i64 = 0
        """What the audit says of its end, where the settlement does not say it all."""
        self.push_number: i64 = 0
        """Which push over a channel brought it to a front end in another process; 0 where there is no channel."""
        self.counted_in: LargeMemory | None = None
        """Where a large message counts as given, before it is really transferred."""

    def count_in(self, memory: LargeMemory) -> None:
        self.counted_in = memory
        memory.give(self.size_bytes)

    def uncount(self) -> None:
        """It is handed over, or will not be."""
        memory = self.counted_in
        if memory is not None:
            self.counted_in = None
            memory.end_giving(self.size_bytes)

    def is_live(self, now: float) -> bool:
        return self.settlement == OPEN and self.ends_at() > now

    def ends_at(self) -> float:
        """When it lapses, on the monotonic clock."""
        session_lock = self.session_lock
        if session_lock is None:
            return self.locked_until
        return 0.0 if session_lock.is_over else session_lock.locked_until


@final
class OwnedLocks:
    """The locks that one consumer holds, so that its end is found without looking at everybody else's."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: MessageLock | None = None

    def add(self, lock: MessageLock) -> None:
        first = self._first
        lock.owner = self
        lock.next_owned = first
        if first is not None:
            first.previous_owned = lock
        self._first = lock

    def remove(self, lock: MessageLock) -> None:
        following, previous = lock.next_owned, lock.previous_owned
        if previous is not None:
            previous.next_owned = following
        else:
            self._first = following
        if following is not None:
            following.previous_owned = previous
        lock.owner = None
        lock.next_owned = None
        lock.previous_owned = None

    def all(self) -> list[MessageLock]:
        """In the order in which they were taken."""
        found: list[MessageLock] = []
        lock = self._first
        while lock is not None:
            found.append(lock)
            lock = lock.next_owned
        found.reverse()
        return found


@final
class LockTable:
    """The live locks of one fragment, by token, in the order in which they lapse.

    Renewals append to the order and leave their old entry behind, to be skipped; there is one order per lock duration,
    so each is sorted without sorting. What was settled is left behind, too. One long lock in front must not keep all
    that was settled since in memory: when more is over than lives, the orders are tidied.
    """

    def __init__(self, fragment_index: int, epoch: int) -> None:
        self._prefix: Final = fragment_index.to_bytes(2, "big") + (epoch & 0xFFFFFFFF).to_bytes(4, "big")
        self._random: bytes = b""
        self._random_at: i64 = 0
        self._by_token: dict[bytes, MessageLock] = {}
        self._orders: dict[float, deque[tuple[float, MessageLock]]] = {}
        self._over_count: i64 = 0

    def __len__(self) -> int:
        return len(self._by_token)

    def lock(
        self, lane: i64, number: i64, now: float, duration_s: float, size_bytes: i64, expires_at: i64
    ) -> MessageLock:
        lock = MessageLock(self._next_token(), lane, number, now + duration_s, size_bytes, expires_at)
        self._by_token[lock.token] = lock
        self._order(duration_s).append((lock.locked_until, lock))
        return lock

    def lock_in_session(
        self, lane: i64, number: i64, session_lock: SessionLock, size_bytes: i64, expires_at: i64
    ) -> MessageLock:
        """A lock that lapses with its session's, and so has no place in the order."""
        lock = MessageLock(self._next_token(), lane, number, session_lock.locked_until, size_bytes, expires_at)
        self._by_token[lock.token] = lock
        return lock

    def _next_token(self) -> bytes:
        """Returns fragment and epoch, which route a token, then random bits, so that no token can be computed from
        another. The bits are drawn for many tokens at once: one system call each would slow down every delivery."""
        at = self._random_at
        if at >= len(self._random):
            self._random = os.urandom(RANDOM_BYTES * TOKENS_AT_ONCE)
            at = 0
        self._random_at = at + RANDOM_BYTES
        return self._prefix + self._random[at : at + RANDOM_BYTES]

    def _order(self, duration_s: float) -> deque[tuple[float, MessageLock]]:
        order = self._orders.get(duration_s)
        if order is None:
            order = deque()
            self._orders[duration_s] = order
        return order

    def find(self, token: bytes) -> MessageLock | None:
        return self._by_token.get(token)

    def renew(self, lock: MessageLock, now: float, duration_s: float) -> None:
        lock.locked_until = now + duration_s
        self._order(duration_s).append((lock.locked_until, lock))
        self._leave_behind()

    def forget(self, lock: MessageLock) -> None:
        if self._by_token.pop(lock.token, None) is not None:
            lock.uncount()
            _disown(lock)
            self._leave_behind()

    def _leave_behind(self) -> None:
        self._over_count += 1
        if self._over_count > i64(len(self._by_token)) + LEAST_OVER:
            self._tidy()

    def _tidy(self) -> None:
        self._over_count = 0
        for duration_s in list(self._orders):
            kept: deque[tuple[float, MessageLock]] = deque()
            for entry in self._orders[duration_s]:
                lock = entry[1]
                if lock.locked_until == entry[0] and lock.token in self._by_token:
                    kept.append(entry)
            self._orders[duration_s] = kept

    def void(self) -> None:
        """The broker's hold on the store is over, and every lock with it."""
        for lock in self._by_token.values():
            lock.uncount()
            _disown(lock)
            if lock.settlement == OPEN:
                lock.settlement = LAPSE
        self._by_token = {}
        self._orders = {}

    def lapsed(self, now: float, limit: int) -> list[MessageLock]:
        """Up to `limit` locks that have lapsed and that nobody is settling."""
        found: list[MessageLock] = []
        for order in self._orders.values():
            while order and len(found) < limit:
                until, lock = order[0]
                is_over = lock.settlement != OPEN or lock.token not in self._by_token
                if until > now and not is_over:
                    break
                order.popleft()
                if not is_over and lock.locked_until == until:
                    found.append(lock)
        return found

    def next_lapse(self) -> float:
        """When the earliest entry comes up; 0 where there is none."""
        earliest = 0.0
        for order in self._orders.values():
            if order and (earliest == 0.0 or order[0][0] < earliest):
                earliest = order[0][0]
        return earliest


def _disown(lock: MessageLock) -> None:
    owner = lock.owner
    if owner is not None:
        owner.remove(lock)


def fragment_index_of(token: bytes) -> i64:
    """Which fragment of its entity gave this token; what is no token names none."""
    return i64(token[0]) << 8 | i64(token[1]) if len(token) == TOKEN_BYTES else -1


def is_of_epoch(token: bytes, epoch: int) -> bool:
    return len(token) == TOKEN_BYTES and int.from_bytes(token[2:6], "big") == epoch & 0xFFFFFFFF


def counts_delivery(lock: MessageLock, settlement: i64) -> bool:
    """Whether such an end counts as a delivery. Among dead letters none does."""
    return lock.lane == MAIN and (settlement == ABANDON or settlement == LAPSE or settlement == DEFER)


def gives_back(lock: MessageLock) -> bool:
    """Whether the message is available again when this settlement is durable."""
    settlement = lock.settlement
    return not lock.is_deferred and (settlement == ABANDON or settlement == LAPSE or settlement == RELEASE)
