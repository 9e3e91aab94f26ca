"""Streams of Spark: a queue is consumed into another, and what is done is settled."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.unit.spark.stage import Stage, numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

TIMEOUT_S = 120
UNREADABLE = b"\x00\x53\x74\xc1\x08\x02\xa1\x01a\xa1\x02\xff\xfe"
"""A message with a property that is not UTF-8."""


def consume(spark: SparkSession, namespace: EmbeddedNamespace, queue: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("servicebus").option("connection", namespace.connection_string)
    return reader.options(**{"entities": queue, "owner": "tests", "retryFor": "5", **options}).load()


def start(
    frame: DataFrame, namespace: EmbeddedNamespace, destination: str, checkpoint: Path, *, once: bool = False
) -> StreamingQuery:
    writer = frame.select("entity", "fragment", "sequence_number", "message_id", "body").writeStream
    writer = writer.format("servicebus").option("connection", namespace.connection_string)
    writer = writer.options(entity=destination, checkpointLocation=str(checkpoint))
    return (writer.trigger(once=True) if once else writer.trigger(availableNow=True)).start()


@covers("D1")
@pytest.mark.parametrize("backend", ["native", "azure"])
def test_a_queue_is_drained_into_another_and_a_restart_goes_on(
    spark: SparkSession, namespace: EmbeddedNamespace, tmp_path: Path, backend: str
) -> None:
    stage = Stage(namespace, f"q-{uuid.uuid4().hex}")
    stage.create(enable_partitioning=True)
    destination = namespace.create_queue(f"{stage.queue}-2", requires_duplicate_detection=True)
    frame = consume(spark, namespace, stage.queue, backend=backend, maxMessages="40")
    stage.send([*numbered(100), UNREADABLE])
    query = start(frame, namespace, destination, tmp_path, once=True)
    assert query.awaitTermination(TIMEOUT_S)
    assert [progress["numInputRows"] for progress in query.recentProgress] == [101]  # whatever maxMessages says
    assert len(stage.peek()) == 101
    key = namespace.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    assert query.recentProgress
    assert all(key not in str(progress) for progress in query.recentProgress)
    assert all(key.encode() not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    stage.send(numbered(50, subject="more"))
    assert start(frame, namespace, destination, tmp_path).awaitTermination(TIMEOUT_S)
    assert stage.peek() == []
    arrived = stage.peek(destination)
    assert {f"m{n}" for n in range(100)} < {str(message.message_id) for message in arrived}
    assert len(arrived) == 101
    assert sum(isinstance(message.body, bytes) and UNREADABLE in message.body for message in arrived) == 1


@covers("D1")
def test_mistakes_end_a_query_with_what_to_do(
    spark: SparkSession, namespace: EmbeddedNamespace, tmp_path: Path
) -> None:
    queue = namespace.create_queue(f"q-{uuid.uuid4().hex}")
    stage = Stage(namespace, queue)
    stage.send(numbered(1))
    with pytest.raises(PySparkException, match="needs the option owner"):
        start(consume(spark, namespace, queue, owner=""), namespace, queue, tmp_path / "a").awaitTermination(TIMEOUT_S)
    assert start(consume(spark, namespace, queue), namespace, queue, tmp_path / "b").awaitTermination(TIMEOUT_S)
    other = consume(spark, namespace, queue, namespaceId="elsewhere")
    with pytest.raises(PySparkException, match="belongs to the namespace"):
        start(other, namespace, queue, tmp_path / "b").awaitTermination(TIMEOUT_S)
