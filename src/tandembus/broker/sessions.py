"""The sessions of a lane: which of them wait for a receiver, and where their messages are.

`columns_end` splits the numbers as the window does in a plain lane. Every available message below it belongs to a
session that is in memory; what lies above it is found in the columns when somebody asks, and never twice. A session in
memory knows its next numbers, not all of them: one session may have millions. Bodies are kept only as far as there is
room.

Pure: what has to be read is said (`wants`, `starving`), and read by others.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.lane import Lane
from tandembus.broker.locks import EXPIRE, MessageLock
from tandembus.broker.operations import Consumer
from tandembus.broker.session import AHEAD, ALONE, FOLLOWING, Session, SessionLock, SessionWatcher, id_noted_in
from tandembus.broker.session_columns import Run, end_of_run, entry_count, hash_at, offset_at, offsets_of, session_hash
from tandembus.broker.session_memory import BodyCache, SessionTable
from tandembus.broker.session_orders import LEAST_OVER, AcceptQueue, LapseOrder
from tandembus.broker.session_reservations import ReservedSessions
from tandembus.broker.settings import FragmentSettings
from tandembus.errors import SessionCannotBeLocked, SessionLockLost
from tandembus.large_messages import LARGE_BYTES
from tandembus.message import Message
from tandembus.store.messaging_store import Damage

# What the next grant has to wait for.
NOTHING: Final = 0
SCAN: Final = 1
"""More columns: all sessions known so far are taken."""
SEARCH: Final = 2
"""The columns of one session: whether it has messages left."""
NAME: Final = 3
"""A body of a session: the columns know only its hash."""
FIRST: Final = 4
"""The first body of a session, to tell how old it is."""

SESSION_LOST: Final = "The session lock is lost: it lapsed, or its receiver is gone. Accept the session again."


@final
class SessionIndex:
    def __init__(self, lane: Lane, settings: FragmentSettings) -> None:
        self._lane: Final = lane
        self._settings: Final = settings
        self.columns_end: i64 = lane.window_end
        self.is_at_tail: bool = lane.window_end >= lane.visible_end
        """Everything is known: new messages are taken in as they come, and `columns_end` does not matter."""
        self.wants: i64 = NOTHING
        self.wanted: Session | None = None
        self.starving: list[Session] = []
        """Held sessions whose receiver could take more than is in memory."""
        self.granted: list[Session] = []
        """Sessions that somebody has just got, and will want messages of."""
        self._stirred: list[Session] = []
        self.waiting: Final = AcceptQueue()
        self.lapses: Final = LapseOrder()
        self.watchers: list[SessionWatcher] = []
        """Who is to be told of a free session, each once."""
        self.reserved: Final = ReservedSessions()
        self._table: Final = SessionTable()
        self._bodies: Final = BodyCache(lane, settings.window_messages, settings.window_bytes)
        self._offers: list[tuple[int, int, Session]] = []
        self._offer_count: int = 0
        self._max_sessions: i64 = settings.max_sessions
        self._max_numbers: i64 = settings.max_session_numbers

    def __len__(self) -> int:
        return len(self._table)

    # Sessions in memory.

    def find(self, session_id: str) -> Session | None:
        return self._table.find(self._settings.key_of(session_id))

    def _key_in(self, message: Message) -> str:
        """The session it belongs to, as it is compared."""
        return self._settings.key_of(id_noted_in(message))

    def get(self, session_id: str) -> Session:
        """The session, known from now on. What is not known has no available message below `columns_end`."""
        key = self._settings.key_of(session_id)
        session = self._table.find(key)
        return session if session is not None else self._table.add(key, session_hash(key))

    def _forget_if_empty(self, session: Session) -> bool:
        """Whatever a forgotten session has above `columns_end` is found there again."""
        if session.lock is not None or session.numbers or session.held:
            return False
        if session.mode == ALONE and (self.is_at_tail or session.searched_to < self.columns_end):
            return False
        session.offered_at = -1
        self._table.remove(session)
        return True

    def knows_all_of(self, session: Session) -> bool:
        return session.mode == AHEAD or (session.mode == FOLLOWING and self.is_at_tail)

    def _covers(self, session: Session, number: i64) -> bool:
        """Whether this number would be among the session's own if it were available."""
        if session.mode == ALONE:
            return number < session.searched_to
        return session.mode == AHEAD or self.is_at_tail or number < self.columns_end

    # Messages come and come back.

    def arrived(self, message: Message) -> None:
        """A durable message becomes available at the tail."""
        key = self._key_in(message)
        number = message.number
        session = self._table.named(key)
        if session is None:
            session = self._take_in(key, number)
            if session is None:
                return
        if session.shown is None:
            session.shown = message.session_id
        if self.knows_all_of(session) and self._append(session, number) and len(message.sections) <= LARGE_BYTES:
            self._bodies.keep(message)
        if session.lock is not None:
            self.stir(session)
        else:
            self._offer(session)

    def _take_in(self, session_id: str, number: i64) -> Session | None:
        """A session that is not in memory, or not by its name."""
        if not self.is_at_tail:
            return None
        hash_of_id = session_hash(session_id)
        session = self._table.adopt(session_id, hash_of_id)
        if session is not None:
            return session
        if len(self._table) >= self._max_sessions:
            self.is_at_tail = False
            self.columns_end = number
            return None
        return self._table.add(session_id, hash_of_id)

    def _append(self, session: Session, number: i64) -> bool:
        if len(session.numbers) < self._max_numbers:
            session.numbers.append(int(number))
            return True
        session.mode = ALONE
        session.searched_to = number
        return False

    def held(self, lock: MessageLock, session: Session, session_lock: SessionLock | None) -> None:
        """A message of this session is locked. Under no session lock: taken by the broker itself."""
        lock.session = session
        lock.session_lock = session_lock
        session.held[int(lock.number)] = lock

    def returning(self, lock: MessageLock) -> None:
        """It was decided that the message comes back; it does when that is durable."""
        session = lock.session
        if session is not None and not lock.is_returning:
            lock.is_returning = True
            session.returning_count += 1

    def ended(self, lock: MessageLock, is_back: bool) -> None:
        """The lock is over. The message is gone, or available again and next in its session."""
        session = lock.session
        if session is None:
            return
        session.held.pop(int(lock.number), None)
        if lock.is_returning:
            lock.is_returning = False
            session.returning_count -= 1
        if is_back and self._covers(session, lock.number):
            self._insert(session, lock.number)
        if session.lock is not None:
            self.stir(session)
        elif session.returning_count == 0:
            self._offer(session)

    def _insert(self, session: Session, number: i64) -> None:
        at = bisect_left(session.numbers, int(number))
        if at == len(session.numbers) or session.numbers[at] != number:
            insort(session.numbers, int(number))

    def went_astray(self, session: Session, number: i64, session_id: str) -> None:
        """The body says that this number belongs to another session of the same hash."""
        at = bisect_left(session.numbers, int(number))
        if at < len(session.numbers) and session.numbers[at] == number:
            session.numbers.pop(at)
        other = self._table.named(session_id)
        if other is None:
            other = self._table.add(session_id, session.hash)
        elif self._covers(other, number):
            self._insert(other, number)
        if other.lock is not None:
            self.stir(other)
        else:
            self._offer(other)

    # Holding a session.

    def lock(self, session: Session, now: float, now_ms: i64, duration_s: float) -> SessionLock:
        """Raises SessionCannotBeLocked where somebody has it."""
        if session.lock is not None:
            raise SessionCannotBeLocked(f"The session '{session.id}' is held by another receiver.")
        if self.reserved.has(session.hash):
            raise SessionCannotBeLocked(f"The session '{session.id}' has reserved messages: they come first.")
        session.offered_at = -1
        lock = SessionLock(session, now + duration_s, now_ms + i64(int(duration_s * 1000)))
        session.lock = lock
        self.lapses.add(lock)
        return lock

    def renew(self, lock: SessionLock, now: float, now_ms: i64, duration_s: float) -> None:
        if not lock.is_live(now):
            raise SessionLockLost(SESSION_LOST)
        lock.locked_until = now + duration_s
        lock.locked_until_ms = now_ms + i64(int(duration_s * 1000))
        if lock.locked_until < lock.listed_until:
            self.lapses.add(lock)  # the entity has a shorter lock duration by now

    def hold(self, lock: SessionLock, consumer: Consumer) -> None:
        """Messages of the session go to this consumer from now on."""
        lock.session.consumer = consumer
        consumer.session = lock.session
        self.stir(lock.session)

    def unlock(self, lock: SessionLock) -> None:
        """The holder is gone; what it had locked is on its way back."""
        session = lock.session
        lock.is_over = True
        session.lock = None
        session.consumer = None
        if session.returning_count == 0:
            self._offer(session)

    # Reserving messages of sessions.

    def can_reserve(self, hash_of_id: bytes, owner: str) -> bool:
        """Whether nobody else holds a session of this hash, or has messages of it. What has expired is nobody's."""
        session = self._table.first_of(hash_of_id)
        while session is not None:
            if session.lock is not None or session.returning_count > 0:
                return False
            for lock in session.held.values():
                if lock.asked != EXPIRE:
                    return False
            session = session.same_hash
        return self.reserved.is_known and not self.reserved.is_anothers(hash_of_id, owner)

    def end_reservation(self, number: i64, is_back: bool) -> None:
        """A reserved message is gone, or available again."""
        hash_of_id = self.reserved.remove(int(number))
        if hash_of_id is None:
            return
        session = self._table.first_of(hash_of_id)
        if session is None and is_back and (self.is_at_tail or number < self.columns_end):
            session = self._table.add(None, hash_of_id)
        while session is not None:
            following = session.same_hash
            if is_back and self._covers(session, number):
                self._insert(session, number)
            if not self.reserved.has(hash_of_id):
                self._offer(session)
            session = following

    # Waiting for a session.

    def _offer(self, session: Session) -> None:
        """It waits for a receiver, at the place of its oldest message."""
        if session.lock is not None or self._forget_if_empty(session):
            return
        if not session.numbers and session.mode != ALONE:
            return
        place = self._place(session)
        if session.offered_at < 0 or place < session.offered_at:
            session.offered_at = place
            self._offer_count += 1
            heapq.heappush(self._offers, (int(place), self._offer_count, session))
            if len(self._offers) > 2 * len(self._table) + LEAST_OVER:
                self._offers = [entry for entry in self._offers if entry[2].offered_at == entry[0]]
                heapq.heapify(self._offers)

    def _place(self, session: Session) -> i64:
        return session.numbers[0] if session.numbers else session.searched_to

    def next_session(self) -> Session | None:
        """The oldest session that nobody holds and that has an available message. None: there is none, unless `wants`
        says what has to be read first."""
        self.wants = NOTHING
        self.wanted = None
        while self._offers:
            session = self._offers[0][2]
            if session.offered_at != self._offers[0][0] or not self._is_worth_a_look(session):
                heapq.heappop(self._offers)
            elif not session.numbers:
                return self._want(SEARCH, session)
            elif session.id is not None:
                return session
            elif not self._name_from_memory(session):
                return self._want(NAME, session)
        if not self.is_at_tail:
            return self._want(SCAN, None)
        return None

    def _is_worth_a_look(self, session: Session) -> bool:
        """Whether it may have a message and stands in its right place. What was settled, parked or taken meanwhile does
        not count."""
        if self.reserved.has(session.hash):
            session.offered_at = -1
            return False
        while session.numbers and not self._lane.is_waiting(session.numbers[0]):
            self._bodies.drop(session.numbers.pop(0))
        has_rest = len(session.numbers) > 0 or session.mode == ALONE
        if session.returning_count > 0 or self._forget_if_empty(session) or not has_rest:
            session.offered_at = -1
            return False
        if session.offered_at == self._place(session):
            return True
        session.offered_at = -1
        self._offer(session)
        return False

    def _name_from_memory(self, session: Session) -> bool:
        """Whether the body of its first message is here, to tell to which session it belongs."""
        message = self._bodies.get(session.numbers[0])
        if message is None:
            return False
        key = self._key_in(message)
        self._table.name(session, key)
        if session.id is None:
            self.went_astray(session, message.number, key)
        return True

    def first_message(self, session: Session) -> Message | None:
        """The first message of a free session, if its body is here; else `wants` says that it has to be read."""
        message = self._bodies.get(session.numbers[0])
        if message is None:
            self._want(FIRST, session)
        return message

    def _want(self, what: i64, session: Session | None) -> Session | None:
        self.wants = what
        self.wanted = session
        return None

    # What columns say.

    def scanned(self, block: i64, entries: bytes, visible_end: i64) -> None:
        """Take in the sessions of the block that `columns_end` has come to, as it was when `visible_end` was: what has
        become visible since is left for the next look."""
        if self.is_at_tail:
            return
        first = block * self._lane.block_size
        end = min(first + self._lane.block_size, visible_end)
        position: i64 = 0
        count = entry_count(entries)
        while position < count:
            run_end = end_of_run(entries, position)
            self._take_run(Run(entries, position, run_end, first, end))
            position = run_end
        self.scanned_to(end)

    def scanned_to(self, number: i64) -> None:
        """There is nothing more below this number."""
        self.columns_end = number
        self.is_at_tail = number >= self._lane.visible_end

    def _take_run(self, run: Run) -> None:
        hash_of_id = hash_at(run.entries, run.position)
        session = self._table.first_of(hash_of_id)
        if session is None:
            self._take_new_run(hash_of_id, run)
        while session is not None:
            if session.mode == FOLLOWING:
                self._extend(session, run)
            session = session.same_hash

    def _take_new_run(self, hash_of_id: bytes, run: Run) -> None:
        session = self._table.add(None, hash_of_id)
        self._extend(session, run)
        self._offer(session)  # which forgets it again, if it has nothing

    def _extend(self, session: Session, run: Run) -> None:
        position = run.position
        while position < run.position_end and session.mode == FOLLOWING:
            number = run.first + offset_at(run.entries, position)
            if self.columns_end <= number < run.end and self._lane.is_waiting(number):
                self._append(session, number)
            position += 1

    def begin_search(self, session: Session) -> i64:
        """From where on the session's messages are not known."""
        if self.knows_all_of(session):
            return self._lane.visible_end
        if session.mode == FOLLOWING:
            session.mode = ALONE
            session.searched_to = self.columns_end
        return session.searched_to

    def searched(self, session: Session, block: i64, entries: bytes, visible_end: i64) -> bool:
        """Take in what the next block has of this session, as it was when `visible_end` was. Returns whether the search
        should go on."""
        if self.knows_all_of(session):
            return False
        first = block * self._lane.block_size
        end = min(first + self._lane.block_size, visible_end)
        for offset in offsets_of(entries, session.hash):
            number = first + offset
            if session.searched_to <= number < end and self._lane.is_waiting(number):
                if len(session.numbers) >= self._max_numbers:
                    session.searched_to = number
                    return False
                session.numbers.append(int(number))
        self.searched_all_below(session, end)
        return session.mode == ALONE and len(session.numbers) < self._max_numbers

    def searched_all_below(self, session: Session, number: i64) -> None:
        if self.knows_all_of(session):
            return
        session.searched_to = number
        if number >= self._lane.visible_end:
            session.mode = FOLLOWING if self.is_at_tail else AHEAD

    # Bodies.

    def stir(self, session: Session) -> None:
        """Its receiver may be able to take more."""
        if not session.is_stirred:
            session.is_stirred = True
            self._stirred.append(session)

    def take_stirred(self) -> list[Session]:
        stirred = self._stirred
        self._stirred = []
        for session in stirred:
            session.is_stirred = False
        return stirred

    def has_stirred(self) -> bool:
        return len(self._stirred) > 0

    def next_number(self, session: Session) -> i64:
        """The next available message of a session; 0 where none is known, or what comes back is next."""
        if session.returning_count > 0:
            return 0
        numbers = session.numbers
        while numbers:
            if self._lane.is_waiting(numbers[0]):
                return numbers[0]
            self._bodies.drop(numbers.pop(0))
        return 0

    def next_message(self, session: Session) -> Message | None:
        """The next available message of a session, if its body is here; `starving` otherwise, if there may be more."""
        while True:
            number = self.next_number(session)
            if number == 0:
                if session.returning_count == 0 and not self.knows_all_of(session):
                    self.starving.append(session)
                return None
            message = self._bodies.get(number)
            if message is None:
                self.starving.append(session)
                return None
            key = self._key_in(message)
            if key == session.id:
                return message
            self.went_astray(session, number, key)

    def pop(self, session: Session) -> None:
        """The first known message is handed over."""
        self._bodies.drop(session.numbers.pop(0))

    def take_bodies(self, records: list[Message | Damage], owners: dict[int, Session]) -> None:
        """Bodies read for sessions: kept if they are their own."""
        for message in records:
            if not isinstance(message, Message):
                continue
            session = owners[int(message.number)]
            key = self._key_in(message)
            if session.id is None:
                self._table.name(session, key)
            if session.id == key:
                self._bodies.keep(message)
                if session.shown is None:
                    session.shown = message.session_id
            else:
                self.went_astray(session, message.number, key)

    def forget_bodies(self) -> None:
        self._bodies.clear()

    def numbers_to_read(self, session: Session, count: i64) -> list[int]:
        """The next numbers whose bodies are not here."""
        found: list[int] = []
        for number in session.numbers:
            if len(found) >= count:
                break
            if self._bodies.get(number) is None and self._lane.is_waiting(number):
                found.append(number)
        return found

    def has_more(self, session: Session) -> bool:
        """Whether a receiver that drains has something to wait for."""
        if session.returning_count > 0 or not self.knows_all_of(session):
            return True
        return self.next_number(session) > 0
