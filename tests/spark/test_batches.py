"""Tables of Spark: browsing entities, and writing rows to them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.spark.conftest import CONNECTION_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, namespace: EmbeddedNamespace, entities: str, **options: str) -> DataFrame:
    reader = spark.read.format("servicebus").option("connection", namespace.connection_string)
    return reader.options(entities=entities, **options).load()


@covers("D1")
def test_rows_are_written_and_read_again(spark: SparkSession, namespace: EmbeddedNamespace) -> None:
    queue = namespace.create_queue(f"q-{uuid.uuid4().hex}", enable_partitioning=True)
    frame = spark.range(2000).select(
        f.col("id").cast("string").alias("body"),
        f.concat(f.lit("m"), "id").alias("message_id"),
        (f.col("id") % 5).cast("string").alias("partition_key"),
        f.create_map(f.lit("n"), f.col("id").cast("string")).alias("properties"),
        f.create_map(f.lit("n"), f.lit("int")).alias("property_types"),
    )
    frame.write.format("servicebus").option("connection", namespace.connection_string).option("entity", queue).mode(
        "append"
    ).save()
    found = read(spark, namespace, queue)
    assert found.count() == 2000
    assert found.filter("properties['n'] != cast(body as string) or property_types['n'] != 'int'").count() == 0
    assert found.select("message_id").distinct().count() == 2000
    # Filters of one query must not reach another one of the same frame.
    assert found.filter("partition_key = '1'").count() == 400
    assert found.count() == 2000


@covers("D1")
def test_the_connection_string_shows_nowhere(
    spark: SparkSession, namespace: EmbeddedNamespace, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = namespace.create_queue(f"q-{uuid.uuid4().hex}")
    key = namespace.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    assert key
    frame = read(spark, namespace, queue)
    frame.explain("extended")
    texts = [frame._jdf.queryExecution().toString(), frame._jdf.queryExecution().analyzed().toJSON()]
    with pytest.raises(PySparkException) as failure:
        read(spark, namespace, f"{queue}-none").count()
    assert "`tandembus queue list`" in str(failure.value)
    with pytest.raises(PySparkException) as refusal:
        spark.sql("select 'x' as body").write.format("servicebus").option(
            "connection", namespace.connection_string
        ).option("entity", f"{queue}-none").mode("append").save()
    frame.write.format("servicebus").option("connection", namespace.connection_string).option("entity", queue).mode(
        "append"
    ).save()
    texts += [str(failure.value), str(refusal.value), *capfd.readouterr()]
    events = Path(spark.conf.get("spark.eventLog.dir").removeprefix("file:"))
    texts += [file.read_text() for file in events.rglob("events_*")]
    assert queue in texts[-1]
    assert all(key not in text for text in texts)


@covers("D1")
def test_a_table_of_the_catalog_is_read_written_and_streamed(
    spark: SparkSession, namespace: EmbeddedNamespace, tmp_path: Path
) -> None:
    queue = namespace.create_queue(f"q-{uuid.uuid4().hex}")
    table = f"orders_{uuid.uuid4().hex}"
    options = f"connectionEnv '{CONNECTION_VARIABLE}', entities '{queue}', entity '{queue}'"
    spark.sql(f"create table {table} using servicebus options ({options})")
    spark.sql(f"insert into {table} (body, message_id) select binary('x'), concat('m', id) from range(3)")
    found = spark.sql(f"select message_id, string(body) as body, state from {table} where message_id > 'm0'")
    assert {tuple(row) for row in found.collect()} == {("m1", "x", "active"), ("m2", "x", "active")}
    assert spark.sql(f"select * from {table} with (fromSequence = 3)").count() == 1
    stream = spark.readStream.option("owner", "tables").table(table).select("message_id").writeStream.format("parquet")
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    assert stream.start(str(tmp_path / "rows")).awaitTermination(120)
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 3
    assert spark.table(table).count() == 0
    spark.sql(f"drop table {table}")


def test_a_table_that_cannot_keep_its_options_says_so(spark: SparkSession, namespace: EmbeddedNamespace) -> None:
    table = f"orders_{uuid.uuid4().hex}"
    secret = f"options (connection '{namespace.connection_string}', entities 'q')"
    with pytest.raises(PySparkException, match="shows its options to everybody"):
        spark.sql(f"create table {table} using servicebus {secret}")
    with pytest.raises(PySparkException, match="which entities"):
        spark.sql(f"create table {table} using servicebus options (connectionEnv 'BUS')")
    spark.sql(f"create table {table} (body binary) using servicebus options (connectionEnv 'BUS', entities 'q')")
    with pytest.raises(PySparkException, match="only if CREATE TABLE named no columns"):
        spark.table(table).count()
    spark.sql(f"drop table {table}")


def test_mistakes_are_told_in_words(spark: SparkSession, namespace: EmbeddedNamespace) -> None:
    writer = spark.range(1).write.format("servicebus").option("connection", namespace.connection_string)
    with pytest.raises(PySparkException, match="has no column 'id'"):
        writer.option("entity", "q").mode("append").save()
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        writer.option("entity", "q").mode("overwrite").save()
    with pytest.raises(PySparkException, match="which namespace"):
        spark.read.format("servicebus").load()
