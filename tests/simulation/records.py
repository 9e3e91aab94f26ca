"""Whether a queue's counts and the records of its store say the same as its messages, and nothing is left over."""

from __future__ import annotations

from collections.abc import Mapping

from tandembus.broker.fragment import Fragment
from tandembus.message import Message
from tandembus.store.messaging_store import ACTIVE, DEAD_LETTER, DEFERRED, MAIN, SCHEDULED, BlockRecord, MessagingStore
from tests.simulation.expectations import Fate
from tests.simulation.messages import key_of

Found = Mapping[bytes, tuple[Fate, Message]]
"""Everything that a look at the queue has shown, by key."""
EVER_MS = 1 << 50
ALL = 1 << 20
LAST_NUMBER = (1 << 48) - 1


def check_counts(fragment: Fragment, found: Found) -> None:
    for lane in (fragment.main, fragment.dead_letter):
        here = [(fate, message) for fate, message in found.values() if fate.lane == lane.code]
        assert lane.live_count == len(here)
        assert lane.deferred_count == len([1 for fate, _ in here if fate.state == DEFERRED])
        assert lane.scheduled_count == len([1 for fate, _ in here if fate.state == SCHEDULED])
        assert lane.live_bytes == sum(len(message.sections) for _, message in here)


async def check_records(
    store: MessagingStore, fragment: int, block_size: int, found: Found, held: set[bytes], latest_ms: int
) -> None:
    """`held`: keys that are locked. `latest_ms`: when everything that has expired must be looked at."""
    for lane in (MAIN, DEAD_LETTER):
        here = {int(message.number): (fate, message) for fate, message in found.values() if fate.lane == lane}
        blocks = await store.blocks(fragment, lane)
        live: set[int] = set()
        parked: set[int] = set()
        for block in blocks:
            live |= _numbers(block, block_size, block.settled, False)
            parked |= _numbers(block, block_size, block.parked, True)
        assert live == set(here)
        assert parked == {number for number, (fate, _) in here.items() if fate.state != ACTIVE}
        overlays = {overlay.number for overlay in await store.overlays(fragment, lane, 0, LAST_NUMBER)}
        assert overlays <= live, "an overlay outlived its message"
        bodies = await store.bodies_left(fragment, lane, ALL)
        blocks_of_bodies = {number // block_size for number in bodies}
        assert blocks_of_bodies <= {block.block for block in blocks}, "a body outlived its block"
        if lane == MAIN:
            await _check_due_index(store, block_size, here, held, latest_ms)


def _numbers(block: BlockRecord, block_size: int, bits: bytes, are_set: bool) -> set[int]:
    """The numbers given out of a block whose bits are set, or are not."""
    found: set[int] = set()
    for offset in range(block.given):
        if bool(bits[offset >> 3] >> (offset & 7) & 1) == are_set:
            found.add(block.block * block_size + offset)
    return found


async def _check_due_index(
    store: MessagingStore,
    block_size: int,
    here: Mapping[int, tuple[Fate, Message]],
    held: set[bytes],
    latest_ms: int,
) -> None:
    schedules = {due.number for due in await store.schedules_before(EVER_MS, ALL)}
    entries = await store.expiries_before(EVER_MS, ALL)
    expiries = {due.number: due.at_ms for due in entries}
    assert len(expiries) == len(entries), "a block has two entries in the due index"
    for number, (fate, message) in here.items():
        if fate.state == SCHEDULED:
            assert number in schedules, f"number {number} would never be activated"
        elif fate.state == ACTIVE and message.expires_at and key_of(message) not in held:
            indexed = expiries.get(number // block_size)
            assert indexed is not None, f"number {number} would never expire"
            # A crash ends locks unseen: what had expired under one is looked at when it would have lapsed.
            assert indexed <= max(message.expires_at, latest_ms), f"number {number} would expire late"
