"""Room on the volume that is taken in good times, to be given back when there is none left.

Others can fill a volume to the last byte. Deleting needs new pages first, so a store on such a volume could
not even shrink. Then the ballast is dropped, and what it held lets receivers settle until room is there
again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, final

BALLAST_FILE: Final = "ballast"
_MARGIN: Final = 4


@final
class Ballast:
    def __init__(self, folder: Path, size_bytes: int) -> None:
        self._path = folder / BALLAST_FILE
        self._size_bytes = size_bytes

    def take(self, disk_free_bytes: int) -> None:
        """Where there is plenty. Never an error: a store without ballast works, it is only less well
        prepared."""
        if self._path.exists() or disk_free_bytes < self._size_bytes * _MARGIN:
            return
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size_bytes)
            finally:
                os.close(descriptor)
        except OSError:
            self.drop()

    def drop(self) -> bool:
        """Whether there was anything to drop."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True
