"""The usage job: the meter's files, of any number of namespaces and processes, become what was used.

Lines are read, told apart and summed up by Spark's own functions, in one pass; no line passes through Python. Sums are
of whole numbers and never wrap around. What is left after that is small: bills are made of it elsewhere, by the
formulas that the calculator and the live counters share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final

from tandembus.errors import InvalidArgument
from tandembus.metering.bills import Used
from tandembus.spark.jobs.usage_files import MeteringFile, metering_files, shown_name
from tandembus.spark.jobs.usage_notes import UnreadableNote, earlier_in, gaps_in, read_note
from tandembus.spark.jobs.usage_result import Point, SkippedLine, UsageResult

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

FIGURES: Final = ("calls", "messages", "operations", "bytes")
NAMES: Final = ("namespace", "entity", "operation", "reason")
LARGEST: Final = 10**15
"""Of a figure in one record: more than a second, or a day of a full disk, can hold. Larger ones are damage."""
LAST_SECOND: Final = 253_402_300_799
"""Of the year 9999."""
FINE_BYTES: Final = 64 * 1024 * 1024
"""Up to so much, time is looked at by the second; beyond, by the minute."""
MINUTE_S: Final = 60
MAX_STEPS: Final = 240
STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
MAX_LINES: Final = 1_000_000
"""Of a bill, which is made by the driver: so many take 1.5 GB there."""
NAMED_LINES: Final = 100
"""So many skipped lines are named by their numbers; all are counted."""

LINE_SCHEMA: Final = (
    "second BIGINT, namespace STRING, entity STRING, operation STRING, reason STRING, "
    "calls BIGINT, messages BIGINT, operations BIGINT, bytes BIGINT, "
    "meter STRUCT<format: BIGINT>, gap STRUCT<from: BIGINT, to: BIGINT>, removed STRUCT<number: BIGINT>, damaged STRING"
)
PARSING: Final = {"columnNameOfCorruptRecord": "damaged", "mode": "PERMISSIVE", "allowSingleQuotes": "false"}
RECORD_START: Final = '{"second":'
LONGEST_LINE: Final = (1 << 31) - 1
RECORD: Final = "record"
NOTE: Final = "note"
SKIPPED: Final = "skipped"
EMPTY: Final = "empty"
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class UsageOptions:
    """`paths`: data folders, meter folders or files."""

    paths: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.paths:
            raise InvalidArgument("no metering files are given: name a namespace's data folder")


def run_usage(spark: SparkSession, options: UsageOptions) -> UsageResult:
    """Raises `InvalidArgument` where there is nothing to read; damaged lines are counted, named and left out."""
    files = metering_files(spark, options.paths)
    grain_s = 1 if sum([each.size_bytes for each in files]) <= FINE_BYTES else MINUTE_S
    lines = _lines(spark, [each.spark_name for each in files])
    cells = _cells(lines, grain_s).persist()
    try:
        return _result(spark, cells, files, grain_s)
    finally:
        cells.unpersist()


def _result(spark: SparkSession, cells: DataFrame, files: Sequence[MeteringFile], grain_s: int) -> UsageResult:
    odd = cells.where(f"kind IN ('{NOTE}', '{SKIPPED}') AND file IS NOT NULL").collect()
    by_day = cells.where(f"kind = '{RECORD}' AND day IS NOT NULL")
    by_moment = cells.where(f"kind = '{RECORD}' AND moment IS NOT NULL")
    lines, count, first, last = _extent(by_day)
    check_bound(lines)
    period = None if first is None or last is None else (first, last)
    step_s = step_for(period, grain_s)
    notes = [read_note(shown_name(row["file"]), row["text"]) for row in odd if row["kind"] == NOTE]
    skipped = Counter({shown_name(row["file"]): int(row["lines"]) for row in odd if row["kind"] == SKIPPED})
    named = _skipped_lines(spark, [each for each in files if each.shown in skipped])
    skipped.update([each.file for each in notes if isinstance(each, UnreadableNote)])
    return UsageResult(
        files=len(files),
        records=count,
        period=period,
        used=_used(by_day),
        step_s=step_s,
        points=_points(by_moment, step_s),
        gaps=gaps_in(notes),
        skipped=sum(skipped.values()),
        skipped_files=tuple(sorted(skipped.items())),
        skipped_lines=named,
        earlier=earlier_in(notes),
    )


def check_bound(lines: int) -> None:
    if lines > MAX_LINES:
        raise InvalidArgument(
            f"a bill of {lines:,} lines (one for each day, entity, operation and reason) is more than the "
            f"{MAX_LINES:,} that one can have: give fewer files at a time, such as those of a month or of one namespace"
        )


def step_for(period: tuple[int, int] | None, grain_s: int) -> int:
    """The shortest step by which the whole time is told in few enough of them."""
    span_s = 0 if period is None else period[1] - period[0] + 1
    for step_s in STEPS_S:
        if step_s >= grain_s and span_s <= step_s * MAX_STEPS:
            return step_s
    days = -(-span_s // (STEPS_S[-1] * MAX_STEPS))
    return days * STEPS_S[-1]


# Lines.


def _told_apart(lines: DataFrame, text: str = "value") -> DataFrame:
    """Each line with what is in it, and of which kind it is."""
    from pyspark.sql import functions as f

    parsed = f.from_json(f.col(text), LINE_SCHEMA, PARSING)
    return lines.withColumn("line", parsed).withColumn("kind", _kind(text))


def _kind(text: str) -> Column:
    from pyspark.sql import functions as f

    line = "line."
    # Spark reads the first value of a line and lets the rest go: two records without a line end between are damage.
    # In a name the quotation marks would be escaped.
    rest = f.substring(f.col(text), 2, LONGEST_LINE)
    whole = f.col(line + "damaged").isNull() & ~f.contains(rest, f.lit(RECORD_START))
    figures = [f.col(line + name).between(0, LARGEST) for name in FIGURES]
    names = [f.col(line + name).isNotNull() for name in NAMES]
    is_record = whole & f.col(line + "second").between(0, LAST_SECOND)
    for each in (*names, *figures):
        is_record = is_record & each
    is_note = whole & (
        f.col("line.meter.format").isNotNull()
        | (f.col("line.gap.from").isNotNull() & f.col("line.gap.to").isNotNull())
        | f.col("line.removed.number").isNotNull()
    )
    return f.when(is_record, RECORD).when(is_note, NOTE).when(f.trim(f.col(text)) == "", EMPTY).otherwise(SKIPPED)


def _cells(lines: DataFrame, grain_s: int) -> DataFrame:
    """Records summed up twice in one pass: by day and entity for bills, by moment without entities for timelines, since
    both at once would be as many as there are records. Notes as they stand; skipped lines counted by file."""
    from pyspark.sql import functions as f

    told = _told_apart(lines.withColumn("source", f.col("_metadata.file_path")))
    is_record = f.col("kind") == RECORD
    keys = [f.when(is_record, f.col("line." + name)).alias(name) for name in NAMES]
    moment = f.col("line.second") - f.col("line.second") % grain_s
    rows = told.select(
        "kind",
        f.when(~is_record, f.col("source")).alias("file"),
        f.when(f.col("kind") == NOTE, f.col("value")).alias("text"),
        f.when(is_record, f.expr("CAST(line.second DIV 86400 AS INT)")).alias("day"),
        f.when(is_record, moment).alias("moment"),
        *keys,
        f.col("line.second").alias("second"),
        *[f.col("line." + name).alias(name) for name in FIGURES],
    )
    for_bills = ["kind", "file", "text", "day", *NAMES]
    for_timelines = ["kind", "moment", "namespace", "operation", "reason"]
    grouped = rows.groupingSets([for_bills, for_timelines], "kind", "file", "text", "day", "moment", *NAMES)
    return grouped.agg(
        f.count("*").alias("lines"),
        f.min("second").alias("first"),
        f.max("second").alias("last"),
        *[f.try_sum(name).alias(name) for name in FIGURES],
    )


# Sums.


def _extent(by_day: DataFrame) -> tuple[int, int, int | None, int | None]:
    """Lines of a bill, records, and the first and last second."""
    from pyspark.sql import functions as f

    row = by_day.agg(f.count("*"), f.sum("lines"), f.min("first"), f.max("last")).first()
    assert row is not None
    return row[0], row[1] or 0, row[2], row[3]


def _used(by_day: DataFrame) -> tuple[Used, ...]:
    return tuple(
        [
            Used(
                row["namespace"],
                row["entity"],
                row["operation"],
                row["reason"],
                date.fromordinal(_EPOCH_ORDINAL + row["day"]),
                *_figures(row, FIGURES),
            )
            for row in by_day.select(*NAMES, "day", *FIGURES).collect()
        ]
    )


def _points(by_moment: DataFrame, step_s: int) -> tuple[Point, ...]:
    from pyspark.sql import functions as f

    step = (f.col("moment") - f.col("moment") % step_s).alias("step")
    rows = by_moment.groupBy(step, "namespace", "operation", "reason").agg(*_sums()).orderBy("step").collect()
    return tuple(
        [
            Point(row["step"], row["namespace"], row["operation"], row["reason"], *_figures(row, FIGURES[1:]))
            for row in rows
        ]
    )


def _sums() -> list[Column]:
    """None where a sum would be too large, also where one of its parts was."""
    from pyspark.sql import functions as f

    return [f.when(f.count(name) == f.count("*"), f.try_sum(name)).alias(name) for name in FIGURES]


def _figures(row: Row, names: Sequence[str]) -> list[int]:
    figures = [row[name] for name in names]
    if None in figures:
        raise InvalidArgument(
            "figures in these files add up to more than 2^63: one of the files is not the meter's own"
        )
    return figures


# Damage.


def _skipped_lines(spark: SparkSession, files: Iterable[MeteringFile]) -> tuple[SkippedLine, ...]:
    """Their numbers: only files that have any are looked through for them, line by line, however large they are.

    Spark reads a file in blocks. A line is known by its block and its place there, and the blocks before it by how many
    lines they have.
    """
    from pyspark.sql import functions as f

    chosen = [each.spark_name for each in files]
    if not chosen:
        return ()
    lines = _lines(spark, chosen).select(
        f.col("_metadata.file_path").alias("file"),
        f.col("_metadata.file_block_start").alias("block"),
        f.monotonically_increasing_id().alias("place"),
        "value",
    )
    found = _told_apart(lines).where(f"kind = '{SKIPPED}'").select("file", "block", "place")
    skipped = found.orderBy("file", "block", "place").limit(NAMED_LINES).collect()
    blocks = lines.groupBy("file", "block").agg(f.count("*").alias("lines"), f.min("place").alias("first"))
    first_lines: dict[tuple[str, int], int] = {}
    line, file = 1, ""
    for row in blocks.orderBy("file", "block").collect():
        line = line if row["file"] == file else 1
        file = row["file"]
        first_lines[file, row["block"]] = line - row["first"]
        line += row["lines"]
    return tuple(
        [SkippedLine(shown_name(row["file"]), first_lines[row["file"], row["block"]] + row["place"]) for row in skipped]
    )


def _lines(spark: SparkSession, names: list[str]) -> DataFrame:
    return spark.read.option("lineSep", "\n").text(names)
