"""The session that `spark_session` makes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

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
