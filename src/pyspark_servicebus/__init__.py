"""Makes `format("servicebus")` known to Spark, which looks for data sources in all modules named `pyspark_...`.

Spark imports this in every Python process that it starts, so it loads little and connects to nothing.
"""

from tandembus.spark.source.data_source import ServiceBusDataSource as DefaultSource

__all__ = ["DefaultSource"]
