"""The audit's records as rolled, size-capped files of JSON lines, for each store in a folder of its own.

Every line names its store and number, so files can be copied together, and read twice, without harm.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tandembus.durability import make_folder, sync_folder
from tandembus.store.audit_lines import ENDED, ROLLED, STREAM, lines_of, mark_of
from tandembus.store.messaging_store import AuditPage

FILE_SUFFIX: Final = ".jsonl"
NUMBER_DIGITS: Final = 8
TAIL_BYTES: Final = 64 * 1024
"""Read at once, from the end of a file backwards."""


class AuditFiles:
    def __init__(
        self, folder: Path, namespace: str, file_bytes: int, file_count: int, index: int = 0, store_count: int = 1
    ) -> None:
        self._folder = folder
        self._namespace = namespace
        self._file_bytes = file_bytes
        self._file_count = file_count
        self._index = index
        self._store_count = store_count
        self._begun: bytes | None = None
        """The store whose mark this writer has written."""

    def last_number(self, store_id: bytes) -> int:
        """Also repairs the newest file: a line, or a page, of which only a part was written is cut off, and so is the
        mark that the records end, as they go on."""
        for path in reversed(self._paths()):
            whole = _whole_bytes(path, store_id.hex())
            if whole < path.stat().st_size:
                _cut(path, whole)
            last = _last_line(path)
            if last is not None:
                number = last["number"]
                return number if isinstance(number, int) and last.get("store") == store_id.hex() else 0
        return 0

    def append(self, store_id: bytes, pages: Sequence[AuditPage]) -> None:
        text = "".join([lines_of(page, self._namespace, store_id.hex()) for page in pages])
        self._write(store_id, pages[0].number - 1, text, self._mark(ROLLED, store_id, pages[-1].number))

    def finish(self, store_id: bytes, number: int) -> None:
        self._write(store_id, number, self._mark(ENDED, store_id, number))

    def _write(self, store_id: bytes, before: int, text: str, when_full: str = "") -> None:
        path = self._current()
        size_before = path.stat().st_size if path.exists() else 0
        if size_before == 0 or self._begun != store_id:
            text = self._beginning(store_id, path, before) + text
        data = text.encode()
        if size_before + len(data) >= self._file_bytes:
            data += when_full.encode()
        try:
            _append_durably(path, data)
        except OSError:
            _cut(path, size_before)
            raise
        self._begun = store_id
        if size_before == 0:
            sync_folder(self._folder)
        self._remove_oldest()

    def _mark(self, kind: str, store_id: bytes, number: int, **facts: int) -> str:
        return mark_of(kind, self._namespace, store_id.hex(), number, **facts)

    def _beginning(self, store_id: bytes, path: Path, before: int) -> str:
        """Also says how many records of the store have given way by now, so that no others can be missing unseen."""
        written = self._paths()
        kept = [*[each for each in written if each != path], path][-self._file_count :]
        trimmed = self._trimmed_before(written, store_id.hex())
        if written and kept[0] != written[0]:
            trimmed = max(trimmed, _records_before(kept[0], store_id.hex()))
        return self._mark(STREAM, store_id, before, index=self._index, stores=self._store_count, trimmed=trimmed)

    def _trimmed_before(self, written: Sequence[Path], store: str) -> int:
        """As the newest file says; an earlier version has not said it, so all that is not there has given way."""
        newest = next((line for path in reversed(written) if (line := _first_line(path)) is not None), {})
        if newest.get("store") != store:
            return 0
        trimmed = newest.get("trimmed")
        return trimmed if isinstance(trimmed, int) else _records_before(written[0], store)

    def _current(self) -> Path:
        make_folder(self._folder)
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
    if not path.exists():
        return
    with path.open("rb+") as file:
        file.truncate(size_bytes)
        os.fsync(file.fileno())


def _whole_bytes(path: Path, store: str) -> int:
    """Up to the last page of which all lines are there, or the last mark but one that this store's records end."""
    end = path.stat().st_size
    while end > 0:
        start, line, is_ended = _line_before(path, end)
        content = _parsed(line) if is_ended else None
        if content is not None and (_is_last_part(content) or _is_mark_to_keep(content, store)):
            return end
        end = start
    return 0


def _is_last_part(content: dict[str, object]) -> bool:
    part, parts = content.get("part"), content.get("parts")
    return isinstance(part, int) and isinstance(parts, int) and part == parts - 1


def _is_mark_to_keep(content: dict[str, object], store: str) -> bool:
    kind = content.get("kind")
    return kind in (STREAM, ROLLED) or (kind == ENDED and content.get("store") != store)


def _first_line(path: Path) -> dict[str, object] | None:
    with path.open("rb") as file:
        return _parsed(file.readline())


def _records_before(path: Path, store: str) -> int:
    """How many records of the store came before the first line of this file."""
    first = _first_line(path)
    if first is None or first.get("store") != store:
        return 0
    number = first["number"]
    assert isinstance(number, int)
    return number if first.get("kind") == STREAM else number - 1


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
