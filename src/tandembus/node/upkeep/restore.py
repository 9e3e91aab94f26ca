"""A data folder made out of a backup, which no earlier life of the namespace can be confused with.

Every file is compared with the manifest while it is copied. Then the lives begin anew: stores by `renewal.py`, and the
catalog by counters that go on behind all that the old life may have given out. The folder takes its place when all of
it is right.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tandembus.clock import Clock
from tandembus.errors import StoreUnavailable
from tandembus.limits import Limits
from tandembus.namespace.applying import facts_of
from tandembus.namespace.catalog_records import META_KEYS, facts_documents
from tandembus.node.store_folders import catalog_folder, store_folder, stores_that_exist
from tandembus.node.upkeep.folders import NewFolder, Progress, nearest_existing, write_all
from tandembus.node.upkeep.manifest import BackupError, BackupFile, Manifest, read_manifest
from tandembus.store.embedded.catalog_store import CatalogStore
from tandembus.store.embedded.environment import disk_free_bytes
from tandembus.store.embedded.lmdb_file import DATA_FILE
from tandembus.store.embedded.renewal import blocks_ahead, renew_store

READ_BYTES: Final = 1 << 20
LOST_AND_FOUND: Final = "lost+found"
"""What a volume has that was just made."""
KEYS_AHEAD: Final = 1 << 20
"""Fragments and lives of entities that the old life may have made since the backup, at most."""


class NotEmpty(BackupError):
    """Something is there already, and is not overwritten."""


@dataclass(frozen=True, slots=True)
class Restored:
    manifest: Manifest
    epochs: Sequence[int]
    """Of each store."""
    notes: Sequence[str]
    """What could not be done as it should."""


def restore_backup(source: Path, data: Path, clock: Clock, begun: Callable[[int], Progress]) -> Restored:
    """Raises BackupError, StoreUnavailable or OSError, and leaves nothing behind then."""
    manifest = read_manifest(source)
    _require_empty(data)
    free = disk_free_bytes(nearest_existing(data))
    if free < manifest.size_bytes:
        raise BackupError(f"The backup has {manifest.size_bytes:,} bytes, and {free:,} are free where it is to be.")
    progress = begun(manifest.size_bytes)
    with NewFolder(data) as folder:
        for file in manifest.files:
            _copy(source, file, folder, progress)
        epochs, notes = _begin_lives(folder.path, manifest.created_at, clock)
        folder.finish()
    return Restored(manifest, epochs, notes)


def verify_files(source: Path, manifest: Manifest, progress: Progress) -> list[str]:
    """What differs from the manifest."""
    wrong: list[str] = []
    for file in manifest.files:
        try:
            _read_verified(source, file, lambda part: progress(len(part)))
        except BackupError as error:
            wrong.append(str(error))
    return wrong


def _require_empty(data: Path) -> None:
    there = [one for one in data.iterdir() if one.name != LOST_AND_FOUND] if data.is_dir() else []
    if data.is_symlink() or there or (data.exists() and not data.is_dir()):
        raise NotEmpty(f"{data} is not empty; nothing is overwritten.")


def _copy(source: Path, file: BackupFile, folder: NewFolder, progress: Progress) -> None:
    descriptor = folder.create(file.path, file.mode)

    def put(part: bytes) -> None:
        write_all(descriptor, part)
        progress(len(part))

    try:
        _read_verified(source, file, put)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_verified(source: Path, file: BackupFile, put: Callable[[bytes], None]) -> None:
    """Raises BackupError where it is not what was backed up."""
    digest, left = hashlib.sha256(), file.size_bytes
    try:
        descriptor = _open_below(source, file.path)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise BackupError(f"{file.path} is no plain file")
            if found.st_size != file.size_bytes:
                raise BackupError(f"{file.path} has {found.st_size:,} bytes, and had {file.size_bytes:,}")
            while left > 0 and (part := os.read(descriptor, min(READ_BYTES, left))):
                digest.update(part)
                put(part)
                left -= len(part)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise BackupError(f"{file.path} cannot be read: {error.strerror or error}") from None
    if left or digest.hexdigest() != file.sha256:
        raise BackupError(f"{file.path} is damaged: its checksum is wrong")


def _open_below(folder: Path, path: str) -> int:
    """Step by step, and no step is a link: it might lead anywhere."""
    *parents, name = path.split("/")
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for parent in parents:
            below = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = below
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)


def _begin_lives(data: Path, created_at: float, clock: Clock) -> tuple[list[int], list[str]]:
    notes: list[str] = []
    age_s = clock.now() - created_at
    if age_s < 0:
        notes.append("The backup is from the future, by this machine's clock: numbers may be given out a second time.")
    folders = [store_folder(data, store) for store in range(stores_that_exist(data))]
    there = [folder for folder in folders if (folder / DATA_FILE).is_file()]
    epochs = [renew_store(folder, clock, blocks_ahead(age_s)) for folder in there]
    try:
        _renew_catalog(catalog_folder(data))
    except StoreUnavailable as error:
        notes.append(f"The catalog was damaged when it was backed up; it is mended at the start: {error}")
    return epochs, notes


def _renew_catalog(folder: Path) -> None:
    """The copies beside the stores are older then, and become what it is at the start."""
    store = CatalogStore(folder, Limits().catalog_map_size_bytes)
    try:
        facts = facts_of(store.read(META_KEYS))
        if facts is None:
            raise StoreUnavailable("its counters are lost")
        renewed = replace(
            facts,
            next_incarnation=facts.next_incarnation + KEYS_AHEAD,
            next_fragment_key=facts.next_fragment_key + KEYS_AHEAD,
            version=facts.version + 1,
        )
        store.commit(facts_documents(renewed))
    finally:
        store.close()
