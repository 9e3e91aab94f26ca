"""The usage job's result, kept: as JSON for a report, and its lines as Parquet for questions of one's own.

A plain path is a folder of the machine on which the command runs, whatever cluster does the work: the result is small,
and made there. An address (`hdfs://`, `s3a://`, `file:`) is Spark's business.
"""

from __future__ import annotations

import os
import shutil
from decimal import Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tandembus.metering.bills import Bill, Line
from tandembus.spark.jobs.hadoop_files import Folder
from tandembus.spark.jobs.usage_files import has_scheme
from tandembus.spark.jobs.usage_result import FILE_NAME, UsageResult, result_text, write_result

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

LINES: Final = "lines"
LINES_FILE: Final = "part-0.parquet"
COST_DIGITS: Final = 38
COST_SCALE: Final = 18
_ROUNDING: Final = Context(prec=COST_DIGITS)
_LAST_DIGIT: Final = Decimal(1).scaleb(-COST_SCALE)


def keep_result(spark: SparkSession, result: UsageResult, bill: Bill, output: str) -> str:
    """Returns where the file for `report` is. What an earlier run left there is replaced."""
    lines = _table(bill)
    if has_scheme(output):
        folder = Folder(spark, output)
        spark.createDataFrame(lines).coalesce(1).write.mode("overwrite").parquet(f"{folder.address}/{LINES}")
        folder.write(FILE_NAME, result_text(result, bill))
        return f"{folder.address}/{FILE_NAME}"
    local = Path(output)
    _write_lines(lines, local / LINES)
    return str(write_result(result, local, bill))


def _table(bill: Bill) -> pa.Table:
    import pyarrow as pa

    schema = pa.schema(
        [
            *[(name, pa.string()) for name in ("namespace", "entity", "operation", "reason")],
            ("day", pa.date32()),
            *[(name, pa.int64()) for name in ("calls", "messages", "operations", "size_bytes", "charged")],
            ("cost", pa.decimal128(COST_DIGITS, COST_SCALE)),
        ]
    )
    return pa.Table.from_pylist([_row(line) for line in bill.lines], schema=schema)


def _row(line: Line) -> dict[str, Any]:
    used = line.used
    return {
        "namespace": used.namespace,
        "entity": used.entity,
        "operation": used.operation,
        "reason": used.reason,
        "day": used.day,
        "calls": used.calls,
        "messages": used.messages,
        "operations": used.operations,
        "size_bytes": used.size_bytes,
        "charged": line.charged,
        "cost": line.cost.quantize(_LAST_DIGIT, context=_ROUNDING),
    }


def _write_lines(lines: pa.Table, folder: Path) -> None:
    import pyarrow.parquet as pq

    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    draft.mkdir(parents=True)
    try:
        pq.write_table(lines, draft / LINES_FILE)
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
