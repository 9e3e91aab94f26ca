"""Options of tables in Spark's catalog: `CREATE TABLE ... USING servicebus OPTIONS (...)`.

Spark keeps the OPTIONS of such a table and hands them to the data source once, when it asks for the columns. It hands
nothing but the columns to whoever reads or writes the table later. So the options travel with the first column, as its
metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tandembus.errors import InvalidArgument
from tandembus.spark.source.options import parse_options
from tandembus.spark.source.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PROVIDER: Final = "provider"
PREFIX: Final = "option."
"""Spark's names of a table's properties: its data source, and the options as they stand in the statement. Others, such
as `owner`, are about the table."""
METADATA: Final = "servicebus"


def created_with(properties: Mapping[str, str]) -> dict[str, str] | None:
    """The OPTIONS of the table that is created; None for what is no table of the catalog."""
    if PROVIDER not in properties:
        return None
    return {name.removeprefix(PREFIX): value for name, value in properties.items() if name.startswith(PREFIX)}


def table_schema(options: Mapping[str, str]) -> StructType:
    """All columns, and the options with the first one."""
    from pyspark.sql.pandas.types import from_arrow_schema

    parsed = parse_options(options)
    if parsed.connection is not None:
        raise InvalidArgument(
            "a table of Spark's catalog shows its options to everybody who may look at it: put the connection string "
            "into an environment variable, and give that variable's name as the option connectionEnv"
        )
    if not parsed.entities and parsed.destination is None:
        raise InvalidArgument("which entities? Give the option entities to read from, or entity to write to")
    schema = from_arrow_schema(arrow_schema(parsed.payload))
    schema.fields[0].metadata = {METADATA: dict(options)}
    return schema


def with_table_options(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Adds the options that the table was created with. Options that Spark passes now take precedence."""
    for field in schema.fields:
        found = (field.metadata or {}).get(METADATA)
        if isinstance(found, dict):
            return {**found, **options}
    return dict(options)
