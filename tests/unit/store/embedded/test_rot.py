"""Damage inside a store: noticed, never served, and the rest goes on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tandembus.errors import StoreDamaged, StoreUnavailable
from tandembus.message import Message
from tandembus.store.embedded import DamagedRecord, EmbeddedSettings, LmdbStore
from tandembus.store.embedded.keys import (
    BLOCK,
    BODY_TREE,
    EXPIRY,
    HEAD,
    HIGH_WATER,
    LOG_TREE,
    MARK,
    META_KEY,
    OVERLAY,
    SCHEDULE,
    SESSION_COLUMN,
    SESSION_STATE,
    STATE_TREE,
    body_key,
    history_key,
    place_key,
    session_state_key,
)
from tandembus.store.embedded.records import BODY_HEAD_BYTES, FORMAT_VERSION, encode_meta
from tandembus.store.messaging_store import (
    BLOCK_SIZE,
    DEFERRED,
    MAIN,
    MARK_BYTES,
    NEVER,
    SCHEDULED,
    Changes,
    Damage,
    Due,
    FragmentHead,
    HighWater,
    HistoryRecord,
    Mark,
    Overlay,
    Place,
    SessionColumn,
    SessionState,
)
from tests.contract.samples import FRAGMENT, NOW_MS, block, block_content, body_content, message, sends
from tests.covers import covers
from tests.scale import scaled
from tests.unit.store.embedded.raw import change, flip, records_of

PLENTY = 1 << 30
SETTINGS = EmbeddedSettings(map_bytes=1 << 30, commit_mode="loop")


async def filled(folder: Path) -> None:
    """A store with some of every kind of record."""
    store = LmdbStore.open(folder, SETTINGS)
    changes = sends(range(1, 41))
    changes.blocks = [block(0), block(1)]
    changes.overlays = [Overlay(FRAGMENT, MAIN, 5, DEFERRED, 3, b"properties")]
    changes.schedules = [Due(NOW_MS, FRAGMENT, MAIN, 9)]
    changes.expiries = [Due(NOW_MS, FRAGMENT, MAIN, 0)]
    changes.heads = [FragmentHead(FRAGMENT, 1, 0, False)]
    changes.session_states = [SessionState(FRAGMENT, "session", b"its state", NOW_MS)]
    changes.columns = [SessionColumn(FRAGMENT, MAIN, 0, bytes(range(200)))]
    changes.marks = [Mark(bytes(16), 9, bytes(MARK_BYTES), NOW_MS)]
    changes.high_waters = [HighWater(FRAGMENT, FRAGMENT + 1, MAIN, 9, NOW_MS)]
    await store.commit(changes)
    await store.close()


@covers("F6")
async def test_a_flipped_bit_in_a_body_costs_that_message_and_no_other(tmp_path: Path) -> None:
    await filled(tmp_path)
    chance = random.Random(1)
    for _ in range(scaled(50, 1_000, 10_000)):
        number = chance.randint(1, 40)
        key = body_key(FRAGMENT, MAIN, number)
        bit = chance.randrange(8 * (BODY_HEAD_BYTES + 100))
        flip(tmp_path, BODY_TREE, key, bit)
        store = LmdbStore.open(tmp_path, SETTINGS)
        bodies = await store.bodies(FRAGMENT, MAIN, range(1, 41), PLENTY)
        await store.close()
        assert [int(body.number) for body in bodies if isinstance(body, Damage)] == [number]
        sound = [body for body in bodies if isinstance(body, Message)]
        assert list(map(body_content, sound)) == [body_content(message(n)) for n in range(1, 41) if n != number]
        flip(tmp_path, BODY_TREE, key, bit)


@covers("F6")
async def test_a_flipped_bit_in_any_record_of_state_is_reported(tmp_path: Path) -> None:
    await filled(tmp_path)
    chance = random.Random(2)
    keys = [key for key in records_of(tmp_path, STATE_TREE) if key != META_KEY]
    names = {
        BLOCK: "block",
        OVERLAY: "overlay",
        SCHEDULE: "schedule",
        EXPIRY: "expiry",
        HEAD: "head",
        SESSION_STATE: "session state",
        MARK: "mark",
        HIGH_WATER: "high water",
    }
    assert {key[0] for key in keys} == set(names)
    for key in keys * scaled(5, 100, 1_000):
        bit = chance.randrange(8 * len(records_of(tmp_path, STATE_TREE)[key]))
        flip(tmp_path, STATE_TREE, key, bit)
        reported = await read_everything(tmp_path)
        assert [damage.kind for damage in reported] == [names[key[0]]]
        flip(tmp_path, STATE_TREE, key, bit)
    assert await read_everything(tmp_path) == []


async def read_everything(folder: Path) -> list[DamagedRecord]:
    reported: list[DamagedRecord] = []
    store = LmdbStore.open(folder, SETTINGS, report_damage=reported.append)
    await store.heads()
    await store.blocks(FRAGMENT, MAIN)
    await store.overlays(FRAGMENT, MAIN, 0, 1000)
    assert len(await store.schedules_before(NOW_MS + 1, 10)) == 1, "even a damaged entry says where to look"
    assert len(await store.expiries_before(NOW_MS + 1, 10)) == 1
    await store.session_state(FRAGMENT, "session")
    await store.columns(FRAGMENT, MAIN, [0])
    await store.marks()
    await store.high_waters(FRAGMENT)
    await store.close()
    return reported


@covers("F6", "M7")
async def test_a_damaged_session_column_is_reported_and_not_served(tmp_path: Path) -> None:
    await filled(tmp_path)
    chance = random.Random(3)
    key = place_key(SESSION_COLUMN, FRAGMENT, MAIN, 0)
    for _ in range(scaled(20, 200, 2_000)):
        bit = chance.randrange(8 * len(records_of(tmp_path, LOG_TREE)[key]))
        flip(tmp_path, LOG_TREE, key, bit)
        assert [str(damage) for damage in await read_everything(tmp_path)] == [
            f"damaged session column record (fragment {FRAGMENT}, lane 0, number 0): its bodies are asked instead"
        ]
        store = LmdbStore.open(tmp_path, SETTINGS, report_damage=lambda _: None)
        assert await store.columns(FRAGMENT, MAIN, [0, 1]) == [None, None]
        await store.close()
        flip(tmp_path, LOG_TREE, key, bit)
    assert await read_everything(tmp_path) == []


@covers("F6", "M7")
async def test_a_damaged_session_state_counts_as_never_set(tmp_path: Path) -> None:
    await filled(tmp_path)
    flip(tmp_path, STATE_TREE, session_state_key(FRAGMENT, "session"), 70)
    store = LmdbStore.open(tmp_path, SETTINGS, report_damage=lambda _: None)
    assert await store.session_state(FRAGMENT, "session") is None
    assert await store.session_states(FRAGMENT, None, 10) == []
    await store.close()


@covers("F6", "M8")
async def test_damaged_ids_are_reported_and_the_others_still_known(tmp_path: Path) -> None:
    store = LmdbStore.open(tmp_path, SETTINGS)
    for at_ms in (1, 2, 3):
        changes = Changes()
        changes.history = [HistoryRecord(FRAGMENT, at_ms, 1, bytes([at_ms]) * 32)]
        await store.commit(changes)
    await store.close()
    chance = random.Random(3)
    for _ in range(scaled(20, 200, 2_000)):
        bit = chance.randrange(8 * 37)
        flip(tmp_path, LOG_TREE, history_key(FRAGMENT, 2, 1), bit)
        reported: list[DamagedRecord] = []
        store = LmdbStore.open(tmp_path, SETTINGS, report_damage=reported.append)
        records = await store.history(FRAGMENT, 0, 0, PLENTY)
        await store.close()
        assert [(record.at_ms, record.hashes) for record in records] == [(1, b"\1" * 32), (3, b"\3" * 32)]
        assert [(damage.kind, damage.fragment) for damage in reported] == [("history", FRAGMENT)]
        flip(tmp_path, LOG_TREE, history_key(FRAGMENT, 2, 1), bit)


@covers("F6")
async def test_a_damaged_block_is_rebuilt_from_its_bodies(tmp_path: Path) -> None:
    store = LmdbStore.open(tmp_path, SETTINGS)
    changes = sends([1, 2, 3, 7], size_bytes=100)
    changes.bodies += sends([5], size_bytes=50, expires_at=NOW_MS + 9).bodies
    changes.bodies += sends([6], size_bytes=50, expires_at=NOW_MS + 8).bodies
    changes.blocks = [block(0), block(1)]
    changes.overlays = [
        Overlay(FRAGMENT, MAIN, 2, DEFERRED, 1, b""),
        Overlay(FRAGMENT, MAIN, 3, SCHEDULED, 0, b""),
        Overlay(FRAGMENT, MAIN, 4, DEFERRED, 1, b""),
    ]
    await store.commit(changes)
    await store.close()
    flip(tmp_path, STATE_TREE, place_key(BLOCK, FRAGMENT, MAIN, 0), 100)

    reported: list[DamagedRecord] = []
    store = LmdbStore.open(tmp_path, SETTINGS, report_damage=reported.append)
    rebuilt, untouched = await store.blocks(FRAGMENT, MAIN)
    await store.close()
    assert [(damage.kind, damage.number) for damage in reported] == [("block", 0)]
    assert "rebuilt" in str(reported[0])
    assert block_content(untouched) == block_content(block(1))
    assert rebuilt.given == BLOCK_SIZE, "no number can be given twice"
    unsettled = [n for n in range(BLOCK_SIZE) if not rebuilt.settled[n >> 3] >> (n & 7) & 1]
    assert unsettled == [1, 2, 3, 5, 6, 7]
    parked = [n for n in range(BLOCK_SIZE) if rebuilt.parked[n >> 3] >> (n & 7) & 1]
    assert parked == [2, 3], "number 4 has no body, so it is settled"
    assert (rebuilt.live_count, rebuilt.deferred_count, rebuilt.scheduled_count) == (6, 1, 1)
    assert (rebuilt.live_bytes, rebuilt.earliest_expiry) == (500, NOW_MS + 8)


@covers("F6")
async def test_a_block_record_that_vanished_is_noticed_by_its_bodies(tmp_path: Path) -> None:
    store = LmdbStore.open(tmp_path, SETTINGS)
    changes = sends(range(1, 5 * BLOCK_SIZE, 100))
    changes.blocks = [block(number) for number in range(5)]
    await store.commit(changes)
    await store.close()
    for number in (1, 4):
        change(tmp_path, STATE_TREE, place_key(BLOCK, FRAGMENT, MAIN, number), lambda _: None)

    reported: list[DamagedRecord] = []
    store = LmdbStore.open(tmp_path, SETTINGS, report_damage=reported.append)
    blocks = await store.blocks(FRAGMENT, MAIN)
    await store.close()
    assert [record.block for record in blocks] == [0, 1, 2, 3, 4]
    assert [damage.number for damage in reported] == [1, 4]
    assert blocks[1].live_count == len([n for n in range(1, 5 * BLOCK_SIZE, 100) if n // BLOCK_SIZE == 1])
    assert blocks[1].earliest_expiry == NEVER


@covers("F6")
async def test_a_damaged_body_is_put_aside_with_its_raw_bytes(tmp_path: Path) -> None:
    await filled(tmp_path)
    key = body_key(FRAGMENT, MAIN, 3)
    flip(tmp_path, BODY_TREE, key, 777)
    raw = records_of(tmp_path, BODY_TREE)[key]
    store = LmdbStore.open(tmp_path, SETTINGS)
    changes = Changes()
    changes.quarantined = [Place(FRAGMENT, MAIN, 3)]
    await store.commit(changes)
    ((place, aside),) = await store.quarantined(10)
    assert (place.fragment, place.lane, place.number) == (FRAGMENT, MAIN, 3)
    assert aside == raw
    assert 3 not in await store.bodies_left(FRAGMENT, MAIN, 100)
    await store.close()


@covers("F6")
async def test_a_damaged_overlay_or_head_is_passed_over(tmp_path: Path) -> None:
    await filled(tmp_path)
    for key in records_of(tmp_path, STATE_TREE):
        if key[0] in (OVERLAY, HEAD):
            flip(tmp_path, STATE_TREE, key, 60)
    store = LmdbStore.open(tmp_path, SETTINGS, report_damage=lambda _: None)
    assert await store.overlays(FRAGMENT, MAIN, 0, 1000) == []
    assert await store.heads() == []
    await store.close()


@covers("F6")
async def test_a_store_whose_meta_record_is_damaged_or_missing_is_refused(tmp_path: Path) -> None:
    await filled(tmp_path)
    flip(tmp_path, STATE_TREE, META_KEY, 99)
    with pytest.raises(StoreDamaged, match="meta record"):
        LmdbStore.open(tmp_path, SETTINGS)
    change(tmp_path, STATE_TREE, META_KEY, lambda _: None)
    with pytest.raises(StoreDamaged, match="meta record"):
        LmdbStore.open(tmp_path, SETTINGS)


@covers("F19")
async def test_a_store_of_a_newer_format_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    await filled(tmp_path)
    newer = encode_meta(META_KEY, FORMAT_VERSION + 1, bytes(16), 5)
    change(tmp_path, STATE_TREE, META_KEY, lambda _: newer)
    with pytest.raises(StoreUnavailable, match=f"format {FORMAT_VERSION + 1}.*newer version"):
        LmdbStore.open(tmp_path, SETTINGS)
    assert records_of(tmp_path, STATE_TREE)[META_KEY] == newer
