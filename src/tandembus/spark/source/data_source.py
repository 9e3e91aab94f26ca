"""The door that Spark knocks at: names the data source and makes its readers and writers."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from tandembus.spark.source.options import SourceOptions, parse_options, require_entities
from tandembus.spark.source.schema import spark_schema
from tandembus.spark.source.table_options import created_with, table_schema, with_table_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME: Final = "servicebus"


class ServiceBusDataSource(DataSource):
    """Queues, subscriptions and topics of a Service Bus namespace.

    Spark makes and copies these objects in many processes: they hold options and nothing else.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)
        self._parsed: SourceOptions | None = None

    @classmethod
    def name(cls) -> str:
        return NAME

    @property
    def parsed(self) -> SourceOptions:
        """Checked when they are first needed."""
        if self._parsed is None:
            self._parsed = parse_options(self._given)
        return self._parsed

    def _parsed_for(self, schema: StructType) -> SourceOptions:
        """The columns of a table of the catalog hold its options."""
        self._given = with_table_options(self._given, schema)
        return self.parsed

    def schema(self) -> str | StructType:
        created = created_with(self._given)
        if created is not None:
            return table_schema(created)
        require_entities(self.parsed)
        return spark_schema(self.parsed.payload)

    def reader(self, schema: StructType) -> DataSourceReader:
        from tandembus.spark.source.batch_reader import BatchReader

        require_entities(self._parsed_for(schema))
        return BatchReader(self.parsed)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from tandembus.spark.source.stream_reader import StreamReader

        # It checks the options when it is asked something: Spark shows the error then.
        return StreamReader(self._parsed_for(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tandembus.spark.source.writer import BatchWriter, check_append

        check_append(overwrite)
        return BatchWriter(self._parsed_for(schema), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from tandembus.spark.source.writer import StreamWriter, check_append

        check_append(overwrite)
        return StreamWriter(self._parsed_for(schema), schema)
