"""Rows from memory and to nowhere, in the columns of the data source: as fast as Spark's Python sources can be."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from tandembus.spark.source.columns import BATCH_ROWS
from tandembus.spark.source.schema import arrow_schema, spark_schema

PARTITIONS = 2
BODY = b"x" * 1024


def sample() -> pa.RecordBatch:
    """As many rows as a batch of the data source has; most columns of most messages are empty."""
    rows = [
        {"entity": "orders", "fragment": 0, "sequence_number": number, "message_id": str(number), "body": BODY}
        for number in range(BATCH_ROWS)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema())


class MemorySource(DataSource):
    """`rows`: how many."""

    @classmethod
    def name(cls) -> str:
        return "memory-rows"

    def schema(self) -> str:
        return spark_schema()

    def reader(self, schema: Any) -> DataSourceReader:
        return MemoryReader(int(self.options["rows"]))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return Nowhere()


class MemoryReader(DataSourceReader):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._rows // PARTITIONS)] * PARTITIONS

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = sample()
        left: int = partition.value
        while left > 0:
            yield batch.slice(0, min(left, BATCH_ROWS))
            left -= BATCH_ROWS


class Nowhere(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
