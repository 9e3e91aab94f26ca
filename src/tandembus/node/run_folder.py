"""Where the processes of one namespace meet: the folder of their sockets, and the key by which they know each other."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import tempfile
from pathlib import Path
from typing import Final

from tandembus.durability import make_folder
from tandembus.errors import StoreDamaged, StoreUnavailable
from tandembus.security.key_file import write_private

RUN_FOLDER: Final = "run"
INSTALL_KEY_FILE: Final = "install.key"
INSTALL_KEY_BYTES: Final = 32
MAX_SOCKET_PATH_BYTES: Final = 100
"""The least that any system takes for the path of a socket is 104 bytes, the last one being a zero."""
_LONGEST_NAME: Final = "broker-000.sock"


def private_folder(data: Path) -> None:
    """The data folder itself. Raises OSError."""
    make_folder(data)


class RunFolder:
    """The folder itself, made where it is missing; only its owner can look into it."""

    def __init__(self, data: Path) -> None:
        """Raises StoreUnavailable where it cannot be had."""
        self.path = _folder_for(data)
        _make_private(self.path)

    @property
    def control_socket(self) -> Path:
        """Where the process that holds the catalog listens."""
        return self.path / "control.sock"

    def broker_socket(self, index: int) -> Path:
        """Where a message broker listens for front ends and for other brokers."""
        return self.path / f"broker-{index}.sock"


def ensure_install_key(data: Path) -> bytes:
    """The key that every process of this data folder proves to know, made at the first start."""
    path = data / INSTALL_KEY_FILE
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        key = bytes.fromhex(path.read_text("ascii", "replace").strip())
    except FileNotFoundError:
        key = secrets.token_bytes(INSTALL_KEY_BYTES)
        make_folder(data)
        write_private(path, key.hex().encode() + b"\n")
    except ValueError:
        key = b""
    if len(key) != INSTALL_KEY_BYTES:
        raise StoreDamaged(f"{path} does not hold a key; remove it to have a new one made.")
    return key


def _folder_for(data: Path) -> Path:
    """In the data folder, where everybody finds it; elsewhere when the path of a socket could not be so long."""
    folder = data.resolve() / RUN_FOLDER
    if len(os.fsencode(folder / _LONGEST_NAME)) <= MAX_SOCKET_PATH_BYTES:
        return folder
    mark = hashlib.blake2s(os.fsencode(folder), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir()) / f"tandembus-{os.getuid()}-{mark}"


def _make_private(folder: Path) -> None:
    """Somebody else may have put a folder of this name where all can write: it is not used."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise StoreUnavailable(f"{folder} belongs to somebody else: remove it, or choose another data folder")
        if found.st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise StoreUnavailable(f"the folder for sockets, {folder}, cannot be made: {error}") from error
