"""A copy of a whole namespace, made while it runs.

All stores and the catalog are copied as they were at one instant (`snapshots.py`), so a restored namespace is what it
would be after a power failure at that instant, and everything that holds after one holds for it: what was acknowledged
is there, entities are there whole or not at all, what was on its way between stores arrives once. Plain files are
copied after that instant: an audit file that is newer than its store is expected, one that is older would have a gap.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

import tandembus
from tandembus.clock import Clock
from tandembus.node.facts import FACTS_FILE
from tandembus.node.store_folders import catalog_folder, stores_that_exist
from tandembus.node.upkeep.folders import (
    NewFolder,
    Progress,
    environments_of,
    nearest_existing,
    plain_files,
    write_all,
)
from tandembus.node.upkeep.manifest import (
    MANIFEST_FILE,
    BackupError,
    BackupFile,
    Manifest,
    encode_manifest,
    is_inside,
)
from tandembus.store.embedded.environment import disk_free_bytes
from tandembus.store.embedded.lmdb_file import DATA_FILE
from tandembus.store.embedded.snapshots import Cut, Snapshot

READ_BYTES: Final = 1 << 20
STORE_MODE: Final = 0o600


class DestinationExists(BackupError):
    """Something is there already, and is not overwritten."""


class NoNamespace(BackupError):
    """There is nothing to back up."""


def make_backup(data: Path, destination: Path, clock: Clock, begun: Callable[[int], Progress]) -> Manifest:
    """`begun`: told about how many bytes there are. Raises BackupError, StoreUnavailable or OSError, and leaves nothing
    behind then."""
    _require_place(data, destination)
    created_at = clock.now()
    with Cut(environments_of(data)) as cut, NewFolder(destination) as folder:
        total = sum(snapshot.used_bytes() for snapshot in cut.snapshots)
        _require_room(destination, total)
        writing = _Writing(data, folder, begun(total))
        for path in plain_files(data):
            writing.copy_file(path)
        for snapshot in cut.snapshots:
            writing.copy_snapshot(snapshot)
            snapshot.close()  # whose pages need not be held any longer
        stores = stores_that_exist(data)
        manifest = Manifest(_name_of(data), tandembus.__version__, created_at, stores, writing.files)
        writing.write(MANIFEST_FILE, 0o600, lambda put: put(encode_manifest(manifest)))
        folder.finish()
    return manifest


def _require_place(data: Path, destination: Path) -> None:
    if not (catalog_folder(data) / DATA_FILE).is_file():
        raise NoNamespace(f"There is no namespace in {data}.")
    if destination.exists() or destination.is_symlink():
        raise DestinationExists(f"{destination} exists already; nothing is overwritten.")
    if data.resolve() in [destination.resolve(), *destination.resolve().parents]:
        raise BackupError(f"{destination} is in the data folder itself.")


def _require_room(destination: Path, size_bytes: int) -> None:
    free = disk_free_bytes(nearest_existing(destination))
    if free < size_bytes:
        raise BackupError(f"The backup takes about {size_bytes:,} bytes, and {free:,} are free where it is to be.")


def _name_of(data: Path) -> str:
    try:
        return str(json.loads((data / FACTS_FILE).read_text())["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


@final
class _Writing:
    def __init__(self, data: Path, folder: NewFolder, progress: Progress) -> None:
        self._data = data
        self._folder = folder
        self._progress = progress
        self.files: list[BackupFile] = []

    def copy_file(self, path: Path) -> None:
        """As long as it is now: others may go on writing to its end. One that was rolled away meanwhile is left out,
        and so is one that no manifest could name."""
        name = path.relative_to(self._data).as_posix()
        try:
            source = path.open("rb")
        except FileNotFoundError:
            return
        with source:
            found = os.fstat(source.fileno())
            if is_inside(name) and stat.S_ISREG(found.st_mode):
                left = _Left(source.read, found.st_size)
                self.files.append(self.write(name, found.st_mode, left.pour))

    def copy_snapshot(self, snapshot: Snapshot) -> None:
        name = (snapshot.folder / DATA_FILE).relative_to(self._data).as_posix()
        self.files.append(self.write(name, STORE_MODE, snapshot.copy))

    def write(self, name: str, mode: int, pour: Callable[[Callable[[bytes], None]], object]) -> BackupFile:
        """`pour` is called with what takes the content, part by part."""
        digest, size_bytes = hashlib.sha256(), 0
        descriptor = self._folder.create(name, mode)

        def put(part: bytes) -> None:
            nonlocal size_bytes
            write_all(descriptor, part)
            digest.update(part)
            size_bytes += len(part)
            self._progress(len(part))

        try:
            pour(put)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return BackupFile(name, size_bytes, digest.hexdigest(), stat.S_IMODE(mode) & 0o777)


@final
class _Left:
    """What is still to be read of a file."""

    def __init__(self, read: Callable[[int], bytes], size_bytes: int) -> None:
        self._read = read
        self._size_bytes = size_bytes

    def pour(self, put: Callable[[bytes], None]) -> None:
        while self._size_bytes > 0 and (part := self._read(min(READ_BYTES, self._size_bytes))):
            put(part)
            self._size_bytes -= len(part)
