"""`check`: every kind of damage is found, wherever it is, and what is sound is called sound."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from tandembus.errors import StoreDamaged
from tandembus.store.embedded import EmbeddedSettings, LmdbStore
from tandembus.store.embedded.checking import StoreReport, check_store
from tandembus.store.embedded.keys import (
    BLOCK,
    BODY_TREE,
    EXPIRY,
    HEAD,
    LOG_TREE,
    META_KEY,
    OWNER,
    SCHEDULE,
    STATE_TREE,
    body_key,
    place_key,
)
from tandembus.store.embedded.lmdb_file import DATA_FILE, PAGE, read_meta
from tandembus.store.embedded.lmdb_pages import find_store_damage
from tandembus.store.embedded.records import encode_block
from tandembus.store.embedded.snapshots import Cut
from tandembus.store.messaging_store import (
    BITS_BYTES,
    DEFERRED,
    MAIN,
    MARK_BYTES,
    SCHEDULED,
    AuditPage,
    BlockRecord,
    Due,
    FragmentHead,
    HighWater,
    HistoryRecord,
    Mark,
    Overlay,
    SessionColumn,
    SessionState,
)
from tandembus.store.owner_records import OwnerRecord, ReservedRecord
from tests.contract.samples import FRAGMENT, NOW_MS, sends
from tests.covers import covers
from tests.scale import scaled
from tests.unit.store.embedded.raw import change, flip, harmed_pages, records_of

SETTINGS = EmbeddedSettings(map_bytes=1 << 30, commit_mode="loop")
COUNT = 400
EXPIRES_AT = NOW_MS + 1_000


def report_on(folder: Path) -> StoreReport:
    with Cut([folder], is_still=True) as cut:
        return check_store(cut.snapshots[0], {}, lambda _: None)


def block_of(given: int, parked: int = 0, deferred_count: int = 0, scheduled_count: int = 0) -> BlockRecord:
    bits = parked.to_bytes(BITS_BYTES, "little")
    settled = (1).to_bytes(BITS_BYTES, "little")
    counts = given - 1, deferred_count, scheduled_count
    return BlockRecord(FRAGMENT, MAIN, 0, given, settled, bits, *counts, 0, EXPIRES_AT)


async def filled(folder: Path) -> None:
    """A store with all kinds of records, which fit each other; some bodies are larger than a page."""
    store = LmdbStore.open(folder, SETTINGS)
    changes = sends(range(1, COUNT - 9), size_bytes=700)
    changes.bodies += sends(range(COUNT - 9, COUNT + 1), size_bytes=20_000).bodies
    changes.blocks = [block_of(COUNT + 1, 1 << 5 | 1 << 9, 1, 1)]
    changes.overlays = [
        Overlay(FRAGMENT, MAIN, 5, DEFERRED, 3, b"properties"),
        Overlay(FRAGMENT, MAIN, 9, SCHEDULED, 0, b""),
    ]
    changes.schedules = [Due(NOW_MS, FRAGMENT, MAIN, 9)]
    changes.expiries = [Due(EXPIRES_AT, FRAGMENT, MAIN, 0)]
    changes.heads = [FragmentHead(FRAGMENT, 1, 0, False)]
    changes.session_states = [SessionState(FRAGMENT, "session", b"its state", NOW_MS)]
    changes.columns = [SessionColumn(FRAGMENT, MAIN, 0, bytes(range(200)))]
    changes.marks = [Mark(bytes(16), 9, bytes(MARK_BYTES), NOW_MS)]
    changes.high_waters = [HighWater(FRAGMENT, FRAGMENT + 1, MAIN, 9, NOW_MS)]
    changes.history = [HistoryRecord(FRAGMENT, NOW_MS, 1, bytes(32))]
    changes.owners = [OwnerRecord(FRAGMENT, MAIN, 3, "spark", 1, 1, [(5, 5)])]
    changes.reserved = [ReservedRecord(FRAGMENT, MAIN, 3, 0, (1 << 5).to_bytes(BITS_BYTES, "little"))]
    changes.audit_page = AuditPage(1, 1, NOW_MS, b"page")
    await store.commit(changes)
    for number in (2, 3):
        further = sends([])
        further.audit_page = AuditPage(number, 1, NOW_MS, b"page")
        await store.commit(further)
    await store.close()


@covers("F6")
async def test_a_sound_store_is_called_sound(tmp_path: Path) -> None:
    await filled(tmp_path)
    report = report_on(tmp_path)
    assert report.findings == []
    assert (report.message_count, report.epoch) == (COUNT, 1)
    assert report.record_count == sum(len(records_of(tmp_path, tree)) for tree in (BODY_TREE, STATE_TREE, LOG_TREE))


@covers("F6")
async def test_a_flipped_bit_in_any_record_of_any_kind_is_found(tmp_path: Path) -> None:
    await filled(tmp_path)
    chance = random.Random(4)
    places = [(tree, key) for tree in (STATE_TREE, LOG_TREE) for key in records_of(tmp_path, tree)]
    places += [(BODY_TREE, body_key(FRAGMENT, MAIN, number)) for number in (1, 50, COUNT)]
    for tree, key in places * scaled(2, 50, 500):
        bit = chance.randrange(8 * len(records_of(tmp_path, tree)[key]))
        flip(tmp_path, tree, key, bit)
        assert report_on(tmp_path).damage_count >= 1, (tree, key, bit)
        flip(tmp_path, tree, key, bit)
    assert report_on(tmp_path).findings == []


LANE = f"fragment {FRAGMENT}, lane {MAIN}"
MISSING: list[tuple[bytes, bytes, str]] = [
    (BODY_TREE, body_key(FRAGMENT, MAIN, 8), f"message 8 of {LANE} has no body"),
    (STATE_TREE, place_key(BLOCK, FRAGMENT, MAIN, 0), f"block 0 of {LANE} is missing, and has bodies"),
    (STATE_TREE, META_KEY, "the meta record is missing"),
    (STATE_TREE, place_key(OWNER, FRAGMENT, MAIN, 3), "its owner is missing"),
]


@covers("F6")
@pytest.mark.parametrize(("tree", "key", "text"), MISSING)
async def test_a_record_that_vanished_is_missed(tmp_path: Path, tree: bytes, key: bytes, text: str) -> None:
    await filled(tmp_path)
    change(tmp_path, tree, key, lambda _: None)
    assert text in "\n".join(report_on(tmp_path).findings)


@covers("F6")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SCHEDULE, f"message 9 of {LANE} is scheduled, and the due index does not name it"),
        (EXPIRY, f"block 0 of {LANE}: the due index does not name its earliest expiry"),
        (HEAD, f"there are bodies in block 0 of {LANE}, which does not exist"),
    ],
)
async def test_an_entry_that_vanished_is_missed(tmp_path: Path, kind: int, text: str) -> None:
    await filled(tmp_path)
    (key,) = [key for key in records_of(tmp_path, STATE_TREE) if key[0] == kind]
    change(tmp_path, STATE_TREE, key, lambda _: None)
    assert report_on(tmp_path).findings == [text]


@covers("F6")
@pytest.mark.parametrize(
    ("block", "text"),
    [
        (block_of(COUNT - 3, 1 << 5 | 1 << 9, 1, 1), "a number not given out yet"),
        (block_of(COUNT + 2, 1 << 5 | 1 << 9, 1, 1), f"message {COUNT + 1} of"),
        (block_of(COUNT + 1, 1 << 5 | 1 << 9, 2, 1), "the counts of deferred and scheduled"),
        (block_of(COUNT + 1, 1 << 0, 1, 0), "its counts are not what its bits say"),
    ],
)
async def test_a_block_that_does_not_fit_is_found_though_its_checksum_is_right(
    tmp_path: Path, block: BlockRecord, text: str
) -> None:
    await filled(tmp_path)
    key, value = encode_block(block)
    change(tmp_path, STATE_TREE, key, lambda _: value)
    assert text in "\n".join(report_on(tmp_path).findings)


@covers("F6")
async def test_a_gap_between_audit_pages_is_found(tmp_path: Path) -> None:
    await filled(tmp_path)
    middle = sorted(records_of(tmp_path, LOG_TREE))[1]
    assert middle[:1] == b"a"
    change(tmp_path, LOG_TREE, middle, lambda _: None)
    assert report_on(tmp_path).findings == ["between the audit pages 1 and 3 some are missing"]


# The pages of LMDB itself.


@covers("F6")
async def test_a_store_whose_list_of_free_pages_has_grown_beyond_one_page_is_called_sound(tmp_path: Path) -> None:
    """As after a backup that ran while messages came and went: nothing that was freed meanwhile was used again."""
    await filled(tmp_path)
    (meta,) = [value for key, value in records_of(tmp_path, STATE_TREE).items() if key == META_KEY]
    with lmdb.open(str(tmp_path), map_size=1 << 30, max_dbs=3, sync=False) as environment:
        state = environment.open_db(STATE_TREE)
        with environment.begin():  # holds what is freed from now on
            for _ in range(600):  # beyond 256 and 512, where the lowest byte of a transaction's number begins again
                with environment.begin(write=True, db=state) as txn:
                    txn.put(META_KEY, meta)
    with (tmp_path / DATA_FILE).open("rb") as file:
        assert read_meta(file.fileno(), tmp_path / DATA_FILE).free.depth > 1
    assert report_on(tmp_path).findings == []


def used_bits(page: bytes) -> list[int]:
    """Of a page, the bits that mean something: its head, and the places and the heads of its nodes."""
    _, _, flags, lower, _ = PAGE.unpack_from(page, 0)
    offsets = [int.from_bytes(page[i : i + 2], "little") for i in range(PAGE.size, lower, 2)]
    heads = [byte for offset in offsets for byte in range(offset, offset + 8)]
    first_branch_key = [offsets[0] + 6, offsets[0] + 7] if flags & 1 else []
    head = [*range(8), 10, 12, 13]  # number, kind, end of the places
    meaning = [byte for byte in [*head, *range(PAGE.size, lower), *heads] if byte not in first_branch_key]
    spare = 8 * 10 + 7
    return [bit for byte in meaning for bit in range(8 * byte, 8 * byte + 8) if bit != spare]


@covers("F6")
async def test_a_flipped_bit_in_any_page_of_the_trees_is_found_and_crashes_nothing(tmp_path: Path) -> None:
    await filled(tmp_path)
    path = tmp_path / DATA_FILE
    chance = random.Random(5)
    with path.open("r+b") as file:
        meta = read_meta(file.fileno(), path)
        size = meta.page_bytes
        trees = [
            at for at in range(2, meta.last_page + 1) if is_of_a_tree(os.pread(file.fileno(), size, at * size), at)
        ]
        live = [at for at in trees if found_when(tmp_path, file.fileno(), at * size + 1)]
        assert len(live) > COUNT // 8, "most pages are in use"
        for _ in range(scaled(300, 3_000, 30_000)):
            at = chance.choice(live)
            page = os.pread(file.fileno(), size, at * size)
            bit = chance.choice(used_bits(page))
            byte = at * size + (bit >> 3)
            flip_byte(file.fileno(), byte, 1 << (bit & 7))
            found = report_on(tmp_path).damage_count > 0
            flip_byte(file.fileno(), byte, 1 << (bit & 7))
            assert found, f"page {at}, bit {bit}"
    assert report_on(tmp_path).findings == []


def is_of_a_tree(page: bytes, at: int) -> bool:
    number, _, flags, lower, upper = PAGE.unpack_from(page, 0)
    return number == at and flags in (1, 2) and 16 < lower <= upper <= len(page)


def found_when(folder: Path, descriptor: int, byte: int) -> bool:
    """Whether damage there matters: pages that are free hold what was there before."""
    flip_byte(descriptor, byte, 1)
    found = report_on(folder).damage_count > 0
    flip_byte(descriptor, byte, 1)
    return found


def flip_byte(descriptor: int, at: int, mask: int) -> None:
    (value,) = os.pread(descriptor, 1, at)
    os.pwrite(descriptor, bytes([value ^ mask]), at)


@covers("F6")
async def test_damage_of_any_page_is_found_before_lmdb_opens_the_store_or_does_no_harm(tmp_path: Path) -> None:
    store = LmdbStore.open(tmp_path, SETTINGS)
    for first in (1, 11):
        changes = sends(range(first, first + 10), size_bytes=700)
        changes.bodies += sends([first + 100], size_bytes=20_000).bodies
        await store.commit(changes)
    await store.close()
    trees = (BODY_TREE, STATE_TREE, LOG_TREE)
    before = [list(records_of(tmp_path, tree)) for tree in trees]
    found_count = 0
    for harm in harmed_pages(tmp_path / DATA_FILE):
        try:
            found = find_store_damage(tmp_path / DATA_FILE)
        except StoreDamaged as error:
            found = [str(error)]
        found_count += bool(found)
        if not found and "behind its head" not in harm:
            # What is in the records, also in large values that go on over further pages, their own checksums tell.
            assert [list(records_of(tmp_path, tree)) for tree in trees] == before, harm
    assert found_count > 30


@covers("F6")
async def test_a_page_that_is_in_use_and_listed_as_free_is_found(tmp_path: Path) -> None:
    await filled(tmp_path)
    path = tmp_path / DATA_FILE
    with path.open("r+b") as file:
        meta = read_meta(file.fileno(), path)
        assert meta.free.entries
        page = bytearray(os.pread(file.fileno(), meta.page_bytes, meta.free.root * meta.page_bytes))
        node = int.from_bytes(page[16:18], "little")
        first_free = node + 8 + 8 + 8  # node's head, key, count
        page[first_free : first_free + 8] = meta.named.root.to_bytes(8, "little")
        os.pwrite(file.fileno(), page, meta.free.root * meta.page_bytes)
    findings = report_on(tmp_path).findings
    assert any("free" in finding for finding in findings), findings


@covers("F6")
@pytest.mark.parametrize("cut", [lambda size: size // 2, lambda _: 9_000])
async def test_a_file_that_was_cut_short_is_refused_and_not_mapped(tmp_path: Path, cut: Callable[[int], int]) -> None:
    await filled(tmp_path)
    path = tmp_path / DATA_FILE
    os.truncate(path, cut(path.stat().st_size))
    with pytest.raises(StoreDamaged):
        report_on(tmp_path)
