"""The data pipeline: Service Bus queues and subscriptions as Spark tables and streams, and the jobs built on them.

    from tandembus.spark import spark_session

    spark = spark_session()
    spark.read.format("servicebus").option("connectionEnv", "BUS").option("entities", "orders").load()

Importing this loads nothing of Spark yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tandembus.spark.session import spark_session

__all__ = ["spark_session"]


def __getattr__(name: str) -> object:
    if name != "spark_session":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tandembus.spark.session import spark_session

    return spark_session
