"""The session that `spark_session` makes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tandembus.spark.jobs.query import SHUFFLE_PARTITIONS, fitted_shuffles, selected
from tests.covers import covers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_session_has_the_settings_that_suit_the_pipeline(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@covers("D1")
def test_spark_finds_the_data_source_by_its_name(spark: SparkSession) -> None:
    reader = spark.read.format("servicebus").options(connectionEnv="NOT_LOOKED_UP_YET", entities="orders")
    assert "sequence_number" in reader.load().columns


@covers("D5")
def test_shuffles_fit_the_input_unless_the_user_has_set_their_number(spark: SparkSession) -> None:
    own = spark.conf.get(SHUFFLE_PARTITIONS)
    with fitted_shuffles(spark, 1 << 40):
        assert spark.conf.get(SHUFFLE_PARTITIONS) == own
    spark.conf.unset(SHUFFLE_PARTITIONS)
    try:
        for size_bytes, parts in ((0, "1"), (100, "1"), (64 << 20, "2"), (1 << 30, "32")):
            with fitted_shuffles(spark, size_bytes):
                assert spark.conf.get(SHUFFLE_PARTITIONS) == parts
        assert spark.conf.get(SHUFFLE_PARTITIONS) == "200"
    finally:
        spark.conf.set(SHUFFLE_PARTITIONS, own)


@covers("D5")
def test_sql_text_leaves_its_tables_in_memory(spark: SparkSession) -> None:
    """Otherwise the tables of a reconciliation would come from several readings of files that grow."""
    table = spark.range(3).cache()
    found = selected(spark, "SELECT sum(id) FROM {table} WHERE id < {limit}", table=table, limit=2).collect()
    assert [row[0] for row in found] == [1]
    assert table.storageLevel.useMemory
    table.unpersist()
    assert not [each for each in spark.catalog.listTables() if each.name.startswith("tandembus")]
