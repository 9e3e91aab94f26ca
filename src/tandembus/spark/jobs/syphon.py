"""The syphon on Spark (D2): brings backlogs home that are too large for one process.

Its tasks run the engine of `tandembus syphon`, each for its share of the backlog queues. Any number of other syphons
may work beside them. A job that is killed loses nothing: the locks of what it had in hand lapse.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tandembus.client import ClientFailure
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings, TopicSettings
from tandembus.pairing.syphon_rules import SyphonSettings
from tandembus.spark.jobs.streaming import Batch, JobFailed, follow
from tandembus.spark.jobs.syphon_task import NAME, Pair, Work, source_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OBSERVED: Final = "syphon"
POLL: Final = "1 second"
DEFAULT_MAX_MESSAGES: Final = 100_000
MOST_IDLE: Final = 10
"""Batches that moved nothing: more make no difference."""
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
    """In one batch, some more or less."""
    partition_count: int | None = None
    """Tasks of a batch; None: as many as there are cores."""


@dataclass(slots=True)
class SyphonResult:
    moved: int = 0
    moved_bytes: int = 0
    dead_lettered: int = 0
    left: int = 0
    """Of a drain: messages that it could not move."""
    dead_destinations: list[str] = field(default_factory=list)
    """Which took none when they were last asked."""
    troubles: list[str] = field(default_factory=list)
    """Backlog queues that could not be used in the last batch, and why."""
    batches: int = 0

    def add(self, batch: Batch) -> Any:
        """Returns what the tasks of the batch told."""
        self.batches += 1
        told = batch.get("observedMetrics", {}).get(OBSERVED)
        if told is not None:
            self.moved += told["moved"] or 0
            self.moved_bytes += told["moved_bytes"] or 0
            self.dead_lettered += told["dead_lettered"] or 0
            self.left = told["left"] or 0
            dead = {*self.dead_destinations} - {*(told["took"] or [])} | {*(told["waiting_for"] or [])}
            self.dead_destinations = sorted(dead)
            self.troubles = sorted(told["troubles"] or [])
        return told


def run_syphon(
    spark: SparkSession, options: SyphonOptions, tell: Callable[[SyphonResult], None] = lambda _: None
) -> SyphonResult:
    """Until it is interrupted, or with `once` until nothing more can be moved. `tell`: after each batch. Raises
    `JobFailed`, also where `once` could not empty a backlog queue."""
    result = SyphonResult()
    done_count = idle_count = 0

    def heard(batch: Batch) -> None:
        nonlocal done_count, idle_count
        if (told := result.add(batch)) is not None:
            done_count = told["done"]
            idle_count = 0 if told["moved"] else min(idle_count + 1, MOST_IDLE)
            idle_file.write_text(str(idle_count))
        tell(result)

    with tempfile.TemporaryDirectory() as folder:
        idle_file = Path(folder) / "idle"
        query = outcomes(spark, options, str(idle_file)).writeStream.format("noop").outputMode("append")
        query = query.option("checkpointLocation", options.checkpoint).queryName("syphon")
        if not options.once:
            follow(query.trigger(processingTime=POLL).start(), heard)
        while options.once and done_count < len(options.queues):
            follow(query.trigger(availableNow=True).start(), heard)
    if options.once and result.troubles:
        raise JobFailed(f"messages may be left in backlog queues that could not be used: {'; '.join(result.troubles)}")
    return result


def outcomes(spark: SparkSession, options: SyphonOptions, idle_file: str) -> DataFrame:
    """What became of the messages, batch by batch, as it is observed."""
    from pyspark.sql import functions as f

    count = options.partition_count or spark.sparkContext.defaultParallelism
    settings = SyphonSettings(retry_interval_s=options.retry_interval_s)
    most = max(1, options.max_messages // min(count, len(options.queues)))
    work = Work(options.pair, options.primary_name, options.queues, settings, options.once, count, most, idle_file)
    spark.dataSource.register(source_of(work))
    return (
        spark.readStream.format(NAME)
        .load()
        .observe(
            OBSERVED,
            *[f.sum(name).alias(name) for name in ("moved", "moved_bytes", "dead_lettered", "left")],
            f.sum(f.col("is_done").cast("int")).alias("done"),
            f.collect_set(f.when(f.col("is_dead"), f.col("path"))).alias("waiting_for"),
            f.collect_set(f.when(f.col("moved") > 0, f.col("path"))).alias("took"),
            f.collect_set("trouble").alias("troubles"),
        )
    )


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
