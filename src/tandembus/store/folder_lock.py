"""One process per store folder.

Two processes that both believe a store is theirs would give out the same numbers. The lock is the kernel's,
so it ends with the process that holds it, however that process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final, final

from tandembus.errors import StoreUnavailable

LOCK_FILE: Final = "store.lock"


@final
class FolderLock:
    """Held from construction until `release`."""

    def __init__(self, folder: Path) -> None:
        path = folder / LOCK_FILE
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnavailable(f"the messaging store in {folder} cannot be locked: {error}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._descriptor)
            raise StoreUnavailable(
                f"the messaging store in {folder} is in use by process {owner}: "
                "stop that process, or choose another data folder"
            ) from error
        # Only a note for people. On a full volume it may fail, and the lock holds all the same.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
