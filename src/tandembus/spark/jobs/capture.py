"""Capture (D3): an entity's messages to Parquet, by entity and date, each exactly once.

The messages are consumed: of a queue nobody else should read, or of a subscription of the job's own. Which ones a batch
has is in Spark's log before it is read, and which files count is in the log of Spark's file sink, so that a job that is
killed and started again leaves each message in one row.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tandembus.errors import InvalidArgument
from tandembus.loop_thread import LoopThread
from tandembus.security.sas import parse_connection_string
from tandembus.spark.jobs.hadoop_files import Folder
from tandembus.spark.jobs.streaming import Batch, follow, reason_of
from tandembus.spark.source.ledger import settle_stopped
from tandembus.spark.source.link import Link
from tandembus.spark.source.offsets import COMMITS, NONE_YET, OFFSETS, done_at, newest, offsets_in
from tandembus.spark.source.options import parse_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

log = logging.getLogger("tandembus.spark")

OWNER: Final = "capture"
NOTE: Final = "_capture.json"
"""In the output: of which checkpoint and entity it is."""
SINK_LOG: Final = "_spark_metadata"
QUERY: Final = "metadata"
"""In the checkpoint: Spark's name for the query, made here if there is none, so that the output has its owner before
anything is written to it."""
DEFAULT_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    connection: str = field(repr=False)
    entity: str
    """A queue, or TOPIC/subscriptions/NAME."""
    output: str
    checkpoint: str
    once: bool = False
    """End when all that was there at the start is captured."""
    every_s: float = DEFAULT_EVERY_S
    """How often what has come is written: each time makes files."""
    source_options: dict[str, str] = field(default_factory=dict)
    """Further options of the data source."""


@dataclass(slots=True)
class CaptureResult:
    rows: int = 0
    batches: int = 0


def run_capture(
    spark: SparkSession, options: CaptureOptions, tell: Callable[[CaptureResult], None] = lambda _: None
) -> CaptureResult:
    """Until it is interrupted (`KeyboardInterrupt`), or with `once` until all is captured. `tell`: after each batch.

    However it ends, the messages of the last batch whose files count are settled: nobody gets them again.
    """
    output, checkpoint = Folder(spark, options.output), Folder(spark, options.checkpoint)
    claim_output(output, checkpoint, options)
    result = CaptureResult()

    def heard(batch: Batch) -> None:
        result.rows += batch["numInputRows"]
        result.batches += 1
        tell(result)

    try:
        follow(start_capture(spark, options), heard)
    finally:
        try:
            settle_written(output, checkpoint, options)
        except Exception as error:
            log.warning("the last batch is settled when the capture is started again: %s", reason_of(error))
    return result


def settle_written(output: Folder, checkpoint: Folder, options: CaptureOptions) -> None:
    """Settle the last batch that Spark has planned, if its files count. Spark asks for that only when it plans the next
    one."""
    planned = newest(checkpoint.names(OFFSETS))
    if planned == NONE_YET:
        return
    is_done = newest(output.names(SINK_LOG)) == planned
    source = parse_options(_source_options(options))
    link = Link(source)

    async def settle() -> None:
        for offset in offsets_in(checkpoint.read(f"{OFFSETS}/{planned}") or "", OWNER):
            if offset["n"] == source.namespace():
                for entity, ranges in done_at(offset, is_done=is_done).items():
                    await settle_stopped(await link.reservations(entity), OWNER, ranges)

    with LoopThread() as loop:
        try:
            loop.call(link.patiently(settle, is_brief=True))
        finally:
            loop.call(link.drop())


def start_capture(spark: SparkSession, options: CaptureOptions) -> StreamingQuery:
    writer = captured(spark, options).writeStream.format("parquet").partitionBy("entity", "date")
    writer = writer.option("checkpointLocation", options.checkpoint).queryName(f"capture of {options.entity}")
    if options.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(options.every_s * 1000)} milliseconds")
    return writer.start(options.output)


def captured(spark: SparkSession, options: CaptureOptions) -> DataFrame:
    from pyspark.sql.functions import to_date

    rows = spark.readStream.format("servicebus").options(**_source_options(options)).load()
    return rows.withColumn("date", to_date(rows["enqueued_time"]))


def _source_options(options: CaptureOptions) -> dict[str, str]:
    # In one spelling, or one entity would have two folders.
    entity = options.entity.lower()
    return {"connection": options.connection, "entities": entity, "owner": OWNER, **options.source_options}


def claim_output(output: Folder, checkpoint: Folder, options: CaptureOptions) -> None:
    """Spark's file sink leaves out batches that it has seen under the same number. Under another checkpoint, or an
    older copy of the right one, these are other messages, so that they would be completed and never written: such a
    start is refused."""
    metadata = _facts(checkpoint.read(QUERY), f"{options.checkpoint}/{QUERY}", ("id",))
    known = _facts(output.read(NOTE), f"{options.output}/{NOTE}", ("query", "entity", "namespace"))
    query_id = None if metadata is None else str(metadata["id"])
    note = _note(options, query_id or str(uuid.uuid4()))
    written = newest(output.names(SINK_LOG))
    if query_id is None and written > NONE_YET:
        raise InvalidArgument(
            f"{options.output} was captured with another checkpoint than {options.checkpoint}: give that one, or "
            "another --output"
        )
    if known is not None and known != note:
        raise InvalidArgument(
            f"{options.output} holds what another capture wrote ('{known['entity']}' of {known['namespace']}): give "
            "its checkpoint and entity, or another --output"
        )
    check_numbers(written, newest(checkpoint.names(OFFSETS)), newest(checkpoint.names(COMMITS)), options)
    if query_id is None:
        checkpoint.write(QUERY, json.dumps({"id": note["query"]}))
    if known is None:
        output.write(NOTE, json.dumps(note))


def check_numbers(written: int, planned: int, committed: int, options: CaptureOptions) -> None:
    """A batch is planned in the checkpoint, written to the output and committed in the checkpoint, in this order."""
    if written > planned:
        raise InvalidArgument(
            f"the checkpoint {options.checkpoint} is older than {options.output}, which has batch {written} where the "
            f"checkpoint ends with {planned}: give the one it was captured with last, or another --output with a "
            "checkpoint of its own"
        )
    if committed > written:
        raise InvalidArgument(
            f"the checkpoint {options.checkpoint} has written batch {committed}, and {options.output} ends with "
            f"{written}: give the --output it has written to, or a checkpoint of its own for this one"
        )


def _note(options: CaptureOptions, query_id: str) -> dict[str, str]:
    host = parse_connection_string(options.connection).host
    return {"query": query_id, "entity": options.entity.lower(), "namespace": host}


def _facts(text: str | None, path: str, names: Iterable[str]) -> dict[str, Any] | None:
    """What stands in a small file, if it is there."""
    if text is None:
        return None
    try:
        facts = json.loads(text)
    except ValueError:
        facts = None
    if not isinstance(facts, dict) or not facts.keys() >= {*names}:
        raise InvalidArgument(
            f"{path} is damaged: without it nobody can tell which messages were written. Put it back from a copy, or "
            "capture into another --output with a checkpoint of its own"
        )
    return facts
