"""A block: the state of consecutive sequence numbers of a lane, in memory, ready to be written as one record.

Settling a message sets a bit here. The bodies of a block go together, in key order, once all of it is settled; that is
what keeps settling cheap when receivers settle in any order they like.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from tandembus.store.messaging_store import BITS_BYTES, NEVER, BlockRecord

_EMPTY_BITS: Final = bytes(BITS_BYTES)


def _bits(start: bytes) -> BytesWriter:
    """A byte array whose elements compiled code reads and writes without boxing."""
    bits = BytesWriter()
    bits.write(start)
    return bits


@final
class Block:
    __slots__ = (
        "deferred_count",
        "earliest_expiry",
        "given",
        "index",
        "indexed_expiry",
        "is_touched",
        "live_bytes",
        "live_count",
        "newer_expiry",
        "parked",
        "scheduled_count",
        "settled",
        "thin_debt",
    )

    def __init__(self, index: i64) -> None:
        self.index: i64 = index
        self.given: i64 = 0
        self.live_count: i64 = 0
        self.deferred_count: i64 = 0
        self.scheduled_count: i64 = 0
        self.live_bytes: i64 = 0
        self.earliest_expiry: i64 = NEVER
        self.indexed_expiry: i64 = NEVER
        """What the store's due index says; differs from earliest_expiry until the next commit."""
        self.newer_expiry: i64 = NEVER
        """The earliest of what was added since a sweep of this block began, which the sweep has not seen."""
        self.is_touched: bool = False
        self.thin_debt: i64 = 0
        """Settled numbers whose bodies may still be stored."""
        self.settled: BytesWriter = _bits(_EMPTY_BITS)
        self.parked: BytesWriter = _bits(_EMPTY_BITS)

    def is_settled(self, offset: i64) -> bool:
        return (i64(self.settled[offset >> 3]) >> (offset & 7)) & 1 != 0

    def settle(self, offset: i64) -> None:
        at = offset >> 3
        self.settled[at] = u8((i64(self.settled[at]) | (i64(1) << (offset & 7))) & 255)

    def unsettle(self, offset: i64) -> None:
        at = offset >> 3
        self.settled[at] = u8(i64(self.settled[at]) & (255 - (i64(1) << (offset & 7))))

    def is_parked(self, offset: i64) -> bool:
        return (i64(self.parked[offset >> 3]) >> (offset & 7)) & 1 != 0

    def park(self, offset: i64) -> None:
        at = offset >> 3
        self.parked[at] = u8((i64(self.parked[at]) | (i64(1) << (offset & 7))) & 255)

    def unpark(self, offset: i64) -> None:
        at = offset >> 3
        self.parked[at] = u8(i64(self.parked[at]) & (255 - (i64(1) << (offset & 7))))

    def is_later(self, expires_at: i64) -> bool:
        """Whether the block's earliest expiry lies behind this one."""
        return expires_at != NEVER and (self.earliest_expiry == NEVER or expires_at < self.earliest_expiry)

    def expire_from(self, expires_at: i64) -> None:
        if self.is_later(expires_at):
            self.earliest_expiry = expires_at
        if expires_at != NEVER and (self.newer_expiry == NEVER or expires_at < self.newer_expiry):
            self.newer_expiry = expires_at

    def record(self, fragment: i64, lane: i64) -> BlockRecord:
        return BlockRecord(
            int(fragment),
            int(lane),
            int(self.index),
            int(self.given),
            self.settled.getvalue(),
            self.parked.getvalue(),
            int(self.live_count),
            int(self.deferred_count),
            int(self.scheduled_count),
            int(self.live_bytes),
            int(self.earliest_expiry),
        )


def block_of(record: BlockRecord) -> Block:
    block = Block(record.block)
    block.given = record.given
    block.live_count = record.live_count
    block.deferred_count = record.deferred_count
    block.scheduled_count = record.scheduled_count
    block.live_bytes = record.live_bytes
    block.earliest_expiry = record.earliest_expiry
    block.indexed_expiry = record.earliest_expiry
    block.settled = _bits(record.settled)
    block.parked = _bits(record.parked)
    block.thin_debt = record.given - record.live_count
    return block
