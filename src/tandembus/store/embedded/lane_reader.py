"""What is read of a store, each within one transaction; and what is made of records that are damaged.

A damaged body is reported to whoever asked for it, in its place. Anything else that is damaged costs
knowledge about messages, never messages: a block is rebuilt from its bodies (what was settled may come back:
rather twice than never), an overlay is passed over (the message is active again), a head is passed over (the
catalog knows its fragments), a session column is left to the bodies, which say the same. Only a session's state has no
second source: one that is damaged counts as never set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import lmdb

from tandembus.message import Message
from tandembus.store.embedded.environment import OpenedStore
from tandembus.store.embedded.keys import (
    BLOCK,
    EXPIRY,
    HEAD,
    MAX_I64,
    MAX_NUMBER,
    OVERLAY,
    QUARANTINE,
    SCHEDULE,
    SESSION_COLUMN,
    body_key,
    body_keys,
    due_bound,
    due_of,
    fragment_at,
    history_key,
    number_at,
    place_at,
    place_key,
    session_state_key,
    session_states_bound,
)
from tandembus.store.embedded.records import (
    BODY_HEAD_BYTES,
    decode_block,
    decode_bodies,
    decode_body,
    decode_column,
    decode_head,
    decode_history,
    decode_overlay,
    decode_session_state,
    due_is_sound,
)
from tandembus.store.messaging_store import (
    BITS_BYTES,
    BLOCK_SIZE,
    DEFERRED,
    NEVER,
    SCHEDULED,
    BlockRecord,
    Damage,
    Due,
    FragmentHead,
    HistoryRecord,
    Overlay,
    Place,
    SessionColumn,
    SessionState,
)


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record other than a body that could not be read, and what was done about it."""

    kind: str
    fragment: int
    lane: int
    number: int
    remedy: str

    def __str__(self) -> str:
        where = f"fragment {self.fragment}, lane {self.lane}, number {self.number}"
        return f"damaged {self.kind} record ({where}): {self.remedy}"


Report = Callable[[DamagedRecord], None]


def read_bodies(
    txn: lmdb.Transaction[bytes],
    opened: OpenedStore,
    fragment: int,
    lane: int,
    numbers: Sequence[int],
    max_bytes: int,
) -> list[Message | Damage]:
    keys = body_keys(fragment, lane, list(numbers))
    values: list[bytes | None] = []
    size_bytes = 0
    with txn.cursor(opened.body) as cursor:
        # Most are neighbours: one walk over them costs less than looking up each.
        if keys and cursor.set_key(keys[0]):
            for key, (found, body) in zip(keys, cursor.iternext(), strict=False):
                if found != key:
                    break
                values.append(body)
                size_bytes += len(body) - BODY_HEAD_BYTES
                if size_bytes > max_bytes:
                    return decode_bodies(keys, values)
    for key in keys[len(values) :]:
        value = txn.get(key, db=opened.body)
        values.append(value)
        size_bytes += 0 if value is None else len(value) - BODY_HEAD_BYTES
        if size_bytes > max_bytes:
            break
    return decode_bodies(keys, values)


def read_numbers(txn: lmdb.Transaction[bytes], opened: OpenedStore, fragment: int, lane: int, limit: int) -> list[int]:
    first, last = body_key(fragment, lane, 0), body_key(fragment, lane, MAX_NUMBER)
    numbers: list[int] = []
    with txn.cursor(opened.body) as cursor:
        found = limit > 0 and cursor.set_range(first)
        while found and cursor.key() <= last and len(numbers) < limit:
            numbers.append(number_at(cursor.key(), 0))
            found = cursor.next()
    return numbers


def read_heads(txn: lmdb.Transaction[bytes], opened: OpenedStore, report: Report) -> list[FragmentHead]:
    heads: list[FragmentHead] = []
    for key, value in items(txn, opened.state, bytes([HEAD]), bytes([HEAD, 0xFF, 0xFF, 0xFF, 0xFF])):
        head = decode_head(key, value)
        if head is None:
            report(DamagedRecord("head", fragment_at(key, 1), 0, 0, "passed over"))
        else:
            heads.append(head)
    return heads


def read_overlays(
    txn: lmdb.Transaction[bytes],
    opened: OpenedStore,
    fragment: int,
    lane: int,
    first: int,
    last: int,
    report: Report,
) -> list[Overlay]:
    overlays: list[Overlay] = []
    bounds = place_key(OVERLAY, fragment, lane, first), place_key(OVERLAY, fragment, lane, last)
    for key, value in items(txn, opened.state, *bounds):
        _add_overlay(overlays, key, value, report)
    return overlays


def read_overlays_at(
    txn: lmdb.Transaction[bytes],
    opened: OpenedStore,
    fragment: int,
    lane: int,
    numbers: Sequence[int],
    report: Report,
) -> list[Overlay]:
    """One look tells whether there is any overlay in the whole range: mostly there is none."""
    if not numbers or not _has_any(txn, opened, fragment, lane, min(numbers), max(numbers)):
        return []
    overlays: list[Overlay] = []
    for number in numbers:
        key = place_key(OVERLAY, fragment, lane, number)
        value = txn.get(key, db=opened.state)
        if value is not None:
            _add_overlay(overlays, key, value, report)
    return overlays


def _has_any(
    txn: lmdb.Transaction[bytes], opened: OpenedStore, fragment: int, lane: int, first: int, last: int
) -> bool:
    with txn.cursor(opened.state) as cursor:
        found = cursor.set_range(place_key(OVERLAY, fragment, lane, first))
        return found and cursor.key() <= place_key(OVERLAY, fragment, lane, last)


def _add_overlay(overlays: list[Overlay], key: bytes, value: bytes, report: Report) -> None:
    overlay = decode_overlay(key, value)
    if overlay is None:
        place = place_at(key, 1)
        remedy = "the message is as it was sent"
        report(DamagedRecord("overlay", place.fragment, place.lane, place.number, remedy))
    else:
        overlays.append(overlay)


def read_columns(
    txn: lmdb.Transaction[bytes],
    opened: OpenedStore,
    fragment: int,
    lane: int,
    blocks: Sequence[int],
    report: Report,
) -> list[SessionColumn | None]:
    columns: list[SessionColumn | None] = []
    for block in blocks:
        key = place_key(SESSION_COLUMN, fragment, lane, block)
        value = txn.get(key, db=opened.log)
        column = None if value is None else decode_column(key, value)
        if value is not None and column is None:
            report(DamagedRecord("session column", fragment, lane, block, "its bodies are asked instead"))
        columns.append(column)
    return columns


def read_session_state(
    txn: lmdb.Transaction[bytes], opened: OpenedStore, fragment: int, session_id: str, report: Report
) -> SessionState | None:
    key = session_state_key(fragment, session_id)
    value = txn.get(key, db=opened.state)
    if value is None:
        return None
    state = decode_session_state(key, value, True)
    if state is None:
        report(DamagedRecord("session state", fragment, 0, 0, f"session {session_id!r} is without a state"))
    return state


def read_session_states(
    txn: lmdb.Transaction[bytes],
    opened: OpenedStore,
    fragment: int,
    after: str | None,
    limit: int,
    report: Report,
) -> list[SessionState]:
    bound = session_states_bound(fragment)
    first = bound if after is None else session_state_key(fragment, after) + b"\x00"
    states: list[SessionState] = []
    for key, value in items(txn, opened.state, first, bound + b"\xff" * 17):
        if len(states) >= limit:
            break
        state = decode_session_state(key, value, False)
        if state is None:
            report(DamagedRecord("session state", fragment, 0, 0, "passed over"))
        else:
            states.append(state)
    return states


def read_due(
    txn: lmdb.Transaction[bytes], opened: OpenedStore, kind: int, at_ms: int, limit: int, report: Report
) -> list[Due]:
    """A due entry only says where to look. One that is damaged is reported and still followed: looking at a
    wrong place finds nothing to do, not looking could leave a message parked for ever."""
    dues: list[Due] = []
    for key, value in items(txn, opened.state, bytes([kind]), due_bound(kind, at_ms)):
        if len(dues) >= limit:
            break
        due = due_of(key)
        if not due_is_sound(key, value):
            name = "schedule" if kind == SCHEDULE else "expiry"
            report(DamagedRecord(name, due.fragment, due.lane, due.number, "followed, as it only says where to look"))
        dues.append(due)
    return dues


def read_earliest_due(txn: lmdb.Transaction[bytes], opened: OpenedStore) -> int:
    earliest: list[int] = []
    with txn.cursor(opened.state) as cursor:
        for kind in (SCHEDULE, EXPIRY):
            if cursor.set_range(bytes([kind])) and cursor.key()[0] == kind:
                earliest.append(due_of(cursor.key()).at_ms)
    return min(earliest, default=NEVER)


def read_quarantined(txn: lmdb.Transaction[bytes], opened: OpenedStore, limit: int) -> list[tuple[Place, bytes]]:
    found: list[tuple[Place, bytes]] = []
    for key, value in items(txn, opened.state, bytes([QUARANTINE]), bytes([QUARANTINE + 1])):
        if len(found) >= limit:
            break
        found.append((place_at(key, 1), value))
    return found


def read_history(
    txn: lmdb.Transaction[bytes],
    opened: OpenedStore,
    fragment: int,
    at_ms: int,
    number: int,
    max_bytes: int,
    report: Report,
) -> list[HistoryRecord]:
    records: list[HistoryRecord] = []
    size_bytes = 0
    bounds = history_key(fragment, max(at_ms, 0), number), history_key(fragment, MAX_I64, MAX_I64)
    for key, value in items(txn, opened.log, *bounds):
        record = decode_history(key, value)
        if record is None:
            report(DamagedRecord("history", fragment, 0, 0, "passed over: some ids may be taken a second time"))
            continue
        records.append(record)
        size_bytes += len(record.hashes)
        if size_bytes > max_bytes:
            break
    return records


def read_blocks(
    txn: lmdb.Transaction[bytes], opened: OpenedStore, fragment: int, lane: int, report: Report
) -> list[BlockRecord]:
    blocks: list[BlockRecord] = []
    bounds = place_key(BLOCK, fragment, lane, 0), place_key(BLOCK, fragment, lane, MAX_NUMBER)
    for key, value in items(txn, opened.state, *bounds):
        block = decode_block(key, value)
        if block is None:
            number = number_at(key, 1)
            report(DamagedRecord("block", fragment, lane, number, "rebuilt from its bodies"))
            block = _rebuilt(txn, opened, fragment, lane, number, report)
        blocks.append(block)
    for number in _blocks_without_record(txn, opened, fragment, lane, {block.block for block in blocks}):
        report(DamagedRecord("block", fragment, lane, number, "it is missing: rebuilt from its bodies"))
        blocks.append(_rebuilt(txn, opened, fragment, lane, number, report))
    blocks.sort(key=lambda block: block.block)
    return blocks


def _blocks_without_record(
    txn: lmdb.Transaction[bytes], opened: OpenedStore, fragment: int, lane: int, recorded: set[int]
) -> list[int]:
    """A body always has a block record, so one without shows that a record vanished. One look per gap, not
    per body."""
    missing: list[int] = []
    last = body_key(fragment, lane, MAX_NUMBER)
    last_block = MAX_NUMBER // opened.block_size
    block = 0
    with txn.cursor(opened.body) as cursor:
        while block <= last_block and cursor.set_range(body_key(fragment, lane, block * opened.block_size)):
            if cursor.key() > last:
                break
            block = number_at(cursor.key(), 0) // opened.block_size
            if block not in recorded:
                missing.append(block)
                block += 1
            while block in recorded:
                block += 1
    return missing


def _rebuilt(
    txn: lmdb.Transaction[bytes], opened: OpenedStore, fragment: int, lane: int, block: int, report: Report
) -> BlockRecord:
    """All numbers count as given, since one given twice would be worse than some never used. Bodies that are
    there count as unsettled; the damaged ones among them are found when they are read."""
    first = block * opened.block_size
    last = first + opened.block_size - 1
    settled = bytearray(b"\xff" * BITS_BYTES)
    live_bytes = 0
    expiries: list[int] = []
    for key, value in items(txn, opened.body, body_key(fragment, lane, first), body_key(fragment, lane, last)):
        _clear_bit(settled, number_at(key, 0) - first)
        live_bytes += max(0, len(value) - BODY_HEAD_BYTES)
        body = decode_body(key, value)
        if isinstance(body, Message) and body.expires_at != NEVER:
            expiries.append(body.expires_at)
    parked = bytearray(BITS_BYTES)
    counts = {DEFERRED: 0, SCHEDULED: 0}
    for overlay in read_overlays(txn, opened, fragment, lane, first, last, report):
        if overlay.state in counts and not _has_bit(settled, overlay.number - first):
            _set_bit(parked, overlay.number - first)
            counts[overlay.state] += 1
    return BlockRecord(
        fragment,
        lane,
        block,
        opened.block_size,
        bytes(settled),
        bytes(parked),
        BLOCK_SIZE - sum(byte.bit_count() for byte in settled),
        counts[DEFERRED],
        counts[SCHEDULED],
        live_bytes,
        min(expiries, default=NEVER),
    )


def _has_bit(bits: bytearray, at: int) -> bool:
    return bool(bits[at >> 3] & 1 << (at & 7))


def _set_bit(bits: bytearray, at: int) -> None:
    bits[at >> 3] |= 1 << (at & 7)


def _clear_bit(bits: bytearray, at: int) -> None:
    bits[at >> 3] &= ~(1 << (at & 7)) & 0xFF


def items(
    txn: lmdb.Transaction[bytes], tree: lmdb._Database, first: bytes, last: bytes
) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values from `first` to `last`, both included, copied out."""
    with txn.cursor(tree) as cursor:
        if not cursor.set_range(first):
            return
        for key, value in cursor.iternext():
            if key > last:
                return
            yield key, value
