"""The root policy's key, made once and kept in the data folder where only its owner can read it."""

from __future__ import annotations

import base64
import os
import re
import secrets
from pathlib import Path
from typing import Final

from tandembus.config import EMULATOR_KEY, MIN_KEY_LENGTH
from tandembus.durability import make_folder, sync_folder
from tandembus.errors import InvalidArgument, StoreDamaged
from tandembus.security.sas import ROOT_POLICY

KEY_FILE: Final = "key"
KEY_BYTES: Final = 32
_KEY: Final = re.compile(r"[!-:<-~]{1,256}", re.ASCII)


def ensure_key(data: Path, given: str | None = None, *, accepts_emulator_key: bool = False) -> str:
    """The given key, else the one kept in `data`, else a new random one. Kept from now on, so that the commands on this
    machine find the namespace and its next start has the same key. Raises InvalidArgument for another key than the kept
    one that is too short. The emulator's key, which everybody knows, is replaced where it is not accepted."""
    kept = read_key(data)
    if kept == EMULATOR_KEY and not accepts_emulator_key:
        kept = None
    if given is None and kept is not None:
        return kept
    is_known = given == kept or (accepts_emulator_key and given == EMULATOR_KEY)
    if given is not None and len(given) < MIN_KEY_LENGTH and not is_known:
        raise InvalidArgument(f"The key of {ROOT_POLICY} needs at least {MIN_KEY_LENGTH} characters.")
    key = given or random_key()
    make_folder(data)
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


def write_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file durably: it is there whole or not at all, and never has another mode, not even for a moment."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
