"""The reservation ledger of a lane: which owner has reserved which messages, under which epoch.

A reserved message is parked, as a deferred one is; here is whose it is. Bits, in blocks as everything of a lane: a
hundred thousand reserved messages are a hundred small records, and a commit writes those that changed.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from tandembus.errors import InvalidArgument, QuotaExceeded, StaleEpoch
from tandembus.store.messaging_store import (
    BITS_BYTES,
    Changes,
    Place,
)
from tandembus.store.owner_records import OWNER_SLOTS, OwnerRecord, ReservedRecord

NO_REQUEST: Final = -1
LOST_NAME: Final = "$lost-"
"""Begins the name of an owner whose own record is damaged: what it has reserved can still be released."""
_EMPTY_BITS: Final = bytes(BITS_BYTES)


@final
class Owner:
    __slots__ = (
        "answer",
        "bits",
        "counts",
        "epoch",
        "is_changed",
        "is_open",
        "message_count",
        "name",
        "request",
        "slot",
        "touched",
    )

    def __init__(self, name: str, slot: i64, epoch: i64) -> None:
        self.name: Final = name
        self.slot: i64 = slot
        self.epoch: i64 = epoch
        self.request: i64 = NO_REQUEST
        """The last one under this epoch; asked again it gets `answer`."""
        self.answer: list[tuple[int, int]] = []
        self.is_open: bool = False
        """The call that has begun `answer` may still add to it. Whoever else asks closes it: both get the same."""
        self.message_count: i64 = 0
        self.bits: dict[int, BytesWriter] = {}
        """By block."""
        self.counts: dict[int, int] = {}
        self.is_changed: bool = False
        self.touched: dict[int, bool] = {}
        """Blocks whose bits have changed since the last commit."""

    def has(self, block: i64, offset: i64) -> bool:
        bits = self.bits.get(int(block))
        return bits is not None and (i64(bits[offset >> 3]) >> (offset & 7)) & 1 != 0

    def add(self, block: i64, offset: i64) -> None:
        index = int(block)
        bits = self.bits.get(index)
        if bits is None:
            bits = BytesWriter()
            bits.write(_EMPTY_BITS)
            self.bits[index] = bits
            self.counts[index] = 0
        at = offset >> 3
        bits[at] = u8((i64(bits[at]) | (i64(1) << (offset & 7))) & 255)
        self.counts[index] += 1
        self.message_count += 1
        self.touched[index] = True

    def remove(self, block: i64, offset: i64) -> None:
        index = int(block)
        bits = self.bits[index]
        at = offset >> 3
        bits[at] = u8(i64(bits[at]) & (255 - (i64(1) << (offset & 7))))
        self.counts[index] -= 1
        self.message_count -= 1
        self.touched[index] = True
        if self.counts[index] == 0:
            del self.bits[index]
            del self.counts[index]

    def numbers(self, first: i64, last: i64, block_size: i64, limit: i64) -> list[int]:
        """Up to `limit` of its numbers from `first` to `last`, ascending."""
        found: list[int] = []
        for index in self._blocks(first // block_size, last // block_size):
            if len(found) >= limit:
                break
            start = i64(index) * block_size
            bits = self.bits[index]
            offset: i64 = max(first - start, i64(0))
            end: i64 = min(block_size, last - start + 1)
            while offset < end and len(found) < limit:
                byte = i64(bits[offset >> 3])
                if byte == 0:
                    offset = (offset | 7) + 1
                    continue
                if (byte >> (offset & 7)) & 1 != 0:
                    found.append(int(start + offset))
                offset += 1
        return found

    def _blocks(self, first: i64, last: i64) -> list[int]:
        """Those in which it has anything, ascending. Whoever settles asks for many short ranges: each is looked up, and
        only a range that is longer than all there is goes through all."""
        if last - first < len(self.bits):
            return [index for index in range(int(first), int(last) + 1) if index in self.bits]
        return sorted([index for index in self.bits if first <= index <= last])


@final
class Ledger:
    def __init__(self, fragment: i64, lane: i64, block_size: i64) -> None:
        self.owners: dict[str, Owner] = {}
        self._fragment: i64 = fragment
        self._lane: i64 = lane
        self._block_size: i64 = block_size
        self._touched: list[Owner] = []
        self._forgotten: list[Owner] = []

    def load(self, owners: list[OwnerRecord], reserved: list[ReservedRecord]) -> None:
        by_slot: dict[int, Owner] = {}
        for record in owners:
            owner = Owner(record.name, record.slot, record.epoch)
            owner.request = record.request
            owner.answer = list(record.answer)
            self.owners[record.name] = owner
            by_slot[record.slot] = owner
        for one in reserved:
            found = by_slot.get(one.slot)
            if found is None:
                found = Owner(f"{LOST_NAME}{one.slot}", one.slot, 0)
                self.owners[found.name] = found
                by_slot[one.slot] = found
            self._load_bits(found, one)

    def _load_bits(self, owner: Owner, record: ReservedRecord) -> None:
        bits = BytesWriter()
        bits.write(record.bits)
        count = 0
        for byte in record.bits:
            count += bin(byte).count("1")
        owner.bits[record.block] = bits
        owner.counts[record.block] = count
        owner.message_count += count

    def find(self, name: str, epoch: i64) -> Owner:
        """Raises StaleEpoch for what is not its present epoch; a negative one is the operator's, who needs none."""
        owner = self.owners.get(name)
        if owner is None:
            raise StaleEpoch(
                f"The owner '{name}' is not open here: it was never opened, or an operator released all that it had. "
                "Open it first."
            )
        if epoch >= 0 and epoch != owner.epoch:
            raise StaleEpoch(
                f"The epoch {epoch} of the owner '{name}' is over: it was opened again since, or an operator released "
                f"what it had; now it is epoch {owner.epoch}. Only one query at a time can use an owner; this one must "
                "stop."
            )
        return owner

    def open(self, name: str, max_owners: i64) -> Owner:
        """The owner of this name, from now on. Raises QuotaExceeded."""
        owner = self.owners.get(name)
        if owner is None:
            if len(self.owners) >= min(max_owners, i64(OWNER_SLOTS)):
                raise QuotaExceeded(
                    f"There are {len(self.owners)} owners of reservations here already: release one that is retired."
                )
            owner = Owner(name, self._free_slot(), 0)
            self.owners[name] = owner
        return owner

    def _free_slot(self) -> i64:
        """Not one that the coming commit clears."""
        taken: set[int] = set()
        for owner in self.owners.values():
            taken.add(int(owner.slot))
        for owner in self._forgotten:
            taken.add(int(owner.slot))
        slot = 0
        while slot in taken:
            slot += 1
        return slot

    def change(self, owner: Owner) -> None:
        """Its own record changes."""
        owner.is_changed = True
        self.touch(owner)

    def touch(self, owner: Owner) -> None:
        if owner not in self._touched:
            self._touched.append(owner)

    def forget(self, owner: Owner) -> None:
        """It has nothing reserved any more."""
        assert owner.message_count == 0
        del self.owners[owner.name]
        self._forgotten.append(owner)
        self.touch(owner)

    def owner_of(self, number: i64) -> Owner | None:
        block, offset = number // self._block_size, number % self._block_size
        for owner in self.owners.values():
            if owner.has(block, offset):
                return owner
        return None

    def add(self, owner: Owner, number: i64) -> None:
        owner.add(number // self._block_size, number % self._block_size)

    def has(self, owner: Owner, number: i64) -> bool:
        return owner.has(number // self._block_size, number % self._block_size)

    def remove(self, owner: Owner, number: i64) -> None:
        owner.remove(number // self._block_size, number % self._block_size)

    def gone(self, number: i64) -> None:
        """The message was taken out on somebody else's behalf: it was damaged."""
        owner = self.owner_of(number)
        if owner is not None:
            self.remove(owner, number)
            self.touch(owner)

    def numbers(self, owner: Owner, first: i64, last: i64, limit: i64) -> list[int]:
        return owner.numbers(first, last, self._block_size, limit)

    def emit(self, changes: Changes) -> None:
        """Write what changed since the last commit."""
        if not self._touched:
            return
        fragment, lane = int(self._fragment), int(self._lane)
        for owner in self._touched:
            slot = int(owner.slot)
            for block in owner.touched:
                bits = owner.bits.get(block)
                value = b"" if bits is None else bits.getvalue()
                changes.reserved.append(ReservedRecord(fragment, lane, slot, block, value))
            if owner in self._forgotten:
                changes.dropped_owners.append(Place(fragment, lane, slot))
            elif owner.is_changed:
                changes.owners.append(
                    OwnerRecord(fragment, lane, slot, owner.name, int(owner.epoch), int(owner.request), owner.answer)
                )
            owner.touched = {}
            owner.is_changed = False
        self._touched = []
        self._forgotten = []


def check_request(owner: Owner, request: i64) -> None:
    if request < owner.request:
        raise InvalidArgument(
            f"The request {request} of the owner '{owner.name}' comes after its request {owner.request}: numbers grow."
        )
