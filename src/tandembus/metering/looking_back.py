"""What the meter's files say about a stretch of time, read while the meter goes on writing them.

Files may hold a day of a busy namespace, far too much to be read whenever somebody looks. But they are in order of
time, and heads carry the totals of everything before them: what was counted up to a moment is found by halving, and by
adding up what lies between a head and that moment. Only what a failover took is read record by record, part by part.

For threads: everything here waits for the disk. Files are read by position, never mapped: the meter cuts the end off a
file that it could not write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import BinaryIO, Final

from tandembus.metering.bills import Used, day_of
from tandembus.metering.failover_costs import SUBSCRIPTIONS
from tandembus.metering.files import FILE_SUFFIX, HEAD_START, NUMBER_DIGITS, Totals
from tandembus.metering.meter import OTHER_ENTITIES
from tandembus.metering.slot import NORMAL, RECEIVE, Count

BLOCK_BYTES: Final = 64 * 1024
"""More than any line has."""
MAX_FOLDERS: Final = 256
MAX_READ_BYTES: Final = 16 * 1024 * 1024
"""That one look at a failover reads of the records; the next one goes on there."""
DISORDER_S: Final = 60
"""Records may be this much older than those before them: a clock was set, or they could not be written at once."""
LOOKED_AT: Final = 256
"""Of records that are not wanted each so-manieth is looked at, for its time."""
MAX_ROWS: Final = 20_000
"""Rows of a failover; what is beyond is told as that of other entities."""
LAST_SECOND: Final = 253_402_300_799
_NORMAL: Final = f'"reason":"{NORMAL}"'.encode()
_SUBSCRIPTIONS: Final = SUBSCRIPTIONS.encode()


def meter_folders(root: Path) -> list[Path]:
    """The folder of a namespace's meter, and those of its further processes."""
    with suppress(OSError):
        return [root, *sorted(path for path in root.iterdir() if path.is_dir())][:MAX_FOLDERS]
    return []


def counted_between(before: Totals, after: Totals) -> Totals:
    """What was counted between two moments, by all that was counted up to each of them."""
    totals: Totals = {}
    for key, count in after.items():
        known = before.get(key, Count())
        more = Count(
            count.calls - known.calls,
            count.messages - known.messages,
            count.operations - known.operations,
            count.size_bytes - known.size_bytes,
        )
        if more.calls > 0:
            totals[key] = more
    return totals


def counted_before(folder: Path, second: int | None) -> Totals:
    """Everything that was counted before a second, or up to now; what the size cap has removed is in it."""
    files = _files(folder)
    totals: Totals = {}
    for path in reversed(files):
        with path.open("rb") as file:
            first = _first_second(file, 0)
            if path != files[0] and (first is None or (second is not None and first >= second)):
                continue
            _add_up(file, second, totals)
            return totals
    return totals


def _add_up(file: BinaryIO, second: int | None, totals: Totals) -> None:
    """From the last head in front of the moment up to it."""
    near = _size(file) if second is None else _place(file, second)
    for line in _lines(file, _head_before(file, near)):
        record = _parse(line)
        if line.startswith(HEAD_START):
            _take_head(record, totals)
        elif (at := _second_of(record)) is not None:
            if second is not None and at >= second:
                return
            _include(totals, record)


class FailoverReader:
    """What was counted for a failover: the records with its reasons, and who receives from which subscription, from one
    second to another or up to now. Goes on where it was when it is asked again."""

    def __init__(self, folder: Path, since: int, until: int | None = None, max_rows: int = MAX_ROWS) -> None:
        self._folder = folder
        self._since = since
        self._until = LAST_SECOND if until is None else until
        self._max_rows = max_rows
        self._number: str | None = None
        self._offset = 0
        self._rows: dict[tuple[date, str, str, str], Count] = {}
        self._is_past = False
        """A record was seen that is so much later that none of those behind it matters."""
        self.is_complete = True

    def read(self, max_bytes: int = MAX_READ_BYTES) -> None:
        """Raises OSError."""
        left = max_bytes
        for path in [] if self._is_past else self._files_to_read():
            if path.stem != self._number:
                self._number, self._offset = path.stem, 0
            with path.open("rb") as file:
                if self._offset == 0:
                    self._offset = _place(file, self._since)
                left -= self._read_file(file, left)
            if self._is_past:
                break
            if left <= 0:
                self.is_complete = False
                return
        self.is_complete = True

    def used(self, namespace: str) -> list[Used]:
        return [
            Used(
                namespace,
                entity,
                operation,
                reason,
                day,
                count.calls,
                count.messages,
                count.operations,
                count.size_bytes,
            )
            for (day, entity, operation, reason), count in self._rows.items()
        ]

    def _files_to_read(self) -> list[Path]:
        files = _files(self._folder)
        if self._number is not None:
            return [path for path in files if path.stem >= self._number]
        for index in range(len(files) - 1, 0, -1):
            with files[index].open("rb") as file:
                first = _first_second(file, 0)
            if first is not None and first < self._since:
                return files[index:]
        return files

    def _read_file(self, file: BinaryIO, most: int) -> int:
        """Returns how many bytes were read."""
        begin = self._offset
        for number, line in enumerate(_lines(file, begin)):
            self._offset += len(line) + 1
            is_wanted = _NORMAL not in line or _SUBSCRIPTIONS in line
            if is_wanted or number % LOOKED_AT == 0:
                record = _parse(line)
                self._is_past = (_second_of(record) or 0) > self._until + DISORDER_S
                if is_wanted:
                    self._take(record)
            if self._is_past or self._offset - begin >= most:
                break
        return self._offset - begin

    def _take(self, record: dict[str, object]) -> None:
        second, reason = _second_of(record), str(record.get("reason"))
        operation, entity = str(record.get("operation")), str(record.get("entity"))
        is_delivery = operation == RECEIVE and SUBSCRIPTIONS in entity
        if second is None or not self._since <= second <= self._until or (reason == NORMAL and not is_delivery):
            return
        key = (day_of(second), entity, operation, reason)
        if key not in self._rows and len(self._rows) >= self._max_rows:
            key = (day_of(second), OTHER_ENTITIES, operation, reason)
        self._rows.setdefault(key, Count()).include(_count_of(record))


# Files.


def _files(folder: Path) -> list[Path]:
    """In order. One that the size cap removes meanwhile is the caller's OSError."""
    found = [path for path in folder.glob("*" + FILE_SUFFIX) if path.stem.isdecimal()]
    return sorted([path for path in found if len(path.stem) == NUMBER_DIGITS])


def _size(file: BinaryIO) -> int:
    return file.seek(0, 2)


def _place(file: BinaryIO, second: int) -> int:
    """Where a line begins behind which records of this second may stand, and before which none do."""
    low, high = 0, _size(file)
    while high - low > BLOCK_BYTES:
        middle = (low + high) // 2
        found = _first_second(file, middle)
        if found is None or found >= second:
            high = middle
        else:
            low = middle
    return _line_start(file, low)


def _line_start(file: BinaryIO, at: int) -> int:
    if at == 0:
        return 0
    file.seek(at - 1)
    return at + file.read(BLOCK_BYTES).find(b"\n")


def _first_second(file: BinaryIO, at: int) -> int | None:
    """Of the first record in the lines behind a place."""
    file.seek(at)
    lines = file.read(BLOCK_BYTES).split(b"\n")
    for line in lines[1 if at else 0 : -1]:
        second = _second_of(_parse(line))
        if second is not None:
            return second
    return None


def _head_before(file: BinaryIO, at: int) -> int:
    """The last head that begins at or before a place; else the beginning."""
    end = at + len(HEAD_START) + 1
    while end > 0:
        start = max(end - BLOCK_BYTES, 0)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n" + HEAD_START)
        if found >= 0:
            return start + found + 1
        if start == 0:
            return 0
        end = start + len(HEAD_START) + 1  # one may lie across the edge
    return 0


def _lines(file: BinaryIO, at: int) -> Iterator[bytes]:
    """Whole lines from a place on; an end that is being written is left out."""
    file.seek(at)
    rest = b""
    while block := file.read(BLOCK_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
        if len(rest) > BLOCK_BYTES:
            rest = b""  # no line of the meter's


# Lines.


def _parse(line: bytes) -> dict[str, object]:
    with suppress(ValueError):
        parsed = json.loads(line)
        if isinstance(parsed, dict):
            return parsed
    return {}


def _second_of(record: dict[str, object]) -> int | None:
    second = record.get("second")
    return second if isinstance(second, int) and 0 <= second <= LAST_SECOND else None


def _take_head(record: dict[str, object], totals: Totals) -> None:
    """It carries all that was before."""
    head = record.get("meter")
    rows = head.get("carried") if isinstance(head, dict) else None
    if not isinstance(rows, list):
        return
    totals.clear()
    for row in rows:
        if isinstance(row, dict):
            _include(totals, row)


def _include(totals: Totals, record: dict[str, object]) -> None:
    key = (str(record.get("operation")), str(record.get("reason")))
    totals.setdefault(key, Count()).include(_count_of(record))


def _count_of(record: dict[str, object]) -> Count:
    figures = [record.get(name) for name in ("calls", "messages", "operations", "bytes")]
    return Count(*[figure if isinstance(figure, int) and figure >= 0 else 0 for figure in figures])
