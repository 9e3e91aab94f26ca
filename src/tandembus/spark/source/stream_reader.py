"""Consumes entities as streams: what Spark asks of a streaming source, answered by `Stream`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tandembus.clock import SystemClock
from tandembus.loop_thread import LoopThread
from tandembus.spark.source.backends import NATIVE, ledger_for
from tandembus.spark.source.batch_reader import SlicesPartition, read_slices
from tandembus.spark.source.link import Link
from tandembus.spark.source.offsets import Offset, initial_offset
from tandembus.spark.source.options import SourceOptions, check_stream, require_owner
from tandembus.spark.source.ranges import packed, slices_of
from tandembus.spark.source.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa

ACTIVE: Final = "active"
"""Neither reservations nor receiving take a message in any other state."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made and copied in many processes; only the one that plans the query connects, and tasks for themselves."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._loop: LoopThread | None = None
        self._stream: Stream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_loop": None, "_stream": None}

    def initialOffset(self) -> Offset:  # noqa: N802
        check_stream(self._options)
        return initial_offset(self._options.namespace(), require_owner(self._options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_messages)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        loop, stream = self._planning()
        if isinstance(limit, ReadAllAvailable):  # trigger(once=True), which knows no limits
            return loop.call(stream.latest_of_all(start))
        max_messages, max_bytes = self._limits(limit)
        return loop.call(stream.latest(start, max_messages, max_bytes))

    def partitions(self, start: Offset, end: Offset) -> list[SlicesPartition]:
        loop, stream = self._planning()
        batch = loop.call(stream.batch(start, end))
        return [SlicesPartition(part) for part in packed(slices_of(batch), self._options.partition_count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SlicesPartition):
            # The numbers of a deferred message each; between reserved ones there may be gaps.
            are_listed = self._options.backend != NATIVE
            # They are set aside by now: rows show the state that they had before.
            yield from read_slices(self._options, partition.slices, are_listed=are_listed, state=ACTIVE)

    def commit(self, end: Offset) -> None:
        loop, stream = self._planning()
        loop.call(stream.commit(end))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        loop, stream = self._planning()
        loop.call(stream.remember_ends())

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.stop()
            self._loop = self._stream = None

    def _planning(self) -> tuple[LoopThread, Stream]:
        if self._loop is None or self._stream is None:
            check_stream(self._options)
            link = Link(self._options)
            self._stream = Stream(self._options, link, ledger_for(link, SystemClock()))
            self._loop = LoopThread()
        return self._loop, self._stream

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        """Messages and bytes of a batch."""
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, self._options.max_bytes
        if isinstance(limit, ReadMaxBytes):
            return self._options.max_messages, limit.max_bytes
        return self._options.max_messages, self._options.max_bytes
