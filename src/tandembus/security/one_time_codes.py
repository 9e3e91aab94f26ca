"""Codes that sign somebody in once: who can write to the data folder has the root key anyway, and need not type it.

A code is a file named by its hash, so that whoever can list the folder learns no code. Any process of the namespace
may redeem it: that is removing the file, which exactly one of them can.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path
from typing import Final

from tandembus.security.key_file import write_private

CODE_LIFETIME_S: Final = 3_600.0
CODE_BYTES: Final = 32
FOLDER: Final = Path("run") / "sign-in"
_CODE: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_EXPIRY: Final = re.compile(rb"[0-9]{1,15}\n?")


class OneTimeCodes:
    def __init__(self, data: Path) -> None:
        """`data`: the folder of the namespace. Nothing is made there before the first code is."""
        self._folder = data / FOLDER

    def make(self, now: float) -> str:
        """A new code, valid from now on. Those whose time is over are cleared away. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in list(self._folder.iterdir()):
            if _expiry_of(path) <= now:
                path.unlink(missing_ok=True)
        code = secrets.token_urlsafe(CODE_BYTES)
        write_private(self._file_of(code), b"%d\n" % (now + CODE_LIFETIME_S))
        return code

    def redeem(self, code: str, now: float) -> bool:
        """Whether the code was good; from now on it is not."""
        if _CODE.fullmatch(code) is None:
            return False
        path = self._file_of(code)
        expires_at = _expiry_of(path)
        try:
            path.unlink()
        except OSError:
            return False  # never made, or somebody else was first
        return now < expires_at

    def _file_of(self, code: str) -> Path:
        return self._folder / hashlib.sha256(code.encode()).hexdigest()


def _expiry_of(path: Path) -> int:
    """What cannot be read has no time left."""
    try:
        text = path.read_bytes()
    except OSError:
        return 0
    return int(text) if _EXPIRY.fullmatch(text) else 0
