"""The usage job's result, kept: as JSON for a report, and its lines as Parquet for questions of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tandembus.metering.bills import Bill
from tandembus.spark.jobs.usage_result import UsageResult, write_result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES: Final = "lines"
LINES_SCHEMA: Final = (
    "namespace STRING, entity STRING, operation STRING, reason STRING, day DATE, calls BIGINT, messages BIGINT, "
    "operations BIGINT, size_bytes BIGINT, charged BIGINT, cost DECIMAL(38, 18)"
)


def keep_result(spark: SparkSession, result: UsageResult, bill: Bill, folder: Path) -> Path:
    """Returns the file for `report`. What an earlier run left there is replaced."""
    rows = [
        (
            line.used.namespace,
            line.used.entity,
            line.used.operation,
            line.used.reason,
            line.used.day,
            line.used.calls,
            line.used.messages,
            line.used.operations,
            line.used.size_bytes,
            line.charged,
            line.cost,
        )
        for line in bill.lines
    ]
    path = write_result(result, folder)
    lines = spark.createDataFrame(rows, LINES_SCHEMA)
    lines.coalesce(1).write.mode("overwrite").parquet((folder / LINES).resolve().as_uri())
    return path
