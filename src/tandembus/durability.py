"""New files and folders are found again after a power loss only when the folders that name them are synced, too."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def make_folder(folder: Path, mode: int = 0o700) -> None:
    """Make a folder, and those above it that are missing, durably."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    for one in made:
        with contextlib.suppress(PermissionError):  # a folder of somebody else's that may be written, and not read
            sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
