"""What tests of the data source do with a namespace: make entities, send, read all rows, count."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa

from tandembus.client import OutgoingMessage, ReceivedMessage, ServiceBus, connect
from tandembus.client.addresses import address_of
from tandembus.client.messages import Payload
from tandembus.loop_thread import LoopThread
from tandembus.spark.source.batch_reader import BatchReader
from tandembus.spark.source.marks import sequence_number_of
from tandembus.spark.source.options import SourceOptions, parse_options
from tandembus.spark.source.writer import Sent, write_batches
from tandembus.testing import EmbeddedNamespace

T = TypeVar("T")
Row = dict[str, Any]


class Stage:
    def __init__(self, namespace: EmbeddedNamespace, queue: str) -> None:
        self.namespace = namespace
        self.queue = queue

    def create(self, **settings: Any) -> str:
        return self.namespace.create_queue(self.queue, **settings)

    def options(self, **options: str) -> SourceOptions:
        return parse_options({"connection": self.namespace.connection_string, "retryFor": "5", **options})

    def run(self, work: Callable[[ServiceBus], Coroutine[Any, Any, T]]) -> T:
        async def connected() -> T:
            async with await connect(self.namespace.connection_string) as bus:
                return await work(bus)

        with LoopThread() as loop:
            return loop.call(connected())

    def send(self, messages: Iterable[Payload], entity: str | None = None) -> None:
        async def work(bus: ServiceBus) -> None:
            sender = await bus.sender(entity or self.queue)
            await sender.send_many(list(messages))

        self.run(work)

    def peek(self, entity: str | None = None) -> list[ReceivedMessage]:
        """All messages, in the order of their sequence numbers."""

        async def work(bus: ServiceBus) -> list[ReceivedMessage]:
            node = await bus.management(address_of(entity or self.queue))
            found: list[ReceivedMessage] = []
            while page := await node.peek(sequence_number_of(found[-1].payload) + 1 if found else 1, 1000):
                found += page
            return found

        return self.run(work)

    def read(self, **options: str) -> list[Row]:
        """All rows of a batch read."""
        reader = BatchReader(self.options(**{"entities": self.queue, **options}))
        return rows_of(batch for part in reader.partitions() for batch in reader.read(part))

    def write(self, rows: list[Row], schema: pa.Schema | None = None, scope: str = "", **options: str) -> Sent:
        batch = pa.RecordBatch.from_pylist(rows, schema=schema)
        return write_batches(self.options(**{"entity": self.queue, **options}), scope, iter([batch]))


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    return [plain(row) for batch in batches for row in batch.to_pylist()]


def plain(row: Mapping[str, Any]) -> Row:
    """Maps of Arrow come as pairs."""
    return {name: dict(value) if isinstance(value, list) else value for name, value in row.items()}


def numbered(count: int, **fields: Any) -> Iterator[OutgoingMessage]:
    return (OutgoingMessage(f"body {index}", message_id=f"m{index}", **fields) for index in range(count))
