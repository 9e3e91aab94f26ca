"""Captured messages in few files: the copy that readers other than Spark read.

Spark's streaming file sink leaves many small files and a list of those that count; whoever does not know the list may
read files of attempts that failed. The compacted copy has one file for each entity and day (more for large ones), each
message once, and can be made again at any time: days that are there are replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.hadoop_files import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IDENTITY: Final = ("entity", "fragment", "sequence_number", "enqueued_time")
"""Which message of a namespace it is: an entity that is deleted and made anew counts from 1 again."""
PARTS: Final = ("entity", "date")
ROWS_PER_FILE: Final = 5_000_000
READING_AT_ONCE: Final = "spark.sql.parquet.enableVectorizedReader"
NO_FILES: Final = "UNABLE_TO_INFER_SCHEMA"


@dataclass(frozen=True, slots=True)
class CompactionResult:
    rows: int
    duplicates: int
    files: int


def run_compaction(spark: SparkSession, captured: str, output: str) -> CompactionResult:
    """Raises `InvalidArgument` for what is no capture, and for an output that is part of it."""
    source, target = Folder(spark, captured), Folder(spark, output)
    check_paths(source.address, target.address)
    if not source.exists():
        raise InvalidArgument(f"there is nothing at {captured}: --compact takes the --output of a capture")
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    rows = _captured(spark, captured)
    kept = Observation()
    # One shuffle and one pass over the bodies: rows that are alike are of one entity and day. How many rows there are
    # stands at the ends of the files, and those that are kept are counted while they are written.
    once = rows.repartition(*PARTS).dropDuplicates([*PARTS, *IDENTITY[1:]])
    ordered = once.sortWithinPartitions(*PARTS, *IDENTITY[1:]).observe(kept, count(lit(1)).alias("rows"))
    writer = ordered.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    with _reading_row_by_row(spark):
        writer.option("maxRecordsPerFile", ROWS_PER_FILE).partitionBy(*PARTS).parquet(output)
    row_count = int(kept.get["rows"])
    return CompactionResult(row_count, rows.count() - row_count, _file_count(spark, output))


@contextmanager
def _reading_row_by_row(spark: SparkSession) -> Iterator[None]:
    """Spark has 4,096 rows of a file in memory at once otherwise, and each may be a message of megabytes."""
    before = spark.conf.get(READING_AT_ONCE)
    spark.conf.set(READING_AT_ONCE, "false")
    try:
        yield
    finally:
        spark.conf.set(READING_AT_ONCE, before)


def check_paths(captured: str, output: str) -> None:
    one, other = captured.rstrip("/") + "/", output.rstrip("/") + "/"
    if one.startswith(other) or other.startswith(one):
        raise InvalidArgument("the compacted copy needs a folder of its own: give another --output")


def _captured(spark: SparkSession, path: str) -> DataFrame:
    from pyspark.errors import AnalysisException
    from pyspark.sql.types import StringType, StructField, StructType

    try:
        found = spark.read.parquet(path).schema
    except AnalysisException as error:
        if error.getCondition() != NO_FILES:
            raise
        raise InvalidArgument(f"{path} holds no captured messages: there are no Parquet files in it") from None
    missing = sorted({*IDENTITY, "date"} - set(found.names))
    if missing:
        raise InvalidArgument(f"{path} holds no captured messages: its files have no {', '.join(missing)}")
    # Told, not guessed: an entity named 007 is no number.
    fields = [StructField("entity", StringType()) if each.name == "entity" else each for each in found.fields]
    return spark.read.schema(StructType(fields)).parquet(path)


def _file_count(spark: SparkSession, path: str) -> int:
    return len(spark.read.parquet(path).inputFiles())
