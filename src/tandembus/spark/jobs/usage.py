"""The usage job: sums up the metering files of any number of namespaces and processes.

Spark reads, classifies and sums up the lines in one pass; no line passes through Python. Sums are of whole numbers and
never wrap around. The result is small: `metering` makes bills of it, by the formulas that the calculator and the live
counters share.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from tandembus.errors import InvalidArgument
from tandembus.metering.bills import EPOCH, Used
from tandembus.metering.files import FORMAT_VERSION
from tandembus.spark.jobs.files import REMOTE_PATTERN, SUFFIXES, check_paths, is_local, shown_name, without_patterns
from tandembus.spark.jobs.query import fitted_shuffles, reason_of, selected, spark_errors
from tandembus.spark.jobs.usage_result import Earlier, Gap, Point, SkippedLine, UsageResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

METER_FOLDER: Final = "meter"
LARGEST: Final = 10**15
"""The largest figure of one record: more than a second, or a day of a full disk, can hold. Larger ones are damage."""
LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999."""
FINE_BYTES: Final = 64 * 1024 * 1024
"""Files up to this size are summed up by the second; larger ones by the minute."""
MINUTE_S: Final = 60
MAX_STEPS: Final = 240
STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
MAX_LINES: Final = 1_000_000
"""The most lines of a bill: the driver makes it, and they take 1.5 GB there."""
NAMED_LINES: Final = 100
"""The most skipped lines that are named by their numbers; all are counted."""
FIGURES: Final = ("calls", "messages", "operations", "bytes")
NAMES: Final = ("namespace", "entity", "operation", "reason")
LINE_SCHEMA: Final = (
    "second BIGINT, namespace STRING, entity STRING, operation STRING, reason STRING, "
    "calls BIGINT, messages BIGINT, operations BIGINT, bytes BIGINT, "
    "meter STRUCT<format: BIGINT>, gap STRUCT<from: BIGINT, to: BIGINT>, removed STRUCT<number: BIGINT>, damaged STRING"
)
# Spark reads the first value of a line and ignores the rest: two records without a line end between them are damage.
# In a name the quotation marks would be escaped.
LINES: Final = f"""
    SELECT *, CASE
        WHEN is_whole AND line.second BETWEEN 0 AND {LAST_SECOND}
            AND {" AND ".join(f"line.{name} IS NOT NULL" for name in NAMES)}
            AND {" AND ".join(f"line.{name} BETWEEN 0 AND {LARGEST}" for name in FIGURES)} THEN 'record'
        WHEN is_whole AND (line.meter.format IS NOT NULL OR line.removed.number IS NOT NULL
            OR (line.gap.from IS NOT NULL AND line.gap.to IS NOT NULL)) THEN 'note'
        WHEN trim(value) = '' THEN 'empty'
        ELSE 'skipped' END AS kind
    FROM (
        SELECT *, line.damaged IS NULL AND NOT contains(substring(value, 2), '{{{{"second":') AS is_whole
        FROM (
            SELECT *, from_json(value, '{LINE_SCHEMA}',
                map('columnNameOfCorruptRecord', 'damaged', 'mode', 'PERMISSIVE', 'allowSingleQuotes', 'false')) AS line
            FROM {{files}}))"""
# Records are summed up twice in one pass: by day and entity for bills, and by moment without entities for timelines. By
# both at once there would be as many sums as records.
CELLS: Final = f"""
    SELECT kind, file, text, day, moment, {", ".join(NAMES)},
        count(*) AS lines, min(second) AS first, max(second) AS last,
        {", ".join(f"try_sum({name}) AS {name}" for name in FIGURES)}
    FROM (
        SELECT kind, if(kind != 'record', source, NULL) AS file, if(kind = 'note', value, NULL) AS text,
            if(kind = 'record', int(line.second DIV 86400), NULL) AS day,
            if(kind = 'record', line.second - line.second % {{grain_s}}, NULL) AS moment,
            {", ".join(f"if(kind = 'record', line.{name}, NULL) AS {name}" for name in NAMES)},
            line.second, {", ".join(f"line.{name}" for name in FIGURES)}
        FROM {{lines}})
    GROUP BY GROUPING SETS (
        (kind, file, text, day, {", ".join(NAMES)}), (kind, moment, namespace, operation, reason))"""
# A sum is NULL if it, or one of its parts, would be too large.
POINTS: Final = f"""
    SELECT moment - moment % {{step_s}} AS step, namespace, operation, reason,
        {", ".join(f"if(count({name}) = count(*), try_sum({name}), NULL) AS {name}" for name in FIGURES[1:])}
    FROM {{cells}} WHERE kind = 'record' AND moment IS NOT NULL
    GROUP BY step, namespace, operation, reason ORDER BY step"""


@dataclass(frozen=True, slots=True)
class UsageOptions:
    """`paths`: data folders, meter folders or files."""

    paths: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.paths:
            raise InvalidArgument("no metering files are given: name a namespace's data folder")


@dataclass(frozen=True, slots=True)
class MeteringFile:
    spark_name: str
    """The name as Spark takes it, with what would be a pattern escaped."""
    shown: str
    size_bytes: int


def run_usage(spark: SparkSession, options: UsageOptions) -> UsageResult:
    """Raises `InvalidArgument` if there is nothing to read; damaged lines are counted, named and left out."""
    files = metering_files(spark, options.paths)
    size_bytes = sum([each.size_bytes for each in files])
    grain_s = 1 if size_bytes <= FINE_BYTES else MINUTE_S
    with fitted_shuffles(spark, size_bytes):
        rows = _read(spark, files).selectExpr("value", "_metadata.file_path AS source")
        cells = selected(spark, CELLS, lines=selected(spark, LINES, files=rows), grain_s=grain_s).persist()
        try:
            return _result(spark, cells, files, grain_s)
        finally:
            cells.unpersist()


def _result(spark: SparkSession, cells: DataFrame, files: Sequence[MeteringFile], grain_s: int) -> UsageResult:
    by_day = cells.where("kind = 'record' AND day IS NOT NULL")
    extent = by_day.selectExpr("count(*)", "coalesce(sum(lines), 0)", "min(first)", "max(last)").collect()
    ((line_count, record_count, first, last),) = extent
    check_bound(line_count)
    period = None if first is None else (first, last)
    step_s = step_for(period, grain_s)
    odd = cells.where("kind IN ('note', 'skipped') AND file IS NOT NULL").collect()
    skipped = Counter({shown_name(row["file"]): int(row["lines"]) for row in odd if row["kind"] == "skipped"})
    named = _skipped_lines(spark, [each for each in files if each.shown in skipped])
    points = selected(spark, POINTS, cells=cells, step_s=step_s).collect()
    notes = Notes()
    for row in odd:
        if row["kind"] == "note":
            notes.add(shown_name(row["file"]), row["text"])
    skipped.update(notes.unreadable)
    return UsageResult(
        files=len(files),
        records=record_count,
        period=period,
        used=tuple(
            [
                Used(row[0], row[1], row[2], row[3], EPOCH + timedelta(days=row["day"]), *_figures(row, FIGURES))
                for row in by_day.select(*NAMES, "day", *FIGURES).collect()
            ]
        ),
        step_s=step_s,
        points=tuple([Point(*row[:4], *_figures(row, FIGURES[1:])) for row in points]),
        gaps=notes.gaps,
        skipped=sum(skipped.values()),
        skipped_files=tuple(sorted(skipped.items())),
        skipped_lines=named,
        earlier=notes.earlier,
    )


def check_bound(lines: int) -> None:
    if lines > MAX_LINES:
        raise InvalidArgument(
            f"a bill of {lines:,} lines (one for each day, entity, operation and reason) is more than the "
            f"{MAX_LINES:,} that one can have: give fewer files at a time, such as those of a month or of one namespace"
        )


def step_for(period: tuple[int, int] | None, grain_s: int) -> int:
    """The shortest step that divides the whole period into at most `MAX_STEPS`."""
    span_s = 0 if period is None else period[1] - period[0] + 1
    for step_s in STEPS_S:
        if step_s >= grain_s and span_s <= step_s * MAX_STEPS:
            return step_s
    return -(-span_s // (STEPS_S[-1] * MAX_STEPS)) * STEPS_S[-1]


def _figures(row: Row, names: Sequence[str]) -> list[int]:
    figures = [row[name] for name in names]
    if None in figures:
        raise InvalidArgument(
            "figures in these files add up to more than 2^63: one of the files is not the meter's own"
        )
    return figures


def _read(spark: SparkSession, files: Iterable[MeteringFile]) -> DataFrame:
    return spark.read.option("lineSep", "\n").text([each.spark_name for each in files])


def _skipped_lines(spark: SparkSession, files: Sequence[MeteringFile]) -> tuple[SkippedLine, ...]:
    """The numbers of skipped lines. Only files that have any are read again for them, however large they are.

    Spark reads a file in blocks. A line is known by its block and its place there, and the blocks before it by how many
    lines they have.
    """
    if not files:
        return ()
    place = (
        "_metadata.file_path AS file",
        "_metadata.file_block_start AS block",
        "monotonically_increasing_id() AS place",
    )
    lines = _read(spark, files).selectExpr(*place, "value")
    found = selected(spark, LINES, files=lines).where("kind = 'skipped'").select("file", "block", "place")
    skipped = found.orderBy("file", "block", "place").limit(NAMED_LINES).collect()
    blocks = lines.groupBy("file", "block").agg({"*": "count", "place": "min"})
    first_lines: dict[tuple[str, int], int] = {}
    line, file = 1, ""
    for row in blocks.orderBy("file", "block").collect():
        line = line if row["file"] == file else 1
        file = row["file"]
        first_lines[file, row["block"]] = line - row["min(place)"]
        line += row["count(1)"]
    return tuple(
        [SkippedLine(shown_name(row["file"]), first_lines[row["file"], row["block"]] + row["place"]) for row in skipped]
    )


class Notes:
    """Collects the lines of metering files that are no records: heads, gaps and removed files. They are few."""

    def __init__(self) -> None:
        self.unreadable: Final[list[str]] = []
        """The file of each note that could not be read."""
        self._gaps: Final[set[Gap]] = set()
        self._oldest: Final[dict[PurePosixPath, tuple[str, int, list[Earlier]]]] = {}
        """By folder, the head of its oldest file, and of several the first: heads carry ever more calls."""

    def add(self, file: str, text: str) -> None:
        """Raises `InvalidArgument` for a head of a newer version, which may mean something else by the same names."""
        try:
            line = json.loads(text)
            if "meter" in line:
                self._add_head(file, line["meter"])
            elif "gap" in line:
                gap = line["gap"]
                self._gaps.add(Gap(_text(gap["namespace"]), _whole(gap["from"]), _whole(gap["to"])))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.unreadable.append(file)

    def _add_head(self, file: str, head: dict[str, Any]) -> None:
        version = _whole(head["format"])
        if version > FORMAT_VERSION:
            raise InvalidArgument(
                f"{file}: of format {version}, and this version reads up to {FORMAT_VERSION}: update it"
            )
        namespace = _text(head["namespace"])
        carried = [
            Earlier(namespace, _text(row["operation"]), _text(row["reason"]), *[_whole(row[name]) for name in FIGURES])
            for row in head["carried"]
        ]
        found = (file, sum([each.calls for each in carried]), carried)
        folder = PurePosixPath(file).parent
        self._oldest[folder] = min(self._oldest.get(folder, found), found, key=lambda one: one[:2])

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What kills left out, by the meters' own account."""
        return tuple(sorted(self._gaps, key=lambda gap: (gap.from_second, gap.to_second, gap.namespace)))

    @property
    def earlier(self) -> tuple[Earlier, ...]:
        """What the first head of each folder carries: it was counted in files that are gone, or were not given."""
        return tuple([each for folder in sorted(self._oldest) for each in self._oldest[folder][2]])


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError("no whole number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


# Which files are meant.


def check_metering_paths(paths: Iterable[str]) -> None:
    """Raises `InvalidArgument` for a local path without metering files, before Spark is started."""
    paths = list(paths)
    check_paths(paths)
    for path in paths:
        if is_local(path) and not local_files(Path(path)):
            raise _no_metering_files(path)


def _no_metering_files(path: str) -> InvalidArgument:
    return InvalidArgument(
        f"{path}: no metering files ({' or '.join(SUFFIXES)}): give a namespace's data folder, its folder "
        f"{METER_FOLDER!r}, or files of that"
    )


def metering_files(spark: SparkSession, paths: Iterable[str]) -> list[MeteringFile]:
    """Each file once, also if it is named twice."""
    paths = list(paths)
    check_paths(paths)
    found: dict[str, MeteringFile] = {}
    for path in paths:
        files = local_files(Path(path)) if is_local(path) else _remote_files(spark, path)
        if not files:
            raise _no_metering_files(path)
        found.update({each.shown: each for each in files})
    return list(found.values())


def local_files(path: Path) -> list[MeteringFile]:
    if path.is_file():
        chosen = [path]
    else:
        folder = path / METER_FOLDER if (path / METER_FOLDER).is_dir() else path
        chosen = sorted([each for each in folder.rglob("*") if each.name.endswith(SUFFIXES) and each.is_file()])
    resolved = [Path(each) for each in of_the_meter([str(each.resolve()) for each in chosen])]
    return [MeteringFile(f"file:{without_patterns(str(each))}", str(each), each.stat().st_size) for each in resolved]


def of_the_meter(names: Iterable[str]) -> list[str]:
    """Leaves out files with a folder `meter` beside them: a data folder holds audit files, too."""
    parted = [name.split("/") for name in names]
    data_folders = {
        tuple(parts[:place]) for parts in parted for place, part in enumerate(parts[:-1]) if part == METER_FOLDER
    }
    return [
        "/".join(parts)
        for parts in parted
        if all(part == METER_FOLDER or tuple(parts[:place]) not in data_folders for place, part in enumerate(parts))
    ]


def _remote_files(spark: SparkSession, path: str) -> list[MeteringFile]:
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", True)
    try:
        # Only names and sizes are asked for, so nothing is read.
        rows = reader.option("pathGlobFilter", REMOTE_PATTERN).load(path).select("path", "length").collect()
    except spark_errors() as error:
        if "PATH_NOT_FOUND" in str(error):
            return []
        # Spark has no library for an address of this kind, it is no address at all, or the place does not answer.
        raise InvalidArgument(f"{path}: cannot be read: {reason_of(error)}") from None
    sizes = {row["path"]: row["length"] for row in rows}
    return [MeteringFile(without_patterns(name), shown_name(name), sizes[name]) for name in of_the_meter(sizes)]
