"""A sender's own record of its sends: what it was told, beside what the namespaces have on record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.reconcile_files import address_of
from tandembus.spark.jobs.reconcile_names import Written
from tandembus.spark.jobs.reconcile_stores import ALWAYS_MS, Spaces
from tandembus.spark.jobs.streaming import spark_errors
from tandembus.spark.jobs.usage_files import without_patterns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = "entity string, message_id string, outcome string, at string"
OUTCOMES: Final = ("accepted", "unknown", "refused")
SENT: Final = ("sent", "unknown", "refused", "sent_in_doubt")


@dataclass(frozen=True, slots=True)
class Sends:
    rows: DataFrame
    """Space, entity key, message id, and how often each was told."""
    written: list[Written]
    """How the sender writes the entities."""
    skipped_count: int
    """Lines that say nothing that could be compared."""


def read_sends(spark: SparkSession, path: str, cut_off_ms: int, homes: Mapping[str, str], spaces: Spaces) -> Sends:
    """`homes`: the namespace of each entity."""
    from pyspark.sql import functions as F  # noqa: N812

    try:
        told = spark.read.schema(SCHEMA).json(without_patterns(address_of(path)))
    except spark_errors():
        raise InvalidArgument(f"{path}: no record of sends. Give a file of JSON lines that Spark can read.") from None
    is_send = F.col("entity").isNotNull() & (F.coalesce("message_id", F.lit("")) != "")
    is_send = is_send & F.coalesce(F.col("outcome").isin(*OUTCOMES), F.lit(False))
    skipped_count = told.where(~is_send).count()
    at_ms = F.unix_millis(F.try_to_timestamp("at"))
    # A send may have gone to any of the namespaces: the records of all must reach as far.
    end_at = min(spaces.end_at.values(), default=ALWAYS_MS)
    is_open = end_at < ALWAYS_MS
    table = [(key, space, spaces.doubt(space), is_open or space in spaces.partial) for key, space in homes.items()]
    schema = "entity_key string, space string, doubt_at long, is_partial boolean"
    known = F.broadcast(spark.createDataFrame(table, schema))
    rows = (
        told.where(is_send & (F.coalesce(at_ms, F.lit(0)) <= cut_off_ms))
        .withColumns({"entity_key": F.lower("entity"), "at_ms": at_ms})
        .join(known, "entity_key", "left")
    )
    is_accepted = F.col("outcome") == "accepted"
    # Who does not say when it was may mean a time of which the records are gone.
    is_recorded = F.col("at_ms").between(F.col("doubt_at") + 1, end_at)
    is_in_doubt = F.coalesce(~is_recorded, F.col("is_partial"), F.lit(is_open or spaces.lacks_stores))
    listed = rows.select(
        F.coalesce("space", F.lit("")).alias("space"),
        "entity_key",
        "message_id",
        "entity",
        is_accepted.cast("int").alias("sent"),
        (F.col("outcome") == "unknown").cast("int").alias("unknown"),
        (F.col("outcome") == "refused").cast("int").alias("refused"),
        (is_accepted & is_in_doubt).cast("int").alias("sent_in_doubt"),
    )
    written = listed.groupBy("space", "entity_key", "entity").count().collect()
    return Sends(listed.drop("entity"), [Written(*row[:3]) for row in written], skipped_count)
