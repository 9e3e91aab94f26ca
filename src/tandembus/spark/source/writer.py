"""Sends rows as messages. `write` returns when the service has accepted all of them; what was sent stays sent."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tandembus.client.groups import Group
from tandembus.clock import SystemClock
from tandembus.errors import InvalidArgument
from tandembus.loop_thread import LoopThread
from tandembus.spark.source.link import Link
from tandembus.spark.source.message_ids import IdMaker
from tandembus.spark.source.options import SourceOptions
from tandembus.spark.source.outgoing import Groups, RowEncoder, check_columns, slices

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

SENT_TOGETHER: Final = 2_000
BATCH_MESSAGES: Final = 1_000
WINDOW: Final = 64
"""Transfers under way at once, each of another session or key."""


@dataclass
class Sent(WriterCommitMessage):
    """How many messages one task sent to each destination."""

    counts: dict[str, int]


def check_append(overwrite: bool) -> None:
    if overwrite:
        raise InvalidArgument("messages cannot be overwritten: write with mode('append')")


def columns_of(schema: StructType) -> list[tuple[str, str]]:
    return [(each.name, each.dataType.simpleString()) for each in schema.fields]


def write_batches(options: SourceOptions, scope: str, batches: Iterator[pa.RecordBatch]) -> Sent:
    """In the task. One part is sent while the next is encoded, and never two at once: so the order stays."""
    counts: dict[str, int] = {}
    encoder = RowEncoder(options, IdMaker(scope), SystemClock())
    with LoopThread() as loop:
        link = Link(options)
        under_way: Future[None] | None = None
        try:
            for batch in batches:
                for part in slices(batch, SENT_TOGETHER):
                    groups = encoder.groups_of(part)
                    if under_way is not None:
                        under_way.result()
                    under_way = loop.begin(_send(link, groups, counts))
            if under_way is not None:
                under_way.result()
        finally:
            loop.call(link.drop())
    return Sent(counts)


async def _send(link: Link, groups: Groups, counts: dict[str, int]) -> None:
    """What was accepted before a failure is not sent again; only what was on its way when a connection broke is."""
    for destination, by_key in groups.items():
        waiting = [Group(messages) for messages in by_key.values()]

        async def send(destination: str = destination, waiting: list[Group] = waiting) -> None:
            sender = await link.sender(destination)
            await sender.send_groups(waiting, BATCH_MESSAGES, WINDOW)

        await link.patiently(send)
        counts[destination] = counts.get(destination, 0) + sum([len(group) for group in waiting])


def scope_of_task() -> str:
    """Query, batch and partition: the same for every attempt of a task, other for every other task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return ""
    query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
    return f"{query or ''}/{batch or ''}/{context.partitionId()}"


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        check_columns(columns_of(schema), options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return write_batches(self._options, scope_of_task(), iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        check_columns(columns_of(schema), options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return write_batches(self._options, scope_of_task(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Everything is there already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing can be taken back; the next attempt sends the same message ids."""
