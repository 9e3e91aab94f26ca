"""The door that Spark knocks at: names the data source and makes its readers and writers."""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import DataSource

from tandembus.spark.source.schema import SPARK_SCHEMA

NAME: Final = "servicebus"


class ServiceBusDataSource(DataSource):
    """Queues, subscriptions and topics of a Service Bus namespace."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SPARK_SCHEMA
