"""What of a lane's sessions is in memory: the sessions themselves, by id and by hash, and bodies of some messages."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.lane import Lane
from tandembus.broker.session import ALONE, FOLLOWING, Session
from tandembus.broker.session_columns import session_hash
from tandembus.message import Message


@final
class SessionTable:
    """Sessions by id; and by hash, since that is all that columns know of them."""

    def __init__(self) -> None:
        self._by_id: dict[str, Session] = {}
        self._by_hash: dict[bytes, Session] = {}
        self._count: i64 = 0

    def __len__(self) -> int:
        return int(self._count)

    def named(self, session_id: str) -> Session | None:
        """The session of this id, if its name is known."""
        return self._by_id.get(session_id)

    def first_of(self, hash_of_id: bytes) -> Session | None:
        """One of this hash; others follow it (`same_hash`)."""
        return self._by_hash.get(hash_of_id)

    def find(self, session_id: str) -> Session | None:
        session = self._by_id.get(session_id)
        return session if session is not None else self.adopt(session_id, session_hash(session_id))

    def adopt(self, session_id: str, hash_of_id: bytes) -> Session | None:
        """One whose id nobody has read yet is taken for this one. Should a body say otherwise later, it goes astray to
        where it belongs."""
        session = self._by_hash.get(hash_of_id)
        while session is not None:
            if session.id is None:
                self.name(session, session_id)
                return session
            session = session.same_hash
        return None

    def name(self, session: Session, session_id: str) -> None:
        """A body has told its id, unless another session has it already."""
        if session_id not in self._by_id:
            session.id = session_id
            self._by_id[session_id] = session

    def add(self, session_id: str | None, hash_of_id: bytes) -> Session:
        session = Session(session_id, hash_of_id, FOLLOWING, 0)
        session.same_hash = self._by_hash.get(hash_of_id)
        if session.same_hash is not None:
            session.mode = ALONE  # what it has may stand among the numbers of the other: searched for from the start
        self._by_hash[hash_of_id] = session
        if session_id is not None:
            self._by_id[session_id] = session
        self._count += 1
        return session

    def remove(self, session: Session) -> None:
        self._count -= 1
        if session.id is not None:
            self._by_id.pop(session.id, None)
        first = self._by_hash.get(session.hash)
        if first is session:
            if session.same_hash is None:
                del self._by_hash[session.hash]
            else:
                self._by_hash[session.hash] = session.same_hash
            return
        while first is not None:
            if first.same_hash is session:
                first.same_hash = session.same_hash
            first = first.same_hash


@final
class BodyCache:
    """Messages that were sent or read lately, by number. The oldest go when there are too many: what was sent last is
    most likely asked for next. Their bytes count as the lane's."""

    def __init__(self, lane: Lane, max_messages: i64, max_bytes: i64) -> None:
        self._lane: Final = lane
        self._max_messages: i64 = max_messages
        self._max_bytes: i64 = max_bytes
        self._messages: dict[int, Message] = {}

    def get(self, number: i64) -> Message | None:
        return self._messages.get(int(number))

    def keep(self, message: Message) -> None:
        self.drop(int(message.number))
        self._messages[int(message.number)] = message
        self._lane.ready_bytes += len(message.sections)
        while len(self._messages) > self._max_messages or self._lane.ready_bytes > self._max_bytes:
            if len(self._messages) <= 1:
                return
            self.drop(next(iter(self._messages)))

    def drop(self, number: int) -> None:
        message = self._messages.pop(number, None)
        if message is not None:
            self._lane.ready_bytes -= len(message.sections)

    def clear(self) -> None:
        self._messages = {}
        self._lane.ready_bytes = 0
