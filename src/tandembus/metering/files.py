"""The meter's records as rolled, size-capped files of JSON lines.

A file starts with a head line that carries the totals of everything before it, and repeats it now and then: so
opening reads the end of one file and not the whole folder, and totals outlive the files that the cap removes. Lines
are of four kinds, told apart by their keys: `meter` (the head), `gap` (an unclean stop: what was counted between the
two seconds is missing), `removed` (an old file gave way to the size cap) and, all the rest, records.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tandembus.durability import make_folder, sync_folder
from tandembus.errors import InvalidArgument, StoreDamaged
from tandembus.metering.slot import Count

FORMAT_VERSION: Final = 1
RUNNING_MARK: Final = "running"
FILE_SUFFIX: Final = ".jsonl"
NUMBER_DIGITS: Final = 8
HEAD_INTERVAL_BYTES: Final = 512 * 1024
"""How much lies between two heads: what opening has to read."""
HEAD_START: Final = b'{"meter":'
"""Begins a line only where a head does: records begin otherwise, and a name cannot hold a line break unescaped."""
APPEND_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
CREATE_FLAGS: Final = APPEND_FLAGS | os.O_CREAT | os.O_TRUNC

Totals = dict[tuple[str, str], Count]
"""Counts by operation and reason: small however many entities come and go, so a head line can carry it."""

logger = logging.getLogger(__name__)

_sync: Final = getattr(os, "fdatasync", os.fsync)
"""Without the file's times where that can be had: they are no part of the promise, and cost a second write."""


@dataclass(frozen=True, slots=True)
class MeterSettings:
    """How much the meter may keep, on disk and in memory."""

    roll_size_bytes: int = 8 * 1024 * 1024
    total_size_bytes: int = 256 * 1024 * 1024
    max_slots: int = 100_000
    flush_interval_s: float = 1.0

    def __post_init__(self) -> None:
        if self.roll_size_bytes < 1 or self.total_size_bytes < self.roll_size_bytes:
            raise InvalidArgument("the meter's total size must hold at least one file of the roll size")
        if self.max_slots < 1 or self.flush_interval_s <= 0.0:
            raise InvalidArgument("the meter needs at least one slot and a flush interval above zero")


@dataclass(frozen=True, slots=True)
class Record:
    """What was counted for one entity, operation and reason from the start of `second` to the next flush."""

    second: int
    entity: str
    operation: str
    reason: str
    count: Count


@dataclass(slots=True)
class _Contents:
    """What one file says when read back."""

    head: dict[str, object] | None = None
    totals: Totals = field(default_factory=dict)
    last_second: int = 0
    good_size: int = 0
    head_at: int = 0
    damaged_lines: int = 0


class MeterFiles:
    """Appends records durably; on opening repairs a torn end and tells of an unclean stop.

    `append` may run in any thread. It either makes all records durable or raises OSError and leaves the file
    as if they had never been offered, so the caller may offer them again.
    """

    def __init__(self, folder: Path, namespace_name: str, settings: MeterSettings, now: float) -> None:
        self._folder = folder
        self._namespace_name = namespace_name
        self._settings = settings
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._size_bytes = 0
        self._head_at = 0
        self._number = 0
        self._totals: Totals = {}
        self._notes: list[str] = []
        self._is_marked = False
        self.gap: tuple[int, int] | None = None
        make_folder(folder)
        self._recover(now)

    def totals(self) -> Totals:
        """Everything ever written, the files already removed included."""
        with self._lock:
            return {key: _copy(count) for key, count in self._totals.items()}

    def append(self, records: Iterable[Record]) -> None:
        with self._lock:
            rows = list(records)
            if not rows and not self._notes:
                return
            self._write([_record_line(self._namespace_name, row) for row in rows])
            for row in rows:
                _add(self._totals, (row.operation, row.reason), row.count)

    def mark_running(self, now: float) -> None:
        """Before the first count: from then on something may be missing after an unclean stop. A process that is killed
        while it starts misses nothing."""
        if self._is_marked:
            return
        self._is_marked = True
        try:
            (self._folder / RUNNING_MARK).touch(0o600)
            sync_folder(self._folder)
        except OSError as error:
            _tell_unwritten(error)
        self.touch(now)

    def touch(self, now: float) -> None:
        """Everything up to now is written: a later gap starts here and not at the last record."""
        try:
            os.utime(self._folder / RUNNING_MARK, (now, now))
        except OSError:
            # The records are written; without the touch a gap would only be said to start too early.
            pass

    def close(self) -> None:
        """A clean stop: the next opening finds nothing missing."""
        with self._lock:
            self._release()
            (self._folder / RUNNING_MARK).unlink(missing_ok=True)
            sync_folder(self._folder)

    def _recover(self, now: float) -> None:
        mark = self._folder / RUNNING_MARK
        was_running_at = int(mark.stat().st_mtime) if mark.exists() else None
        last_second = self._read_back()
        if was_running_at is not None:
            self._note_gap(max(last_second, was_running_at), int(now))
        self._remove_oldest()
        try:
            self.append([])
            # The gap is written down: it is not to be told again.
            mark.unlink(missing_ok=True)
            sync_folder(self._folder)
        except OSError as error:
            # A full disk must not keep the namespace from starting: that is how people get it empty again.
            _tell_unwritten(error)

    def _note_gap(self, since: int, until: int) -> None:
        # A wall clock set back meanwhile must not make a gap that ends before it starts.
        self.gap = (since, max(since, until))
        moments = [_moment(second) for second in self.gap]
        logger.warning("unclean stop: operations counted after %s and before %s may be missing", *moments)
        self._note("gap", {"from": self.gap[0], "to": self.gap[1]})

    def _read_back(self) -> int:
        """Totals from the newest readable head onwards; returns the last second that any record names."""
        numbers = self._numbers()
        for path in map(self._path, numbers):
            if path.stat().st_mode & 0o077:  # as earlier versions made them
                path.chmod(0o600)
        newest_first: list[_Contents] = []
        for number in reversed(numbers):
            newest_first.append(self._read_file(number))
            if newest_first[-1].head is not None:
                break
        if not numbers:
            return 0
        self._number = numbers[-1]
        self._reopen(newest_first[0])
        self._totals = _carried(newest_first[-1].head)
        for contents in newest_first:
            for key, count in contents.totals.items():
                _add(self._totals, key, count)
        damaged = sum([contents.damaged_lines for contents in newest_first])
        if damaged:
            logger.warning("%d damaged lines in the newest meter files are not counted", damaged)
        return max([contents.last_second for contents in newest_first])

    def _reopen(self, newest: _Contents) -> None:
        """Go on in the newest file, without its torn end; a file that lost its head is left as it is."""
        if newest.head is None:
            return
        self._descriptor = os.open(self._path(self._number), APPEND_FLAGS)
        os.ftruncate(self._descriptor, newest.good_size)
        os.fsync(self._descriptor)
        self._size_bytes = newest.good_size
        self._head_at = newest.head_at

    def _read_file(self, number: int) -> _Contents:
        contents = _Contents()
        data = self._path(number).read_bytes()
        start = _last_head(data)
        unread_lines = 0
        while (end := data.find(b"\n", start)) >= 0:
            line = _parse(data[start:end])
            start = end + 1
            if line is None:
                unread_lines += 1
                continue
            # Lines that cannot be read count as damage only in front of a good one: at the end they are a
            # torn write.
            contents.damaged_lines += unread_lines
            unread_lines = 0
            contents.good_size = start
            _include_line(contents, line)
        return contents

    def _write(self, lines: list[str]) -> None:
        if self._descriptor is None or self._size_bytes >= self._settings.roll_size_bytes:
            self._start_file()
        head = [self._head()] if self._size_bytes - self._head_at >= HEAD_INTERVAL_BYTES else []
        size_before = self._size_bytes
        self._append_durably("".join(head + self._notes + lines).encode())
        self._notes.clear()
        if head:
            self._head_at = size_before

    def _append_durably(self, data: bytes) -> None:
        assert self._descriptor is not None
        try:
            _write_all(self._descriptor, data)
        except OSError:
            os.ftruncate(self._descriptor, self._size_bytes)
            raise
        try:
            _sync(self._descriptor)
        except OSError:
            # After a failed sync nothing is known about the file's end: cut it off and never trust this file
            # again.
            os.ftruncate(self._descriptor, self._size_bytes)
            self._release()
            raise
        self._size_bytes += len(data)

    def _start_file(self) -> None:
        self._release()
        number = self._number + 1
        path = self._path(number)
        self._descriptor = os.open(path, CREATE_FLAGS, 0o600)
        self._size_bytes = self._head_at = 0
        try:
            self._append_durably(self._head().encode())
            sync_folder(self._folder)
        except OSError:
            # A full disk must not leave one more empty file behind with every attempt.
            self._release()
            path.unlink(missing_ok=True)
            raise
        self._number = number
        self._remove_oldest()

    def _head(self) -> str:
        carried = [_total_row(key, count) for key, count in sorted(self._totals.items())]
        head = {"format": FORMAT_VERSION, "namespace": self._namespace_name, "carried": carried}
        return _line({"meter": head})

    def _remove_oldest(self) -> None:
        sizes = [(number, self._path(number).stat().st_size) for number in self._numbers()]
        total = sum([size for _, size in sizes])
        for number, size in sizes[:-1]:
            if total <= self._settings.total_size_bytes:
                return
            self._path(number).unlink()
            total -= size
            self._note("removed", {"number": number, "bytes": size})

    def _note(self, kind: str, what: dict[str, object]) -> None:
        """Notes go out in front of the next records."""
        self._notes.append(_line({kind: {**what, "namespace": self._namespace_name}}))

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _numbers(self) -> list[int]:
        stems = [path.stem for path in self._folder.glob("*" + FILE_SUFFIX)]
        return sorted([int(stem) for stem in stems if stem.isdecimal() and len(stem) == NUMBER_DIGITS])

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:0{NUMBER_DIGITS}d}{FILE_SUFFIX}"


def _tell_unwritten(error: OSError) -> None:
    logger.error("the meter cannot be written yet: %s", error)


def _moment(second: int) -> str:
    """For people. A file may name any second, also one that no calendar has."""
    try:
        return datetime.fromtimestamp(second, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return str(second)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _last_head(data: bytes) -> int:
    """Where the last head starts that can be read, or 0."""
    end = len(data)
    while (found := data.rfind(b"\n" + HEAD_START, 0, end)) >= 0:
        line_end = data.find(b"\n", found + 1)
        line = _parse(data[found + 1 : line_end]) if line_end >= 0 else None
        if line is not None and _head_in(line) is not None:
            return found + 1
        end = found
    return 0


def _parse(line: bytes) -> dict[str, object] | None:
    try:
        parsed = json.loads(line)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _include_line(contents: _Contents, line: dict[str, object]) -> None:
    head = _head_in(line)
    if head is not None:
        contents.head = head
        contents.head_at = contents.good_size
        # It carries what was read before it, too.
        contents.totals.clear()
    elif "second" in line:
        second = line["second"]
        contents.last_second = max(contents.last_second, second if isinstance(second, int) else 0)
        _add(contents.totals, (str(line.get("operation")), str(line.get("reason"))), _count_of(line))


def _head_in(line: dict[str, object]) -> dict[str, object] | None:
    """The head, if the line is one. One without a version is damaged, one of a newer version is none of ours."""
    head = line.get("meter")
    version = head.get("format") if isinstance(head, dict) else None
    if not isinstance(head, dict) or not isinstance(version, int):
        return None
    if version > FORMAT_VERSION:
        raise StoreDamaged(f"meter files of format {version}: this version reads up to {FORMAT_VERSION}")
    return head


def _carried(head: dict[str, object] | None) -> Totals:
    totals: Totals = {}
    rows = head.get("carried") if head is not None else None
    for row in rows if isinstance(rows, list) else []:
        _add(totals, (str(row["operation"]), str(row["reason"])), _count_of(row))
    return totals


def _count_of(row: dict[str, object]) -> Count:
    figures = [row.get(name) for name in ("calls", "messages", "operations", "bytes")]
    return Count(*[figure if isinstance(figure, int) else 0 for figure in figures])


def _total_row(key: tuple[str, str], count: Count) -> dict[str, object]:
    return {"operation": key[0], "reason": key[1], **figures(count)}


def figures(count: Count) -> dict[str, int]:
    """The four figures by the names that records and live counters use."""
    return {
        "calls": count.calls,
        "messages": count.messages,
        "operations": count.operations,
        "bytes": count.size_bytes,
    }


def _record_line(namespace_name: str, record: Record) -> str:
    return _line(
        {
            "second": record.second,
            "namespace": namespace_name,
            "entity": record.entity,
            "operation": record.operation,
            "reason": record.reason,
            **figures(record.count),
        }
    )


def _line(what: dict[str, object]) -> str:
    return json.dumps(what, separators=(",", ":")) + "\n"


def _add(totals: Totals, key: tuple[str, str], count: Count) -> None:
    totals.setdefault(key, Count()).include(count)


def _copy(count: Count) -> Count:
    return Count(count.calls, count.messages, count.operations, count.size_bytes)
