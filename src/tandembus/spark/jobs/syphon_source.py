"""Backlog queues as a streaming source of the syphon's own.

Beside the data source `servicebus`, which settles a batch as a whole once Spark has committed it: here the tasks settle
what they have sent home, and whatever of a batch is left waits, without being in the way of others. Messages are the
bytes that came, since a message must come home with every property as it was (N8).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from tandembus.client import ServiceBus, connect
from tandembus.errors import MalformedData
from tandembus.pairing.client_ports import SharedConnection
from tandembus.pairing.payloads import browsed
from tandembus.pairing.syphon_rules import destination_of
from tandembus.spark.jobs.syphon_driver import BacklogDriver, Offset
from tandembus.spark.jobs.syphon_home import ANSWER_TIMEOUT_S
from tandembus.spark.jobs.syphon_ledger import QueueLedger
from tandembus.spark.jobs.syphon_plan import QueueBatch, passes
from tandembus.spark.source.decoding import NUMBER_BITS, NUMBER_MASK
from tandembus.spark.source.loop_thread import LoopThread
from tandembus.spark.source.marks import sequence_number_of
from tandembus.spark.source.ranges import Listed, count_of, joined, packed

NAME: Final = "servicebus-backlog"
SCHEMA: Final = "queue string, sequence_number long, epoch long, message binary"
ARROW: Final = pa.schema(
    [("queue", pa.string()), ("sequence_number", pa.int64()), ("epoch", pa.int64()), ("message", pa.binary())]
)


class BacklogDataSource(DataSource):
    """Options: `connection` and `ca` of the secondary, `primaryName`, `epochs` (JSON: queue to epoch, null where it is
    not open), `retryInterval` and `patience` (seconds), `maxMessages`, `numPartitions`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return BacklogReader({name.lower(): value for name, value in self.options.items()})


@dataclass(frozen=True)
class Part:
    """What a batch has of one fragment of a backlog queue."""

    queue: str
    epoch: int
    fragment: int
    batch: QueueBatch

    @property
    def count(self) -> int:
        return count_of(self.batch.ranges)


class BacklogPartition(InputPartition):
    """What one task moves."""

    def __init__(self, parts: list[Part]) -> None:
        super().__init__(None)
        self.parts: Final = parts


class BacklogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str]) -> None:
        self._options: Final = options
        self._loop: LoopThread | None = None
        self._driver: BacklogDriver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_loop": None, "_driver": None}

    def initialOffset(self) -> Offset:  # noqa: N802
        return self._on_driver()[1].first_offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        loop, driver = self._on_driver()
        return loop.call(driver.latest(start))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._on_driver()[1].only_what_is_there()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        if start == end:
            return []
        loop, driver = self._on_driver()
        parts = parts_of(loop.call(driver.batches(end)))
        return [BacklogPartition(some) for some in packed(parts, int(self._options["numpartitions"]))]

    def read(self, partition: BacklogPartition) -> Iterator[pa.RecordBatch]:
        """Page by page, the next one under way while this one is sent home."""
        with LoopThread() as loop:
            secondary = SharedConnection(self._connect)
            try:
                for part in partition.parts:
                    ledger, ranges = QueueLedger(secondary, part.queue, part.epoch), part.batch.ranges[part.fragment]
                    listed = Listed(ranges)
                    for first, last in joined(ranges):
                        for messages in _pages(loop, ledger, part.fragment, first, last):
                            yield _rows(part, listed, messages)
            finally:
                loop.call(secondary.close())

    def commit(self, end: Offset) -> None:
        """What was moved is settled already."""

    def _on_driver(self) -> tuple[LoopThread, BacklogDriver]:
        if self._loop is None or self._driver is None:
            options = self._options
            self._loop = LoopThread()
            self._driver = BacklogDriver(
                SharedConnection(self._connect),
                options["primaryname"],
                json.loads(options["epochs"]),
                float(options["retryinterval"]),
                int(options["maxmessages"]),
                float(options["patience"]),
            )
        return self._loop, self._driver

    async def _connect(self) -> ServiceBus:
        options = self._options
        return await connect(options["connection"], ca_path=options.get("ca") or None, timeout_s=ANSWER_TIMEOUT_S)


def _pages(loop: LoopThread, ledger: QueueLedger, fragment: int, first: int, last: int) -> Iterator[list[bytes]]:
    coming = loop.begin(ledger.page(fragment, first, last))
    while True:
        messages, following = coming.result()
        if following is None:
            yield messages
            return
        coming = loop.begin(ledger.page(fragment, following, last))
        yield messages


def _rows(part: Part, listed: Listed, messages: list[bytes]) -> pa.RecordBatch:
    numbers: list[int] = []
    wanted: list[bytes] = []
    for message in messages:
        number = sequence_number_of(message)
        if number & NUMBER_MASK in listed and _passes(part.batch, number, message):
            numbers.append(number)
            wanted.append(message)
    columns = [[part.queue] * len(numbers), numbers, [part.epoch] * len(numbers), wanted]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)], schema=ARROW
    )


def _passes(batch: QueueBatch, number: int, message: bytes) -> bool:
    if not batch.held_back:
        return True
    try:
        path = browsed(message).path
    except MalformedData:
        path = None
    destination = "" if path is None else destination_of(path)
    return passes(batch, number >> NUMBER_BITS, number & NUMBER_MASK, destination)


def parts_of(batches: Mapping[str, tuple[int, QueueBatch]]) -> list[Part]:
    return [
        Part(queue, epoch, fragment, QueueBatch({fragment: ranges}, batch.waiting, batch.held_back))
        for queue, (epoch, batch) in batches.items()
        for fragment, ranges in batch.ranges.items()
    ]
