"""Who holds which session of a fragment: accepting by name or the next one, renewing, leaving, lapsing, state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from tandembus.broker.locks import LAPSE, OPEN, RELEASE
from tandembus.broker.operations import Consumer, StateOperation
from tandembus.broker.session import Session, SessionAccept, SessionLock, SessionWatcher
from tandembus.broker.sessions import NOTHING, SESSION_LOST, SessionIndex
from tandembus.errors import BusError, InvalidOperation, SessionLockLapsed, SessionLockLost, StoreFull, anew
from tandembus.store.messaging_store import MAIN

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment


def accept_session(fragment: Fragment, session_id: str) -> SessionLock:
    """A session by its name, whether it has messages or not. Raises SessionCannotBeLocked."""
    lapse_sessions(fragment)
    sessions = session_index(fragment)
    return _lock(fragment, sessions, sessions.get(session_id))


def _lock(fragment: Fragment, sessions: SessionIndex, session: Session) -> SessionLock:
    now, now_ms = fragment.clock.monotonic(), i64(fragment.clock.now_ms())
    lock = sessions.lock(session, now, now_ms, fragment.settings.lock_duration_s)
    sessions.granted.append(session)
    return lock


def take_session(fragment: Fragment) -> SessionLock | None:
    """The next available session, if one is known of, and nobody has been waiting for it."""
    sessions = session_index(fragment)
    if sessions.waiting.has_next():
        return None
    lapse_sessions(fragment)
    session = sessions.next_session()
    return None if session is None else _lock(fragment, sessions, session)


def is_awaited(fragment: Fragment) -> bool:
    """Whether somebody waits for a session here, or looks out for one."""
    sessions = fragment.sessions
    return sessions is not None and (sessions.waiting.has_next() or len(sessions.watchers) > 0)


def await_session(fragment: Fragment, accept: SessionAccept) -> None:
    """The next available session, as soon as there is one."""
    session_index(fragment).waiting.add(accept)


def watch_sessions(fragment: Fragment, watcher: SessionWatcher) -> None:
    """Somebody looks out for free sessions: told once, as soon as there is one that nobody in line takes. All who look
    out are told: who comes first gets it."""
    watchers = session_index(fragment).watchers
    if watcher not in watchers:
        watchers.append(watcher)


def unwatch_sessions(fragment: Fragment, watcher: SessionWatcher) -> None:
    """Whoever looked out for free sessions is gone."""
    if fragment.sessions is not None and watcher in fragment.sessions.watchers:
        fragment.sessions.watchers.remove(watcher)


def send_watchers_away(fragment: Fragment) -> None:
    """The fragment leaves the memory. Whoever looks out is told as if there were a session: they see for themselves,
    and look out at the fragment that is opened for them."""
    if fragment.sessions is not None:
        _tell_all(fragment, fragment.sessions, i64(fragment.clock.now_ms()))


def gave_up_session(fragment: Fragment, accept: SessionAccept) -> None:
    """Whoever waits for a session does so no longer."""
    if fragment.sessions is not None:
        fragment.sessions.waiting.gave_up(accept)


def hold_session(fragment: Fragment, lock: SessionLock, consumer: Consumer) -> None:
    """Messages of the session go to this consumer from now on."""
    if fragment.sessions is not None:
        fragment.sessions.hold(lock, consumer)


def stir_session(fragment: Fragment, consumer: Consumer) -> None:
    """The holder of a session may be able to take more."""
    session = consumer.session
    if fragment.sessions is not None and session is not None:
        fragment.sessions.stir(session)


def has_session_work(fragment: Fragment) -> bool:
    """Whether something has to be read for the holders of sessions."""
    return fragment.sessions is not None and len(fragment.sessions.starving) > 0


def session_index(fragment: Fragment) -> SessionIndex:
    if fragment.failure is not None and fragment.is_void:
        raise anew(fragment.failure)
    if fragment.sessions is None:
        raise InvalidOperation("This entity does not require sessions, and has none.")
    return fragment.sessions


def grant_sessions(fragment: Fragment) -> None:
    """Sessions that wait for a receiver meet receivers that wait for a session, in the order of both. Of what is left
    those are told who look out for one."""
    sessions = fragment.sessions
    if sessions is None or fragment.is_void or not is_awaited(fragment):
        return
    lapse_sessions(fragment)
    while sessions.waiting.has_next():
        session = sessions.next_session()
        if session is None:
            return
        lock = _lock(fragment, sessions, session)
        sessions.waiting.take().granted(lock)
    if sessions.watchers:
        _tell_watchers(fragment, sessions)


def _tell_watchers(fragment: Fragment, sessions: SessionIndex) -> None:
    session = sessions.next_session()
    message = sessions.first_message(session) if session is not None else None
    if message is not None:
        _tell_all(fragment, sessions, message.enqueued_at)
    elif sessions.wants == NOTHING:  # else something has to be read first
        for watcher in list(sessions.watchers):
            if not watcher.is_answered:
                watcher.is_answered = True
                watcher.nothing(int(fragment.index))


def _tell_all(fragment: Fragment, sessions: SessionIndex, enqueued_at: i64) -> None:
    watchers = sessions.watchers
    sessions.watchers = []
    for watcher in watchers:
        watcher.available(int(fragment.index), int(enqueued_at))


def held_session(fragment: Fragment, session_id: str) -> SessionLock | None:
    """The live lock on this session, if anybody holds it."""
    session = session_index(fragment).find(session_id)
    lock = session.lock if session is not None else None
    return lock if lock is not None and lock.is_live(fragment.clock.monotonic()) else None


def renew_session(fragment: Fragment, lock: SessionLock) -> i64:
    """Returns the new `locked_until` as wall time in milliseconds."""
    now, now_ms = fragment.clock.monotonic(), i64(fragment.clock.now_ms())
    session_index(fragment).renew(lock, now, now_ms, fragment.settings.lock_duration_s)
    return lock.locked_until_ms


def leave_session(fragment: Fragment, lock: SessionLock) -> None:
    """The holder is gone, or its time is up. Its messages come back at once. A delivery is counted only if its time was
    up, the client had it, and there is room to move the message should it have been the last one."""
    sessions = fragment.sessions
    if lock.is_over or sessions is None:
        return
    session = lock.session
    consumer = session.consumer
    if consumer is not None:
        fragment.lane_consumers[MAIN].remove(consumer)
    has_lapsed = not lock.is_live(fragment.clock.monotonic())
    lock.is_over = True
    for held in list(session.held.values()):
        if held.settlement == OPEN and held.session_lock is lock:
            is_full = fragment.is_full and fragment.is_move(held, LAPSE)
            fragment.end(held, LAPSE if has_lapsed and not held.is_kept_ready and not is_full else RELEASE, None)
    sessions.unlock(lock)


def lapse_sessions(fragment: Fragment) -> bool:
    sessions = fragment.sessions
    if sessions is None:
        return False
    lapsed = sessions.lapses.take_lapsed(fragment.clock.monotonic())
    for lock in lapsed:
        consumer = lock.session.consumer
        leave_session(fragment, lock)
        if consumer is not None:
            consumer.session_lost(SessionLockLapsed(SESSION_LOST))
    return len(lapsed) > 0


def set_session_state(fragment: Fragment, operation: StateOperation) -> None:
    """Stage a session's new state; it is answered after its commit."""
    if fragment.failure is not None:
        raise anew(fragment.failure)
    if operation.state is not None and fragment.is_short_of_room:
        raise StoreFull(fragment.shortage)
    fragment.staged.session_states.append(operation)
    fragment.stir()


def lose_all_sessions(fragment: Fragment, error: BusError) -> None:
    sessions = fragment.sessions
    if sessions is None:
        return
    for lock in sessions.lapses.locks():
        lock.is_over = True
        consumer = lock.session.consumer
        if consumer is not None:
            consumer.session_lost(SessionLockLost(SESSION_LOST))
    while sessions.waiting.has_next():
        sessions.waiting.take().refused(error)
