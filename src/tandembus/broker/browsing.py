"""What the management node asks of a fragment: peek, receive by number, cancel, delete many.

These read the store, so they are asynchronous and stand beside the fragment, which decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tandembus.broker.expiring import expire
from tandembus.broker.fragment import Fragment
from tandembus.broker.lane import Lane
from tandembus.broker.locks import CallbackSettleReply, MessageLock, SettleReply
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.reading import read_messages
from tandembus.broker.session import SessionLock
from tandembus.broker.session_reading import live_numbers
from tandembus.broker.transactions import TransactionCancel
from tandembus.errors import BusError, InvalidArgument, InvalidOperation, MessageNotFound
from tandembus.message import IS_SCHEDULED, Message, parse_message, session_id_of
from tandembus.store.messaging_store import ACTIVE, DEFERRED, MAIN, NEVER, NUMBER_BITS, SCHEDULED, Changes, Due

DELETE_SLICE = 1000
READ_BYTES = 8 * 1024 * 1024
DEFERRED_BYTES = 32 * 1024 * 1024
"""Of deferred messages received at once; one may be larger."""


class Peeked:
    """A browsed message and the state it is in."""

    __slots__ = ("message", "state")

    def __init__(self, message: Message, state: int) -> None:
        self.message = message
        self.state = state


async def peek(
    broker: MessageBroker,
    fragment: Fragment,
    code: int,
    from_number: int,
    count: int,
    max_bytes: int,
    session_id: str | None = None,
) -> list[Peeked]:
    """Live messages from a number on, in order, whatever their state; at least one, if there is one. With a session,
    only its messages."""
    lane = fragment.lane(code)
    found: list[Peeked] = []
    room = max_bytes
    while len(found) < count and (room > 0 or not found):
        if session_id is None:
            numbers = lane.next_live(from_number, count - len(found))
        else:
            numbers = await live_numbers(broker, fragment, session_id, from_number, count - len(found))
        if not numbers:
            break
        records = await read_messages(broker, fragment, lane, numbers, max(room, 1))
        for record in records:
            if isinstance(record, Message) and _is_of(fragment, record, session_id):
                if found and len(record.sections) > room:
                    return found
                found.append(Peeked(_with_its_times(record), await state_of(broker, fragment, lane, record)))
                room -= len(record.sections)
        from_number = numbers[len(records) - 1] + 1
    return found


def _is_of(fragment: Fragment, message: Message, session_id: str | None) -> bool:
    """Columns find candidates by a hash: the message itself says to which session it belongs."""
    if session_id is None:
        return True
    own, settings = session_id_of(message), fragment.settings
    return own is not None and settings.key_of(own) == settings.key_of(session_id)


def _with_its_times(message: Message) -> Message:
    if message.flags & IS_SCHEDULED:
        message.expires_at = 0  # it holds the time to live until the message is activated
    return message


async def state_of(broker: MessageBroker, fragment: Fragment, lane: Lane, message: Message) -> int:
    number = int(message.number)
    if not lane.is_parked(number):
        return ACTIVE
    if lane.is_reserved(number):
        return DEFERRED
    overlays = await broker.store.overlays(int(fragment.key), int(lane.code), number, number)
    return overlays[0].state if overlays else DEFERRED


async def receive_deferred(
    broker: MessageBroker,
    fragment: Fragment,
    code: int,
    numbers: Sequence[int],
    is_destructive: bool,
    session_lock: SessionLock | None = None,
    max_bytes: int = DEFERRED_BYTES,
) -> list[tuple[MessageLock, Message]]:
    """Lock deferred messages by number: all of them or none. Destructive: they are gone when this returns. In a session
    they are locked with it, and only its own can be had."""
    messages = await _parked_messages(broker, fragment, code, numbers, DEFERRED, max_bytes)
    for message in messages:
        if session_lock is not None and not _is_of(fragment, message, session_lock.session.name):
            raise _not_found(fragment, int(message.number), "deferred")
        # The time to live of a deferred message is judged when somebody asks for it.
        if code == MAIN and fragment.is_expired(message):
            expire(fragment, message)
            raise _not_found(fragment, int(message.number), "deferred")
    taken: list[tuple[MessageLock, Message]] = []
    for message in messages:
        lock = fragment.lock_number(code, message.number, len(message.sections), message.expires_at, session_lock)
        lock.is_deferred = True
        lock.delivery_count = message.delivery_count
        lock.application_properties = message.application_properties
        taken.append((lock, message))
    if is_destructive:
        await remove_all(fragment, [lock for lock, _ in taken])
    return taken


async def _parked_messages(
    broker: MessageBroker,
    fragment: Fragment,
    code: int,
    numbers: Sequence[int],
    state: int,
    max_bytes: int | None = None,
) -> list[Message]:
    """The messages of these numbers, if all of them are in this state. Nobody has any of them when this returns."""
    what = "deferred" if state == DEFERRED else "scheduled"
    if len(set(numbers)) != len(numbers):
        raise InvalidArgument("A sequence number stands twice in the request.")
    messages: list[Message | None] = []
    size = 0
    for number in numbers:
        message = await _parked_message(broker, fragment, code, number, state)
        messages.append(message)
        size += 0 if message is None else len(message.sections)
        if max_bytes is not None and size > max_bytes and len(messages) > 1:
            raise InvalidArgument(f"These messages have more than {max_bytes} bytes together: ask for fewer at once.")
    for number, message in zip(numbers, messages, strict=True):
        # Reading took its time: who came first meanwhile has it.
        if message is None or not fragment.lane(code).is_resting(number):
            raise _not_found(fragment, number, what)
    return [message for message in messages if message is not None]


async def _parked_message(
    broker: MessageBroker, fragment: Fragment, code: int, number: int, state: int
) -> Message | None:
    lane = fragment.lane(code)
    if not lane.is_resting(number) or lane.is_reserved(number):
        return None
    for record in await read_messages(broker, fragment, lane, [number], READ_BYTES):
        if isinstance(record, Message) and await state_of(broker, fragment, lane, record) == state:
            return record
    return None


def _not_found(fragment: Fragment, number: int, what: str) -> MessageNotFound:
    return MessageNotFound(f"There is no {what} message with sequence number {_whole(fragment, number)}.")


def _whole(fragment: Fragment, number: int) -> int:
    """As the client knows it: nobody outside has ever seen the number in the fragment."""
    return int(fragment.index) << NUMBER_BITS | number


async def cancel_scheduled(broker: MessageBroker, fragment: Fragment, numbers: Sequence[int]) -> None:
    """Cancel scheduled messages: all of them or none."""
    messages = await _parked_messages(broker, fragment, MAIN, numbers, SCHEDULED)
    locks: list[MessageLock] = []
    for message in messages:
        lock = fragment.lock_number(MAIN, message.number, len(message.sections), NEVER)
        lock.is_scheduled = True
        locks.append(lock)
    await remove_all(fragment, locks)
    # A due entry left behind by a crash here leads nowhere and is dropped when it comes up.
    changes = Changes()
    for message in messages:
        due = scheduled_time(message)
        changes.dropped_schedules.append(Due(due, int(fragment.key), MAIN, int(message.number)))
    await broker.commit_alone(changes)


async def find_scheduled(broker: MessageBroker, fragment: Fragment, numbers: Sequence[int]) -> list[TransactionCancel]:
    """What has to be known of scheduled messages to cancel them later, all of them or none."""
    messages = await _parked_messages(broker, fragment, MAIN, numbers, SCHEDULED)
    return [TransactionCancel(one.number, len(one.sections), scheduled_time(one)) for one in messages]


def scheduled_time(message: Message) -> int:
    return int(parse_message(message.sections).scheduled_at)


async def delete_batch(
    broker: MessageBroker,
    fragment: Fragment,
    code: int,
    count: int,
    before_ms: int,
    session_id: str | None = None,
) -> int:
    """Delete up to `count` waiting messages enqueued before a time, oldest first; locked and parked ones stay. With a
    session, only its messages."""
    deleted = 0
    from_number = 1
    while deleted < count:
        lane = fragment.lane(code)
        most = min(count - deleted, DELETE_SLICE)
        if session_id is None:
            numbers = lane.next_available(from_number, most)
        else:
            numbers = await live_numbers(broker, fragment, session_id, from_number, most)
        if not numbers:
            break
        records = await read_messages(broker, fragment, lane, numbers, READ_BYTES)
        from_number = numbers[len(records) - 1] + 1
        messages = [one for one in records if isinstance(one, Message) and _is_of(fragment, one, session_id)]
        locks = [
            lock_waiting(fragment, code, message)
            for message in messages
            if message.enqueued_at < before_ms and fragment.lane(code).is_waiting(message.number)
        ]
        await remove_all(fragment, locks)
        deleted += len(locks)
        if messages and messages[-1].enqueued_at >= before_ms:
            break
        await asyncio.sleep(0)
    return deleted


async def delete_one(broker: MessageBroker, fragment: Fragment, code: int, number: int) -> None:
    """Delete one message by its number, whatever its state; but not one that somebody has locked."""
    lane = fragment.lane(code)
    if number < lane.visible_end and lane.is_live(number) and not lane.is_free(number):
        raise InvalidOperation(f"The message {_whole(fragment, number)} is locked; whoever holds it decides on it.")
    if not lane.is_free(number):
        raise _not_found(fragment, number, "such")
    if lane.is_reserved(number):
        raise InvalidOperation(f"The message {_whole(fragment, number)} is reserved; release it first.")
    if lane.is_parked(number):
        await _delete_parked(broker, fragment, code, number)
        return
    for record in await read_messages(broker, fragment, lane, [number], READ_BYTES):
        if isinstance(record, Message) and fragment.lane(code).is_waiting(number):
            await remove_all(fragment, [lock_waiting(fragment, code, record)])
            return
    raise _not_found(fragment, number, "such")


async def _delete_parked(broker: MessageBroker, fragment: Fragment, code: int, number: int) -> None:
    if await _parked_message(broker, fragment, code, number, SCHEDULED) is not None:
        await cancel_scheduled(broker, fragment, [number])
    else:
        await receive_deferred(broker, fragment, code, [number], True)


async def take_waiting(
    broker: MessageBroker,
    fragment: Fragment,
    code: int,
    from_number: int,
    end: int,
    count: int,
    max_bytes: int,
) -> tuple[list[tuple[MessageLock, Message]], int]:
    """Lock what waits from a number up to before another, for whoever moves it elsewhere; with the number at which to
    go on: the end, when nothing more is there."""
    lane = fragment.lane(code)
    numbers = [number for number in lane.next_available(from_number, count) if number < end]
    if not numbers:
        return [], end
    records = await read_messages(broker, fragment, lane, numbers, max_bytes)
    # Reading took its time: what somebody else has by now is left to them.
    taken = [
        (lock_waiting(fragment, code, record), record)
        for record in records
        if isinstance(record, Message) and fragment.lane(code).is_waiting(record.number)
    ]
    return taken, numbers[len(records) - 1] + 1


def lock_waiting(fragment: Fragment, code: int, message: Message) -> MessageLock:
    """Keep others off a waiting message that is about to be moved or deleted."""
    lock = fragment.lock_number(code, message.number, len(message.sections), NEVER)
    lock.delivery_count = message.delivery_count
    lock.application_properties = message.application_properties
    return lock


async def remove_all(fragment: Fragment, locks: Sequence[MessageLock]) -> None:
    """Take messages out and wait until that is durable."""
    await settle_each(locks, fragment.remove)


async def settle_each(locks: Sequence[MessageLock], settle: Callable[[MessageLock, SettleReply], None]) -> None:
    """Stage a settlement of each lock, and wait until all of them are durable."""
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
        settle(lock, reply)
    await done
