"""A session of ten million messages, held by somebody, and another one behind it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tandembus.broker import session_reading
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.session_columns import column_entry, column_of, session_hash
from tandembus.broker.session_locks import accept_session
from tandembus.broker.settings import FragmentSettings
from tandembus.clock import SystemClock
from tandembus.store.embedded import EmbeddedSettings, LmdbStore
from tandembus.store.messaging_store import (
    BITS_BYTES,
    BLOCK_SIZE,
    MAIN,
    NEVER,
    BlockRecord,
    Changes,
    FragmentHead,
    MessagingStore,
    SessionColumn,
)
from tests.covers import covers
from tests.scale import scaled
from tests.unit.broker.one_queue import message

KEY = 5
SETTINGS = EmbeddedSettings(map_bytes=1 << 30, commit_mode="loop")


async def fill(folder: Path, message_count: int) -> None:
    """As if so many messages of one session had been sent; their bodies are not needed to find others."""
    store = LmdbStore.open(folder, SETTINGS)
    entries = column_of([column_entry(session_hash("huge"), offset) for offset in range(BLOCK_SIZE)])
    blocks = message_count // BLOCK_SIZE
    for first in range(0, blocks, 500):
        changes = Changes()
        for block in range(first, min(first + 500, blocks)):
            settled = bytes([1]) + bytes(BITS_BYTES - 1) if block == 0 else bytes(BITS_BYTES)
            live = BLOCK_SIZE - (block == 0)
            record = BlockRecord(KEY, MAIN, block, BLOCK_SIZE, settled, bytes(BITS_BYTES), live, 0, 0, live, NEVER)
            changes.blocks.append(record)
            changes.columns.append(SessionColumn(KEY, MAIN, block, entries))
        changes.heads = [FragmentHead(KEY, 1, 0, False)]
        await store.commit(changes)
    await store.close()


@covers("M7")
async def test_the_session_behind_a_huge_one_that_is_held_is_found_within_a_second(tmp_path: Path) -> None:
    await fill(tmp_path, scaled(1_000_000, 10_000_000, 10_000_000))

    async def open_store() -> MessagingStore:
        return LmdbStore.open(tmp_path, SETTINGS)

    broker = MessageBroker(open_store, SystemClock())
    await broker.start()
    fragment = await broker.open_fragment(KEY, 0, FragmentSettings(requires_session=True, max_size_bytes=1 << 40))
    accept_session(fragment, "huge")
    sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reply = CallbackSendReply(lambda _operation, _error: sent.set_result(None))
    fragment.send(SendOperation([message("x", session_id="small")], 100, reply, 0))
    await sent
    began_at = time.monotonic()
    lock = await session_reading.accept(broker, fragment, None, 60.0)
    took_s = time.monotonic() - began_at
    await broker.stop()
    assert lock.session.name == "small"
    assert took_s < 1.0
