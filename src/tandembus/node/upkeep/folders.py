"""Folders that are there whole or not at all, and what of a data folder is worth keeping."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, final

from tandembus.durability import sync_folder
from tandembus.node.facts import FACTS_FILE
from tandembus.node.lives import LIVES_FILE
from tandembus.node.run_folder import RUN_FOLDER
from tandembus.node.store_folders import COPY_FOLDER, PARTIAL, catalog_folder, store_folder, stores_that_exist
from tandembus.node.store_guard import DAMAGED_FILE
from tandembus.store.embedded.ballast import BALLAST_FILE
from tandembus.store.embedded.lmdb_file import DATA_FILE
from tandembus.store.embedded.snapshots import LOCK_FILE
from tandembus.store.folder_lock import LOCK_FILE as FOLDER_LOCK_FILE

DAMAGED: Final = ".damaged-"
_NOT_KEPT: Final = (DATA_FILE, LOCK_FILE, FOLDER_LOCK_FILE, BALLAST_FILE, DAMAGED_FILE)
"""Copied in another way, or made anew."""

Progress = Callable[[int], None]
"""Told how many bytes were done since it was told last."""


def environments_of(data: Path) -> list[Path]:
    """The folders of the catalog, of every store, and of the stores' copies of the catalog, as far as they exist."""
    stores = [store_folder(data, store) for store in range(stores_that_exist(data))]
    folders = [catalog_folder(data), *stores, *(store / COPY_FOLDER for store in stores)]
    return [folder for folder in folders if (folder / DATA_FILE).is_file()]


def plain_files(data: Path) -> Iterator[Path]:
    """Keys, certificates, records of the meter and of the audit: whatever a data folder has beside its stores, and that
    is not of a running process."""
    for at, folders, names in os.walk(data):
        is_top = Path(at) == data
        folders[:] = sorted(one for one in folders if DAMAGED not in one and not (is_top and one == RUN_FOLDER))
        for name in sorted(names):
            path = Path(at, name)
            if name not in _NOT_KEPT and not (is_top and name in (FACTS_FILE, LIVES_FILE)) and path.is_file():
                yield path


@final
class NewFolder:
    """A folder that is filled beside its place, and takes it when all of it is on disk. Left earlier, it is removed; by
    a process that is killed it stays behind under a name that says what it is."""

    def __init__(self, place: Path, is_mounted: bool | None = None) -> None:
        """`is_mounted`: None to look."""
        self._place = Path(os.path.abspath(place))
        name = f"{self._place.name}{PARTIAL}{secrets.token_hex(4)}"
        self._is_mounted = os.path.ismount(self._place) if is_mounted is None else is_mounted
        """A volume of its own, which cannot be replaced: then it is filled in itself, and nobody uses it before all has
        moved (`require_whole`)."""
        self.path = self._place / name if self._is_mounted else self._place.with_name(name)

    def __enter__(self) -> NewFolder:
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def create(self, name: str, mode: int) -> int:
        """A descriptor for a new file, its folders made where needed. Never open to others, not even at first."""
        path = self.path / name
        for folder in reversed(Path(name).parents):
            (self.path / folder).mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, stat.S_IMODE(mode) & 0o777)
        return descriptor

    def finish(self) -> None:
        """Raises OSError where something has come to its place meanwhile."""
        for at, _, _ in os.walk(self.path):
            sync_folder(Path(at))
        if self._is_mounted:
            self._move_all()
            sync_folder(self._place)
        else:
            os.rename(self.path, self._place)
            sync_folder(self._place.parent)

    def _move_all(self) -> None:
        moved: list[Path] = []
        try:
            for one in sorted(self.path.iterdir()):
                one.rename(self._place / one.name)
                moved.append(one)
        except OSError:
            for one in moved:
                (self._place / one.name).rename(one)
            raise


def write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def nearest_existing(path: Path) -> Path:
    """The folder whose volume something new would be on."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path
