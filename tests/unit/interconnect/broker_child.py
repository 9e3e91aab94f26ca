"""A message broker in a process of its own, with a store on disk: for tests that kill it in earnest."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tandembus.broker.fragment import Fragment
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.settings import FragmentSettings
from tandembus.clock import SystemClock
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.handshake import Party
from tandembus.interconnect.server import ChannelServer, ServedStore
from tandembus.store.embedded.environment import EmbeddedSettings
from tandembus.store.embedded.lmdb_store import LmdbStore
from tandembus.store.messaging_store import MessagingStore

INSTALL_KEY = bytes(range(32))
KEYS = range(5, 9)
"""Of its fragments."""


async def serve(data: Path, path: Path) -> None:
    clock = SystemClock()

    async def open_store() -> MessagingStore:
        return LmdbStore.open(data, EmbeddedSettings(), clock)

    broker = MessageBroker(open_store, clock)
    await broker.start()
    known = {head.fragment for head in await broker.store.heads()}
    for key in KEYS:
        if key not in known:
            await broker.make_fragment(key, 1, key - KEYS[0])

    async def open_by_key(key: int) -> Fragment | None:
        return await broker.open_fragment(key, key - KEYS[0], FragmentSettings()) if key in KEYS else None

    store = ServedStore(broker, open_by_key, clock, ChannelSettings())
    await ChannelServer(INSTALL_KEY, Party("broker"), {0: store}).start(path)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), Path(sys.argv[2])))
