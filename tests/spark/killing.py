"""A query that is killed at a chosen moment: a program with its orders in the environment.

It copies a queue into another with the data source as it is, but for one place where a process ends as in a crash.
What is killed is remembered in a folder, so that it happens once; a query that is started again goes on.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, InputPartition

from tandembus.spark import spark_session
from tandembus.spark.jobs.usage import UsageOptions, run_usage
from tandembus.spark.source.data_source import ServiceBusDataSource
from tandembus.spark.source.stream_reader import StreamReader
from tandembus.spark.source.writer import Sent, StreamWriter
from tests.spark.starting import quick_settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "servicebus_killed"
DRIVER, WORKER, EXECUTOR = "driver", "worker", "executor"
RESERVED, READING, SENT, BILLING = "reserved", "reading", "sent", "billing"
"""Between setting messages aside and Spark's log; before the sends; after the sends and before Spark knows; and while
what was used is summed up."""

SETTINGS = {"spark.task.maxFailures": 8}


def die_at(moment: str) -> None:
    """If this is the moment that was ordered, and it has not come yet."""
    for order in os.environ["KILLS"].split(","):
        victim, _, when = order.partition("@")
        if when == moment and _is_first(order):
            if victim == DRIVER:
                os.killpg(int(os.environ["KILLED_GROUP"]), signal.SIGKILL)
            if victim == EXECUTOR:
                os.kill(_parent_of(os.getppid()), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


def _is_first(order: str) -> bool:
    try:
        (Path(os.environ["KILLED_FOLDER"]) / order).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _parent_of(pid: int) -> int:
    """A worker is forked by a daemon, which Java has started."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class KilledReader(StreamReader):
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        end = super().latestOffset(start, limit)
        if end != start:
            die_at(RESERVED)
        return end

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        die_at(READING)
        yield from super().read(partition)


class KilledWriter(StreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        sent = super().write(iterator)
        if sent.counts:
            die_at(SENT)
        return sent


class KilledSource(ServiceBusDataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return KilledReader(self.parsed)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return KilledWriter(self.parsed, schema)


def main() -> None:
    os.environ["KILLED_GROUP"] = str(os.getpgid(0))
    spark = spark_session(master=os.environ["MASTER"], app_name="killed", **SETTINGS, **quick_settings())
    spark.dataSource.register(KilledSource)
    options = {"connectionEnv": "BUS", "maxMessages": os.environ["BATCH"], "numPartitions": "2"}
    stream = spark.readStream.format(FORMAT).options(entities="backlog", owner="copier", **options).load()
    writer = stream.select("message_id", "session_id", "body").writeStream.format(FORMAT)
    writer = writer.options(entity="copies", connectionEnv="BUS", checkpointLocation=os.environ["CHECKPOINT"])
    writer.trigger(availableNow=True).start().awaitTermination()
    if "METERED" in os.environ:
        make_bill(spark, Path(os.environ["METERED"]))
    spark.stop()


def make_bill(spark: SparkSession, folder: Path) -> None:
    """The usage job, of which an executor is killed in the midst; what it counted goes into `bill.json` beside."""
    spark.conf.set("spark.sql.files.maxPartitionBytes", "256k")  # many tasks, of which some are done and some are not
    is_over = threading.Event()
    killing = threading.Thread(target=kill_an_executor, args=(spark, is_over))
    killing.start()
    try:
        result = run_usage(spark, UsageOptions((str(folder),)))
    finally:
        is_over.set()
        killing.join()
    counted = {each.entity: each.operations for each in result.used}
    folder.with_name("bill.json").write_text(json.dumps([result.records, result.skipped, counted]))


def kill_an_executor(spark: SparkSession, is_over: threading.Event) -> None:
    """As soon as it has done a task of the job."""
    tracker = spark.sparkContext.statusTracker()
    while not is_over.wait(0.01):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        if any(stage is not None and 0 < stage.numCompletedTasks < stage.numTasks for stage in stages):
            os.kill(executors()[0], signal.SIGKILL)
            _is_first(f"{EXECUTOR}@{BILLING}")
            return


def executors() -> list[int]:
    """Of this query: a machine may have others."""
    group, found = int(os.environ["KILLED_GROUP"]), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return [pid for pid in found if os.getpgid(pid) == group]
