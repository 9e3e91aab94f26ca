"""Lines of metering files that are no records: heads, gaps and removed files. Few, so plain Python reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from tandembus.errors import InvalidArgument
from tandembus.metering.files import FORMAT_VERSION
from tandembus.spark.jobs.usage_result import Earlier, Gap


@dataclass(frozen=True, slots=True)
class Head:
    """The totals of everything that was counted before it, in the folder that its file is in."""

    file: str
    carried: tuple[Earlier, ...]

    @property
    def calls(self) -> int:
        """Grows from head to head."""
        return sum([each.calls for each in self.carried])


@dataclass(frozen=True, slots=True)
class GapNote:
    file: str
    gap: Gap


@dataclass(frozen=True, slots=True)
class RemovedNote:
    """An old file gave way; the next head carries what it held."""

    file: str


@dataclass(frozen=True, slots=True)
class UnreadableNote:
    file: str


Note = Head | GapNote | RemovedNote | UnreadableNote


def read_note(file: str, text: str) -> Note:
    """Raises `InvalidArgument` for a head of a newer version, which may mean something else by the same names."""
    try:
        line = json.loads(text)
        if "meter" in line:
            return _head(file, line["meter"])
        if "gap" in line:
            gap = line["gap"]
            return GapNote(file, Gap(_text(gap["namespace"]), _whole(gap["from"]), _whole(gap["to"])))
        return RemovedNote(file)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return UnreadableNote(file)


def _head(file: str, head: dict[str, object]) -> Head:
    version = _whole(head["format"])
    if version > FORMAT_VERSION:
        raise InvalidArgument(f"{file}: of format {version}, and this version reads up to {FORMAT_VERSION}: update it")
    namespace, rows = _text(head["namespace"]), head["carried"]
    if not isinstance(rows, list):
        raise TypeError("no list")
    return Head(file, tuple([_carried(namespace, row) for row in rows]))


def _carried(namespace: str, row: dict[str, object]) -> Earlier:
    figures = [_whole(row[name]) for name in ("calls", "messages", "operations", "bytes")]
    return Earlier(namespace, _text(row["operation"]), _text(row["reason"]), *figures)


def gaps_in(notes: Iterable[Note]) -> tuple[Gap, ...]:
    """What kills left out, by the meters' own account."""
    gaps = {note.gap for note in notes if isinstance(note, GapNote)}
    return tuple(sorted(gaps, key=lambda gap: (gap.from_second, gap.to_second, gap.namespace)))


def earlier_in(notes: Iterable[Note]) -> tuple[Earlier, ...]:
    """What the first head of each folder's oldest file carries: counted in files that are gone, or not given."""
    oldest: dict[str, Head] = {}
    for note in notes:
        if isinstance(note, Head):
            folder = str(PurePosixPath(note.file).parent)
            known = oldest.get(folder)
            if known is None or (note.file, note.calls) < (known.file, known.calls):
                oldest[folder] = note
    return tuple([each for folder in sorted(oldest) for each in oldest[folder].carried])


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError("no whole number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value
