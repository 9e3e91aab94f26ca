"""Audit files as a table of lines, and what is to be known of them before anything is judged: which stores they are of,
whether all records are there, and where messages have their places.

The format of the files: docs/reconciliation.md. Stores and lanes are few, so they are plain data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.reconcile_files import AuditPath, audit_paths, unread_files
from tandembus.spark.jobs.reconcile_stores import Lane, Life, StoreRecords, Stream, lanes_of, stores_of
from tandembus.spark.jobs.usage_files import REMOTE_PATTERN, shown_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FORMAT_VERSION: Final = 2
LOW_BITS: Final = (1 << 48) - 1
SCHEMA: Final = (
    "audit int, namespace string, store string, number long, part int, parts int, at long, epoch long, kind string, "
    "fragment long, lane int, entity string, numbers array<long>, ids array<string>, sessions array<string>, "
    "keys array<string>, paths array<string>, counts array<long>, index int, stores int, trimmed long, broken string"
)
COLUMNS: Final = ("ids", "sessions", "keys", "paths", "counts")
NEEDED: Final = ("audit", "namespace", "store", "number", "part", "parts", "at", "epoch", "kind")
NOTHING: Final = "nothing"
STREAM: Final = "stream"
ENDED: Final = "ended"
MARKS: Final = (STREAM, "rolled", ENDED)
"""Lines between records."""
DAMAGED_FILES_NAMED: Final = 100


@dataclass(frozen=True, slots=True)
class Records:
    """What the files held when they were read."""

    lines: DataFrame
    """Kept in Spark's memory until `forget`, so that all tables come from the same lines while files still grow."""
    stores: Sequence[StoreRecords]
    lanes: Sequence[Lane]
    damaged: Sequence[tuple[str, int]]
    """Files with lines that are none, and how many; but for a last line that was still being written."""
    skipped_count: int
    """All lines that are none."""
    has_copies: bool
    """Lines that are there more than once."""
    unread: Sequence[str]
    """Files that were there, and could not be read."""

    def forget(self) -> None:
        """Spark takes tables of the same files for the same: without this, the next reading would find these lines."""
        self.lines.unpersist(blocking=True)


def read_records(spark: SparkSession, paths: Sequence[str]) -> Records:
    return read_listed(spark, audit_paths(spark, paths))


def read_listed(spark: SparkSession, paths: Sequence[AuditPath]) -> Records:
    from pyspark.sql import functions as F  # noqa: N812

    lines = _reading(spark, paths, SCHEMA).withColumns({"is_line": _is_line(), "file": F.col("_metadata.file_path")})
    raw = lines.drop("broken", "counts").cache()
    try:
        is_line = F.col("is_line")
        told = (
            raw.groupBy("file").agg(F.max("audit"), F.count_if(is_line & ~_is_mark()), F.count_if(~is_line)).collect()
        )
        read = {shown_name(row[0]): FileRead(*row[1:]) for row in told}
        _check(paths, read)
        lines = raw.where("is_line").drop("file")
        streams = [Stream(*row) for row in _streams(lines).collect()]
        lines = lines.where(~_is_mark())
        lives = [Life(*row) for row in _lives(lines).collect()]
        lanes = lanes_of(_lanes(lines).collect())
        skipped_count = sum([each.skipped_count for each in read.values()])
        damaged = _damaged(spark, paths) if skipped_count else []
    except BaseException:
        raw.unpersist()
        raise
    unread = unread_files({name: size for each in paths for name, size in each.files.items()}, read)
    has_copies = any(life.copies > 1 for life in lives)
    return Records(raw, stores_of(lives, lanes, streams), lanes, damaged, skipped_count, has_copies, unread)


@dataclass(frozen=True, slots=True)
class FileRead:
    version: int | None
    line_count: int
    skipped_count: int


def _check(paths: Sequence[AuditPath], read: Mapping[str, FileRead]) -> None:
    """A namespace that the caller names and of which nothing is known would look as if it had lost nothing."""
    version = max([each.version or 0 for each in read.values()], default=0)
    if version > FORMAT_VERSION:
        raise InvalidArgument(f"Audit records of format {version}: this version reads up to {FORMAT_VERSION}.")
    for path in paths:
        if not any(read[name].line_count for name in path.files if name in read):
            raise InvalidArgument(
                f"There are no audit records in {path.path}. A namespace writes them when it is served with --audit; "
                "on a cluster, every machine must be able to read them there."
            )


def _reading(spark: SparkSession, paths: Sequence[AuditPath], schema: str) -> DataFrame:
    reading = spark.read.option("columnNameOfCorruptRecord", "broken").option("recursiveFileLookup", "true")
    # A file that gives way while it is read, or a packed one that was cut off, must not end the job: what is unread is
    # seen by `unread_files`, or by the numbers of the records.
    reading = reading.option("ignoreMissingFiles", "true").option("ignoreCorruptFiles", "true")
    reading = reading.option("pathGlobFilter", REMOTE_PATTERN)
    return reading.schema(schema).json([name for path in paths for name in path.spark_names])


def _is_line() -> Column:
    """All that must be there is there, and each column has as many values as there are messages."""
    from pyspark.sql import functions as F  # noqa: N812

    is_whole = F.col("broken").isNull()
    is_mark = (
        is_whole
        & _is_mark()
        & F.col("number").isNotNull()
        & F.col("store").isNotNull()
        & F.col("namespace").isNotNull()
    )
    is_stream = F.col("index").isNotNull() & F.col("stores").isNotNull() & F.col("trimmed").isNotNull()
    is_mark = is_mark & (is_stream | (F.col("kind") != STREAM))
    for name in NEEDED:
        is_whole = is_whole & F.col(name).isNotNull()
    has_messages = F.col("fragment").isNotNull() & F.col("lane").isNotNull() & F.col("numbers").isNotNull()
    for name in COLUMNS:
        has_messages = has_messages & (F.col(name).isNull() | (F.size(name) == F.size("numbers")))
    return is_mark | (is_whole & ~_is_mark() & ((F.col("kind") == NOTHING) | has_messages))


def _is_mark() -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(F.col("kind").isin(*MARKS), F.lit(False))


def _streams(lines: DataFrame) -> DataFrame:
    """Reads the marks of each store that has one with its index."""
    from pyspark.sql import functions as F  # noqa: N812

    told = (
        lines.where(_is_mark())
        .groupBy("store")
        .agg(
            F.max("namespace"),
            F.max("index").alias("index"),
            F.max("stores"),
            F.max("trimmed"),
            F.coalesce(F.max(F.when(F.col("kind") == ENDED, F.col("number"))), F.lit(0)),
        )
    )
    return told.where("index is not null")


def _lives(lines: DataFrame) -> DataFrame:
    """For each opening of each store: which records there are, whole ones. A record has several lines, each of which
    may be there more than once."""
    from pyspark.sql import functions as F  # noqa: N812

    each = lines.groupBy("store", "epoch", "number", "part").agg(
        F.count("*").alias("copies"), F.max("parts").alias("parts"), F.max("at").alias("at")
    )
    records = each.groupBy("store", "epoch", "number").agg(
        (F.count("*") >= F.max("parts")).alias("is_whole"),
        F.max("copies").alias("copies"),
        F.max("at").alias("at"),
    )
    return (
        records.groupBy("store", "epoch")
        .agg(
            F.min("number").alias("first"),
            F.max(F.when(F.col("is_whole"), F.col("number"))).alias("last"),
            F.count_if("is_whole").alias("count"),
            F.min("at").alias("first_at"),
            F.max("at").alias("last_at"),
            F.max("copies").alias("copies"),
        )
        .orderBy("store", "first")
    )


def _lanes(lines: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    number = F.get("numbers", F.lit(0))
    index = F.when(F.col("entity").isNotNull(), F.shiftright(number, 48))
    is_dropped = F.col("kind") == "dropped"
    return lines.groupBy("store", "namespace", "fragment", "lane", "entity").agg(
        F.max(index).alias("fragment_index"),
        F.max(F.when(F.col("kind") == "began", number.bitwiseAND(F.lit(LOW_BITS)))).alias("first_recorded"),
        F.max(F.when(is_dropped, F.col("number"))).alias("dropped_number"),
        F.max(F.when(is_dropped, F.col("at"))).alias("dropped_at"),
    )


def _damaged(spark: SparkSession, paths: Sequence[AuditPath]) -> list[tuple[str, int]]:
    """Which files have lines that are none. The last line of a file may be one that is being written."""
    from pyspark.sql import functions as F  # noqa: N812

    # Another schema: otherwise Spark takes the lines that it has in memory, which have no file.
    again = _reading(spark, paths, f"{SCHEMA}, looked_again boolean")
    place = F.struct("_metadata.file_block_start", F.monotonically_increasing_id())
    each = again.select("_metadata.file_path", _is_line().alias("is_line"), place.alias("place"))
    last = F.max(F.when(F.col("is_line"), F.col("place")))
    last_damaged = F.max(F.when(~F.col("is_line"), F.col("place")))
    is_torn = last.isNotNull() & (last_damaged > last)
    files = each.groupBy("file_path").agg((F.count_if(~F.col("is_line")) - is_torn.cast("int")).alias("count"))
    rows: Iterable[Any] = files.where("count > 0").orderBy("file_path").limit(DAMAGED_FILES_NAMED).collect()
    return [(shown_name(row["file_path"]), row["count"]) for row in rows]
