"""How operations become changes of a lane: plain data for the store, bits and counts in memory, nothing decided."""

from __future__ import annotations

from mypy_extensions import i64

from tandembus.broker.lane import Lane
from tandembus.broker.locks import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    EXPIRE,
    LAPSE,
    RELEASE,
    REMOVE,
    MessageLock,
    counts_delivery,
)
from tandembus.message import IS_SCHEDULED, WAS_SCHEDULED, Message, copy_of, session_id_of
from tandembus.message_encoding import application_properties_with, encode_changes, with_application_properties
from tandembus.store.audit_trail import (
    ACCEPTED,
    ACTIVATED,
    ARRIVED,
    CANCELLED,
    COMPLETED,
    DAMAGED,
    DEAD_LETTERED,
    DUPLICATE,
    EXPIRED,
    LEFT,
    PUBLISHED,
    REMOVED,
)
from tandembus.store.audit_trail import DEAD_LETTER as DEAD_LETTER_ENTRY
from tandembus.store.audit_trail import SCHEDULED as SCHEDULED_ENTRY
from tandembus.store.messaging_store import (
    ACTIVE,
    DEFERRED,
    NEVER,
    NUMBER_BITS,
    SCHEDULED,
    Changes,
    Due,
    Overlay,
    Place,
    PutBody,
)


def write_arrival(lane: Lane, message: Message, now_ms: i64, default_ttl_ms: i64, changes: Changes) -> None:
    """A sent message takes the next number: available at once, or parked until its time."""
    size: i64 = len(message.sections)
    if message.scheduled_at > now_ms:
        message.number = lane.give_number(size, 0)
        _note_session(lane, message)
        _write_scheduled(lane, message, message.scheduled_at, now_ms, default_ttl_ms, changes)
        return
    ttl = _time_to_live(message, default_ttl_ms)
    message.enqueued_at = now_ms
    message.expires_at = now_ms + ttl if ttl >= 0 else 0
    message.number = lane.give_number(size, message.expires_at)
    _note_session(lane, message)
    if message.original_number == 0:
        # One that was forwarded keeps the number it had at the first entity.
        message.original_number = lane.sequence_base | message.number
    changes.bodies.append(PutBody(int(lane.fragment), int(lane.code), message))
    note_opening(lane, ARRIVED if message.hops > 0 else ACCEPTED, message, changes)


def write_promised(
    lane: Lane, message: Message, number: i64, now_ms: i64, default_ttl_ms: i64, changes: Changes
) -> None:
    """A message takes the number that it was promised. There it waits for its time, even where that has come: behind it
    there are others already."""
    message.number = number
    lane.redeem(number, len(message.sections))
    due_ms = message.scheduled_at if message.scheduled_at > 0 else now_ms
    _write_scheduled(lane, message, due_ms, now_ms, default_ttl_ms, changes)


def _write_scheduled(
    lane: Lane, message: Message, due_ms: i64, now_ms: i64, default_ttl_ms: i64, changes: Changes
) -> None:
    """It has its number, and rests there until it is due."""
    ttl = _time_to_live(message, default_ttl_ms)
    message.enqueued_at = now_ms
    message.flags = message.flags | IS_SCHEDULED
    # 0 means for ever: a message that may not live at all gets the shortest life there is.
    message.expires_at = max(ttl, i64(1)) if ttl >= 0 else i64(0)
    lane.park(message.number, False)
    changes.overlays.append(_overlay(lane, message.number, SCHEDULED, 0, b""))
    changes.schedules.append(_due(lane, due_ms, message.number))
    if message.original_number == 0:
        message.original_number = lane.sequence_base | message.number
    changes.bodies.append(PutBody(int(lane.fragment), int(lane.code), message))
    note_opening(lane, SCHEDULED_ENTRY, message, changes)


def write_via(lane: Lane, message: Message, now_ms: i64, changes: Changes) -> None:
    """A message for another entity takes the next number of the transfer lane. Its schedule and its time to live are
    that entity's business: here it neither waits nor expires."""
    ttl = message.ttl_ms
    message.enqueued_at = now_ms
    if message.scheduled_at > now_ms:
        message.flags = message.flags | IS_SCHEDULED
        message.expires_at = max(ttl, i64(1)) if ttl >= 0 else i64(0)
    else:
        message.expires_at = now_ms + max(ttl, i64(1)) if ttl >= 0 else i64(0)
    message.number = lane.give_number(len(message.sections), NEVER)
    message.original_number = lane.sequence_base | message.number
    changes.bodies.append(PutBody(int(lane.fragment), int(lane.code), message))
    note_opening(lane, ACCEPTED, message, changes)


def _time_to_live(message: Message, default_ttl_ms: i64) -> i64:
    """The shorter of the message's own and the entity's; -1: for ever."""
    ttl = message.ttl_ms
    if default_ttl_ms > 0 and (ttl < 0 or default_ttl_ms < ttl):
        ttl = default_ttl_ms
    return ttl


def expiry_of(message: Message, now_ms: i64, default_ttl_ms: i64) -> i64:
    ttl = _time_to_live(message, default_ttl_ms)
    return now_ms + ttl if ttl >= 0 else i64(0)


def write_activation(lane: Lane, message: Message, due_ms: i64, now_ms: i64, changes: Changes) -> Message:
    """A scheduled message's time has come: it leaves its number and takes a new one at the tail."""
    arrived = write_leaving(lane, message, due_ms, now_ms, LEFT, changes)
    arrived.number = lane.give_number(len(arrived.sections), arrived.expires_at)
    lane.given_count -= 1  # it is the message that was counted when it came
    lane.settled_count -= 1
    _note_session(lane, arrived)
    arrived.original_number = lane.sequence_base | arrived.number
    changes.bodies.append(PutBody(int(lane.fragment), int(lane.code), arrived))
    note_opening(lane, ACTIVATED, arrived, changes)
    return arrived


def write_leaving(lane: Lane, message: Message, due_ms: i64, now_ms: i64, ending: int, changes: Changes) -> Message:
    """A scheduled message leaves its number. Returns it as it arrives, with no number yet; its life begins now."""
    size: i64 = len(message.sections)
    lane.unpark(message.number, False)
    lane.settle(message.number, size, changes)
    changes.dropped_overlays.append(_place(lane, message.number))
    changes.dropped_schedules.append(_due(lane, due_ms, message.number))
    note_closing(lane, ending, message.number, 0, changes)
    arrived = copy_of(message)
    arrived.flags = (message.flags & ~IS_SCHEDULED) | WAS_SCHEDULED
    arrived.enqueued_at = now_ms
    arrived.expires_at = now_ms + message.expires_at if message.expires_at > 0 else 0
    arrived.number = 0
    arrived.original_number = 0
    return arrived


def _note_session(lane: Lane, message: Message) -> None:
    if lane.column is not None:
        lane.column.add(message.number, session_id_of(message))


def write_settlement(lane: Lane, lock: MessageLock, changes: Changes) -> None:
    settlement = lock.settlement
    if settlement == COMPLETE or settlement == REMOVE or settlement == EXPIRE:
        write_gone(lane, lock, changes)
    elif settlement == ABANDON or settlement == LAPSE:
        count = _delivery_count_after(lock)
        if count > 0 or lock.application_properties:
            state = DEFERRED if lock.is_deferred else ACTIVE
            changes.overlays.append(_overlay(lane, lock.number, state, count, lock.application_properties))
        _expire_again(lane, lock)
    elif settlement == RELEASE:
        _expire_again(lane, lock)
    elif settlement == DEFER:
        if not lock.is_deferred:
            lane.park(lock.number, True)
        count = _delivery_count_after(lock)
        changes.overlays.append(_overlay(lane, lock.number, DEFERRED, count, lock.application_properties))


def _delivery_count_after(lock: MessageLock) -> i64:
    """The message's delivery count when this settlement is durable."""
    return lock.delivery_count + 1 if counts_delivery(lock, lock.asked) else lock.delivery_count


def _expire_again(lane: Lane, lock: MessageLock) -> None:
    if not lock.is_deferred:
        lane.expire_from(lock.number, lock.expires_at)


def write_gone(lane: Lane, lock: MessageLock, changes: Changes) -> None:
    if lock.is_deferred or lock.is_scheduled:
        lane.unpark(lock.number, lock.is_deferred)
        if lane.ledger.owners:
            lane.ledger.gone(lock.number)
    lane.settle(lock.number, lock.size_bytes, changes)
    if lock.is_damaged:
        changes.quarantined.append(Place(int(lane.body_fragment), int(lane.code), int(lock.number)))
    if lock.delivery_count > 0 or lock.application_properties or lock.is_deferred or lock.is_scheduled:
        changes.dropped_overlays.append(_place(lane, lock.number))
    if changes.audit is not None:
        note_closing(lane, _ending_of(lock), lock.number, lock.delivery_count, changes)


def _ending_of(lock: MessageLock) -> int:
    """What the audit calls it."""
    settlement = lock.settlement
    if lock.is_damaged:
        return DAMAGED
    if lock.removal != 0:
        return int(lock.removal)
    if settlement == COMPLETE:
        return COMPLETED
    if settlement == EXPIRE:
        return EXPIRED
    if settlement == DEAD_LETTER:
        return DEAD_LETTERED
    return CANCELLED if lock.is_scheduled else REMOVED


def write_dead_letter(dead_letter: Lane, lock: MessageLock, message: Message, changes: Changes) -> Message:
    """The message among the dead letters: its reason added, its delivery count final, for ever alive."""
    added: dict[str, object] = {}
    if lock.reason is not None:
        added["DeadLetterReason"] = lock.reason
    if lock.description is not None:
        added["DeadLetterErrorDescription"] = lock.description
    dead = with_application_properties(message, application_properties_with(message, encode_changes(added)))
    dead.expires_at = 0
    dead.flags = dead.flags & ~IS_SCHEDULED
    dead.number = dead_letter.give_number(len(dead.sections), 0)
    dead.delivery_count = _delivery_count_after(lock)
    if dead.delivery_count > 0:
        changes.overlays.append(_overlay(dead_letter, dead.number, ACTIVE, dead.delivery_count, b""))
    changes.bodies.append(PutBody(int(dead_letter.fragment), int(dead_letter.code), dead))
    note_opening(dead_letter, DEAD_LETTER_ENTRY, dead, changes)
    return dead


def note_opening(lane: Lane, kind: int, message: Message, changes: Changes) -> None:
    """For the audit: a message has taken a place."""
    audit = changes.audit
    if audit is not None:
        audit.name(lane.fragment, lane.sequence_base >> NUMBER_BITS, lane.path)
        audit.opens(kind, lane.fragment, lane.code, message.number, message, 0, lane.is_backlog)


def note_closing(lane: Lane, kind: int, number: i64, delivery_count: i64, changes: Changes) -> None:
    """For the audit: what became of the message there."""
    audit = changes.audit
    if audit is not None:
        audit.name(lane.fragment, lane.sequence_base >> NUMBER_BITS, lane.path)
        audit.closes(kind, lane.fragment, lane.code, number, delivery_count)


def note_duplicate(lane: Lane, message: Message, changes: Changes) -> None:
    """For the audit: accepted, and dropped."""
    audit = changes.audit
    if audit is not None:
        audit.name(lane.fragment, lane.sequence_base >> NUMBER_BITS, lane.path)
        audit.opens(DUPLICATE, lane.fragment, lane.code, 0, message, 0, lane.is_backlog)


def note_published(lane: Lane, message: Message, copies: i64, changes: Changes) -> None:
    """For the audit: a topic has given it to all who want it, perhaps to nobody."""
    audit = changes.audit
    if audit is not None:
        audit.name(lane.fragment, lane.sequence_base >> NUMBER_BITS, lane.path)
        audit.opens(PUBLISHED, lane.fragment, lane.code, 0, message, copies, lane.is_backlog)


def _overlay(lane: Lane, number: i64, state: int, delivery_count: i64, application_properties: bytes) -> Overlay:
    return Overlay(int(lane.fragment), int(lane.code), int(number), state, int(delivery_count), application_properties)


def write_cancelled(lane: Lane, number: i64, due_ms: i64, changes: Changes) -> None:
    """A scheduled message that is taken out is not due any more."""
    changes.dropped_schedules.append(_due(lane, due_ms, number))


def _place(lane: Lane, number: i64) -> Place:
    return Place(int(lane.fragment), int(lane.code), int(number))


def _due(lane: Lane, at_ms: i64, number: i64) -> Due:
    return Due(int(at_ms), int(lane.fragment), int(lane.code), int(number))
