"""The value layout of reservations, sealed as every record of the embedded store is.

An owner: epoch and last request (i64 each), length of the name (u32), the name, then first and last number (i64 each)
of every range that the last request was answered with. What it has reserved of a block: the bits.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i64

from tandembus.store.embedded.keys import BLOCK_BITS, OWNER, RESERVED, place_at, place_key, signed_32
from tandembus.store.embedded.records import is_sound, new_record, sealed
from tandembus.store.messaging_store import BITS_BYTES, Changes
from tandembus.store.owner_records import OwnerRecord, ReservedRecord

_HEAD_BYTES: Final = 5
_OWNER_FIELDS_END: Final = _HEAD_BYTES + 20
_RANGE_BYTES: Final = 16


def encode_ledger(changes: Changes) -> list[tuple[bytes, bytes]]:
    """Everything of reservations that a commit puts into the state tree, in key order."""
    items: list[tuple[bytes, bytes]] = []
    for owner in changes.owners:
        items.append(encode_owner(owner))
    for reserved in changes.reserved:
        if reserved.bits:
            items.append(encode_reserved(reserved))
    items.sort()
    return items


def dropped_ledger_keys(changes: Changes) -> list[bytes]:
    keys: list[bytes] = []
    for place in changes.dropped_owners:
        keys.append(place_key(OWNER, place.fragment, place.lane, place.number))
    for reserved in changes.reserved:
        if not reserved.bits:
            keys.append(reserved_key(reserved.fragment, reserved.lane, reserved.slot, reserved.block))
    keys.sort()
    return keys


def reserved_key(fragment: i64, lane: i64, slot: i64, block: i64) -> bytes:
    return place_key(RESERVED, fragment, lane, slot << BLOCK_BITS | block)


def encode_owner(owner: OwnerRecord) -> tuple[bytes, bytes]:
    key = place_key(OWNER, owner.fragment, owner.lane, owner.slot)
    name = owner.name.encode()
    out = new_record()
    write_i64_be(out, owner.epoch)
    write_i64_be(out, owner.request)
    write_i32_be(out, signed_32(len(name)))
    out.write(name)
    for first, last in owner.answer:
        write_i64_be(out, first)
        write_i64_be(out, last)
    return key, sealed(key, out)


def decode_owner(key: bytes, value: bytes) -> OwnerRecord | None:
    """None where the record is damaged."""
    if not is_sound(key, value, _OWNER_FIELDS_END):
        return None
    at: i64 = _OWNER_FIELDS_END + (i64(read_i32_be(value, 21)) & 0xFFFFFFFF)
    end: i64 = len(value)
    if at > end or (end - at) % _RANGE_BYTES != 0:
        return None
    answer: list[tuple[int, int]] = []
    name = value[_OWNER_FIELDS_END:at].decode()
    while at < end:
        answer.append((int(read_i64_be(value, at)), int(read_i64_be(value, at + 8))))
        at += _RANGE_BYTES
    place = place_at(key, 1)
    epoch, request = int(read_i64_be(value, 5)), int(read_i64_be(value, 13))
    return OwnerRecord(place.fragment, place.lane, place.number, name, epoch, request, answer)


def encode_reserved(reserved: ReservedRecord) -> tuple[bytes, bytes]:
    key = reserved_key(reserved.fragment, reserved.lane, reserved.slot, reserved.block)
    out = new_record()
    out.write(reserved.bits)
    return key, sealed(key, out)


def decode_reserved(key: bytes, value: bytes) -> ReservedRecord | None:
    if not is_sound(key, value, _HEAD_BYTES) or len(value) != _HEAD_BYTES + BITS_BYTES:
        return None
    place = place_at(key, 1)
    slot, block = place.number >> BLOCK_BITS, place.number & ((1 << BLOCK_BITS) - 1)
    return ReservedRecord(place.fragment, place.lane, slot, block, value[_HEAD_BYTES:])
