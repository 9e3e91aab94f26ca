"""A fragment takes up its state from the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tandembus.broker.duplicates import RecentIds
from tandembus.broker.fragment import Fragment
from tandembus.broker.session_reading import load_reserved, load_tail
from tandembus.store.messaging_store import LANES, MAIN

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

HISTORY_PAGE_BYTES = 64 * 1024
"""Message ids read at once when a fragment is opened: others get their turn in between."""


async def load(broker: MessageBroker, fragment: Fragment) -> None:
    """A topic with all its subscriptions: they use its numbers."""
    if fragment.topic is not None:
        return
    await _load_one(broker, fragment)
    if fragment.fan_out is not None:
        for subscription in list(fragment.fan_out.subscriptions.values()):
            await _load_one(broker, subscription)


async def _load_one(broker: MessageBroker, fragment: Fragment) -> None:
    store = broker.store
    key = int(fragment.key)
    recent_ids = await _load_recent_ids(broker, fragment)
    blocks = [list(await store.blocks(key, lane)) for lane in LANES]
    owners = [list(await store.owners(key, lane)) for lane in LANES]
    reserved = [list(await store.reserved(key, lane)) for lane in LANES]
    high_waters = list(await store.high_waters(key)) if fragment.topic is None else []
    if _was_deleted(fragment):
        return
    fragment.start_over(store.epoch, blocks, recent_ids)
    fragment.high_waters.load(high_waters)
    for lane in LANES:
        fragment.lane(lane).ledger.load(owners[lane], reserved[lane])
        fragment.lane(lane).reserved_again()
    if fragment.sessions is not None:
        fragment.sessions.reserved.is_known = not reserved[MAIN]
    if fragment.needs_columns():
        await load_tail(broker, fragment)
    await load_reserved(broker, fragment)


def _was_deleted(fragment: Fragment) -> bool:
    """A subscription that went while it was being read: its topic must not wait for it."""
    topic = fragment.topic
    if topic is None or topic.fan_out is None:
        return False
    return topic.fan_out.subscriptions.get(int(fragment.key)) is not fragment


async def _load_recent_ids(broker: MessageBroker, fragment: Fragment) -> RecentIds | None:
    window_ms = int(fragment.settings.duplicate_window_ms)
    if window_ms == 0:
        return None
    recent_ids = RecentIds()
    at_ms, number = max(broker.clock.now_ms() - window_ms + 1, 0), 0
    while page := await broker.store.history(int(fragment.key), at_ms, number, HISTORY_PAGE_BYTES):
        for record in page:
            recent_ids.load(record)
        at_ms, number = page[-1].at_ms, page[-1].number + 1
        await asyncio.sleep(0)
    return recent_ids


async def trim_history(broker: MessageBroker, fragment: Fragment) -> None:
    """Message ids whose time is over leave the memory, and soon the store."""
    duplicates = fragment.duplicates
    if duplicates is None:
        return
    until_ms = broker.clock.now_ms() - int(fragment.settings.duplicate_window_ms)
    while duplicates.forget(until_ms):
        await asyncio.sleep(0)
        if fragment.duplicates is not duplicates:
            return
    if duplicates.may_be_stale:
        duplicates.may_be_stale = False
        earliest = await broker.store.history(int(fragment.key), 0, 0, 0)
        if earliest and earliest[0].at_ms <= until_ms:
            duplicates.may_be_stale = True
            fragment.trim_history()
