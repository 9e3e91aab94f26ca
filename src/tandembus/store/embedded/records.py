"""The value layout of the embedded store: plain fields, big-endian, sealed with a CRC-32 over key and value.

LMDB checks nothing it reads. So every record carries a checksum that also covers its key: a flipped bit, or a
record that turns up under the wrong key, is noticed and never served. What to do about damage is decided by
the caller.

A body:

    0  version u8, flags u8, hops u8, priority u8
    4  its key again (F L S, 11 bytes), so that it can be found in a file whose tree is broken; 1 byte zero
    16 enqueued_at i64, expires_at i64, original_number i64 (milliseconds and numbers)
    40 annotations_end u32, properties_end u32, application_end u32, length of the sections u32
    56 CRC-32 of everything before it and of the sections
    60 the sections, as they came

Every other record: CRC-32 of key and rest u32, version u8, then its fields.
"""

from __future__ import annotations

import zlib
from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i64

from tandembus.message import Message, stored_message
from tandembus.store.embedded.keys import (
    BLOCK,
    EXPIRY,
    OVERLAY,
    PLACE_BYTES,
    SCHEDULE,
    SESSION_COLUMN,
    audit_key,
    due_key,
    fragment_at,
    head_key,
    high_water_key,
    history_key,
    mark_key,
    number_at,
    place_at,
    place_key,
    session_state_key,
    signed_32,
)
from tandembus.store.messaging_store import (
    HASH_BYTES,
    MARK_BYTES,
    SESSION_ENTRY_BYTES,
    AuditPage,
    BlockRecord,
    Changes,
    Damage,
    FragmentHead,
    HighWater,
    HistoryRecord,
    Mark,
    Overlay,
    PutBody,
    SessionColumn,
    SessionState,
)

FORMAT_VERSION: Final = 1
"""Of the store as a whole. A store written by a newer version is refused, never guessed at."""
RECORD_VERSION: Final = 1
_VERSION_BITS: Final = RECORD_VERSION << 56

BODY_HEAD_BYTES: Final = 60
_CRC_AT: Final = 56
_SMALL_HEAD_BYTES: Final = 5
_BLOCK_FIELDS_END: Final = 41
_OVERLAY_FIELDS_END: Final = 10
_HEAD_BYTES: Final = 18
_META_BYTES: Final = 33
_STATE_FIELDS_END: Final = 17
_MARK_FIELDS_END: Final = 21
_HIGH_WATER_BYTES: Final = 21
_AUDIT_FIELDS_END: Final = 21
_STORE_ID_BYTES: Final = 16


def encode_bodies(puts: list[PutBody]) -> list[tuple[bytes, bytes]]:
    """Key and value of each, in key order."""
    items: list[tuple[bytes, bytes]] = []
    previous = b""
    is_sorted = True
    for put in puts:
        item = encode_body(put)
        if item[0] <= previous:
            is_sorted = False
        previous = item[0]
        items.append(item)
    if not is_sorted:
        items.sort()
    return items


def encode_body(put: PutBody) -> tuple[bytes, bytes]:
    """The sections are copied once, into the value; the head is small, and written eight bytes at a time:
    version, flags, hops, priority and fragment; lane, number and a zero; three times; four offsets; CRC."""
    message = put.message
    sections = message.sections
    size: i64 = len(sections)
    fragment: i64 = put.fragment
    lane: i64 = put.lane
    out = BytesWriter()
    kind = (_VERSION_BITS | (message.flags << 48)) | ((message.hops << 40) | (message.priority << 32))
    write_i64_be(out, kind | fragment)
    # Sign-extended, since a lane of 128 or more would not fit the signed number otherwise.
    write_i64_be(out, (((lane ^ 0x80) - 0x80) << 56) | (message.number << 8))
    write_i64_be(out, message.enqueued_at)
    write_i64_be(out, message.expires_at)
    write_i64_be(out, message.original_number)
    write_i64_be(out, (message.annotations_end << 32) | message.properties_end)
    write_i64_be(out, (message.application_end << 32) | size)
    head = out.getvalue()
    crc = zlib.crc32(sections, zlib.crc32(head))
    return head[4 : 4 + PLACE_BYTES], head + crc.to_bytes(4, "big") + sections


def size_of(items: list[tuple[bytes, bytes]]) -> int:
    size_bytes: i64 = 0
    for item in items:
        size_bytes += len(item[1])
    return int(size_bytes)


def decode_bodies(keys: list[bytes], values: list[bytes | None]) -> list[Message | Damage]:
    return [decode_body(keys[i], values[i]) for i in range(len(values))]


def decode_body(key: bytes, value: bytes | None) -> Message | Damage:
    number = number_at(key, 0)
    if value is None:
        return Damage(number, "the record is not there", True)
    size: i64 = len(value)
    if size < BODY_HEAD_BYTES:
        return Damage(number, "the record is cut short", False)
    sections = value[BODY_HEAD_BYTES:]
    if zlib.crc32(sections, zlib.crc32(value[:_CRC_AT])) != _u32(value, _CRC_AT):
        return Damage(number, "the checksum is wrong", False)
    if value[4 : 4 + PLACE_BYTES] != key:
        return Damage(number, "the record belongs to another key", False)
    if value[0] != RECORD_VERSION:
        return Damage(number, f"the record has the unknown version {value[0]}", False)
    return _message_of(number, value, sections)


def _message_of(number: i64, value: bytes, sections: bytes) -> Message | Damage:
    first_pair: i64 = read_i64_be(value, 40)
    second_pair: i64 = read_i64_be(value, 48)
    annotations_end: i64 = first_pair >> 32
    properties_end: i64 = first_pair & 0xFFFFFFFF
    application_end: i64 = second_pair >> 32
    size: i64 = len(sections)
    is_ordered = 0 <= annotations_end <= properties_end <= application_end <= size
    if second_pair & 0xFFFFFFFF != size or not is_ordered:
        return Damage(int(number), "the sections do not fit their offsets", False)
    return stored_message(
        number,
        read_i64_be(value, 16),
        read_i64_be(value, 24),
        read_i64_be(value, 32),
        value[2],
        value[1],
        value[3],
        annotations_end,
        properties_end,
        application_end,
        sections,
    )


def body_expiry(value: bytes) -> int:
    """`expires_at` of a body that was found sound."""
    return int(read_i64_be(value, 24))


def encode_state(changes: Changes) -> list[tuple[bytes, bytes]]:
    """Everything a commit puts into the state tree, in key order."""
    items: list[tuple[bytes, bytes]] = []
    for block in changes.blocks:
        items.append(encode_block(block))
    for overlay in changes.overlays:
        items.append(encode_overlay(overlay))
    for due in changes.schedules:
        items.append(encode_due(due_key(SCHEDULE, due)))
    for due in changes.expiries:
        items.append(encode_due(due_key(EXPIRY, due)))
    for head in changes.heads:
        items.append(encode_head(head))
    for state in changes.session_states:
        if state.state is not None:
            items.append(encode_session_state(state))
    for mark in changes.marks:
        items.append(encode_mark(mark))
    for high_water in changes.high_waters:
        items.append(encode_high_water(high_water))
    items.sort()
    return items


def encode_log(changes: Changes) -> list[tuple[bytes, bytes]]:
    """Everything a commit puts into the log tree, in key order."""
    items: list[tuple[bytes, bytes]] = []
    for column in changes.columns:
        items.append(encode_column(column))
    for record in changes.history:
        items.append(encode_history(record))
    page = changes.audit_page
    if page is not None:
        items.append(encode_audit_page(page))
    items.sort()
    return items


def dropped_state_keys(changes: Changes) -> list[bytes]:
    """Everything a commit drops from the state tree, in key order."""
    keys: list[bytes] = []
    for place in changes.dropped_blocks:
        keys.append(place_key(BLOCK, place.fragment, place.lane, place.number))
    for place in changes.dropped_overlays:
        keys.append(place_key(OVERLAY, place.fragment, place.lane, place.number))
    for due in changes.dropped_schedules:
        keys.append(due_key(SCHEDULE, due))
    for due in changes.dropped_expiries:
        keys.append(due_key(EXPIRY, due))
    for fragment in changes.dropped_heads:
        keys.append(head_key(fragment))
    for state in changes.session_states:
        if state.state is None:
            keys.append(session_state_key(state.fragment, state.session_id))
    for channel in changes.dropped_marks:
        keys.append(mark_key(channel))
    for high_water in changes.dropped_high_waters:
        keys.append(high_water_key(high_water))
    keys.sort()
    return keys


def encode_block(block: BlockRecord) -> tuple[bytes, bytes]:
    key = place_key(BLOCK, block.fragment, block.lane, block.block)
    out = new_record()
    write_i32_be(out, signed_32(block.given))
    write_i32_be(out, signed_32(block.live_count))
    write_i32_be(out, signed_32(block.deferred_count))
    write_i32_be(out, signed_32(block.scheduled_count))
    write_i64_be(out, block.live_bytes)
    write_i64_be(out, block.earliest_expiry)
    write_i16_be(out, i16(len(block.settled)))
    write_i16_be(out, i16(len(block.parked)))
    out.write(block.settled)
    out.write(block.parked)
    return key, sealed(key, out)


def decode_block(key: bytes, value: bytes) -> BlockRecord | None:
    """None where the record is damaged."""
    if not is_sound(key, value, _BLOCK_FIELDS_END):
        return None
    settled_end: i64 = _BLOCK_FIELDS_END + i64(read_i16_be(value, 37))
    if settled_end + i64(read_i16_be(value, 39)) != len(value):
        return None
    place = place_at(key, 1)
    return BlockRecord(
        place.fragment,
        place.lane,
        place.number,
        int(_u32(value, 5)),
        value[_BLOCK_FIELDS_END:settled_end],
        value[settled_end:],
        int(_u32(value, 9)),
        int(_u32(value, 13)),
        int(_u32(value, 17)),
        int(read_i64_be(value, 21)),
        int(read_i64_be(value, 29)),
    )


def encode_overlay(overlay: Overlay) -> tuple[bytes, bytes]:
    key = place_key(OVERLAY, overlay.fragment, overlay.lane, overlay.number)
    out = new_record()
    out.append(overlay.state)
    write_i32_be(out, signed_32(overlay.delivery_count))
    out.write(overlay.application_properties)
    return key, sealed(key, out)


def decode_overlay(key: bytes, value: bytes) -> Overlay | None:
    if not is_sound(key, value, _OVERLAY_FIELDS_END):
        return None
    place = place_at(key, 1)
    return Overlay(
        place.fragment,
        place.lane,
        place.number,
        int(value[5]),
        int(_u32(value, 6)),
        value[_OVERLAY_FIELDS_END:],
    )


def encode_due(key: bytes) -> tuple[bytes, bytes]:
    """The key says it all; the value only seals it."""
    return key, sealed(key, new_record())


def due_is_sound(key: bytes, value: bytes) -> bool:
    return is_sound(key, value, _SMALL_HEAD_BYTES)


def encode_head(head: FragmentHead) -> tuple[bytes, bytes]:
    key = head_key(head.fragment)
    out = new_record()
    write_i64_be(out, head.incarnation)
    write_i32_be(out, signed_32(head.index))
    out.append(1 if head.is_dropping else 0)
    return key, sealed(key, out)


def decode_head(key: bytes, value: bytes) -> FragmentHead | None:
    if not is_sound(key, value, _HEAD_BYTES):
        return None
    return FragmentHead(fragment_at(key, 1), int(read_i64_be(value, 5)), int(_u32(value, 13)), value[17] != 0)


def encode_column(column: SessionColumn) -> tuple[bytes, bytes]:
    key = place_key(SESSION_COLUMN, column.fragment, column.lane, column.block)
    out = new_record()
    out.write(column.entries)
    return key, sealed(key, out)


def decode_column(key: bytes, value: bytes) -> SessionColumn | None:
    if not is_sound(key, value, _SMALL_HEAD_BYTES) or (len(value) - _SMALL_HEAD_BYTES) % SESSION_ENTRY_BYTES != 0:
        return None
    place = place_at(key, 1)
    return SessionColumn(place.fragment, place.lane, place.number, value[_SMALL_HEAD_BYTES:])


def encode_session_state(state: SessionState) -> tuple[bytes, bytes]:
    """CRC, version, time of change, length of the id, the id, the state."""
    key = session_state_key(state.fragment, state.session_id)
    session_id = state.session_id.encode()
    out = new_record()
    write_i64_be(out, state.changed_at)
    write_i32_be(out, signed_32(len(session_id)))
    out.write(session_id)
    out.write(state.state or b"")
    return key, sealed(key, out)


def decode_session_state(key: bytes, value: bytes, with_bytes: bool) -> SessionState | None:
    """None where the record is damaged."""
    if not is_sound(key, value, _STATE_FIELDS_END):
        return None
    id_end: i64 = _STATE_FIELDS_END + _u32(value, 13)
    if id_end > len(value):
        return None
    session_id = value[_STATE_FIELDS_END:id_end].decode()
    return SessionState(
        fragment_at(key, 1), session_id, value[id_end:] if with_bytes else b"", int(read_i64_be(value, 5))
    )


def encode_history(record: HistoryRecord) -> tuple[bytes, bytes]:
    key = history_key(record.fragment, record.at_ms, record.number)
    out = new_record()
    out.write(record.hashes)
    return key, sealed(key, out)


def decode_history(key: bytes, value: bytes) -> HistoryRecord | None:
    if not is_sound(key, value, _SMALL_HEAD_BYTES) or (len(value) - _SMALL_HEAD_BYTES) % HASH_BYTES != 0:
        return None
    return HistoryRecord(
        fragment_at(key, 1), int(read_i64_be(key, 5)), int(read_i64_be(key, 13)), value[_SMALL_HEAD_BYTES:]
    )


def encode_audit_page(page: AuditPage) -> tuple[bytes, bytes]:
    """CRC, version, epoch, time of the commit, entries."""
    key = audit_key(page.number)
    out = new_record()
    write_i64_be(out, page.epoch)
    write_i64_be(out, page.at_ms)
    out.write(page.data)
    return key, sealed(key, out)


def decode_audit_page(key: bytes, value: bytes) -> AuditPage | None:
    if not is_sound(key, value, _AUDIT_FIELDS_END):
        return None
    return AuditPage(
        int(read_i64_be(key, 1)), int(read_i64_be(value, 5)), int(read_i64_be(value, 13)), value[_AUDIT_FIELDS_END:]
    )


def encode_mark(mark: Mark) -> tuple[bytes, bytes]:
    """CRC, version, highest number, time of the commit, bits."""
    key = mark_key(mark.channel)
    out = new_record()
    write_i64_be(out, mark.highest)
    write_i64_be(out, mark.at_ms)
    out.write(mark.done)
    return key, sealed(key, out)


def decode_mark(key: bytes, value: bytes) -> Mark | None:
    if not is_sound(key, value, _MARK_FIELDS_END) or len(value) != _MARK_FIELDS_END + MARK_BYTES:
        return None
    return Mark(key[1:], int(read_i64_be(value, 5)), value[_MARK_FIELDS_END:], int(read_i64_be(value, 13)))


def encode_high_water(high_water: HighWater) -> tuple[bytes, bytes]:
    key = high_water_key(high_water)
    out = new_record()
    write_i64_be(out, high_water.number)
    write_i64_be(out, high_water.at_ms)
    return key, sealed(key, out)


def decode_high_water(key: bytes, value: bytes) -> HighWater | None:
    if not is_sound(key, value, _HIGH_WATER_BYTES):
        return None
    number, at_ms = int(read_i64_be(value, 5)), int(read_i64_be(value, 13))
    return HighWater(fragment_at(key, 1), fragment_at(key, 5), int(key[9]), number, at_ms)


def encode_meta(key: bytes, format_version: int, store_id: bytes, epoch: int) -> bytes:
    """The one record whose layout no later version may change: by it, versions know each other."""
    out = new_record()
    write_i32_be(out, signed_32(format_version))
    out.write(store_id)
    write_i64_be(out, epoch)
    return sealed(key, out)


def decode_meta(key: bytes, value: bytes) -> tuple[int, bytes, int] | None:
    """Format version, store id and epoch; None where the record is damaged."""
    if len(value) < _META_BYTES or not _seal_holds(key, value):
        return None
    return int(_u32(value, 5)), value[9 : 9 + _STORE_ID_BYTES], int(read_i64_be(value, 25))


def new_record() -> BytesWriter:
    out = BytesWriter()
    out.append(RECORD_VERSION)
    return out


def sealed(key: bytes, fields: BytesWriter) -> bytes:
    rest = fields.getvalue()
    out = BytesWriter()
    write_i32_be(out, signed_32(zlib.crc32(rest, zlib.crc32(key))))
    out.write(rest)
    return out.getvalue()


def is_sound(key: bytes, value: bytes, min_bytes: i64) -> bool:
    return len(value) >= min_bytes and _seal_holds(key, value) and value[4] == RECORD_VERSION


def _seal_holds(key: bytes, value: bytes) -> bool:
    return zlib.crc32(value[4:], zlib.crc32(key)) == _u32(value, 0)


def _u32(value: bytes, at: i64) -> i64:
    return i64(read_i32_be(value, at)) & 0xFFFFFFFF
