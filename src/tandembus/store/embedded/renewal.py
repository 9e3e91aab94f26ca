"""A store that was put back to an earlier state begins a life that cannot be mistaken for the one it goes back behind.

After the moment of the backup the old life went on: it gave out sequence numbers and lock tokens, and some of those who
got them are still there. So the epoch, which stands in every lock token, goes on at a number that no earlier life can
have had, and every lane goes on behind all numbers that it may have given out. What is stored stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import lmdb

from tandembus.clock import Clock
from tandembus.store.embedded.environment import EmbeddedSettings, OpenedStore, open_environment
from tandembus.store.embedded.keys import BLOCK, MAX_NUMBER, META_KEY, PLACE_BYTES, place_at
from tandembus.store.embedded.lane_reader import items, read_heads
from tandembus.store.embedded.lmdb_store import log_damage
from tandembus.store.embedded.records import FORMAT_VERSION, decode_block, encode_block, encode_meta
from tandembus.store.messaging_store import BITS_BYTES, BLOCK_SIZE, LANES, NEVER, BlockRecord

NUMBERS_PER_SECOND: Final = 100_000
"""More than one fragment can give out."""
CLOCKS_DIFFER_S: Final = 3_600.0
"""By so much the clock may be behind that of the machine where the backup was made, or of the one that went on."""
OPENINGS_AHEAD: Final = 1 << 16
"""Lives that may have begun since the backup, where the clock does not tell them apart."""
_LAST_BLOCK: Final = MAX_NUMBER // BLOCK_SIZE


def blocks_ahead(seconds: float) -> int:
    """That no lane can have used up in this time, by whatever clock."""
    return int((max(seconds, 0.0) + CLOCKS_DIFFER_S) * NUMBERS_PER_SECOND) // BLOCK_SIZE + 1


def renew_store(folder: Path, clock: Clock, ahead: int) -> int:
    """Every lane skips `ahead` blocks; returns the epoch of the life that begins. One transaction: all of it or none.
    Raises StoreUnavailable or StoreDamaged."""
    opened = open_environment(folder, EmbeddedSettings(commit_mode="loop"), clock)
    try:
        # Openings are far rarer than one in a second, so the time is ahead of every epoch there has been; unless it was
        # set by a clock that was ahead, in a restore before.
        epoch = max(opened.epoch + OPENINGS_AHEAD, int(clock.now()))
        with opened.environment.begin(write=True) as txn:
            txn.put(META_KEY, encode_meta(META_KEY, FORMAT_VERSION, opened.store_id, epoch), db=opened.state)
            for record in list(_moved_on(txn, opened, ahead)):
                key, value = encode_block(record)
                txn.put(key, value, db=opened.state)
        return epoch
    finally:
        opened.environment.close()
        opened.lock.release()


def _moved_on(txn: lmdb.Transaction[bytes], opened: OpenedStore, ahead: int) -> Iterator[BlockRecord]:
    """The newest block of each lane is used up, and an empty one far behind it carries the next number. All lanes go on
    by the same count: a subscription's numbers are its topic's, and must not get ahead of them."""
    newest = _newest_blocks(txn, opened)
    for head in read_heads(txn, opened, log_damage):
        for lane in LANES:
            number, block = newest.get((head.fragment, lane), (0, None))
            if block is not None:
                yield _used_up(block)
            following = min(number + ahead, (number + _LAST_BLOCK) // 2 + 1)
            yield BlockRecord(
                head.fragment, lane, following, 0, bytes(BITS_BYTES), bytes(BITS_BYTES), 0, 0, 0, 0, NEVER
            )


def _newest_blocks(
    txn: lmdb.Transaction[bytes], opened: OpenedStore
) -> dict[tuple[int, int], tuple[int, BlockRecord | None]]:
    """By fragment and lane. One that is damaged is left as it is: it counts as used up when it is rebuilt."""
    newest: dict[tuple[int, int], tuple[int, BlockRecord | None]] = {}
    for key, value in items(txn, opened.state, bytes([BLOCK]), bytes([BLOCK]) + b"\xff" * PLACE_BYTES):
        place = place_at(key, 1)
        newest[place.fragment, place.lane] = place.number, decode_block(key, value)
    return newest


def _used_up(block: BlockRecord) -> BlockRecord:
    """Numbers that were not given out yet will never be."""
    settled = int.from_bytes(block.settled, "little") | (1 << BLOCK_SIZE) - (1 << block.given)
    return BlockRecord(
        block.fragment,
        block.lane,
        block.block,
        BLOCK_SIZE,
        settled.to_bytes(BITS_BYTES, "little"),
        block.parked,
        block.live_count,
        block.deferred_count,
        block.scheduled_count,
        block.live_bytes,
        block.earliest_expiry,
    )
