"""A queue that requires sessions: senders, and receivers that hold one session each."""

from __future__ import annotations

import asyncio

from tandembus.broker import session_reading
from tandembus.broker.locks import MessageLock
from tandembus.broker.operations import CallbackConsumer
from tandembus.broker.session import SessionLock
from tandembus.broker.session_locks import leave_session
from tandembus.broker.settings import FragmentSettings
from tandembus.errors import BusError
from tandembus.message import Message
from tandembus.store.messaging_store import MAIN
from tests.unit.broker.one_queue import Answer, OneQueue, body_of, message, small


class SessionReceiver:
    """Holds a session and notes what it is given."""

    def __init__(self, queue: SessionQueue, lock: SessionLock, is_destructive: bool = False) -> None:
        self.consumer = CallbackConsumer(is_destructive, self._deliver, self._drained, self._lost)
        self.lock = lock
        self.locks: list[MessageLock] = []
        self.messages: list[Message] = []
        self.loss: BusError | None = None
        self.is_drained = False
        self._queue = queue
        assert queue.fragment.sessions is not None
        queue.fragment.sessions.hold(lock, self.consumer)

    @property
    def session_id(self) -> str:
        return self.lock.session.name

    @property
    def bodies(self) -> list[str]:
        return [body_of(one) for one in self.messages]

    def _deliver(self, message: Message, lock: MessageLock) -> None:
        self.messages.append(message)
        self.locks.append(lock)

    def _lost(self, error: BusError) -> None:
        self.loss = error

    def _drained(self) -> None:
        self.is_drained = True

    async def take(self, credit: int) -> list[str]:
        """Give this credit, and see what comes of it at once."""
        before = len(self.messages)
        self.consumer.credit += credit
        self.stir()
        await self._queue.quiet()
        return self.bodies[before:]

    def stir(self) -> None:
        sessions = self._queue.fragment.sessions
        assert sessions is not None
        sessions.stir(self.lock.session)
        self._queue.broker.want(self._queue.fragment)

    async def take_one(self) -> MessageLock:
        assert len(await self.take(1)) == 1
        return self.locks[-1]

    async def leave(self) -> None:
        leave_session(self._queue.fragment, self.lock)
        self._queue.broker.want(self._queue.fragment)
        await self._queue.quiet()


class SessionQueue(OneQueue):
    async def __aenter__(self) -> SessionQueue:
        await super().__aenter__()
        return self

    async def quiet(self) -> None:
        """Also until nothing more is searched for."""
        await super().quiet()
        while not self.broker.session_serving.is_idle():
            await asyncio.sleep(0)
            await super().quiet()

    async def send_to(self, session_id: str, *bodies: str, ttl_ms: int | None = None) -> list[int]:
        answers = [self.stage(message(body, ttl_ms, session_id=session_id)) for body in bodies]
        await self.quiet()
        assert all(answer.is_accepted for answer in answers)
        return [int(answer.messages[0].number) for answer in answers]

    def stage_to(self, session_id: str, body: str) -> Answer:
        return self.stage(message(body, session_id=session_id))

    def session_work(self) -> None:
        """Somebody has come for a session, or left one."""
        self.broker.session_serving.want(self.fragment)

    async def accept(self, session_id: str | None = None, is_destructive: bool = False) -> SessionReceiver:
        """A session by its name, or the next one, which must be there."""
        lock = await session_reading.accept(self.broker, self.fragment, session_id, 5.0)
        return SessionReceiver(self, lock, is_destructive)

    def accepting(self, timeout_s: float = 60.0) -> asyncio.Task[SessionLock]:
        """Somebody waits for the next session."""
        return asyncio.create_task(session_reading.accept(self.broker, self.fragment, None, timeout_s))

    async def set_state(self, session_id: str, state: bytes | None) -> None:
        await session_reading.set_state(self.fragment, session_id, state)

    async def state_of(self, session_id: str) -> bytes | None:
        state = await self.broker.store.session_state(int(self.fragment.key), session_id)
        return None if state is None else state.state

    async def drain(self, most: int = 1000) -> dict[str, list[str]]:
        """Accept what there is, session by session, and complete everything in it."""
        received: dict[str, list[str]] = {}
        for _ in range(most):
            waiting = self.accepting(timeout_s=60.0)
            await self.quiet()
            if not waiting.done():
                waiting.cancel()
                return received
            receiver = SessionReceiver(self, waiting.result())
            await receiver.take(1000)
            for lock in receiver.locks:
                self.settle(lock, 1)
            await self.quiet()
            received.setdefault(receiver.session_id, []).extend(receiver.bodies)
            await receiver.leave()
        raise AssertionError("sessions without end")

    async def again(self) -> SessionQueue:
        """The broker is gone without a word; another takes over what the disk holds."""
        await self.after_crash()
        return SessionQueue(self.settings, self.disk, self.clock)

    @property
    def active_count(self) -> int:
        return int(self.fragment.lane(MAIN).live_count)


def sessions(lock_duration_s: float = 60.0, max_delivery_count: int = 3, window_messages: int = 4) -> FragmentSettings:
    return small(
        lock_duration_s=lock_duration_s,
        max_delivery_count=max_delivery_count,
        window_messages=window_messages,
        requires_session=True,
    )


def session_queue(settings: FragmentSettings | None = None) -> SessionQueue:
    return SessionQueue(settings or sessions())
