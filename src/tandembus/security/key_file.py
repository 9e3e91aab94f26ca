"""The root policy's key, made once and kept in the data folder where only its owner can read it."""

from __future__ import annotations

import base64
import os
import re
import secrets
from pathlib import Path
from typing import Final

from tandembus.errors import StoreDamaged

KEY_FILE: Final = "key"
KEY_BYTES: Final = 32
_KEY: Final = re.compile(r"[!-:<-~]{1,256}", re.ASCII)


def ensure_key(data: Path, given: str | None = None) -> str:
    """The given key, else the one kept in `data`, else a new random one. Kept from now on, so that the commands on this
    machine find the namespace and its next start has the same key."""
    kept = read_key(data)
    if given is None and kept is not None:
        return kept
    key = given or random_key()
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    if key != kept:
        write_private(data / KEY_FILE, key.encode() + b"\n")
    return key


def renew_key(data: Path) -> str:
    """A new random key in place of the kept one, which is worth nothing from the next moment on."""
    key = random_key()
    write_private(data / KEY_FILE, key.encode() + b"\n")
    return key


def random_key() -> str:
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")


def read_key(data: Path) -> str | None:
    """The kept key, or None where there is none. A file that others can read is closed to them."""
    path = data / KEY_FILE
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        text = path.read_text("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    if not _KEY.fullmatch(text):
        raise StoreDamaged(f"{path} does not hold a key; remove it to have a new one made.")
    return text


def write_private(path: Path, content: bytes) -> None:
    """Write a file that is never, not even for a moment, readable by others, and is there whole or not at
    all."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
