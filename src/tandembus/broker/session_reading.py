"""What sessions need of the store: columns, the bodies of a session's next messages, and the names behind the hashes.

The session index decides and says what it wants; here it is read, in slices, so that a search through millions of
messages holds nobody up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tandembus.broker.fragment import Fragment
from tandembus.broker.lane import Lane
from tandembus.broker.operations import PromiseOperation, StateOperation
from tandembus.broker.reading import next_to_read, read_messages
from tandembus.broker.session import Session, SessionAccept, SessionLock
from tandembus.broker.session_columns import (
    TailColumn,
    column_entry,
    column_of,
    entry_count,
    hash_at,
    offset_at,
    offsets_of,
    session_hash,
)
from tandembus.broker.session_locks import (
    accept_session,
    await_session,
    gave_up_session,
    leave_session,
    set_session_state,
)
from tandembus.broker.sessions import FIRST, NAME, NOTHING, SCAN, SessionIndex
from tandembus.errors import BusError, MalformedData, OperationTimeout
from tandembus.message import Message, session_id_of
from tandembus.store.messaging_store import MAIN, NUMBER_MASK

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

COLUMNS_SLICE = 64
"""Columns read in one go: those of 65,536 messages."""
AHEAD_BODIES = 32
"""Bodies of a session read when somebody gets it, or to learn its name: its receiver will ask for them next."""
READ_BYTES = 4 * 1024 * 1024


async def load_tail(broker: MessageBroker, fragment: Fragment) -> None:
    """The column of the newest block is no record yet: its bodies say it."""
    lane = fragment.main
    block = int(lane.next_number // lane.block_size)
    entries = await _entries_of_bodies(broker, fragment, lane, block)
    lane.column = TailColumn(lane.fragment, lane.code, lane.block_size, block, entries, lane.ignores_key_case)


async def _entries_of_bodies(broker: MessageBroker, fragment: Fragment, lane: Lane, block: int) -> list[bytes]:
    entries: list[bytes] = []
    numbers = lane.live_in_block(block)
    while numbers:
        records = await broker.store.bodies(int(lane.body_fragment), MAIN, numbers, READ_BYTES)
        for record in records:
            session_id = id_in(record) if isinstance(record, Message) else None
            if session_id is not None:
                hash_of_id = session_hash(fragment.settings.key_of(session_id))
                entries.append(column_entry(hash_of_id, int(record.number) % int(lane.block_size)))
        numbers = numbers[len(records) :]
    return entries


def id_in(message: Message) -> str | None:
    try:
        return session_id_of(message)
    except MalformedData:
        return None


async def read_columns(broker: MessageBroker, fragment: Fragment, lane: Lane, blocks: Sequence[int]) -> list[bytes]:
    """The columns of these blocks: from memory, from the store, or, where neither has one, from the bodies."""
    found = [lane.column_in_memory(block) for block in blocks]
    missing = [block for block, entries in zip(blocks, found, strict=True) if entries is None]
    if not missing:
        return [entries for entries in found if entries is not None]
    stored = dict(zip(missing, await broker.store.columns(int(lane.body_fragment), MAIN, missing), strict=True))
    columns: list[bytes] = []
    for block, entries in zip(blocks, found, strict=True):
        if entries is None:
            column = stored[block]
            if column is not None:
                entries = column.entries
            else:
                entries = column_of(await _entries_of_bodies(broker, fragment, lane, block))
        columns.append(entries)
    return columns


async def hashes_of(broker: MessageBroker, fragment: Fragment, lane: Lane, numbers: Sequence[int]) -> dict[int, bytes]:
    """The hashes of these messages' sessions, as columns know them."""
    wanted = set(numbers)
    size = int(lane.block_size)
    blocks = sorted({number // size for number in numbers})
    found: dict[int, bytes] = {}
    for at in range(0, len(blocks), COLUMNS_SLICE):
        part = blocks[at : at + COLUMNS_SLICE]
        for block, entries in zip(part, await read_columns(broker, fragment, lane, part), strict=True):
            for position in range(int(entry_count(entries))):
                number = block * size + int(offset_at(entries, position))
                if number in wanted:
                    found[number] = hash_at(entries, position)
        await asyncio.sleep(0)
    return found


async def load_reserved(broker: MessageBroker, fragment: Fragment) -> None:
    """Which sessions have reserved messages, after the fragment was opened."""
    index, lane = fragment.sessions, fragment.main
    if index is None or index.reserved.is_known:
        return
    for owner in list(lane.ledger.owners.values()):
        numbers = lane.ledger.numbers(owner, 0, NUMBER_MASK, NUMBER_MASK)
        for number, hash_of_id in (await hashes_of(broker, fragment, lane, numbers)).items():
            if lane.ledger.has(owner, number):
                index.reserved.add(number, hash_of_id, owner.name)
    index.reserved.is_known = True


def is_wanting(index: SessionIndex) -> bool:
    """Whether something has to be read for who waits for a session, or holds one."""
    return index.wants != NOTHING or len(index.starving) > 0 or len(index.granted) > 0


async def read_for_sessions(broker: MessageBroker, fragment: Fragment) -> None:
    """One slice of what the sessions of a fragment need."""
    index = fragment.sessions
    if index is None:
        return
    if index.wants != NOTHING:
        await _read_for_accept(broker, fragment, index)
    if fragment.sessions is index:  # else the store was opened anew meanwhile
        await _feed(broker, fragment, index)


async def _read_for_accept(broker: MessageBroker, fragment: Fragment, index: SessionIndex) -> None:
    session = index.wanted
    if index.wants == SCAN:
        await _scan(broker, fragment, index)
    elif session is not None and index.wants == NAME:
        numbers = index.numbers_to_read(session, AHEAD_BODIES)
        await _read_bodies(broker, fragment, index, [(session, numbers)])
    elif session is not None and index.wants == FIRST:
        await _read_bodies(broker, fragment, index, [(session, index.numbers_to_read(session, 1))])
    elif session is not None:
        await _search(broker, fragment, index, session)
    index.wants = NOTHING


async def _scan(broker: MessageBroker, fragment: Fragment, index: SessionIndex) -> None:
    """Move the index on by a slice of columns."""
    lane = fragment.main
    visible_end = int(lane.visible_end)
    blocks = lane.live_blocks(index.columns_end, COLUMNS_SLICE)
    for block, entries in zip(blocks, await read_columns(broker, fragment, lane, blocks), strict=True):
        index.scanned(block, entries, visible_end)
    if len(blocks) < COLUMNS_SLICE and not index.is_at_tail:
        index.scanned_to(visible_end)


async def _search(broker: MessageBroker, fragment: Fragment, index: SessionIndex, session: Session) -> None:
    """Look for one session's messages in the next slice of columns."""
    lane = fragment.main
    visible_end = int(lane.visible_end)
    blocks = lane.live_blocks(index.begin_search(session), COLUMNS_SLICE)
    for block, entries in zip(blocks, await read_columns(broker, fragment, lane, blocks), strict=True):
        if not index.searched(session, block, entries, visible_end):
            return
    if len(blocks) < COLUMNS_SLICE:
        index.searched_all_below(session, visible_end)


async def _feed(broker: MessageBroker, fragment: Fragment, index: SessionIndex) -> None:
    """Read for the receivers that could take more, and for those that have just come: all bodies in one call. Receivers
    for which there is no room now are first the next time."""
    starving, index.starving = list(dict.fromkeys(index.starving)), []
    most = max(int(fragment.settings.window_messages) // 2, 1)
    granted, index.granted = index.granted, []
    wanted: list[tuple[Session, list[int]]] = []
    for session in granted:
        wanted.append((session, index.numbers_to_read(session, min(most, AHEAD_BODIES))))
        most -= len(wanted[-1][1])
    for at, session in enumerate(starving):
        if most <= 0:
            index.starving = starving[at:] + index.starving
            break
        consumer = session.consumer
        if consumer is None or session.lock is None or not consumer.can_take():
            continue
        index.stir(session)
        if session.returning_count > 0:
            continue  # what comes back is next, and stirs it again
        if index.next_number(session) > 0:
            numbers = index.numbers_to_read(session, min(int(consumer.credit), most))
            most -= len(numbers)
            wanted.append((session, numbers))
        else:
            await _search(broker, fragment, index, session)
    count = await _read_bodies(broker, fragment, index, wanted)
    without = []
    for session, numbers in wanted:
        if numbers and count <= 0:
            without.append(session)
        count -= len(numbers)
    index.starving = without + index.starving


async def _read_bodies(
    broker: MessageBroker, fragment: Fragment, index: SessionIndex, wanted: Iterable[tuple[Session, list[int]]]
) -> int:
    """Returns how many of the bodies there was room for, from the first."""
    owners = {number: session for session, numbers in wanted for number in numbers}

    def has_room(number: int, size_bytes: int) -> bool:
        consumer = owners[number].consumer
        return consumer is not None and consumer.can_take() and consumer.has_room_for(size_bytes)

    to_read: Sequence[int] = list(owners)
    if to_read and fragment.settings.may_have_large:
        to_read = await next_to_read(broker, fragment.main, to_read, has_room)
    if not to_read:
        return 0
    room = max(int(fragment.settings.window_bytes) // 2, 1)
    records = await read_messages(broker, fragment, fragment.main, to_read, room)
    if fragment.sessions is index:
        index.take_bodies(list(records), owners)
    return len(records)


async def accept(broker: MessageBroker, fragment: Fragment, session_id: str | None, timeout_s: float) -> SessionLock:
    """A session by its name, or the next available one (None) as soon as there is one."""
    if session_id is not None:
        return accept_session(fragment, session_id)
    future: asyncio.Future[SessionLock] = asyncio.get_running_loop().create_future()
    waiting = SessionAccept(future.set_result, future.set_exception)
    await_session(fragment, waiting)
    broker.want(fragment)
    try:
        await asyncio.wait((future,), timeout=timeout_s)
    except asyncio.CancelledError:
        if future.done() and future.exception() is None:
            leave_session(fragment, future.result())
        raise
    finally:
        gave_up_session(fragment, waiting)
    if not future.done():
        raise OperationTimeout(f"No session was available within {timeout_s:g} s.")
    return future.result()


async def set_state(fragment: Fragment, session_id: str, state: bytes | None) -> None:
    """Keep these bytes with the session (None: nothing any more), and wait until that is durable."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def is_set(error: BusError | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    set_session_state(fragment, StateOperation(fragment.settings.key_of(session_id), state, is_set))
    await done


async def promise_numbers(fragment: Fragment, session_ids: Sequence[str | None]) -> list[int]:
    """Numbers for messages of these sessions, or of none, that may come later; returns when the promise is durable."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def is_promised(error: BusError | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    operation = PromiseOperation(list(session_ids), is_promised)
    fragment.promise(operation)
    await done
    return operation.numbers


async def live_numbers(
    broker: MessageBroker, fragment: Fragment, session_id: str, from_number: int, count: int
) -> list[int]:
    """Live messages that may belong to a session, in order, whatever their state: for browsing. Their bodies say
    whether they do."""
    lane = fragment.main
    hash_of_id = session_hash(fragment.settings.key_of(session_id))
    found: list[int] = []
    while len(found) < count:
        blocks = lane.live_blocks(from_number, COLUMNS_SLICE)
        for block, entries in zip(blocks, await read_columns(broker, fragment, lane, blocks), strict=True):
            first = block * int(lane.block_size)
            for number in [first + offset for offset in offsets_of(entries, hash_of_id)]:
                is_there = number < lane.visible_end and lane.is_live(number) and not lane.is_arriving(number)
                if number >= from_number and is_there:
                    found.append(number)
        if len(blocks) < COLUMNS_SLICE:
            break
        from_number = (blocks[-1] + 1) * int(lane.block_size)
        await asyncio.sleep(0)
    return found[:count]
