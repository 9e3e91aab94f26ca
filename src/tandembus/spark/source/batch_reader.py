"""Reads entities as tables: it looks at messages and takes none."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tandembus.errors import FragmentUnavailable, StoreUnavailable
from tandembus.loop_thread import LoopThread
from tandembus.spark.source.backends import browser_for, check_is_whole, ends_of
from tandembus.spark.source.link import Link
from tandembus.spark.source.options import SourceOptions
from tandembus.spark.source.ranges import Slice, packed

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("tandembus.spark")

SWITCH_INTERVAL_S: Final = 0.0005
"""How long decoding may keep the thread waiting that fetches: with Python's 5 ms the service is idle meanwhile."""


class SlicesPartition(InputPartition):
    """What one task reads."""

    def __init__(self, slices: list[Slice]) -> None:
        super().__init__(slices)
        self.slices = slices


def read_slices(
    options: SourceOptions, slices: list[Slice], *, are_listed: bool = False, state: str | None = None
) -> Iterator[pa.RecordBatch]:
    """In the task: connects, reads, and leaves nothing behind.

    `are_listed`: each number is that of a message. One that is not there was removed by somebody, or has expired: the
    others are read. `state`: the one that each row shows in place of the message's present state.
    """
    from tandembus.spark.source.browsing import messages_of
    from tandembus.spark.source.columns import batches_of
    from tandembus.spark.source.pages import share_of

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with LoopThread() as loop:
        link = Link(options)
        try:
            for part in slices:
                pages = messages_of(link, loop, browser_for(link), part)
                count = 0
                for batch in batches_of(part.entity, pages, options.payload, share_of(options), state):
                    count += batch.num_rows
                    yield batch
                if part.fragment is None:
                    loop.call(check_is_whole(options, part.entity))
                if are_listed and count < part.count:
                    log.info(
                        "%s: %d of %d messages were removed or have expired before they were read",
                        part.entity,
                        part.count - count,
                        part.count,
                    )
        finally:
            loop.call(link.drop())
            sys.setswitchinterval(interval_s)


class BatchReader(DataSourceReader):
    """Ranges are options: filters are left to Spark, which would otherwise mix them up between queries."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[SlicesPartition]:
        """The numbers that are given out by now, so that reading comes to an end while others send."""
        with LoopThread() as loop:
            link = Link(self._options)
            try:
                slices = [part for entity in self._options.entities for part in self._slices(loop, link, entity)]
            finally:
                loop.call(link.drop())
        return [SlicesPartition(part) for part in packed(slices, self._options.partition_count)]

    def _slices(self, loop: LoopThread, link: Link, entity: str) -> list[Slice]:
        options = self._options
        try:
            ends = loop.call(link.patiently(lambda: ends_of(link, entity)))
        except StoreUnavailable as error:
            raise FragmentUnavailable(
                f"{entity}: {error} The option fragments reads a table of those fragments that can be reached."
            ) from None
        if ends is None:
            loop.call(link.patiently(lambda: check_is_whole(options, entity)))
            return [Slice(entity, None, ((options.from_sequence, options.to_sequence),), options.fragments)]
        return [
            Slice(entity, fragment, ((options.from_sequence, min(end, options.to_sequence)),))
            for fragment, end in sorted(ends.items())
            if (not options.fragments or fragment in options.fragments)
            and options.from_sequence <= min(end, options.to_sequence)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SlicesPartition):
            yield from read_slices(self._options, partition.slices)
