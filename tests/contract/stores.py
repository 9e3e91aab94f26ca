"""The stores under contract: how each is opened, opened again, and taken away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Protocol

from tandembus.clock import SystemClock
from tandembus.faults.board import FaultBoard
from tandembus.faults.faulty_store import FaultyStore, StoreFaults
from tandembus.store.embedded import EmbeddedSettings, LmdbStore
from tandembus.store.embedded.environment import CommitMode
from tandembus.store.memory import MemoryDisk, MemoryStore
from tandembus.store.messaging_store import MessagingStore

TAKE_AWAY = """
import sys, lmdb
from tandembus.store.embedded.keys import META_KEY, STATE_TREE
from tandembus.store.embedded.records import decode_meta, encode_meta
environment = lmdb.open(sys.argv[1], map_size=1 << 30, max_dbs=3)
state = environment.open_db(STATE_TREE)
with environment.begin(write=True) as txn:
    version, store_id, epoch = decode_meta(META_KEY, txn.get(META_KEY, db=state))
    txn.put(META_KEY, encode_meta(META_KEY, version, store_id, epoch + 1), db=state)
"""


class StoreUnderTest(Protocol):
    """Something durable that can be opened."""

    def open(self) -> MessagingStore: ...

    def take_away(self) -> None:
        """Another broker opens the store although this one still holds it, as after a long pause."""


class MemoryUnderTest:
    def __init__(self) -> None:
        self._disk = MemoryDisk()

    def open(self) -> MessagingStore:
        return MemoryStore(self._disk)

    def take_away(self) -> None:
        self._disk.epoch += 1


class FaultyUnderTest(MemoryUnderTest):
    """Where faults could be injected, and none is: the same promises."""

    def open(self) -> MessagingStore:
        return FaultyStore(super().open(), StoreFaults(FaultBoard(SystemClock()), 0))


class LmdbUnderTest:
    def __init__(self, folder: Path, commit_mode: CommitMode) -> None:
        self._folder = folder
        self._settings = EmbeddedSettings(map_bytes=1 << 30, commit_mode=commit_mode)

    def open(self) -> MessagingStore:
        return LmdbStore.open(self._folder, self._settings)

    def take_away(self) -> None:
        subprocess.run([sys.executable, "-c", TAKE_AWAY, str(self._folder)], check=True)
