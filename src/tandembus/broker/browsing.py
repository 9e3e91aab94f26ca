"""What the management node asks of a fragment: peek, receive by number, cancel, delete many.

These read the store, so they are asynchronous and stand beside the fragment, which decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tandembus.broker.changes import IS_SCHEDULED
from tandembus.broker.fragment import Fragment
from tandembus.broker.lane import Lane
from tandembus.broker.locks import CallbackSettleReply, MessageLock
from tandembus.broker.message_broker import MessageBroker
from tandembus.errors import BusError, MessageNotFound
from tandembus.message import Message, parse_message
from tandembus.store.messaging_store import ACTIVE, DEFERRED, SCHEDULED, Changes, Due

DELETE_SLICE = 1000
READ_BYTES = 8 * 1024 * 1024


class Peeked:
    """A browsed message and the state it is in."""

    __slots__ = ("message", "state")

    def __init__(self, message: Message, state: int) -> None:
        self.message = message
        self.state = state


async def peek(
    broker: MessageBroker, fragment: Fragment, code: int, from_number: int, count: int, max_bytes: int
) -> list[Peeked]:
    """Live messages from a number on, in order, whatever their state; at least one, if there is one."""
    lane = fragment.lane(code)
    found: list[Peeked] = []
    room = max_bytes
    while len(found) < count and (room > 0 or not found):
        numbers = lane.next_live(from_number, count - len(found))
        if not numbers:
            break
        records = await broker.read_messages(fragment, lane, numbers, max(room, 1))
        for record in records:
            if isinstance(record, Message):
                if found and len(record.sections) > room:
                    return found
                found.append(Peeked(_with_its_times(record), await _state_of(broker, fragment, lane, record)))
                room -= len(record.sections)
        from_number = numbers[len(records) - 1] + 1
    return found


def _with_its_times(message: Message) -> Message:
    if message.flags & IS_SCHEDULED:
        message.expires_at = 0  # it holds the time to live until the message is activated
    return message


async def _state_of(broker: MessageBroker, fragment: Fragment, lane: Lane, message: Message) -> int:
    number = int(message.number)
    if not lane.is_parked(number):
        return ACTIVE
    overlays = await broker.store.overlays(int(fragment.key), int(lane.code), number, number)
    return overlays[0].state if overlays else DEFERRED


async def receive_deferred(
    broker: MessageBroker, fragment: Fragment, code: int, numbers: Sequence[int], is_destructive: bool
) -> list[tuple[MessageLock, Message]]:
    """Lock deferred messages by number: all of them or none. Destructive: they are gone when this returns."""
    lane = fragment.lane(code)
    messages = [await _parked_message(broker, fragment, lane, number, DEFERRED) for number in numbers]
    taken: list[tuple[MessageLock, Message]] = []
    for message in messages:
        if not lane.is_resting(message.number):
            raise _not_found(int(message.number), "deferred")
    for message in messages:
        lock = fragment.lock_number(code, message.number, len(message.sections), message.expires_at)
        lock.is_deferred = True
        lock.delivery_count = message.delivery_count
        lock.application_properties = message.application_properties
        taken.append((lock, message))
    if is_destructive:
        await remove_all(fragment, [lock for lock, _ in taken])
    return taken


async def _parked_message(broker: MessageBroker, fragment: Fragment, lane: Lane, number: int, state: int) -> Message:
    what = "deferred" if state == DEFERRED else "scheduled"
    if number < 1 or number >= lane.visible_end or not lane.is_live(number) or not lane.is_parked(number):
        raise _not_found(number, what)
    for record in await broker.read_messages(fragment, lane, [number], READ_BYTES):
        if isinstance(record, Message) and await _state_of(broker, fragment, lane, record) == state:
            return record
    raise _not_found(number, what)


def _not_found(number: int, what: str) -> MessageNotFound:
    return MessageNotFound(f"There is no {what} message with sequence number {number}.")


async def cancel_scheduled(broker: MessageBroker, fragment: Fragment, numbers: Sequence[int]) -> None:
    """Cancel scheduled messages: all of them or none."""
    lane = fragment.main
    messages = [await _parked_message(broker, fragment, lane, number, SCHEDULED) for number in numbers]
    for message in messages:
        if not lane.is_resting(message.number):
            raise _not_found(int(message.number), "scheduled")
    locks: list[MessageLock] = []
    for message in messages:
        lock = fragment.lock_number(lane.code, message.number, len(message.sections), 0)
        lock.is_scheduled = True
        locks.append(lock)
    await remove_all(fragment, locks)
    # A due entry left behind by a crash here leads nowhere and is dropped when it comes up.
    changes = Changes()
    for message in messages:
        due = scheduled_time(message)
        changes.dropped_schedules.append(Due(due, int(fragment.key), int(lane.code), int(message.number)))
    await broker.forget_due(changes)


def scheduled_time(message: Message) -> int:
    return int(parse_message(message.sections).scheduled_at)


async def delete_batch(broker: MessageBroker, fragment: Fragment, code: int, count: int, before_ms: int) -> int:
    """Delete up to `count` waiting messages enqueued before a time, oldest first; locked and parked ones stay."""
    lane = fragment.lane(code)
    deleted = 0
    from_number = 1
    while deleted < count:
        numbers = lane.next_available(from_number, min(count - deleted, DELETE_SLICE))
        if not numbers:
            break
        records = await broker.read_messages(fragment, lane, numbers, READ_BYTES)
        from_number = numbers[len(records) - 1] + 1
        locks: list[MessageLock] = []
        for record in records:
            if isinstance(record, Message) and record.enqueued_at < before_ms and lane.is_waiting(record.number):
                lock = fragment.lock_number(code, record.number, len(record.sections), 0)
                lock.delivery_count = record.delivery_count
                lock.application_properties = record.application_properties
                locks.append(lock)
        if not locks:
            break
        await remove_all(fragment, locks)
        deleted += len(locks)
        await asyncio.sleep(0)
    return deleted


async def remove_all(fragment: Fragment, locks: Sequence[MessageLock]) -> None:
    """Take messages out and wait until that is durable."""
    if not locks:
        return
    waiting = len(locks)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settled(_lock: MessageLock, error: BusError | None) -> None:
        nonlocal waiting
        waiting -= 1
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        elif waiting == 0:
            done.set_result(None)

    reply = CallbackSettleReply(settled)
    for lock in locks:
        fragment.remove(lock, reply)
    await done
