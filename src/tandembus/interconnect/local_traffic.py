"""The traffic of one fragment in this process: straight to the fragment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.fragment import Fragment
from tandembus.broker.lapsing import release_consumer
from tandembus.broker.locks import MessageLock, SettleReply
from tandembus.broker.operations import Consumer, SendOperation
from tandembus.broker.session import SessionAccept, SessionLock, SessionWatcher
from tandembus.broker.session_locks import (
    accept_session,
    await_session,
    gave_up_session,
    has_session_work,
    hold_session,
    is_awaited,
    leave_session,
    stir_session,
    take_session,
    unwatch_sessions,
    watch_sessions,
)
from tandembus.broker.transactions import TransactionOperation
from tandembus.errors import BusError, OperationTimeout
from tandembus.interconnect.local_channel import LocalChannel
from tandembus.interconnect.traffic import SessionHold, SessionWatch, SessionWish, Traffic

NO_SESSION: Final = "No session was available in time."


@final
class _Grant:
    """Turns what the fragment grants into what was wished for."""

    __slots__ = ("index", "wish")

    def __init__(self, wish: SessionWish, index: i64) -> None:
        self.wish: Final = wish
        self.index: i64 = index

    def granted(self, lock: SessionLock) -> None:
        wish = self.wish
        _end(wish)
        name = wish.session_id
        wish.granted(SessionHold(lock.session.name if name is None else name, lock.locked_until_ms, self.index, lock))

    def refused(self, error: BusError) -> None:
        wish = self.wish
        _end(wish)
        wish.refused(error)


def _end(wish: SessionWish) -> None:
    """It is answered or given up. Until then it and what answers it refer to each other."""
    wish.is_over = True
    wish.tag = None


@final
class LocalTraffic(Traffic):
    def __init__(
        self,
        fragment: Fragment,
        want: Callable[[Fragment], None],
        serve_sessions: Callable[[Fragment], None],
        channel: LocalChannel | None = None,
    ) -> None:
        """`want`: the broker's ear for who could take more; `serve_sessions`: for who comes for a session or leaves
        one. `channel`: for one of many fragments, where it must be known what became of a send to a store that failed,
        since another fragment may take it."""
        super().__init__(fragment.index, False)
        self.fragment: Final = fragment
        self._channel: Final = channel
        self._want: Final = want
        self._serve_sessions: Final = serve_sessions
        self._watcher: SessionWatcher | None = None

    def failure(self) -> BusError | None:
        return self.fragment.failure

    def is_out(self) -> bool:
        return self.fragment.failure is not None

    def send(self, operation: SendOperation) -> None:
        channel = self._channel
        if channel is None:
            self.fragment.send(operation)
        else:
            channel.send(self.fragment, operation)

    def transaction_index(self, operation: SendOperation) -> i64:
        self.fragment.check_messages(operation)
        return self.index

    def attach(self, consumer: Consumer, lane: i64) -> None:
        self.fragment.consumers(lane).add(consumer)

    def feed(self, consumer: Consumer, lane: i64, is_draining: bool) -> None:
        fragment = self.fragment
        consumers = fragment.consumers(lane)
        if not is_draining:
            consumers.undrain(consumer)
            if consumer.credit <= 0:
                return
        stir_session(fragment, consumer)
        fragment.pump()
        if is_draining:
            consumers.drain(consumer)
            consumers.finish_drains()
        if consumer.session is not None:
            if is_draining or has_session_work(fragment):
                self._serve_sessions(fragment)
        elif is_draining or (consumer.credit > 0 and not consumers.lane.is_exhausted()):
            self._want(fragment)

    def is_draining(self, consumer: Consumer, lane: i64) -> bool:
        return consumer in self.fragment.consumers(lane).draining

    def detach(self, consumer: Consumer, lane: i64) -> None:
        release_consumer(self.fragment, consumer, lane)
        self._want(self.fragment)  # others may be waiting for what it did not take

    def handed_over(self, lock: MessageLock) -> None:
        lock.is_kept_ready = False
        lock.uncount()

    def check_lock(self, lock: MessageLock) -> None:
        self.fragment.check_lock(lock)

    def settle(self, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> None:
        self.fragment.settle(lock, settlement, reply)

    def discharge(self, operation: TransactionOperation) -> None:
        for part in operation.others:
            other = part.traffic
            assert isinstance(other, LocalTraffic)
            part.fragment = other.fragment
        channel = self._channel
        if channel is None:
            self.fragment.discharge(operation)
        else:
            channel.discharge(self.fragment, operation)

    # Sessions.

    def wish_session(self, wish: SessionWish) -> None:
        fragment = self.fragment
        name = wish.session_id
        lock = take_session(fragment) if name is None else accept_session(fragment, name)
        grant = _Grant(wish, self.index)
        if lock is not None:
            grant.granted(lock)
        elif wish.is_patient:
            accept = SessionAccept(grant.granted, grant.refused)
            wish.tag = accept
            await_session(fragment, accept)
        else:
            grant.refused(OperationTimeout(NO_SESSION))
        self._serve_sessions(fragment)

    def give_up_session(self, wish: SessionWish) -> None:
        accept = wish.tag
        _end(wish)
        if isinstance(accept, SessionAccept):
            gave_up_session(self.fragment, accept)

    def hold_session(self, hold: SessionHold, consumer: Consumer) -> None:
        lock = hold.lock
        if lock is not None:
            hold_session(self.fragment, lock, consumer)

    def leave_session(self, hold: SessionHold) -> None:
        lock = hold.lock
        hold.is_over = True
        if lock is not None:
            leave_session(self.fragment, lock)
            if is_awaited(self.fragment):
                self._serve_sessions(self.fragment)

    def watch_sessions(self, watch: SessionWatch) -> None:
        self.unwatch_sessions()
        watcher = SessionWatcher(watch.available, watch.nothing)
        watch_sessions(self.fragment, watcher)
        self._watcher = watcher
        self._serve_sessions(self.fragment)

    def unwatch_sessions(self) -> None:
        """Whoever looked out for free sessions is gone."""
        if self._watcher is not None:
            unwatch_sessions(self.fragment, self._watcher)
            self._watcher = None
