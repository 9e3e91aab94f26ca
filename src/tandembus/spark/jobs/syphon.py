"""The syphon on Spark (D2): brings backlogs home that are too large for one process.

One task reads and sends, so that the messages of a fragment keep their order. What is accepted is completed in the
backlog by that task; the checkpoint only says which messages the last batch had. So a job that is killed loses nothing,
and one that is started again, with its checkpoint or without, goes on with whatever is still reserved for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tandembus.client import ClientFailure
from tandembus.client.administration import Administration
from tandembus.pairing.client_ports import SharedConnection
from tandembus.spark.jobs.streaming import Batch, follow
from tandembus.spark.jobs.syphon_home import BacklogRow, HomeTask, Pair
from tandembus.spark.jobs.syphon_ledger import QueueLedger

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

OUTCOME: Final = (
    "queue string, path string, moved long, moved_bytes long, dead_lettered long, waiting long, reason string"
)
OBSERVED: Final = "syphon"
POLL: Final = "1 second"
DEFAULT_MAX_MESSAGES: Final = 100_000
MANY: Final = 20
"""Destinations that are named one by one."""


@dataclass(frozen=True, slots=True)
class SyphonOptions:
    pair: Pair
    primary_name: str
    queues: tuple[str, ...]
    """The backlog queues to empty."""
    checkpoint: str
    once: bool = False
    """End when nothing more can be moved."""
    retry_interval_s: float = 1.0
    max_messages: int = DEFAULT_MAX_MESSAGES
    """In one batch."""
    partition_count: int | None = None
    """Tasks of a batch; None: as many as there are cores."""


@dataclass(slots=True)
class SyphonResult:
    moved: int = 0
    moved_bytes: int = 0
    dead_lettered: int = 0
    left: int = 0
    """Handed back to the backlog in the end: their destination took none."""
    dead_destinations: list[str] = field(default_factory=list)
    """Of the last batch that had any."""
    batches: int = 0

    def add(self, batch: Batch) -> None:
        told = batch.get("observedMetrics", {}).get(OBSERVED)
        self.batches += 1
        if told is not None:
            self.moved += told["moved"] or 0
            self.moved_bytes += told["moved_bytes"] or 0
            self.dead_lettered += told["dead_lettered"] or 0
            self.dead_destinations = sorted(told["waiting_for"] or [])


def run_syphon(
    spark: SparkSession, options: SyphonOptions, tell: Callable[[SyphonResult], None] = lambda _: None
) -> SyphonResult:
    """Until it is interrupted, or with `once` until nothing more can be moved. `tell`: after each batch.

    Whichever way it ends in order, messages that wait are given back to the backlog, where any syphon finds them.
    """
    result = SyphonResult()

    def heard(batch: Batch) -> None:
        result.add(batch)
        tell(result)

    query = _writer(spark, options).start()
    try:
        follow(query, heard)
    except KeyboardInterrupt:
        result.left = asyncio.run(release_all(options))
        tell(result)
        raise
    result.left = asyncio.run(release_all(options))
    return result


def _writer(spark: SparkSession, options: SyphonOptions) -> Any:
    writer = outcomes(spark, options).writeStream.format("noop").outputMode("append")
    writer = writer.option("checkpointLocation", options.checkpoint).queryName("syphon")
    return writer.trigger(availableNow=True) if options.once else writer.trigger(processingTime=POLL)


def outcomes(spark: SparkSession, options: SyphonOptions) -> DataFrame:
    """What became of the messages, batch by batch, as it is observed."""
    from pyspark.sql import functions as f

    from tandembus.spark.jobs.syphon_source import NAME, BacklogDataSource

    spark.dataSource.register(BacklogDataSource)
    reader = spark.readStream.format(NAME).options(
        connection=options.pair.secondary,
        ca=options.pair.secondary_ca or "",
        primaryName=options.primary_name,
        entities=",".join(options.queues),
        retryInterval=str(options.retry_interval_s),
        maxMessages=str(options.max_messages),
        numPartitions=str(options.partition_count or spark.sparkContext.defaultParallelism),
    )
    moved = reader.load().mapInArrow(sending_home(options.pair), OUTCOME)
    sums = [f.sum(name).alias(name) for name in ("moved", "moved_bytes", "dead_lettered", "waiting")]
    waiting_for = f.slice(f.collect_set(f.when(f.col("waiting") > 0, f.col("path"))), 1, MANY)
    return moved.observe(OBSERVED, *sums, waiting_for.alias("waiting_for"))


def sending_home(pair: Pair) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def send_home(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from tandembus.spark.source.loop_thread import LoopThread

        with LoopThread() as loop:
            task = HomeTask(pair)
            try:
                for batch in batches:
                    rows = list(map(BacklogRow, *[column.to_pylist() for column in batch.columns]))
                    if rows and (found := loop.call(task.move(rows))):
                        yield pa.RecordBatch.from_pylist([each._asdict() for each in found])
            finally:
                loop.call(task.close())

    return send_home


async def release_all(options: SyphonOptions) -> int:
    """Give back what is still reserved; returns how many messages."""
    secondary = SharedConnection(options.pair.connect_secondary)
    try:
        return sum([await QueueLedger(secondary, queue).release_all() for queue in options.queues])
    finally:
        await secondary.close()


async def guarantee(pair: Pair) -> str:
    """Which one holds, in a sentence: it depends on what the destinations do with a message that comes twice."""
    try:
        async with Administration(pair.primary, ca_path=pair.primary_ca, timeout_s=15.0) as primary:
            found = {each.name: each.settings.requires_duplicate_detection async for each in primary.queues()}
            found |= {each.name: each.settings.requires_duplicate_detection async for each in primary.topics()}
    except ClientFailure:
        return (
            "each message arrives at least once; exactly once where the destination has duplicate detection (the "
            "primary does not tell which ones have)"
        )
    without = sorted(name for name, detects in found.items() if not detects)
    if not without:
        return f"each message arrives exactly once: all {len(found)} queues and topics have duplicate detection"
    named = ", ".join(without[:MANY]) + (f" and {len(without) - MANY} more" if len(without) > MANY else "")
    return (
        f"each message arrives exactly once at the {len(found) - len(without)} queues and topics with duplicate "
        f"detection, and at least once at those without: {named}"
    )
