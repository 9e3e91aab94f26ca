"""Deleting a fragment with all it holds, in slices, so that a huge deletion holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tandembus.broker.duplicates import TRIM_SLICE
from tandembus.broker.topics import drop_subscription, family_of
from tandembus.errors import EntityNotFound
from tandembus.store.messaging_store import (
    BLOCK_SIZE,
    LANES,
    NUMBER_MASK,
    BodyRange,
    Changes,
    HistoryTrim,
    Place,
    SessionState,
)
from tandembus.store.owner_records import ReservedRecord

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

DROP_SLICE = 1000
"""Records that go in one commit."""


async def drop_fragments(broker: MessageBroker, keys: Sequence[int]) -> None:
    """Delete fragments with all they hold, in slices; what is left of each in the end goes in one commit."""
    last = Changes()
    for key in keys:
        await _clear(broker, key, last)
        if broker.audit is not None:
            broker.audit.note_dropped(key, last)
    await broker.commit_alone(last)
    for key in keys:
        broker.figures.drop(key)


async def _clear(broker: MessageBroker, key: int, last: Changes) -> None:
    """All that may be large, at once; `last`: the rest."""
    fragment = broker.by_key.get(key)
    if fragment is not None and fragment.topic is not None:
        await drop_subscription(broker, fragment.topic, key)
    elif fragment is not None:
        for one in family_of(fragment):
            broker.by_key.pop(int(one.key), None)
            one.fail(EntityNotFound("The messaging entity was deleted."))
    async with broker.commit_lock:
        pass  # a commit under way may still write to it
    for lane in LANES:
        while numbers := await broker.store.bodies_left(key, lane, DROP_SLICE):
            changes = Changes()
            changes.dropped_bodies.append(BodyRange(key, lane, numbers[0], numbers[-1]))
            await broker.commit_alone(changes)
            await asyncio.sleep(0)
        await _drop_records(broker, key, lane, last)
    while await broker.store.history(key, 0, 0, 0):
        changes = Changes()
        changes.trimmed_history.append(HistoryTrim(key, 1 << 62, TRIM_SLICE))
        await broker.commit_alone(changes)
        await asyncio.sleep(0)
    await _drop_session_states(broker, key)
    last.dropped_high_waters += await broker.store.high_waters(key)
    last.dropped_heads.append(key)


async def _drop_records(broker: MessageBroker, key: int, lane: int, last: Changes) -> None:
    blocks = await broker.store.blocks(key, lane)
    for record in blocks:
        first = record.block * BLOCK_SIZE
        overlays = await broker.store.overlays(key, lane, first, first + BLOCK_SIZE - 1)
        if overlays:
            changes = Changes()
            changes.dropped_overlays = [Place(key, lane, overlay.number) for overlay in overlays]
            await broker.commit_alone(changes)
        await asyncio.sleep(0)
    owners, reserved = await broker.store.owners(key, lane), await broker.store.reserved(key, lane)
    last.dropped_owners += [Place(key, lane, one.slot) for one in owners]
    last.reserved += [ReservedRecord(key, lane, one.slot, one.block, b"") for one in reserved]
    left_over = await broker.store.overlays(key, lane, 0, NUMBER_MASK)
    last.dropped_blocks += [Place(key, lane, record.block) for record in blocks]
    last.dropped_overlays += [Place(key, lane, overlay.number) for overlay in left_over]
    last.dropped_columns.append(BodyRange(key, lane, 0, NUMBER_MASK))


async def _drop_session_states(broker: MessageBroker, key: int) -> None:
    while states := await broker.store.session_states(key, None, DROP_SLICE):
        changes = Changes()
        changes.session_states = [SessionState(key, one.session_id, None, 0) for one in states]
        await broker.commit_alone(changes)
        await asyncio.sleep(0)
