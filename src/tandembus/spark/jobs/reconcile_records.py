"""Audit files as tables: one row for each message and place, with how it came there and how it left.

The format of the files: docs/reconciliation.md. Built-in functions only, so nothing leaves Spark's own engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tandembus.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FORMAT_VERSION: Final = 1
AUDIT_FOLDER: Final = "audit"
LOW_BITS: Final = (1 << 48) - 1
SCHEMA: Final = (
    "audit int, namespace string, store string, number long, part int, parts int, at long, epoch long, kind string, "
    "fragment long, lane int, entity string, numbers array<long>, ids array<string>, sessions array<string>, "
    "keys array<string>, paths array<string>, counts array<long>, broken string"
)
COLUMNS: Final = ("numbers", "ids", "sessions", "keys", "paths", "counts")

OPENING: Final = ("accepted", "scheduled", "copied", "arrived", "activated", "dead_letter")
SETTLING: Final = ("completed", "removed", "forwarded", "cancelled", "distributed")
CLOSING: Final = (*SETTLING, "dead_lettered", "expired", "left", "damaged")
MAIN_LANE: Final = 0


@dataclass(frozen=True, slots=True)
class Records:
    """What the files hold."""

    places: DataFrame
    """A row for each place: who took it, when, and how it was left."""
    passing: DataFrame
    """What took no place: published to a topic, or dropped as a duplicate."""
    stores: DataFrame
    """A row for each store: which numbers of records there are."""
    beginnings: DataFrame
    """A row for each lane that held messages when the records began."""
    skipped_count: int
    """Lines that are none."""
    kept: tuple[DataFrame, ...]
    """What stays in memory until the end of the job."""


def audit_paths(paths: Sequence[str]) -> list[str]:
    """A namespace's data folder stands for the audit in it."""
    found: list[str] = []
    for path in paths:
        local = Path(path)
        if "://" not in path and not local.exists():
            raise InvalidArgument(
                f"There is no folder or file {path}. Name a data folder that was served with --audit."
            )
        found.append(str(local / AUDIT_FOLDER) if (local / AUDIT_FOLDER).is_dir() else path)
    return found


def read_records(spark: SparkSession, paths: Sequence[str]) -> Records:
    from pyspark.sql import functions as F  # noqa: N812

    reading = spark.read.schema(SCHEMA).option("columnNameOfCorruptRecord", "broken")
    # Kept, since all tables come from it: and the lines are then the same for all of them, while files still grow.
    raw = reading.option("recursiveFileLookup", "true").json(audit_paths(paths)).cache()
    is_line = F.col("audit").isNotNull() & F.col("broken").isNull() & F.col("number").isNotNull()
    version, skipped_count = raw.agg(F.max("audit"), F.count_if(~is_line)).collect()[0]
    if version is None:
        raise InvalidArgument(
            f"There are no audit records in {', '.join(paths)}. A namespace writes them when it is served with --audit."
        )
    if version > FORMAT_VERSION:
        raise InvalidArgument(f"Audit records of format {version}: this version reads up to {FORMAT_VERSION}.")
    lines = raw.where(is_line).drop("broken").dropDuplicates(["store", "number", "part"])
    entries = _entries(lines).cache()
    return Records(
        _places(entries),
        entries.where(F.col("kind").isin("published", "duplicate")),
        _stores(lines),
        _beginnings(entries),
        skipped_count,
        (raw, entries),
    )


def _entries(lines: DataFrame) -> DataFrame:
    """A row for each message of a line."""
    from pyspark.sql import functions as F  # noqa: N812

    columns = [F.coalesce(F.col(name), F.array()).alias(name) for name in COLUMNS]
    head = ("namespace", "store", "number", "at", "kind", "fragment", "lane", "entity")
    whole = lines.select(*head, *columns).where(F.size("numbers") > 0)
    row = whole.select(*head, F.explode(F.arrays_zip(*COLUMNS)).alias("row"))
    return row.select(
        *head,
        F.col("row.numbers").alias("sequence"),
        F.col("row.numbers").bitwiseAND(F.lit(LOW_BITS)).alias("place"),
        F.col("row.ids").alias("message_id"),
        _filled("row.sessions").alias("session"),
        _filled("row.keys").alias("key"),
        _filled("row.paths").alias("path"),
        F.col("row.counts").alias("count"),
    )


def _filled(name: str) -> Column:
    """Empty texts are no value."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(F.col(name) != "", F.col(name))


def _places(entries: DataFrame) -> DataFrame:
    """One row for each number of each lane: its openings and closings, counted."""
    from pyspark.sql import functions as F  # noqa: N812

    opening, closing = F.col("kind").isin(*OPENING), F.col("kind").isin(*CLOSING)

    def of_opening(name: str) -> Column:
        return F.max(F.when(opening, F.col(name))).alias(name)

    places = (
        entries.where(opening | closing)
        .groupBy("store", "fragment", "lane", "place")
        .agg(
            F.max("namespace").alias("namespace"),
            F.max("entity").alias("entity"),
            F.max("sequence").alias("sequence"),
            *[of_opening(name) for name in ("message_id", "session", "key", "path")],
            F.max(F.when(opening, F.col("kind"))).alias("opened_as"),
            F.min(F.when(opening, F.col("at"))).alias("opened_at"),
            F.count_if(opening).alias("openings"),
            F.max(F.when(closing, F.col("kind"))).alias("closed_as"),
            F.min(F.when(closing, F.col("at"))).alias("closed_at"),
            F.count_if(closing).alias("closings"),
        )
    )
    # Who is gone with a whole entity has no record of its own.
    dropped = entries.where(F.col("kind") == "dropped").groupBy("store", "fragment", "lane")
    return places.join(F.broadcast(dropped.agg(F.max("at").alias("dropped_at"))), ["store", "fragment", "lane"], "left")


def _stores(lines: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return lines.groupBy("store").agg(
        F.max("namespace").alias("namespace"),
        F.min("number").alias("first"),
        F.max("number").alias("last"),
        F.count_distinct("number").alias("count"),
    )


def _beginnings(entries: DataFrame) -> DataFrame:
    """Whatever has a lower number may have been accepted without a record."""
    from pyspark.sql import functions as F  # noqa: N812

    began = entries.where(F.col("kind") == "began").groupBy("store", "fragment", "lane")
    return began.agg(F.max("place").alias("first_recorded"))
