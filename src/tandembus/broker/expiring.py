"""Messages whose time has come: expired ones leave, scheduled ones arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from tandembus.broker.locks import (
    EXPIRE,
    OPEN,
    REMOVE,
    MessageLock,
)
from tandembus.broker.staged import Activation
from tandembus.message import Message, session_id_of
from tandembus.store.messaging_store import MAIN, NEVER

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment


LEAST_LOOK_S: Final = 1.0
"""A locked message that has expired is not looked at more often than this."""


def expire(fragment: Fragment, message: Message) -> None:
    """A message whose time is up leaves: dropped, or to the dead letters. Until there is room for it there, it is
    nobody's, and looked at again when its lock lapses; a deferred one when it is asked for again."""
    is_parked = fragment.main.is_parked(message.number)
    must_wait = fragment.is_full and fragment.writes_again(EXPIRE)
    if must_wait and is_parked:
        return
    lock = fragment.lock_number(MAIN, message.number, len(message.sections), message.expires_at)
    lock.is_deferred = is_parked
    if fragment.sessions is not None:
        fragment.sessions.held(lock, fragment.sessions.get(session_id_of(message) or ""), None)
    lock.delivery_count = message.delivery_count
    lock.application_properties = message.application_properties
    give_expiry_as_reason(lock)
    lock.asked = EXPIRE
    if not must_wait:
        fragment.end(lock, EXPIRE, None)


def sweep(fragment: Fragment, messages: list[Message]) -> i64:
    """Look at messages of a block whose earliest expiry is due. Returns when the next of them expires."""
    now_ms: i64 = fragment.clock.now_ms()
    earliest: i64 = NEVER
    for message in messages:
        if message.expires_at == NEVER or not fragment.main.is_waiting(message.number):
            continue
        if message.expires_at <= now_ms:
            expire(fragment, message)
        elif earliest == NEVER or message.expires_at < earliest:
            earliest = message.expires_at
    return earliest


def end_sweep(fragment: Fragment, block: i64, earliest: i64) -> None:
    """The next expiry of a block counts what is held, too: a crash ends locks without judging their messages, and what
    is being settled, or has just been found expired, is there until its own commit, which may not be the next one.
    What is past already is looked at again when its lock may be over."""
    now, now_ms = fragment.clock.monotonic(), i64(fragment.clock.now_ms())
    for lock in fragment.main.held_in_block(block):
        if lock.expires_at != NEVER and not lock.is_deferred:
            left_s = max(lock.ends_at() - now, LEAST_LOOK_S) if lock.settlement == OPEN else LEAST_LOOK_S
            due = max(lock.expires_at, now_ms + i64(int(left_s * 1000)))
            if earliest == NEVER or due < earliest:
                earliest = due
    fragment.main.end_sweep(block, earliest)
    fragment.stir()


def activate(fragment: Fragment, message: Message, due_ms: int) -> None:
    """A scheduled message's time has come: it takes a new number at the tail."""
    if fragment.is_void or not fragment.main.is_resting(message.number):
        return  # cancelled meanwhile
    size: i64 = len(message.sections)
    lock = fragment.lock_number(MAIN, message.number, size, NEVER)
    lock.settlement = REMOVE
    fragment.staged.activating_bytes += size
    fragment.staged.activations.append(Activation(message, due_ms, lock))
    fragment.stir()


def give_expiry_as_reason(lock: MessageLock) -> None:
    lock.reason = "TTLExpiredException"
    lock.description = "The message expired and was dead lettered."
