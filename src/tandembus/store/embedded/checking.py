"""Verifies every record of a store, and that the records fit each other.

Single records are judged by the readers that a broker uses (`records.py`, `ledger_records.py`): key, length, checksum.
Between them: what a block says is live has a body, nothing lies behind what was given out, counts are what the bits
say, what is scheduled or expires stands in the due index, what is reserved has an owner. Which fragments there ought to
be, only the catalog knows: that is left to whoever has both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, final

from tandembus.errors import StoreDamaged
from tandembus.message import Message
from tandembus.store.embedded import keys
from tandembus.store.embedded.keys import BODY_TREE, LOG_TREE, META_KEY, PLACE_BYTES, STATE_TREE, place_at
from tandembus.store.embedded.ledger_records import decode_owner, decode_reserved
from tandembus.store.embedded.lmdb_pages import LmdbPages, Records
from tandembus.store.embedded.records import (
    FORMAT_VERSION,
    decode_audit_page,
    decode_block,
    decode_body,
    decode_column,
    decode_head,
    decode_high_water,
    decode_history,
    decode_mark,
    decode_meta,
    decode_overlay,
    decode_session_state,
    due_is_sound,
)
from tandembus.store.embedded.snapshots import Snapshot
from tandembus.store.messaging_store import (
    BITS_BYTES,
    BLOCK_SIZE,
    NEVER,
    SCHEDULED,
    BlockRecord,
    FragmentHead,
)
from tandembus.store.owner_records import ReservedRecord

MAX_FINDINGS: Final = 1_000
"""Kept of one store; the rest is only counted."""

Progress = Callable[[int], None]
"""Told how many bytes were looked at since it was told last."""
_BlockPlace = tuple[int, int, int]
"""Fragment, lane, block."""


@dataclass(slots=True)
class StoreReport:
    """What was looked at, and what is wrong with it."""

    epoch: int = 0
    message_count: int = 0
    """Live ones of all lanes; one that several subscriptions have counts for each."""
    record_count: int = 0
    size_bytes: int = 0
    quarantined_count: int = 0
    """Damaged bodies that were found by a broker, and put aside."""
    damage_count: int = 0
    findings: list[str] = field(default_factory=list)
    heads: dict[int, FragmentHead] = field(default_factory=dict)

    def damaged(self, text: str) -> None:
        self.damage_count += 1
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(text)


def check_store(
    snapshot: Snapshot, shared: Mapping[int, int], progress: Progress, block_size: int = BLOCK_SIZE
) -> StoreReport:
    """`shared`: for the fragments of subscriptions, the topic's fragment that has their bodies."""
    return StoreCheck(shared, progress, block_size).run(snapshot)


def look_at_store(snapshot: Snapshot) -> StoreReport:
    """A short look: whether it can be opened, which fragments it has, and whether anything was put aside."""
    check = StoreCheck({}, _nobody, BLOCK_SIZE)
    try:
        for key, value in snapshot.items(STATE_TREE, [META_KEY, bytes([keys.HEAD]), bytes([keys.QUARANTINE])]):
            check.take_state(key, value)
    except StoreDamaged as error:
        check.report.damaged(str(error))
        return check.report
    if not check.has_meta:
        check.report.damaged("the meta record is missing: the store cannot be opened")
    return check.report


def _nobody(_done: int) -> None:
    return


@final
class StoreCheck:
    def __init__(self, shared: Mapping[int, int], progress: Progress, block_size: int) -> None:
        self.report = StoreReport()
        self._shared = shared
        self._progress = progress
        self._block_size = block_size
        self._bodies: dict[_BlockPlace, bytearray] = {}
        """Which numbers of a block have one."""
        self._blocks: dict[_BlockPlace, BlockRecord] = {}
        self._unreadable_blocks: set[_BlockPlace] = set()
        self._expiries: set[tuple[int, int, int, int]] = set()
        self._schedules: set[_BlockPlace] = set()
        self._scheduled: list[_BlockPlace] = []
        self._owners: set[_BlockPlace] = set()
        self._reserved: list[ReservedRecord] = []
        self._audit_number = 0
        self.has_meta = False

    def run(self, snapshot: Snapshot) -> StoreReport:
        pages = snapshot.pages(self.report.damaged)
        self.report.size_bytes = pages.size_bytes
        trees = pages.named_trees()
        for name, take in ((BODY_TREE, self._take_body), (LOG_TREE, self._take_log), (STATE_TREE, self.take_state)):
            tree = trees.pop(name, None)
            if tree is None:
                self.report.damaged(f"the tree '{name.decode()}' is missing")
                continue
            for records in pages.records(f"tree '{name.decode()}'", tree):
                self._take(records, take)
        for name in trees:
            self.report.damaged(f"there is an unknown tree {name!r}")
        self._compare(pages)
        return self.report

    def _take(self, records: Records, take: Callable[[bytes, bytes], None]) -> None:
        size_bytes = 0
        for key, value in records:
            try:
                take(key, value)
            except (IndexError, ValueError) as error:
                self.report.damaged(f"the record under the key {key.hex()} cannot be read: {error}")
            size_bytes += len(key) + len(value)
        self.report.record_count += len(records)
        self._progress(size_bytes)

    # Record by record.

    def _take_body(self, key: bytes, value: bytes) -> None:
        if len(key) != PLACE_BYTES:
            self.report.damaged(f"a body has the key {key.hex()}, which is none of a message")
            return
        place = place_at(key, 0)
        body = decode_body(key, value)
        if not isinstance(body, Message):
            self.report.damaged(f"body of {_message(place.fragment, place.lane, place.number)}: {body.reason}")
        bits = self._bodies.setdefault(
            (place.fragment, place.lane, place.number // self._block_size), bytearray(BITS_BYTES)
        )
        offset = place.number % self._block_size
        bits[offset >> 3] |= 1 << (offset & 7)

    def _take_log(self, key: bytes, value: bytes) -> None:
        kind = key[0]
        if kind == keys.SESSION_COLUMN:
            self._require(decode_column(key, value), "session column", key)
        elif kind == keys.HISTORY:
            self._require(decode_history(key, value), "record of message ids", key)
        elif kind == keys.AUDIT:
            self._take_audit_page(key, value)
        else:
            self.report.damaged(f"a record of an unknown kind stands in the log under the key {key.hex()}")

    def _take_audit_page(self, key: bytes, value: bytes) -> None:
        page = decode_audit_page(key, value)
        number = int.from_bytes(key[1:], "big")
        self._require(page, "audit page", key)
        if self._audit_number and number != self._audit_number + 1:
            self.report.damaged(f"between the audit pages {self._audit_number} and {number} some are missing")
        self._audit_number = number

    def take_state(self, key: bytes, value: bytes) -> None:
        """A record of the state tree."""
        kind = key[0]
        if key == META_KEY:
            self._take_meta(value)
        elif kind == keys.BLOCK:
            self._take_block(key, value)
        elif kind == keys.OVERLAY:
            self._take_overlay(key, value)
        elif kind in (keys.SCHEDULE, keys.EXPIRY):
            self._take_due(key, value)
        elif kind == keys.HEAD:
            head = decode_head(key, value)
            if self._require(head, "head of a fragment", key) and head is not None:
                self.report.heads[head.fragment] = head
        elif kind == keys.SESSION_STATE:
            self._require(decode_session_state(key, value, False), "state of a session", key)
        elif kind == keys.MARK:
            self._require(decode_mark(key, value), "mark of a channel", key)
        elif kind == keys.HIGH_WATER:
            self._require(decode_high_water(key, value), "high water", key)
        elif kind in (keys.OWNER, keys.RESERVED):
            self._take_ledger(key, value)
        elif kind == keys.QUARANTINE:
            self.report.quarantined_count += 1
        else:
            self.report.damaged(f"a record of an unknown kind stands under the key {key.hex()}")

    def _require(self, record: object | None, name: str, key: bytes) -> bool:
        if record is None:
            self.report.damaged(f"{name} under the key {key.hex()}: the checksum or the length is wrong")
        return record is not None

    def _take_meta(self, value: bytes) -> None:
        meta = decode_meta(META_KEY, value)
        self.has_meta = True
        if meta is None:
            self.report.damaged("the meta record is damaged: the store cannot be opened")
        elif meta[0] > FORMAT_VERSION:
            self.report.damaged(
                f"the store has format {meta[0]}, and this version knows formats up to {FORMAT_VERSION}"
            )
        else:
            self.report.epoch = meta[2]

    def _take_block(self, key: bytes, value: bytes) -> None:
        block = decode_block(key, value)
        place = place_at(key, 1)
        where = (place.fragment, place.lane, place.number)
        if block is None or len(block.settled) != BITS_BYTES or len(block.parked) != BITS_BYTES:
            self._unreadable_blocks.add(where)
            self._require(None, "block", key)
        else:
            self._blocks[where] = block

    def _take_overlay(self, key: bytes, value: bytes) -> None:
        overlay = decode_overlay(key, value)
        if self._require(overlay, "overlay", key) and overlay is not None and overlay.state == SCHEDULED:
            self._scheduled.append((overlay.fragment, overlay.lane, overlay.number))

    def _take_due(self, key: bytes, value: bytes) -> None:
        if not due_is_sound(key, value):
            self._require(None, "due entry", key)
            return
        due = keys.due_of(key)
        if key[0] == keys.SCHEDULE:
            self._schedules.add((due.fragment, due.lane, due.number))
        else:
            self._expiries.add((due.at_ms, due.fragment, due.lane, due.number))

    def _take_ledger(self, key: bytes, value: bytes) -> None:
        if key[0] == keys.OWNER:
            owner = decode_owner(key, value)
            if self._require(owner, "owner of reservations", key) and owner is not None:
                self._owners.add((owner.fragment, owner.lane, owner.slot))
            return
        reserved = decode_reserved(key, value)
        if self._require(reserved, "reservation", key) and reserved is not None:
            self._reserved.append(reserved)

    # One against the other.

    def _compare(self, pages: LmdbPages) -> None:
        if not self.has_meta:
            self.report.damaged("the meta record is missing: the store cannot be opened")
        for place, block in self._blocks.items():
            if self._is_kept(block.fragment):
                self._compare_block(place, block)
        self._compare_bodies()
        for place in self._scheduled:
            if place not in self._schedules and self._is_live(place) and self._is_kept(place[0]):
                self.report.damaged(f"{_message(*place)} is scheduled, and the due index does not name it")
        for reserved in self._reserved:
            self._compare_reserved(reserved)
        lost = pages.lost_pages()
        if lost:
            self.report.damaged(f"{lost} pages of the file are neither in use nor free")

    def _is_kept(self, fragment: int) -> bool:
        """What is being dropped goes piece by piece."""
        head = self.report.heads.get(fragment)
        return head is not None and not head.is_dropping

    def _compare_block(self, place: _BlockPlace, block: BlockRecord) -> None:
        fragment, lane, index = place
        live, parked = _live_bits(block), int.from_bytes(block.parked, "little")
        self.report.message_count += live.bit_count()
        where = f"block {index} of {_lane(fragment, lane)}"
        if block.given > self._block_size or live.bit_count() != block.live_count or parked & ~live:
            self.report.damaged(f"{where}: its counts are not what its bits say")
        elif parked.bit_count() != block.deferred_count + block.scheduled_count:
            self.report.damaged(f"{where}: the counts of deferred and scheduled messages are not what its bits say")
        if block.earliest_expiry != NEVER and (block.earliest_expiry, *place) not in self._expiries:
            self.report.damaged(f"{where}: the due index does not name its earliest expiry")
        source = self._shared.get(fragment, fragment) if lane == 0 else fragment
        there = int.from_bytes(self._bodies.get((source, lane, index), b""), "little")
        first = index * self._block_size
        for offset in _offsets(live & ~there):
            self.report.damaged(f"{_message(fragment, lane, first + offset)} has no body")
        for offset in _offsets(there >> block.given) if source == fragment else ():
            number = first + block.given + offset
            self.report.damaged(f"there is a body of {_message(fragment, lane, number)}, a number not given out yet")

    def _compare_bodies(self) -> None:
        for fragment, lane, index in self._bodies:
            if fragment not in self.report.heads:
                self.report.damaged(
                    f"there are bodies in block {index} of {_lane(fragment, lane)}, which does not exist"
                )
            elif not self._is_kept(fragment) or (fragment, lane, index) in self._unreadable_blocks:
                continue
            elif (fragment, lane, index) not in self._blocks:
                self.report.damaged(f"block {index} of {_lane(fragment, lane)} is missing, and has bodies")

    def _is_live(self, place: _BlockPlace) -> bool:
        fragment, lane, number = place
        block = self._blocks.get((fragment, lane, number // self._block_size))
        return block is not None and _live_bits(block) >> (number % self._block_size) & 1 != 0

    def _compare_reserved(self, reserved: ReservedRecord) -> None:
        place = (reserved.fragment, reserved.lane, reserved.slot)
        where = f"reservation in block {reserved.block} of {_lane(reserved.fragment, reserved.lane)}"
        if place not in self._owners and self._is_kept(reserved.fragment):
            self.report.damaged(f"{where}: its owner is missing")


def _live_bits(block: BlockRecord) -> int:
    """Given out and not settled."""
    return ((1 << block.given) - 1) & ~int.from_bytes(block.settled, "little")


def _offsets(bits: int) -> list[int]:
    return [at for at in range(bits.bit_length()) if bits >> at & 1]


def _lane(fragment: int, lane: int) -> str:
    return f"fragment {fragment}, lane {lane}"


def _message(fragment: int, lane: int, number: int) -> str:
    return f"message {number} of {_lane(fragment, lane)}"
