"""Jobs in a Java of little memory, and one whose Java ends before its time."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.covers import covers

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MESSAGES, SIZE = 2000, 200_000
"""More than Java has memory for, by their size in memory; on disk they are small."""
JOB = """
import os, signal
from click.testing import CliRunner
from tandembus.cli import main
from tandembus.spark import spark_session
from tandembus.spark.jobs.compaction import run_compaction
from tandembus.spark.jobs.streaming import reason_of
from tests.spark.starting import quick_settings

spark = spark_session(master="local[2]", **{**quick_settings(), "spark.driver.memory": "512m"})
print("compacted", run_compaction(spark, "captured", "compacted"), flush=True)
os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
result = CliRunner().invoke(main, ["spark", "capture", "--compact", "captured", "--output", "again"])
print("exit code", result.exit_code, result.output)
try:
    spark.range(3).count()
except Exception as error:
    print("reason:", reason_of(error))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the job says, to the end."""
    folder = tmp_path_factory.mktemp("memory")
    day = folder / "captured" / "entity=orders" / "date=2026-03-01"
    day.mkdir(parents=True)
    table = pa.table(
        {
            "fragment": pa.array([0] * MESSAGES, pa.int32()),
            "sequence_number": pa.array(range(MESSAGES), pa.int64()),
            "enqueued_time": pa.array([NOON] * MESSAGES, pa.timestamp("us", tz="UTC")),
            "body": [b"%010d" % number + bytes(SIZE) for number in range(MESSAGES)],
        }
    )
    pq.write_table(
        table, day / "1.parquet", compression="zstd", use_dictionary=False, row_group_size=640, write_batch_size=100
    )
    search = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    environment = {**os.environ, "PYTHONPATH": search, "SPARK_LOCAL_DIRS": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", JOB], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    return done.stdout + done.stderr


@covers("D3")
def test_many_large_messages_are_compacted_in_little_memory(told: str) -> None:
    assert f"compacted CompactionResult(rows={MESSAGES}, duplicates=0, files=1)" in told, told


@covers("D3")
def test_a_java_process_that_was_killed_is_told_as_such(told: str) -> None:
    text = " ".join(told.split())
    assert "exit code 1" in text, told  # and then what the bridge to Java may log
    assert "Error: Spark's Java process was killed (signal 9)" in text, told
    assert "spark.driver.memory" in text
    assert "is the namespace running" not in text.lower()
    assert "reason: Spark's Java process was killed (signal 9)" in text
