"""The messaging stores of a namespace, and the message brokers that own them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from tandembus.broker.budget import Budget
from tandembus.broker.message_broker import MessageBroker
from tandembus.clock import Clock
from tandembus.config import ServeSettings
from tandembus.durability import make_folder
from tandembus.errors import StoreDamaged
from tandembus.faults.board import FaultBoard
from tandembus.faults.fault import Topology
from tandembus.faults.faulty_store import StoreFaults
from tandembus.large_messages import LargeMemory
from tandembus.limits import Limits
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.catalog_recovery import open_catalog, places_fragments
from tandembus.node.store_folders import COPY_FOLDER, catalog_folder, store_count, store_folder, stores_that_exist
from tandembus.node.store_guard import StoreGuard
from tandembus.store.audit_files import AuditFiles
from tandembus.store.embedded.environment import EmbeddedSettings
from tandembus.store.embedded.lmdb_store import LmdbStore
from tandembus.store.memory import MemoryDisk, MemoryStore
from tandembus.store.messaging_store import MessagingStore

AUDIT_FOLDER: Final = "audit"


def open_namespace_catalog(settings: ServeSettings, now: float) -> Catalog:
    """Lost or damaged, it is rebuilt from the newest of the copies that stand beside the stores. Before any process
    that writes these copies is started."""
    catalog, copies = _catalogs(settings.data)
    return open_catalog(catalog, copies, settings.limits, now)


def _catalogs(data: Path) -> tuple[Path, list[Path]]:
    """The catalog and its copies."""
    stores = range(stores_that_exist(data))
    return catalog_folder(data), [store_folder(data, store) / COPY_FOLDER for store in stores]


def build_faults(settings: ServeSettings, stores: int, clock: Clock) -> FaultBoard:
    """Of a process: what fails on purpose in it. In one process every store has a broker of its own."""
    return FaultBoard(clock, Topology(stores, settings.brokers or stores), max_faults=settings.limits.max_faults)


def build_budget(limits: Limits, clock: Clock) -> Budget:
    """Shared by all message brokers of a process."""
    operations = float(limits.operations_per_second or 0)
    large = LargeMemory(limits.large_message_memory_bytes)
    return Budget(clock, limits.uncommitted_bytes_limit, operations, limits.max_duplicate_ids, large)


def build_broker(
    settings: ServeSettings,
    store: int,
    clock: Clock,
    budget: Budget,
    faults: FaultBoard,
    disk: MemoryDisk | None = None,
    is_suspect: bool = False,
) -> MessageBroker:
    """`disk`: where the messages are in memory only. `is_suspect`: all pages are read before the store is opened."""
    folder = store_folder(settings.data, store)
    guard = StoreGuard(folder, lambda: places_fragments(store, *_catalogs(settings.data)))
    earlier: LmdbStore | None = None

    async def open_store() -> MessagingStore:
        nonlocal earlier, is_suspect
        if disk is not None:
            return MemoryStore(disk)
        await guard.check(is_suspect or (earlier is not None and earlier.has_met_damage))
        is_suspect = False
        try:
            earlier = LmdbStore.open(folder, embedded_settings(settings.limits), clock)
        except StoreDamaged:
            is_suspect = True
            raise
        return earlier

    limits = settings.limits
    on_purpose = StoreFaults(faults, store)
    opening = on_purpose.opening(open_store)
    sink = audit_files(settings, store) if settings.audit else None
    broker = MessageBroker(opening, clock, budget, limits.broker_window_bytes, limits.commit_outage_s, sink)
    on_purpose.watch(broker)
    return broker


def audit_files(settings: ServeSettings, store: int) -> AuditFiles:
    limits = settings.limits
    folder = settings.data / AUDIT_FOLDER / f"store-{store}"
    count = store_count(settings)
    with contextlib.suppress(OSError):  # which the first record meets again, and the log then says
        make_folder(folder)
    return AuditFiles(folder, settings.name, limits.audit_file_bytes, limits.audit_files, store, count)


def embedded_settings(limits: Limits) -> EmbeddedSettings:
    return EmbeddedSettings(
        map_bytes=limits.store_map_size_bytes,
        reserve_bytes=limits.store_reserve_bytes,
        min_reserve_bytes=limits.min_store_reserve_bytes,
        max_reserve_bytes=limits.max_store_reserve_bytes,
        settling_bytes=limits.settling_bytes,
        commit_mode=limits.commit_mode,  # type: ignore[arg-type]
        loop_commit_limit_s=limits.loop_commit_limit_s,
    )
