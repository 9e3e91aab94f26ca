"""Locks that nobody ends: their receiver is gone, or their time is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from tandembus.broker.locks import EXPIRE, LAPSE, OPEN, RELEASE, REMOVE
from tandembus.broker.operations import Consumer
from tandembus.broker.session_locks import lapse_sessions

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment

MAX_LAPSES: Final = 1000
"""Locks that lapse in one turn; the rest in the next, so that a mass lapse does not hold everyone up."""


def release_consumer(fragment: Fragment, consumer: Consumer, code: i64) -> None:
    """The link is gone. Its messages stay locked until they lapse, since the client may still settle them by token.
    What was only kept ready comes back at once, uncounted."""
    fragment.consumers(code).remove(consumer)
    for lock in consumer.locks.all():
        if lock.settlement == OPEN and lock.is_kept_ready:
            fragment.end(lock, RELEASE, None)
        elif lock.settlement != REMOVE:
            consumer.locks.remove(lock)


def lapse(fragment: Fragment) -> bool:
    """Returns whether a session is free that was held."""
    is_freed = lapse_sessions(fragment)
    now = fragment.clock.monotonic()
    for lock in fragment.locks.lapsed(now, MAX_LAPSES):
        if lock.settlement != OPEN:
            continue  # a renewal that came to nothing, since the lock has lapsed all the same
        if lock.is_kept_ready:
            fragment.end(lock, RELEASE, None)
        elif fragment.is_full and fragment.is_move(lock, LAPSE):
            fragment.locks.renew(lock, now, fragment.settings.lock_duration_s)
        else:
            # What waited for room among the dead letters was never delivered: that is no failed delivery.
            fragment.end(lock, EXPIRE if lock.asked == EXPIRE else LAPSE, None)
    return is_freed


def next_lapse(fragment: Fragment) -> float:
    """When the earliest lock of any kind may lapse; 0 where there is none."""
    message_lapse = fragment.locks.next_lapse()
    sessions = fragment.sessions
    session_lapse = sessions.lapses.next_lapse() if sessions is not None else 0.0
    if message_lapse == 0.0 or (session_lapse != 0.0 and session_lapse < message_lapse):
        return session_lapse
    return message_lapse
