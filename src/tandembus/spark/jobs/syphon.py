"""The syphon on Spark (D2): brings backlogs home that are too large for one process.

One task reads and sends, so that the messages of a fragment keep their order. What is accepted is completed in the
backlog by that task; the checkpoint only says which messages the last batch had. So a job that is killed loses nothing,
and one that is started again, with its checkpoint or without, goes on with whatever is still reserved for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tandembus.client import ClientFailure
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings, TopicSettings
from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.streaming import Batch, JobFailed, follow
from tandembus.spark.jobs.syphon_home import BacklogRow, HomeTask, Pair
from tandembus.spark.jobs.syphon_ledger import PATIENCE_S
from tandembus.spark.jobs.syphon_ledgers import Ledgers
from tandembus.spark.source.loop_thread import LoopThread

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

OUTCOME: Final = "queue string, path string, moved long, moved_bytes long, dead_lettered long, waiting long"
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
    """Of a drain: what was there at its start and still is, in the end. Otherwise what was given back."""
    deferred: int = 0
    """Of those left: put aside by a syphon that is no job, and found only by such a one."""
    in_hands: int = 0
    """Of those left: in somebody else's hands, lately or still."""
    dead_destinations: list[str] = field(default_factory=list)
    """Which took none when they were last asked."""
    batches: int = 0

    def add(self, batch: Batch) -> None:
        told = batch.get("observedMetrics", {}).get(OBSERVED)
        self.batches += 1
        if told is not None:
            self.moved += told["moved"] or 0
            self.moved_bytes += told["moved_bytes"] or 0
            self.dead_lettered += told["dead_lettered"] or 0
            dead = {*self.dead_destinations} - {*(told["took"] or [])} | {*(told["waiting_for"] or [])}
            self.dead_destinations = sorted(dead)


def run_syphon(
    spark: SparkSession, options: SyphonOptions, tell: Callable[[SyphonResult], None] = lambda _: None
) -> SyphonResult:
    """Until it is interrupted, or with `once` until nothing more can be moved. `tell`: after each batch.

    However it ends, messages that wait are given back to the backlog, where any syphon finds them.
    """
    check_session(spark)
    result = SyphonResult()

    def heard(batch: Batch) -> None:
        result.add(batch)
        tell(result)

    with LoopThread() as loop, Ledgers(options.pair, options.queues, loop) as ledgers:
        ledgers.open()
        query = _writer(spark, options, ledgers.epochs).start()
        try:
            follow(query, heard)
        except KeyboardInterrupt:
            ledgers.learn(query)
            result.left = ledgers.release()
            tell(result)
            raise
        except JobFailed as error:
            ledgers.learn(query)
            raise JobFailed(f"{error}{ledgers.release_after_failure()}") from None
        ledgers.learn(query)
        result.deferred, result.in_hands = ledgers.left_there()
        result.left = ledgers.release() + result.deferred + result.in_hands
    return result


def check_session(spark: SparkSession) -> None:
    if spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise InvalidArgument(
            "with spark.speculation two attempts of a task would send the same messages: start Spark with "
            "spark.speculation=false"
        )


def _writer(spark: SparkSession, options: SyphonOptions, epochs: Mapping[str, int | None]) -> Any:
    writer = outcomes(spark, options, epochs).writeStream.format("noop").outputMode("append")
    writer = writer.option("checkpointLocation", options.checkpoint).queryName("syphon")
    return writer.trigger(availableNow=True) if options.once else writer.trigger(processingTime=POLL)


def outcomes(spark: SparkSession, options: SyphonOptions, epochs: Mapping[str, int | None]) -> DataFrame:
    """What became of the messages, batch by batch, as it is observed."""
    from pyspark.sql import functions as f

    from tandembus.spark.jobs.syphon_source import NAME, BacklogDataSource

    spark.dataSource.register(BacklogDataSource)
    reader = spark.readStream.format(NAME).options(
        connection=options.pair.secondary,
        ca=options.pair.secondary_ca or "",
        primaryName=options.primary_name,
        epochs=json.dumps(dict(epochs)),
        retryInterval=str(options.retry_interval_s),
        patience=str(PATIENCE_S),
        maxMessages=str(options.max_messages),
        numPartitions=str(options.partition_count or spark.sparkContext.defaultParallelism),
    )
    moved = reader.load().mapInArrow(sending_home(options.pair), OUTCOME)
    sums = [f.sum(name).alias(name) for name in ("moved", "moved_bytes", "dead_lettered", "waiting")]
    waiting_for = f.collect_set(f.when(f.col("waiting") > 0, f.col("path")))
    took = f.collect_set(f.when(f.col("moved") > 0, f.col("path")))
    return moved.observe(OBSERVED, *sums, waiting_for.alias("waiting_for"), took.alias("took"))


def sending_home(pair: Pair) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def send_home(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

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


async def guarantee(pair: Pair) -> str:
    """Which one holds, in a sentence: it depends on what the destinations do with a message that comes twice."""
    try:
        async with Administration(pair.primary, ca_path=pair.primary_ca, timeout_s=15.0) as primary:
            windows = {each.name: _window_s(each.settings) async for each in primary.queues()}
            windows |= {each.name: _window_s(each.settings) async for each in primary.topics()}
    except ClientFailure:
        return (
            "each message arrives at least once; exactly once where it has a message id and the destination duplicate "
            "detection (the primary does not tell which ones have)"
        )
    return guarantee_with(windows)


def _window_s(settings: QueueSettings | TopicSettings) -> float | None:
    return settings.duplicate_detection_window_s if settings.requires_duplicate_detection else None


def guarantee_with(windows_s: Mapping[str, float | None]) -> str:
    """By destination, how long it remembers message ids; None: not at all."""
    detecting = {name: window_s for name, window_s in windows_s.items() if window_s is not None}
    without = sorted(windows_s.keys() - detecting.keys())
    if not detecting:
        return "each message arrives at least once: no queue or topic of the primary has duplicate detection"
    shortest = min(detecting, key=lambda name: (detecting[name], name))
    once = (
        f"each message with a message id arrives exactly once at queues and topics with duplicate detection "
        f"({len(detecting)} of {len(windows_s)}), unless the job is interrupted for longer than ids are remembered "
        f"({detecting[shortest] / 60:g} min at '{shortest}')"
    )
    return f"{once}; at least once at those without: {named(without)}" if without else once


def named(destinations: Sequence[str]) -> str:
    more = len(destinations) - MANY
    return ", ".join(destinations[:MANY]) + (f" and {more} more" if more > 0 else "")
