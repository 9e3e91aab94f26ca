"""Reconciliation: what two namespaces have accepted, against what became of it, message by message.

A message is known by the entity it was sent to and its message id. What a sender put into a backlog queue belongs to
the entity it is for, so a failover send and its copy that came home are one. What each class means:
docs/reconciliation.md.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tandembus.spark.jobs.reconcile_in_flight import InFlight, browse
from tandembus.spark.jobs.reconcile_records import CLOSING, MAIN_LANE, SETTLING, Records, read_records
from tandembus.spark.jobs.reconcile_result import ReconcileResult, result_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

IDENTITY: Final = ["entity_key", "message_id"]
SENDS_SCHEMA: Final = "entity string, message_id string, outcome string, at string"
IN_FLIGHT_SCHEMA: Final = "entity string, sequence_number long, message_id string, enqueued_at long"
FAR_FUTURE_MS: Final = 1 << 62
RECORDED_WITHIN_S: Final = 3.0
EXCEPTIONS_FOLDER: Final = "exceptions"
"""Records are in the files about a second after they are durable."""


@dataclass(frozen=True, slots=True)
class ReconcileOptions:
    paths: Sequence[str]
    """Data folders, audit folders or audit files, of both namespaces."""
    cut_off: datetime | None = None
    """What was first accepted later is left out."""
    late_after_s: float = 300.0
    namespaces: Sequence[tuple[str, str | None]] = field(default=(), repr=False)
    """Where to browse what is in flight: connection strings, each with a certificate to trust or None. Without any,
    the records say what is."""
    in_flight: InFlight | None = None
    """What was browsed already, by whoever calls this."""
    sends: str | None = None
    """A sender's own record of its sends, JSON lines."""
    output: str | None = None
    """A folder; the whole list of exceptions goes to `exceptions` in it."""
    max_exceptions: int = 1000


def run_reconcile(spark: SparkSession, options: ReconcileOptions) -> ReconcileResult:
    cut_off_ms = FAR_FUTURE_MS if options.cut_off is None else int(options.cut_off.timestamp() * 1000)
    records = read_records(spark, options.paths)
    if not options.namespaces:
        return _reconciled(spark, records, options.in_flight, options, cut_off_ms)
    in_flight = browse(options.namespaces, _entities_in(records))
    # What was settled since the records were read is missing by now: they must say so before it is called lost.
    threading.Event().wait(RECORDED_WITHIN_S)
    return _reconciled(spark, read_records(spark, options.paths), in_flight, options, cut_off_ms)


def _reconciled(
    spark: SparkSession, records: Records, in_flight: InFlight | None, options: ReconcileOptions, cut_off_ms: int
) -> ReconcileResult:
    units = _units(spark, records, in_flight).cache()
    identities = _identities(spark, units, options, cut_off_ms).cache()
    exceptions = _exceptions(units, identities)
    result = result_of(_entities(identities), exceptions, records, options.cut_off, options.max_exceptions)
    if options.output is not None:
        # In a folder of their own: whatever else is in this one is not ours to replace.
        exceptions.write.mode("overwrite").json(f"{options.output.rstrip('/')}/{EXCEPTIONS_FOLDER}")
    for table in (identities, units, *records.kept):
        table.unpersist()
    return result


def _entities_in(records: Records) -> list[str]:
    rows = records.places.where("entity is not null and dropped_at is null").select("entity").distinct().collect()
    return sorted(row["entity"] for row in rows)


# Each place, and what is to be thought of it.


def _units(spark: SparkSession, records: Records, in_flight: InFlight | None) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    # Where the oldest files are gone, what is settled may have been accepted in one of them.
    rolled = records.stores.where("first > 1").select("store").withColumn("is_rolled", F.lit(True))
    began = records.beginnings.select("store", "fragment", "lane", "first_recorded")
    places = (
        records.places.where("closed_as is null or closed_as <> 'left'")  # it goes on under another number
        .join(F.broadcast(began), ["store", "fragment", "lane"], "left")
        .join(F.broadcast(rolled), "store", "left")
        .withColumn("is_before", F.coalesce(F.col("place") < F.col("first_recorded"), F.col("is_rolled"), F.lit(False)))
    )
    passing = records.passing.select(
        "namespace",
        "store",
        "fragment",
        "lane",
        "place",
        "entity",
        "sequence",
        "message_id",
        "session",
        "key",
        "path",
        F.col("kind").alias("opened_as"),
        F.col("at").alias("opened_at"),
        F.lit(1).alias("openings"),
        F.when(F.col("kind") == "published", F.lit("distributed")).alias("closed_as"),
        F.col("at").alias("closed_at"),
        F.lit(0).alias("closings"),
        F.lit(None).cast("long").alias("dropped_at"),
        F.lit(False).alias("is_before"),
    )
    units = places.drop("first_recorded", "is_rolled").unionByName(passing, allowMissingColumns=True)
    units = _with_in_flight(spark, units, in_flight)
    return units.withColumns({"state": _state(), "is_backlog": _is_backlog()}).transform(_with_identity)


def _is_backlog() -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.col("path").isNotNull() & (F.col("lane") == MAIN_LANE)


def _with_identity(units: DataFrame) -> DataFrame:
    """Names are the same whatever their case."""
    from pyspark.sql import functions as F  # noqa: N812

    logical = F.coalesce(F.when(F.col("is_backlog"), F.col("path")), F.col("entity"), F.lit("?"))
    message_id = F.coalesce("message_id", F.concat(F.lit("#"), F.col("sequence")))
    return units.withColumns({"logical": logical, "entity_key": F.lower(logical), "message_id": message_id})


def _with_in_flight(spark: SparkSession, units: DataFrame, in_flight: InFlight | None) -> DataFrame:
    """Marks what browsing found, adds what it found and no record knows, and says which entities were browsed."""
    from pyspark.sql import functions as F  # noqa: N812

    if in_flight is None:
        return units.withColumn("is_found", F.lit(None).cast("boolean")).withColumn("is_browsed", F.lit(False))
    found = in_flight.table(spark, IN_FLIGHT_SCHEMA).select(
        F.lower("entity").alias("found_key"),
        F.col("entity").alias("found_entity"),
        F.col("sequence_number").alias("found_sequence"),
        F.col("message_id").alias("found_id"),
        F.col("enqueued_at").alias("found_at"),
    )
    is_same = (
        (F.lower("entity") == F.col("found_key"))
        & (F.col("sequence") == F.col("found_sequence"))
        & (F.coalesce("message_id", F.lit("")) == F.coalesce("found_id", F.lit("")))
    )
    joined = units.join(found, is_same, "full_outer")
    names = [name.lower() for name in in_flight.browsed]
    filled = {
        "is_found": F.col("found_key").isNotNull(),
        "entity": F.coalesce("entity", "found_entity"),
        "sequence": F.coalesce("sequence", "found_sequence"),
        "message_id": F.coalesce("message_id", "found_id"),
        "lane": F.coalesce("lane", F.lit(MAIN_LANE)),
        "openings": F.coalesce("openings", F.lit(0)),
        "closings": F.coalesce("closings", F.lit(0)),
        "closed_at": F.coalesce("closed_at", "found_at"),
        "is_before": F.coalesce("is_before", F.lit(False)),
        "is_browsed": F.lower(F.coalesce("entity", "found_entity")).isin(names),
    }
    return joined.withColumns(filled).drop("found_key", "found_entity", "found_sequence", "found_id", "found_at")


def _state() -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    closed = F.col("closed_as")
    is_settled = closed.isin(*SETTLING) | (closed.isNull() & F.col("dropped_at").isNotNull())
    is_missing = F.col("is_browsed") & ~F.coalesce(F.col("is_found"), F.lit(False))
    return (
        F.when((F.col("openings") == 0) & F.col("is_before"), F.lit("before_audit"))
        .when(F.col("openings") == 0, F.lit("phantom"))
        .when(F.col("opened_as") == "duplicate", F.lit("dropped"))
        .when(closed.isin(*CLOSING) & F.coalesce(F.col("is_found"), F.lit(False)), F.lit("phantom"))
        .when(closed == "damaged", F.lit("lost"))
        .when(is_settled, F.lit("settled"))
        .when(closed.isNotNull(), closed)
        .when(is_missing, F.lit("lost"))
        .otherwise(F.lit("pending"))
    )


# Each identity.


def _identities(spark: SparkSession, units: DataFrame, options: ReconcileOptions, cut_off_ms: int) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    home, backlog = ~F.col("is_backlog"), F.col("is_backlog")
    is_accepted = (F.col("openings") > 0) & (F.col("state") != "dropped")
    is_moved = backlog & (F.col("closed_as") == "completed")
    counted = units.groupBy(*IDENTITY).agg(
        F.max("logical").alias("entity"),
        F.min("opened_at").alias("first_at"),
        F.min(F.coalesce("opened_at", "closed_at")).alias("seen_at"),
        F.max(F.coalesce("closed_at", "opened_at")).alias("last_at"),
        F.max(F.when(home & (F.col("state") == "settled"), F.col("closed_at"))).alias("settled_at"),
        F.count_if(home & is_accepted).alias("home_accepted"),
        F.count_if(backlog & is_accepted).alias("backlog_accepted"),
        F.count_if(home & (F.col("state") == "dropped")).alias("dropped"),
        F.count_if(is_moved).alias("moved"),
        F.count_if((F.col("state") == "settled") & ~is_moved).alias("settled_units"),
        *[F.count_if(F.col("state") == state).alias(f"units_{state}") for state in UNIT_STATES],
        F.sum(F.greatest(F.col("closings") - 1, F.lit(0))).alias("closed_again"),
    )
    counted = _with_sends(spark, counted, options, cut_off_ms)
    counted = counted.join(F.broadcast(_names(units)), "entity_key", "left")
    counted = counted.withColumn("entity", F.coalesce("home_name", "entity"))
    is_in = F.coalesce("seen_at", F.lit(0)) <= cut_off_ms
    judged = counted.where(is_in).transform(_judged)
    return (
        judged.withColumn("late", _is_late(options)).join(_reordered(units), IDENTITY, "left").fillna(0, ["reordered"])
    )


UNIT_STATES: Final = ("pending", "dead_lettered", "expired", "lost", "phantom", "before_audit")
COUNTS: Final = [
    "home_accepted",
    "backlog_accepted",
    "dropped",
    "moved",
    "settled_units",
    "closed_again",
    "sent",
    "unknown",
    "refused",
    *[f"units_{state}" for state in UNIT_STATES],
]


def _names(units: DataFrame) -> DataFrame:
    """How entities are written where they are, not as senders wrote them."""
    from pyspark.sql import functions as F  # noqa: N812

    at_home = F.max(F.when(~F.col("is_backlog"), F.col("entity")))
    return units.groupBy("entity_key").agg(F.coalesce(at_home, F.max("logical")).alias("home_name"))


def _with_sends(spark: SparkSession, counted: DataFrame, options: ReconcileOptions, cut_off_ms: int) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    if options.sends is None:
        return counted.withColumns({name: F.lit(0) for name in ("sent", "unknown", "refused")})
    joined = counted.join(_sends(spark, options.sends, cut_off_ms), IDENTITY, "full_outer").fillna(0, COUNTS)
    return joined.withColumn("entity", F.coalesce("entity", "sent_entity"))


def _sends(spark: SparkSession, path: str, cut_off_ms: int) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    told = spark.read.schema(SENDS_SCHEMA).json(path).where("message_id is not null")
    at_ms = F.unix_millis(F.try_to_timestamp("at"))
    told = told.where(F.coalesce(at_ms, F.lit(0)) <= cut_off_ms).withColumn("entity_key", F.lower("entity"))
    return told.groupBy(*IDENTITY).agg(
        F.max("entity").alias("sent_entity"),
        F.count_if(F.col("outcome") == "accepted").alias("sent"),
        F.count_if(F.col("outcome") == "unknown").alias("unknown"),
        F.count_if(F.col("outcome") == "refused").alias("refused"),
    )


def _judged(counted: DataFrame) -> DataFrame:
    """What is to be thought of an identity, from the counts of its copies."""
    from pyspark.sql import functions as F  # noqa: N812

    came_home = F.least("moved", F.col("home_accepted") + F.col("dropped"))
    copies = F.col("backlog_accepted") + F.col("home_accepted") - came_home
    told = F.col("sent") + F.col("unknown")
    expected = (
        F.when(told > 0, F.greatest(told, F.lit(1)))
        .when(F.col("backlog_accepted") > 0, F.col("backlog_accepted"))
        .otherwise(copies)
    )
    # One step for all of them: each step over a table is planned anew.
    surplus = F.greatest(F.col("settled_units") - expected, F.lit(0))
    never_recorded = F.when(copies + F.col("dropped") == 0, F.col("sent")).otherwise(0)
    is_refused = (F.col("refused") > 0) & (told == 0) & (copies > 0)
    return counted.withColumns(
        {
            "accepted": copies - surplus + never_recorded,
            "settled": F.col("settled_units") - surplus,
            "lost": F.col("units_lost") + F.col("moved") - came_home + never_recorded,
            "phantom": F.col("units_phantom") + is_refused.cast("int"),
            "duplicate": surplus + F.col("closed_again"),
            "reused": F.greatest(expected - 1, F.lit(0)),
            "unknown_outcome": F.col("unknown"),
        }
    )


def _is_late(options: ReconcileOptions) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    took_ms = F.col("settled_at") - F.col("first_at")
    return F.coalesce((took_ms > int(options.late_after_s * 1000)).cast("int"), F.lit(0))


def _reordered(units: DataFrame) -> DataFrame:
    """Within a session or partition key: what came to its entity behind something that was accepted later. What was
    accepted in the same millisecond has no order that could be told over two namespaces."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    group = F.coalesce("session", "key")
    is_kept = F.col("message_id").isNotNull() & group.isNotNull() & (F.col("lane") == MAIN_LANE)
    first = units.where(is_kept & (F.col("openings") > 0)).withColumn("group", group)
    each = first.groupBy(*IDENTITY, "group").agg(
        F.min("opened_at").alias("first_at"),
        F.min(F.when(~F.col("is_backlog") & (F.col("place") > 0), F.struct("fragment", "place"))).alias("home"),
    )
    earlier = (
        Window.partitionBy("entity_key", "group", "home.fragment")
        .orderBy("first_at", "home.place")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    order = each.where("home is not null").withColumn("highest", F.max("home.place").over(earlier))
    late = order.where(F.col("highest") > F.col("home.place"))
    return late.groupBy(*IDENTITY).agg(F.count("*").alias("reordered"))


# Results.

SUMS: Final = (
    "accepted",
    "settled",
    "pending",
    "dead_lettered",
    "expired",
    "lost",
    "phantom",
    "duplicate",
    "late",
    "reordered",
    "unknown_outcome",
    "reused",
    "dropped_as_duplicate",
    "before_audit",
)


def _entities(identities: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    names = {f"units_{name}": name for name in ("pending", "dead_lettered", "expired", "before_audit")}
    named = identities.withColumnsRenamed({**names, "dropped": "dropped_as_duplicate"})
    sums = [F.sum(name).cast("long").alias(name) for name in SUMS]
    classes = [F.count_if(F.col(kind) > 0) for kind in EXCEPTIONS]
    return (
        named.groupBy("entity_key")
        .agg(
            F.max("entity").alias("entity"),
            *sums,
            functools.reduce(operator.add, classes).alias("exception_count"),
            F.max("last_at").alias("last_at"),
        )
        .orderBy("entity_key")
    )


PLACES_SHOWN: Final = 10
EXCEPTIONS: Final = ("lost", "phantom", "duplicate", "unknown_outcome", "reused", "late", "reordered")


def _exceptions(units: DataFrame, identities: DataFrame) -> DataFrame:
    """A row for each identity and class that needs a word, the worst first."""
    from pyspark.sql import functions as F  # noqa: N812

    classes = F.array(
        *[
            F.struct(F.lit(rank).alias("rank"), F.lit(kind).alias("kind"), F.col(kind).cast("long").alias("count"))
            for rank, kind in enumerate(EXCEPTIONS)
        ]
    )
    rows = identities.select(*IDENTITY, "entity", "first_at", "settled_at", F.explode(classes).alias("class"))
    rows = rows.where("class.count > 0")
    place = F.struct("namespace", F.col("entity").alias("place_entity"), "sequence", "state")
    concerned = units.join(rows.select(*IDENTITY).distinct(), IDENTITY, "left_semi")
    where = concerned.groupBy(*IDENTITY).agg(F.sort_array(F.collect_set(place)).alias("places"))
    return (
        rows.join(where, IDENTITY, "left")
        .select(
            "class.kind",
            "entity",
            "message_id",
            "class.count",
            "first_at",
            "settled_at",
            F.slice("places", 1, PLACES_SHOWN).alias("places"),
            "class.rank",
        )
        .orderBy("rank", "entity", "message_id")
        .drop("rank")
    )
