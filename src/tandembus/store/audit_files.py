"""The audit's records as rolled, size-capped files of JSON lines, for each store in a folder of its own.

Every line names its store and number, so files can be copied together, and read twice, without harm.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tandembus.store.audit_lines import lines_of
from tandembus.store.messaging_store import AuditPage

FILE_SUFFIX: Final = ".jsonl"
NUMBER_DIGITS: Final = 8
TAIL_BYTES: Final = 64 * 1024
"""Read at once, from the end of a file backwards."""


class AuditFiles:
    def __init__(self, folder: Path, namespace: str, file_bytes: int, file_count: int) -> None:
        self._folder = folder
        self._namespace = namespace
        self._file_bytes = file_bytes
        self._file_count = file_count

    def last_number(self, store_id: bytes) -> int:
        """Also repairs the newest file: a line, or a page, of which only a part was written is cut off."""
        for path in reversed(self._paths()):
            whole = _whole_bytes(path)
            if whole < path.stat().st_size:
                _cut(path, whole)
            last = _last_line(path)
            if last is not None:
                number = last["number"]
                return number if isinstance(number, int) and last.get("store") == store_id.hex() else 0
        return 0

    def append(self, store_id: bytes, pages: Sequence[AuditPage]) -> None:
        data = "".join([lines_of(page, self._namespace, store_id.hex()) for page in pages]).encode()
        path = self._current()
        size_before = path.stat().st_size if path.exists() else 0
        try:
            _append_durably(path, data)
        except OSError:
            _cut(path, size_before)
            raise
        if size_before == 0:
            _sync_folder(self._folder)
        self._remove_oldest()

    def _current(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        paths = self._paths()
        if not paths:
            return self._path(1)
        newest = paths[-1]
        return newest if newest.stat().st_size < self._file_bytes else self._path(int(newest.stem) + 1)

    def _remove_oldest(self) -> None:
        for path in self._paths()[: -self._file_count]:
            path.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        found = [path for path in self._folder.glob("*" + FILE_SUFFIX) if path.stem.isdecimal()]
        return sorted(found, key=lambda path: int(path.stem))

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:0{NUMBER_DIGITS}d}{FILE_SUFFIX}"


def _append_durably(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cut(path: Path, size_bytes: int) -> None:
    if path.exists():
        os.truncate(path, size_bytes)


def _whole_bytes(path: Path) -> int:
    """Up to the last page of which all lines are there."""
    end = path.stat().st_size
    while end > 0:
        start, line, is_ended = _line_before(path, end)
        content = _parsed(line) if is_ended else None
        if content is not None and _is_last_part(content):
            return end
        end = start
    return 0


def _is_last_part(content: dict[str, object]) -> bool:
    part, parts = content.get("part"), content.get("parts")
    return isinstance(part, int) and isinstance(parts, int) and part == parts - 1


def _last_line(path: Path) -> dict[str, object] | None:
    size_bytes = path.stat().st_size
    return _parsed(_line_before(path, size_bytes)[1]) if size_bytes else None


def _line_before(path: Path, end: int) -> tuple[int, bytes, bool]:
    """Where the line starts that stands before `end`, the line, and whether it is ended."""
    data = b""
    at = end
    with path.open("rb") as file:
        while at > 0:
            step = min(TAIL_BYTES, at)
            at -= step
            file.seek(at)
            data = file.read(step) + data
            found = data.rfind(b"\n", 0, len(data) - 1)
            if found >= 0:
                return at + found + 1, data[found + 1 :].rstrip(b"\n"), data.endswith(b"\n")
    return 0, data.rstrip(b"\n"), data.endswith(b"\n")


def _parsed(line: bytes) -> dict[str, object] | None:
    try:
        content = json.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) and isinstance(content.get("number"), int) else None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
