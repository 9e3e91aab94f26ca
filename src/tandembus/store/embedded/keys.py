"""The key layout of the embedded store.

Keys are big-endian, so that byte order is numeric order: the bodies of a lane lie next to each other and in
sequence, and what is due earliest comes first. `F` is the fragment (32 bits), `L` the lane (8), `S` the low
48 bits of the sequence number.

    body    F L S
    state   'b' F L block   'o' F L S   't' due_ms F L S   'e' due_ms F L block   'f' F   'q' F L S   'm'
            'n' F hash of a SessionId (16 bytes: two sessions must never share a state)
            'c' id of a channel (16 bytes)   'h' F F of the source, L of the source
            'w' F L slot of an owner   'r' F L, slot (10 bits) and block (38 bits)
    log     's' F L block
    log     'd' F at_ms n
            'a' n

No key is ever in random order of arrival: one such key per message costs a page per message in every commit.
"""

from __future__ import annotations

import hashlib
from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from tandembus.store.messaging_store import CHANNEL_BYTES, Due, HighWater, Place

BODY_TREE: Final = b"body"
STATE_TREE: Final = b"state"
LOG_TREE: Final = b"log"

BLOCK: Final = 0x62
OVERLAY: Final = 0x6F
SCHEDULE: Final = 0x74
EXPIRY: Final = 0x65
HEAD: Final = 0x66
QUARANTINE: Final = 0x71
SESSION_STATE: Final = 0x6E
SESSION_COLUMN: Final = 0x73
HISTORY: Final = 0x64
AUDIT: Final = 0x61
MARK: Final = 0x63
HIGH_WATER: Final = 0x68
OWNER: Final = 0x77
RESERVED: Final = 0x72
BLOCK_BITS: Final = 38
"""Of a block's number, below the owner's slot."""
META_KEY: Final = b"m"

MAX_FRAGMENT: Final = 0xFFFFFFFF
MAX_LANE: Final = 0xFF
MAX_NUMBER: Final = 0xFFFFFFFFFFFF
MAX_I64: Final = 0x7FFFFFFFFFFFFFFF
PLACE_BYTES: Final = 11


def write_place(out: BytesWriter, fragment: i64, lane: i64, number: i64) -> None:
    """F L S, the part that all keys of messages and blocks share."""
    if fragment < 0 or fragment > MAX_FRAGMENT or lane < 0 or lane > MAX_LANE or number < 0 or number > MAX_NUMBER:
        raise ValueError(f"fragment {fragment}, lane {lane}, number {number} do not fit a key")
    write_i32_be(out, signed_32(fragment))
    out.append(int(lane))
    write_i16_be(out, signed_16(number >> 32))
    write_i32_be(out, signed_32(number & 0xFFFFFFFF))


def signed_32(value: i64) -> i32:
    """The same 32 bits, as the writers of signed integers take them."""
    return i32(value - 0x100000000) if value > 0x7FFFFFFF else i32(value)


def signed_16(value: i64) -> i16:
    return i16(value - 0x10000) if value > 0x7FFF else i16(value)


def body_key(fragment: i64, lane: i64, number: i64) -> bytes:
    out = BytesWriter()
    write_place(out, fragment, lane, number)
    return out.getvalue()


def body_keys(fragment: int, lane: int, numbers: list[int]) -> list[bytes]:
    return [body_key(fragment, lane, number) for number in numbers]


def place_key(kind: int, fragment: i64, lane: i64, number: i64) -> bytes:
    """A key of the state or log tree: block, overlay, quarantine or session column."""
    out = BytesWriter()
    out.append(kind)
    write_place(out, fragment, lane, number)
    return out.getvalue()


def due_key(kind: int, due: Due) -> bytes:
    if due.at_ms < 0:
        raise ValueError(f"nothing is due at {due.at_ms}")
    out = BytesWriter()
    out.append(kind)
    write_i64_be(out, due.at_ms)
    write_place(out, due.fragment, due.lane, due.number)
    return out.getvalue()


def due_bound(kind: int, at_ms: i64) -> bytes:
    """Before every key of this kind that is due at `at_ms` or later."""
    out = BytesWriter()
    out.append(kind)
    write_i64_be(out, at_ms)
    return out.getvalue()


def head_key(fragment: i64) -> bytes:
    if fragment < 0 or fragment > MAX_FRAGMENT:
        raise ValueError(f"fragment {fragment} does not fit a key")
    out = BytesWriter()
    out.append(HEAD)
    write_i32_be(out, signed_32(fragment))
    return out.getvalue()


def session_state_key(fragment: i64, session_id: str) -> bytes:
    """Ids may be longer than a key can be: their hash stands for them."""
    return session_states_bound(fragment) + hashlib.blake2b(session_id.encode(), digest_size=16).digest()


def session_states_bound(fragment: i64) -> bytes:
    """Before every session state of this fragment."""
    return bytes([SESSION_STATE]) + head_key(fragment)[1:]


def history_key(fragment: i64, at_ms: i64, number: i64) -> bytes:
    """By time within a fragment: what is appended stands at its right, what is trimmed at its left."""
    if fragment < 0 or fragment > MAX_FRAGMENT or at_ms < 0 or number < 0:
        raise ValueError(f"fragment {fragment}, time {at_ms}, number {number} do not fit a key")
    out = BytesWriter()
    out.append(HISTORY)
    write_i32_be(out, signed_32(fragment))
    write_i64_be(out, at_ms)
    write_i64_be(out, number)
    return out.getvalue()


def audit_key(number: i64) -> bytes:
    if number < 0:
        raise ValueError(f"number {number} does not fit a key")
    out = BytesWriter()
    out.append(AUDIT)
    write_i64_be(out, number)
    return out.getvalue()


def mark_key(channel: bytes) -> bytes:
    if len(channel) != CHANNEL_BYTES:
        raise ValueError(f"a channel's id has {CHANNEL_BYTES} bytes, not {len(channel)}")
    return bytes([MARK]) + channel


def high_water_key(high_water: HighWater) -> bytes:
    if high_water.lane < 0 or high_water.lane > MAX_LANE:
        raise ValueError(f"lane {high_water.lane} does not fit a key")
    return high_waters_bound(high_water.fragment) + head_key(high_water.source)[1:] + bytes([high_water.lane])


def high_waters_bound(fragment: i64) -> bytes:
    """Before every high water of this fragment."""
    return bytes([HIGH_WATER]) + head_key(fragment)[1:]


def place_at(key: bytes, at: i64) -> Place:
    """The F L S that stands in a key from `at` on."""
    high: i64 = i64(key[at + 5]) << 8 | i64(key[at + 6])
    low: i64 = i64(read_i32_be(key, at + 7)) & 0xFFFFFFFF
    return Place(fragment_at(key, at), int(key[at + 4]), int(high << 32 | low))


def number_at(key: bytes, at: i64) -> int:
    """Only the S of the F L S from `at` on."""
    high: i64 = i64(key[at + 5]) << 8 | i64(key[at + 6])
    low: i64 = i64(read_i32_be(key, at + 7)) & 0xFFFFFFFF
    return int(high << 32 | low)


def fragment_at(key: bytes, at: i64) -> int:
    return int(i64(read_i32_be(key, at)) & 0xFFFFFFFF)


def due_of(key: bytes) -> Due:
    place = place_at(key, 9)
    return Due(int(read_i64_be(key, 1)), place.fragment, place.lane, place.number)
