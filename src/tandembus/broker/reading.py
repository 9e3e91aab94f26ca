"""Bodies from the store with their overlays: what somebody asked for, what settlements need, what cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tandembus.broker.fragment import Fragment
from tandembus.broker.lane import Lane
from tandembus.broker.locks import MessageLock
from tandembus.large_messages import LARGE_BYTES
from tandembus.message import Message
from tandembus.store.messaging_store import (
    LANES,
    NEVER,
    SCHEDULED,
    Damage,
    Overlay,
)

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

log = logging.getLogger("tandembus.broker")

SPARSE = 4
"""So many numbers apart on the average, records are looked up one by one."""


async def read_messages(
    broker: MessageBroker, fragment: Fragment, lane: Lane, numbers: Sequence[int], max_bytes: int
) -> Sequence[Message | Damage]:
    """Bodies with their overlays laid over them; damaged ones are taken out of the queue and reported."""
    key, code = int(fragment.key), int(lane.code)
    records = await _bodies(broker, fragment, lane, numbers, max_bytes)
    found = await read_overlays(broker, key, code, numbers[: len(records)])
    overlays = {overlay.number: overlay for overlay in found}
    # Hardly ever is there anything to lay over, or damage.
    for record in records if overlays else [one for one in records if isinstance(one, Damage)]:
        overlay = overlays.get(int(record.number))
        if isinstance(record, Damage):
            _take_out(broker, fragment, code, record, overlay)
        elif overlay is not None:
            record.delivery_count = overlay.delivery_count
            record.application_properties = overlay.application_properties
    return records


async def next_to_read(
    broker: MessageBroker, lane: Lane, numbers: Sequence[int], has_room: Callable[[int, int], bool]
) -> Sequence[int]:
    """Which of these are to be read now, from the first: a large one is read alone, and only if `has_room` (for its
    number and size)."""
    sizes = await broker.store.sizes(int(lane.body_fragment), int(lane.code), numbers)
    for position, size_bytes in enumerate(sizes):
        if size_bytes > LARGE_BYTES:
            is_read = position == 0 and has_room(numbers[0], size_bytes)
            return numbers[: 1 if is_read else position]
    return numbers


async def bodies_of_locks(
    broker: MessageBroker, fragment: Fragment, locks: list[MessageLock]
) -> tuple[list[tuple[MessageLock, Message]], list[MessageLock]]:
    """The messages of these locks, and the locks of those that cannot be read."""
    arrived: list[tuple[MessageLock, Message]] = []
    damaged: list[MessageLock] = []
    for lane in LANES:
        of_lane = [lock for lock in locks if lock.lane == lane]
        position = 0
        while position < len(of_lane):
            numbers = [int(lock.number) for lock in of_lane[position:]]
            for record in await _bodies(broker, fragment, fragment.lane(lane), numbers, 1 << 30):
                lock = of_lane[position]
                position += 1
                if isinstance(record, Damage):
                    report_damage(broker, fragment, lane, record)
                    lock.is_damaged = not record.is_missing
                    damaged.append(lock)
                else:
                    arrived.append((lock, record))
    return arrived, damaged


async def _bodies(
    broker: MessageBroker, fragment: Fragment, lane: Lane, numbers: Sequence[int], max_bytes: int
) -> Sequence[Message | Damage]:
    records = await broker.store.bodies(int(lane.body_fragment), int(lane.code), numbers, max_bytes)
    if lane.source is not None:
        for record in records:
            if isinstance(record, Message):
                record.expires_at = fragment.expiry_of(record)
    return records


async def read_overlays(broker: MessageBroker, key: int, code: int, numbers: Sequence[int]) -> Sequence[Overlay]:
    """Neighbours are read as a range; what lies far apart one by one, so as not to pass over all in between."""
    first, last = min(numbers, default=0), max(numbers, default=0)
    if last - first > SPARSE * len(numbers):
        return await broker.store.overlays_at(key, code, numbers)
    return await broker.store.overlays(key, code, first, last)


def report_damage(broker: MessageBroker, fragment: Fragment, lane: int, damage: Damage) -> None:
    broker.damage_count += 1
    log.error(
        "damaged record: fragment %d, lane %d, number %d: %s. It was set aside; the rest of the queue goes on.",
        fragment.key,
        lane,
        damage.number,
        damage.reason,
    )


def _take_out(broker: MessageBroker, fragment: Fragment, code: int, damage: Damage, overlay: Overlay | None) -> None:
    lane = fragment.lane(code)
    if fragment.is_void or not lane.is_free(damage.number):
        return  # gone since it was asked for
    report_damage(broker, fragment, code, damage)
    lock = fragment.lock_number(code, damage.number, lane.live_bytes // max(lane.live_count, 1), NEVER)
    lock.is_damaged = not damage.is_missing
    if overlay is not None:
        lock.delivery_count = overlay.delivery_count
        lock.application_properties = overlay.application_properties
    if lane.is_parked(damage.number):
        lock.is_scheduled = overlay is not None and overlay.state == SCHEDULED
        lock.is_deferred = not lock.is_scheduled
    fragment.remove(lock, None)
