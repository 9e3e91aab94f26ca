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
_LOCKS: Final = Path("/proc/locks")


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


def holder_of(folder: Path) -> int | None:
    """The process that holds a folder, as far as the system tells; None: nobody. Trying to lock it would tell for
    certain, and could keep a process from starting that wants it in the same moment."""
    try:
        with (folder / LOCK_FILE).open("rb") as file:
            found = os.fstat(file.fileno())
            noted = file.read(32).decode("ascii", "replace").strip()
        lines = _LOCKS.read_text().splitlines() if _LOCKS.exists() else None
    except OSError:
        return None
    if lines is None:
        return int(noted) if noted.isdecimal() and _is_alive(int(noted)) else None
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    for line in lines:
        _, kind, _, _, pid, file_id, *_ = [*line.split(), "", "", "", "", "", ""]
        at, _, inode = file_id.rpartition(":")
        # File systems in layers tell another device than the one below, and containers other process numbers.
        if kind == "FLOCK" and inode == str(found.st_ino) and (at == device or pid == noted):
            return int(noted) if noted.isdecimal() else int(pid)
    return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
