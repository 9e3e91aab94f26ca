"""The exceptions of a reconciliation, each with the places where its message was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tandembus.spark.jobs.reconcile_judging import IDENTITY
from tandembus.spark.jobs.reconcile_names import Names
from tandembus.spark.jobs.reconcile_stores import Lane
from tandembus.spark.jobs.reconcile_units import STATE, STATES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXCEPTIONS_FOLDER: Final = "exceptions"
PLACES_SHOWN: Final = 10
OUTSTANDING: Final = tuple([STATE[name] for name in ("lost", "phantom", "unjudged", "again")])


class Listing:
    """`exceptions` are asked for several times."""

    def __init__(
        self, spark: SparkSession, exceptions: DataFrame, units: DataFrame, lanes: Sequence[Lane], names: Names
    ) -> None:
        self._spark: Final = spark
        self._exceptions: Final = exceptions
        self._units: Final = units
        self._lanes: Final = lanes
        self._names: Final = names

    def first(self, count: int) -> list[dict[str, Any]]:
        """The worst of them."""
        from pyspark.sql import functions as F  # noqa: N812

        if not count:
            return []
        ordered = self._exceptions.orderBy("rank", "entity_key", "message_id", "space")
        rows = [row.asDict() for row in ordered.limit(count).collect()]
        keys = {tuple([row[name] for name in IDENTITY]) for row in rows}
        concerned = F.broadcast(
            self._spark.createDataFrame(sorted(keys), "space string, entity_key string, message_id string")
        )
        where = {
            tuple([row[name] for name in IDENTITY]): [place.asDict() for place in row["places"]]
            for row in self._places(concerned).collect()
        }
        for row in rows:
            row["places"] = where.get(tuple([row[name] for name in IDENTITY]), [])
        return [self._shown(row) for row in rows]

    def _shown(self, row: dict[str, Any]) -> dict[str, Any]:
        names = self._names
        return {
            "kind": row["kind"],
            "namespace": names.namespace(row["space"]),
            "entity": names.entity(row["space"], row["entity_key"]),
            "message_id": row["message_id"],
            "count": row["count"],
            "first_at": row["first_at"],
            "settled_at": row["settled_at"],
            "places": row["places"],
        }

    def keep(self, folder: str) -> None:
        """All of them. In a folder of their own: whatever else is in this one is not ours to replace."""
        from pyspark.sql import functions as F  # noqa: N812

        table = [
            (space, self._names.namespace(space), key, name) for (space, key), name in self._names.entities.items()
        ]
        schema = "space string, namespace string, entity_key string, entity string"
        named = self._exceptions.join(
            F.broadcast(self._spark.createDataFrame(table, schema)), ["space", "entity_key"], "left"
        )
        placed = named.join(self._places(self._exceptions.select(*IDENTITY).distinct()), IDENTITY, "left")
        # A message without any record has no place.
        placed = placed.withColumn("places", F.coalesce("places", F.array()))
        columns = ("kind", "namespace", "entity", "message_id", "count", "first_at", "settled_at", "places")
        placed.select(*columns).write.mode("overwrite").json(f"{folder.rstrip('/')}/{EXCEPTIONS_FOLDER}")

    def _places(self, concerned: DataFrame) -> DataFrame:
        """Of messages without an id, only those that are in question: they share one with all others."""
        from pyspark.sql import functions as F  # noqa: N812

        table = [(lane.number, lane.namespace, lane.entity) for lane in self._lanes]
        lanes = F.broadcast(
            self._spark.createDataFrame(table, "lane_number int, namespace string, place_entity string")
        )
        states = F.array(*[F.lit(name) for name in STATES])
        is_shown = (F.col("message_id") != "") | F.col("state").isin(*OUTSTANDING)
        place = F.struct(
            "namespace",
            F.coalesce("place_entity", "entity").alias("entity"),
            F.col("sequence").alias("sequence_number"),
            F.get(states, F.col("state")).alias("state"),
        )
        units = self._units.where(is_shown).join(concerned, IDENTITY, "left_semi").join(lanes, "lane_number", "left")
        places = F.slice(F.sort_array(F.collect_set(place)), 1, PLACES_SHOWN)
        return units.groupBy(*IDENTITY).agg(places.alias("places"))
