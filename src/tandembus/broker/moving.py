"""Staging the way of messages to other entities: whoever stages a move has found the destination."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from tandembus.broker.locks import (
    REMOVE,
    MessageLock,
    SettleReply,
)
from tandembus.broker.moves import Move
from tandembus.errors import StoreFull, anew
from tandembus.message import Message, session_id_of
from tandembus.store.audit_trail import FORWARDED
from tandembus.store.messaging_store import MAIN, NEVER

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment


def check_can_take_in(fragment: Fragment, count: i64, size_bytes: i64) -> None:
    """Raises what a sender would be told, throttling apart: forwarding waits for its own commits."""
    if fragment.failure is not None:
        raise anew(fragment.failure)
    if fragment.is_short_of_room:
        raise StoreFull(fragment.shortage)
    fragment.check_quota(size_bytes)
    if fragment.duplicates is not None:
        fragment.budget.check_ids(count)


def move(
    fragment: Fragment, code: i64, message: Message, arriving: Message, destination: Fragment, reply: SettleReply
) -> bool:
    """Stage a message's way to another entity, where it arrives in the given form. Returns False where the message
    is not there to be moved any more."""
    return _stage_move(fragment, code, message, arriving, destination, reply, None, None)


def refuse_move(
    fragment: Fragment, code: i64, message: Message, reason: str, description: str, reply: SettleReply
) -> bool:
    """Nobody takes the message: it goes to the transfer dead letters."""
    return _stage_move(fragment, code, message, message, None, reply, reason, description)


def _stage_move(
    fragment: Fragment,
    code: i64,
    message: Message,
    arriving: Message,
    destination: Fragment | None,
    reply: SettleReply,
    reason: str | None,
    description: str | None,
) -> bool:
    lock = hold_for_transfer(fragment, code, message)
    if lock is None:
        return False
    lock.reason = reason
    lock.description = description
    lock.reply = reply
    fragment.moves.staged.append(Move(lock, arriving, destination))
    fragment.stir()
    return True


def hold_for_transfer(fragment: Fragment, code: i64, message: Message) -> MessageLock | None:
    """Nobody else may take it while it is on its way. None where it is not there to be moved any more."""
    if fragment.is_void or not fragment.lane(code).is_waiting(message.number):
        return None
    lock = fragment.lock_number(code, message.number, len(message.sections), NEVER)
    if fragment.sessions is not None and code == MAIN:
        fragment.sessions.held(lock, fragment.sessions.get(session_id_of(message) or ""), None)
    lock.settlement = REMOVE
    lock.removal = FORWARDED
    lock.delivery_count = message.delivery_count
    lock.application_properties = message.application_properties
    return lock


def is_held_for_transfer(fragment: Fragment, lock: MessageLock) -> bool:
    """Not where the fragment was read anew since: it knows nothing of the lock then."""
    return not fragment.is_void and fragment.locks.find(lock.token) is lock


def settle_transferred(fragment: Fragment, lock: MessageLock, reply: SettleReply) -> None:
    """Another store has taken the message: it is gone here with the coming commit."""
    lock.reply = reply
    fragment.staged.settled.append(lock)
    fragment.stir()


def give_up_transfer(fragment: Fragment, lock: MessageLock) -> None:
    """It was not taken, or nobody knows: it is available as it was before. Nothing durable has changed."""
    lane = fragment.lane(lock.lane)
    lane.held.pop(int(lock.number), None)
    fragment.locks.forget(lock)
    if fragment.sessions is not None and lock.lane == MAIN:
        fragment.sessions.ended(lock, True)
    else:
        lane.rewind(lock.number)


def has_transfers(fragment: Fragment) -> bool:
    """Whether something waits here that is to leave for another entity."""
    settings = fragment.settings
    if fragment.transfer.live_count > 0:
        return True
    if settings.forward_to and fragment.main.live_count > fragment.main.deferred_count + fragment.main.scheduled_count:
        return True
    return (
        settings.forward_dead_letters_to != "" and fragment.dead_letter.live_count > fragment.dead_letter.deferred_count
    )
