"""Opens a store's LMDB environment: checked before it is mapped, ours alone, and in a format we know."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import lmdb

from tandembus.clock import Clock
from tandembus.durability import make_folder, sync_folder
from tandembus.errors import StoreDamaged, StoreFull, StoreUnavailable
from tandembus.store.embedded.ballast import Ballast
from tandembus.store.embedded.keys import BODY_TREE, LOG_TREE, META_KEY, STATE_TREE
from tandembus.store.embedded.lmdb_file import DATA_FILE, check_length
from tandembus.store.embedded.records import FORMAT_VERSION, decode_meta, encode_meta
from tandembus.store.folder_lock import FolderLock
from tandembus.store.messaging_store import BLOCK_SIZE

MEGABYTE: Final = 1 << 20
MIN_MAP_BYTES: Final = 64 * MEGABYTE
"""Below this a smaller map is not worth trying: the machine has no address space for a store."""
MEASURED_COMMITS: Final = 10
MAX_READERS: Final = 16
LMDB_MAJOR: Final = 0
"""LMDB 0.9, whatever the environment says: `lmdb_file` reads the pages of that format."""

CommitMode = Literal["auto", "loop", "thread"]


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """How one embedded store is kept."""

    map_bytes: int = 1 << 40
    """Address space set aside for the file. It costs nothing until used; the store can never grow beyond
    it."""
    reserve_bytes: int | None = None
    """Room kept for receiving and settling; by default a twentieth of the volume, between the two bounds
    below."""
    min_reserve_bytes: int = 8 * MEGABYTE
    max_reserve_bytes: int = 256 * MEGABYTE
    settling_bytes: int = 4 * MEGABYTE
    """Room no body may take: even a deletion first writes new pages, and must find some. Also the size of
    the ballast that is dropped where others have filled the volume."""
    block_size: int = BLOCK_SIZE
    """Numbers in a block, as the broker counts them: fewer only in tests, which reach the edges sooner then."""
    commit_mode: CommitMode = "auto"
    loop_commit_limit_s: float = 0.002
    """Commits as short as this run in the event loop; longer ones would hold everybody up, and go to a
    thread."""


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """An environment that is ours, its trees, and the meta record as this epoch wrote it."""

    lock: FolderLock
    ballast: Ballast
    environment: lmdb.Environment
    body: lmdb._Database
    state: lmdb._Database
    log: lmdb._Database
    meta: bytes
    store_id: bytes
    epoch: int
    map_bytes: int
    block_size: int
    commit_s: float
    """How long a small commit takes: the shortest of a few, so that a busy moment does not decide."""


def open_environment(folder: Path, settings: EmbeddedSettings, clock: Clock) -> OpenedStore:
    """Raises StoreUnavailable where another process holds the store, StoreDamaged where its file cannot be
    used."""
    _make_folder(folder)
    lock = FolderLock(folder)
    ballast = Ballast(folder, settings.settling_bytes)
    try:
        try:
            return _open_locked(folder, settings, clock, lock, ballast)
        except StoreFull:
            if not ballast.drop():
                raise
            return _open_locked(folder, settings, clock, lock, ballast)
    except OSError as error:
        lock.release()
        raise StoreUnavailable(f"the messaging store in {folder} cannot be opened: {error}") from error
    except BaseException:
        lock.release()
        raise


def _make_folder(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as error:
        raise StoreUnavailable(f"the store's folder {folder} cannot be made: {error}") from error


def _open_locked(
    folder: Path, settings: EmbeddedSettings, clock: Clock, lock: FolderLock, ballast: Ballast
) -> OpenedStore:
    check_length(folder / DATA_FILE)
    environment, map_bytes = _map(folder, settings.map_bytes)
    try:
        body, state, log = [environment.open_db(name) for name in (BODY_TREE, STATE_TREE, LOG_TREE)]
        environment.reader_check()
        store_id, epoch = _next_epoch(folder, environment, body, state)
        meta = encode_meta(META_KEY, FORMAT_VERSION, store_id, epoch)
        count = MEASURED_COMMITS if settings.commit_mode == "auto" else 1
        times = [_commit_meta(environment, state, meta, clock) for _ in range(count)]
        ballast.take(disk_free_bytes(folder))
        sync_folder(folder)
        sync_folder(folder.parent)
    except lmdb.Error as error:
        environment.close()
        if isinstance(error, lmdb.MapFullError) or disk_free_bytes(folder) < settings.settling_bytes:
            raise StoreFull(f"the messaging store in {folder} has no room to be opened: {error}") from error
        raise _refusal(folder, error) from error
    except BaseException:
        environment.close()
        raise
    trees = (body, state, log)
    return OpenedStore(
        lock, ballast, environment, *trees, meta, store_id, epoch, map_bytes, settings.block_size, min(times)
    )


def _map(folder: Path, map_bytes: int) -> tuple[lmdb.Environment, int]:
    """Some machines limit address space: try less, rather than refuse to start."""
    while True:
        try:
            environment = lmdb.open(
                str(folder),
                map_size=map_bytes,
                mode=0o600,
                max_dbs=3,
                max_readers=MAX_READERS,
                lib_version=LMDB_MAJOR,
            )
        except lmdb.Error as error:
            is_too_large = isinstance(error, lmdb.MemoryError) or error.code == errno.ENOMEM
            if not is_too_large or map_bytes // 2 < MIN_MAP_BYTES:
                raise _refusal(folder, error) from error
            map_bytes //= 2
        else:
            return environment, map_bytes


def _refusal(folder: Path, error: lmdb.Error) -> StoreUnavailable:
    """Positive codes are the operating system's: rights, devices. Negative ones are LMDB's, about the file."""
    kind = StoreUnavailable if error.code > 0 else StoreDamaged
    return kind(f"the messaging store in {folder} cannot be opened: {error}")


def _next_epoch(
    folder: Path, environment: lmdb.Environment, body: lmdb._Database, state: lmdb._Database
) -> tuple[bytes, int]:
    with environment.begin() as txn:
        value = txn.get(META_KEY, db=state)
        is_empty = txn.stat(state)["entries"] == 0 and txn.stat(body)["entries"] == 0
    if value is None and is_empty:
        return os.urandom(16), 1
    meta = None if value is None else decode_meta(META_KEY, value)
    if meta is None:
        raise StoreDamaged(f"the meta record of the messaging store in {folder} is damaged or missing")
    format_version, store_id, epoch = meta
    if format_version > FORMAT_VERSION:
        raise StoreUnavailable(
            f"the messaging store in {folder} has format {format_version}, and this version knows formats "
            f"up to {FORMAT_VERSION}: use the newer version that wrote it. Nothing was changed"
        )
    return store_id, epoch + 1


def _commit_meta(environment: lmdb.Environment, state: lmdb._Database, meta: bytes, clock: Clock) -> float:
    started_at = clock.monotonic()
    with environment.begin(write=True) as txn:
        txn.put(META_KEY, meta, db=state)
    return clock.monotonic() - started_at


def disk_free_bytes(folder: Path) -> int:
    """What an ordinary user can still write on the volume."""
    volume = os.statvfs(folder)
    return volume.f_bavail * volume.f_frsize
