"""A store that was put back gives out nothing a second time, and keeps what it has."""

from __future__ import annotations

from pathlib import Path

from tandembus.clock import ManualClock
from tandembus.message import Message
from tandembus.store.embedded import EmbeddedSettings, LmdbStore
from tandembus.store.embedded.checking import check_store
from tandembus.store.embedded.renewal import (
    CLOCKS_DIFFER_S,
    NUMBERS_PER_SECOND,
    OPENINGS_AHEAD,
    blocks_ahead,
    renew_store,
)
from tandembus.store.embedded.snapshots import Cut
from tandembus.store.messaging_store import BITS_BYTES, BLOCK_SIZE, LANES, MAIN, NEVER, BlockRecord, FragmentHead
from tests.contract.samples import FRAGMENT, body_content, message, sends
from tests.covers import covers

SETTINGS = EmbeddedSettings(map_bytes=1 << 30, commit_mode="loop")
PLENTY = 1 << 30


async def filled(folder: Path) -> bytes:
    """Numbers 1 to 10, of which 3 is settled; returns the store's id."""
    store = LmdbStore.open(folder, SETTINGS)
    changes = sends([1, 2, *range(4, 11)])
    settled = (1 | 1 << 3).to_bytes(BITS_BYTES, "little")
    changes.blocks = [BlockRecord(FRAGMENT, MAIN, 0, 11, settled, bytes(BITS_BYTES), 9, 0, 0, 900, NEVER)]
    changes.heads = [FragmentHead(FRAGMENT, 1, 0, False)]
    await store.commit(changes)
    await store.close()
    return store.store_id


@covers("F6")
async def test_every_lane_goes_on_behind_all_numbers_that_may_have_been_given_out(tmp_path: Path) -> None:
    await filled(tmp_path)
    ahead = blocks_ahead(3_600.0)
    renew_store(tmp_path, ManualClock(), ahead)
    store = LmdbStore.open(tmp_path, SETTINGS)
    for lane in LANES:
        newest = (await store.blocks(FRAGMENT, lane))[-1]
        next_number = newest.block * BLOCK_SIZE + newest.given
        assert next_number >= 3_600 * NUMBERS_PER_SECOND
    await store.close()


@covers("F6")
async def test_what_is_stored_stays_and_numbers_that_were_skipped_count_as_settled(tmp_path: Path) -> None:
    await filled(tmp_path)
    renew_store(tmp_path, ManualClock(), 1_000)
    store = LmdbStore.open(tmp_path, SETTINGS)
    first, newest = await store.blocks(FRAGMENT, MAIN)
    assert (first.given, first.live_count, newest.block, newest.given) == (BLOCK_SIZE, 9, 1_000, 0)
    live = [n for n in range(BLOCK_SIZE) if not first.settled[n >> 3] >> (n & 7) & 1]
    assert live == [1, 2, *range(4, 11)]
    bodies = await store.bodies(FRAGMENT, MAIN, live, PLENTY)
    assert [body_content(one) for one in bodies if isinstance(one, Message)] == [body_content(message(n)) for n in live]
    await store.close()
    with Cut([tmp_path], is_still=True) as cut:
        assert check_store(cut.snapshots[0], {}, lambda _: None).findings == []


@covers("F6")
async def test_the_epoch_goes_on_where_no_earlier_life_can_have_been(tmp_path: Path) -> None:
    store_id = await filled(tmp_path)
    clock = ManualClock()
    first = renew_store(tmp_path, clock, 1)
    assert first == int(clock.now())
    clock.advance(86_400.0)
    assert renew_store(tmp_path, clock, 1) == first + 86_400
    store = LmdbStore.open(tmp_path, SETTINGS)
    assert (store.epoch, store.store_id) == (first + 86_401, store_id)
    await store.close()


@covers("F6")
async def test_where_the_clock_is_behind_an_epoch_is_still_none_that_the_old_life_can_have_had(tmp_path: Path) -> None:
    """The backup shows the old life at one epoch; it may have been opened again and again since."""
    await filled(tmp_path)
    clock = ManualClock()
    backed_up = renew_store(tmp_path, clock, 1)
    clock.shift_wall(-3_600.0)
    assert renew_store(tmp_path, clock, 1) > backed_up + OPENINGS_AHEAD


@covers("F6")
def test_numbers_go_on_behind_those_of_a_life_whose_clock_was_ahead() -> None:
    for age_s in (-10.0, 0.0, 60.0):
        least = int((max(age_s, 0.0) + CLOCKS_DIFFER_S) * NUMBERS_PER_SECOND)
        assert blocks_ahead(age_s) * BLOCK_SIZE >= least


@covers("F6")
async def test_lanes_never_run_out_of_numbers_by_it(tmp_path: Path) -> None:
    await filled(tmp_path)
    for _ in range(5):
        renew_store(tmp_path, ManualClock(), 1 << 60)
    store = LmdbStore.open(tmp_path, SETTINGS)
    newest = (await store.blocks(FRAGMENT, MAIN))[-1]
    assert newest.block < (1 << 48) // BLOCK_SIZE
    await store.close()
