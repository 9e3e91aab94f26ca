"""What a backup says of itself: every file, its size, its checksum and its mode.

It is written last, so a folder without one is no backup. It may come from anywhere: what it says is checked before it
is followed, and no path in it leads out of its folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Final

MANIFEST_FILE: Final = "manifest.json"
FORMAT: Final = 1
MAX_MANIFEST_BYTES: Final = 64 << 20
MAX_FILES: Final = 100_000
MAX_PATH_LENGTH: Final = 512
MAX_FILE_BYTES: Final = 1 << 46
LAST_MOMENT: Final = 1 << 33
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


class BackupError(Exception):
    """A backup that cannot be made, or not be used. No client ever sees this: it ends a command."""


@dataclass(frozen=True, slots=True)
class BackupFile:
    """One file, by its path below the data folder."""

    path: str
    size_bytes: int
    sha256: str
    mode: int


@dataclass(frozen=True, slots=True)
class Manifest:
    namespace: str
    version: str
    """Of the tandembus that made it."""
    created_at: float
    """Just before the instant that it shows."""
    stores: int
    files: Sequence[BackupFile]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def encode_manifest(manifest: Manifest) -> bytes:
    document = {"format": FORMAT, **asdict(manifest)}
    return json.dumps({**document, "sha256": _seal(document)}, indent=1).encode() + b"\n"


def read_manifest(folder: Path) -> Manifest:
    """Raises BackupError."""
    path = folder / MANIFEST_FILE
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        raise BackupError(f"{folder} is no backup, or one that was never finished: it has no {MANIFEST_FILE}") from None
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(raw) > MAX_MANIFEST_BYTES:
        raise BackupError(f"{path} is larger than {MAX_MANIFEST_BYTES} bytes")
    try:
        return _manifest_of(json.loads(raw))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BackupError(f"{path} is damaged: {error}") from None


def _manifest_of(document: object) -> Manifest:
    if not isinstance(document, dict):
        raise ValueError("it is no document")
    seal = document.pop("sha256", None)
    if document.get("format") != FORMAT:
        raise ValueError(f"it has the format {document.get('format')!r}, and this version knows format {FORMAT}")
    if seal != _seal(document):
        raise ValueError("its own checksum is wrong")
    files = [_file_of(one) for one in _list(document["files"])]
    if len({file.path for file in files}) != len(files):
        raise ValueError("a file stands there twice")
    return Manifest(
        _text(document["namespace"]),
        _text(document["version"]),
        _moment(document["created_at"]),
        _whole(document["stores"], MAX_FILES),
        files,
    )


def _file_of(document: Mapping[str, object]) -> BackupFile:
    path, sha256 = _text(document["path"]), _text(document["sha256"])
    if not is_inside(path):
        raise ValueError(f"{path[:MAX_PATH_LENGTH]!r} is no path below the backup")
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"{path!r} has no checksum")
    size_bytes = _whole(document["size_bytes"], MAX_FILE_BYTES)
    return BackupFile(path, size_bytes, sha256, _whole(document["mode"], 0o777))


def is_inside(path: str) -> bool:
    """Plain names, one below the other: nothing absolute, hidden, or leading upwards."""
    if len(path) > MAX_PATH_LENGTH or path == MANIFEST_FILE or str(PurePosixPath(path)) != path:
        return False
    return all(_PART.fullmatch(part) for part in path.split("/"))


def _seal(document: Mapping[str, object]) -> str:
    """A slip of a bit in the manifest itself must not pass for another backup."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _list(value: object) -> list[Mapping[str, object]]:
    if not isinstance(value, list) or len(value) > MAX_FILES:
        raise ValueError("the list of files is none, or too long")
    if not all(isinstance(one, dict) for one in value):
        raise ValueError("the list of files holds something else")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is missing")
    return value


def _moment(value: object) -> float:
    if not isinstance(value, (int, float)) or not 0 <= value < LAST_MOMENT:
        raise ValueError("the time of the backup is none")
    return float(value)


def _whole(value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{str(value)[:40]} is not a whole number up to {most}")
    return value
