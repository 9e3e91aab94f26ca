"""Who waits for messages of a lane, and handing them over: in turn, within credit, locks given on the way.

A receive-and-delete is a lock inside, a removal that is committed, and only then a transfer; until that removal is
staged the message is merely kept ready and goes back when its consumer does.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.budget import Budget
from tandembus.broker.lane import Lane
from tandembus.broker.locks import REMOVE, LockTable, MessageLock
from tandembus.broker.operations import Consumer
from tandembus.broker.session import Session
from tandembus.broker.sessions import SessionIndex
from tandembus.large_messages import LARGE_BYTES
from tandembus.message import Message

TURN_MESSAGES: Final = 64
TURN_BYTES: Final = 262144
MAX_REMOVALS: Final = 4096
MAX_REMOVING_BYTES: Final = 4 * 1024 * 1024
"""Receive-and-deletes of one commit. Nothing of them is unsent yet, so no connection's limit holds them back: without
this one a large credit would bring the whole queue into memory."""


@final
class Removal:
    """A receive-and-delete on its way: committed first, transferred then."""

    __slots__ = ("consumer", "lock", "message")

    def __init__(self, message: Message, lock: MessageLock, consumer: Consumer) -> None:
        self.message: Final = message
        self.lock: Final = lock
        self.consumer: Final = consumer


@final
class LaneConsumers:
    def __init__(self, lane: Lane, locks: LockTable, max_locks: i64, budget: Budget) -> None:
        self.lane: Lane = lane
        self.removals: list[Removal] = []
        self._removing_bytes: i64 = 0
        self.expired: list[Message] = []
        """Found past their time at hand-over: the fragment sees them off."""
        self.draining: list[Consumer] = []
        self.sessions: SessionIndex | None = None
        """Where the lane's messages are received session by session."""
        self._locks: LockTable = locks
        self._max_locks: i64 = max_locks
        self._budget: Final = budget
        self._consumers: list[Consumer] = []
        self._turn: i64 = 0

    def start_over(self, lane: Lane, locks: LockTable) -> None:
        """The store was opened anew: the consumers stay, with their credit; what they held is void."""
        self.lane = lane
        self.sessions = None
        self._locks = locks
        self.expired = []

    def take_removals(self) -> list[Removal]:
        """The receive-and-deletes for the coming commit."""
        removals = self.removals
        self.removals = []
        self._removing_bytes = 0
        return removals

    def is_empty(self) -> bool:
        return not self._consumers

    def add(self, consumer: Consumer) -> None:
        self._consumers.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)
        self.undrain(consumer)
        kept: list[Removal] = []
        for removal in self.removals:
            if removal.consumer is consumer:
                self._removing_bytes -= len(removal.message.sections)
                self._undo(removal)
            else:
                kept.append(removal)
        self.removals = kept

    def _undo(self, removal: Removal) -> None:
        removal.consumer.removing_count -= 1
        removal.consumer.credit += 1  # it may come back
        lane = self.lane
        lane.held.pop(int(removal.lock.number), None)
        self._locks.forget(removal.lock)
        if self.sessions is None:
            lane.give_back(removal.lock.number)
        else:
            self.sessions.ended(removal.lock, True)

    def lose_locks(self) -> None:
        """Every lock is void."""
        for consumer in self._consumers:
            consumer.locks_lost()

    def drain(self, consumer: Consumer) -> None:
        if consumer not in self.draining:
            self.draining.append(consumer)

    def undrain(self, consumer: Consumer) -> None:
        if consumer in self.draining:
            self.draining.remove(consumer)

    def finish_drains(self) -> None:
        """A drain is over when the credit is used up, or nothing more is there and nothing more is on its way. Whoever
        is told so may begin the next one, or take back another's, at once."""
        index: i64 = 0
        while index < i64(len(self.draining)):
            consumer = self.draining[index]
            if consumer.removing_count == 0 and (consumer.credit <= 0 or not self._has_more(consumer)):
                del self.draining[index]
                consumer.drained()
            else:
                index += 1

    def _has_more(self, consumer: Consumer) -> bool:
        if len(self._locks) >= self._max_locks:
            return False
        sessions, session = self.sessions, consumer.session
        if sessions is None or session is None:
            return not self.lane.is_exhausted()
        return sessions.has_more(session)

    def is_hungry(self) -> bool:
        is_removing_enough = self._is_removing_enough()
        for consumer in self._consumers:
            if consumer.can_take() and not (is_removing_enough and consumer.is_destructive):
                return True
        return False

    def has_room_for(self, size_bytes: i64) -> bool:
        """Whether somebody can take a large message, for whom it is worth reading then."""
        for consumer in self._consumers:
            if consumer.can_take() and consumer.has_room_for(size_bytes):
                return True
        return False

    def pump(self, now: float, now_ms: i64, lock_duration_s: float) -> None:
        """Give what is ready to who has credit. What came back must be read again first: it is next."""
        count: i64 = len(self._consumers)
        idle: i64 = 0
        while idle < count and self.lane.has_next() and len(self._locks) < self._max_locks:
            consumer = self._consumers[self._turn % count]
            self._turn = (self._turn + 1) % count
            if consumer.can_take() and self._serve(consumer, now, now_ms, lock_duration_s):
                idle = 0
            else:
                idle += 1

    def _is_removing_enough(self) -> bool:
        return self._removing_bytes >= MAX_REMOVING_BYTES or len(self.removals) >= MAX_REMOVALS

    def _serve(self, consumer: Consumer, now: float, now_ms: i64, lock_duration_s: float) -> bool:
        """One consumer's turn. It was asked once whether it can take more: a turn is short enough for that."""
        lane = self.lane
        most = min(consumer.credit, i64(TURN_MESSAGES), self._max_locks - i64(len(self._locks)))
        locked_until_ms: i64 = now_ms + i64(int(lock_duration_s * 1000))
        given: i64 = 0
        given_bytes: i64 = 0
        while given < most and given_bytes < TURN_BYTES and lane.has_next():
            if consumer.is_destructive and self._is_removing_enough():
                break
            message = lane.pop_ready()
            if lane.is_thinned and not lane.is_waiting(message.number):
                continue  # expired or purged while it was kept ready
            if message.expires_at != 0 and message.expires_at <= now_ms:
                self.expired.append(message)
                continue
            lock = self._locks.lock(
                lane.code, message.number, now, lock_duration_s, len(message.sections), message.expires_at
            )
            lock.locked_until_ms = locked_until_ms
            self._give(consumer, message, lock)
            given += 1
            given_bytes += lock.size_bytes
        if not lane.ready:
            lane.is_thinned = False
        if given > 0:
            consumer.flush()
        return given > 0

    def _give(self, consumer: Consumer, message: Message, lock: MessageLock) -> None:
        lock.delivery_count = message.delivery_count
        lock.application_properties = message.application_properties
        consumer.locks.add(lock)
        lock.is_kept_ready = consumer.keeps_ready
        if lock.size_bytes > LARGE_BYTES and (consumer.keeps_ready or consumer.is_destructive):
            lock.count_in(self._budget.large)
        self.lane.held[int(message.number)] = lock
        consumer.credit -= 1
        if consumer.is_destructive:
            self._stage_removal(message, lock, consumer)
        else:
            consumer.deliver(message, lock)

    # Sessions: each has one consumer, who gets its messages and no others.

    def pump_sessions(self, now: float, now_ms: i64, lock_duration_s: float) -> None:
        """Give what is in memory to the receivers of sessions; those that could take more are `starving` then."""
        sessions = self.sessions
        if sessions is None:
            return
        while sessions.has_stirred():
            for session in sessions.take_stirred():
                self._serve_session(sessions, session, now, now_ms, lock_duration_s)
            if len(self._locks) >= self._max_locks or self._is_removing_enough():
                return  # what is committed next makes room

    def _is_at_limit(self, consumer: Consumer) -> bool:
        if len(self._locks) >= self._max_locks:
            return True
        return consumer.is_destructive and self._is_removing_enough()

    def _serve_session(
        self, sessions: SessionIndex, session: Session, now: float, now_ms: i64, lock_duration_s: float
    ) -> None:
        """One session's turn. A delivery renews the session's lock."""
        consumer, session_lock = session.consumer, session.lock
        if consumer is None or session_lock is None or not consumer.can_take() or not session_lock.is_live(now):
            return
        most = min(consumer.credit, i64(TURN_MESSAGES))
        given: i64 = 0
        given_bytes: i64 = 0
        while given < most and given_bytes < TURN_BYTES:
            if self._is_at_limit(consumer):
                sessions.stir(session)
                break
            message = sessions.next_message(session)
            if message is None:
                break
            sessions.pop(session)
            if message.expires_at != 0 and message.expires_at <= now_ms:
                self.expired.append(message)
                continue
            if given == 0:
                sessions.renew(session_lock, now, now_ms, lock_duration_s)
            lock = self._locks.lock_in_session(
                self.lane.code, message.number, session_lock, len(message.sections), message.expires_at
            )
            lock.locked_until_ms = session_lock.locked_until_ms
            sessions.held(lock, session, session_lock)
            self._give(consumer, message, lock)
            given += 1
            given_bytes += lock.size_bytes
        else:
            sessions.stir(session)
        if given > 0:
            consumer.flush()

    def _stage_removal(self, message: Message, lock: MessageLock, consumer: Consumer) -> None:
        lock.settlement = REMOVE
        consumer.removing_count += 1
        self._removing_bytes += len(message.sections)
        self.removals.append(Removal(message, lock, consumer))
