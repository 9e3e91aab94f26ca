"""What is to be thought of each message, from all the times that it took a place. Classes: docs/reconciliation.md."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Final

from tandembus.spark.jobs.reconcile_sends import SENT
from tandembus.spark.jobs.reconcile_units import STATE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

IDENTITY: Final = ["space", "entity_key", "message_id"]
UNIT_STATES: Final = ("pending", "dead_lettered", "expired", "lost", "phantom", "unjudged", "before_audit", "again")
SUMS: Final = (
    "accepted",
    "settled",
    "pending",
    "dead_lettered",
    "expired",
    "lost",
    "unjudged",
    "phantom",
    "duplicate",
    "late",
    "reordered",
    "unknown_outcome",
    "reused",
    "dropped_as_duplicate",
    "before_audit",
)
EXCEPTIONS: Final = ("lost", "phantom", "unjudged", "duplicate", "unknown_outcome", "reused", "late", "reordered")
"""The worst first."""


def identities_of(units: DataFrame, sends: DataFrame | None, late_after_ms: int, has_backlog: bool) -> DataFrame:
    """A row for each message, with how often it is of each class.

    What else is known of messages is added as rows of its own: so all of it comes together in one grouping."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = units
    if has_backlog:
        rows = rows.unionByName(_reordered(units), allowMissingColumns=True)
    if sends is not None:
        rows = rows.unionByName(sends, allowMissingColumns=True)
    missing = [name for name in ("reordered", *SENT) if name not in rows.columns]
    rows = rows.withColumns({name: F.lit(0) for name in missing})

    def in_state(name: str) -> Column:
        return F.col("state") == STATE[name]

    home, backlog = ~F.col("is_backlog"), F.col("is_backlog")
    is_accepted = F.col("opened_at").isNotNull() & ~in_state("dropped")
    is_moved = F.col("is_moved")
    took_ms = F.col("closed_at") - F.col("opened_at")
    counted = rows.groupBy(*IDENTITY).agg(
        F.min("opened_at").alias("first_at"),
        F.min(F.coalesce("opened_at", "closed_at")).alias("seen_at"),
        F.max(F.coalesce("closed_at", "opened_at")).alias("last_at"),
        F.max(F.when(home & in_state("settled"), F.col("closed_at"))).alias("settled_at"),
        F.count_if(home & is_accepted).alias("home_accepted"),
        F.count_if(backlog & is_accepted).alias("backlog_accepted"),
        F.count_if(home & in_state("dropped")).alias("dropped_as_duplicate"),
        F.count_if(is_moved).alias("moved"),
        F.count_if(is_moved & F.col("is_moved_in_doubt")).alias("moved_in_doubt"),
        F.count_if(in_state("settled") & ~is_moved).alias("settled_units"),
        F.count_if(home & in_state("settled") & (took_ms > late_after_ms)).alias("late_units"),
        *[F.count_if(in_state(name)).alias(f"units_{name}") for name in UNIT_STATES],
        *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("reordered", *SENT)],
    )
    return counted.transform(_judged, late_after_ms)


def _judged(counted: DataFrame, late_after_ms: int) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    col, zero = F.col, F.lit(0)
    has_id = col("message_id") != ""
    arrived = col("home_accepted") + col("dropped_as_duplicate")
    # Without ids, what stands at home may as well have been sent there: enough of it proves nothing.
    is_uncertain = ~has_id & (arrived >= col("moved"))
    came_home = F.when(is_uncertain, zero).otherwise(F.least("moved", arrived))
    copies = col("backlog_accepted") + col("home_accepted") - came_home
    told = col("sent") + col("unknown")
    expected = (
        F.when(~has_id, copies)
        .when(told > 0, F.greatest("sent", F.lit(1)))
        .when(col("backlog_accepted") > 0, col("backlog_accepted"))
        .otherwise(copies)
    )
    surplus = F.greatest(col("settled_units") - expected, zero)
    # While some of it is in the backlog, what is at home may be on its way.
    is_all_moved = col("moved") == col("backlog_accepted")
    waiting = F.when(has_id & is_all_moved, F.greatest(col("home_accepted") - expected - surplus, zero)).otherwise(zero)
    never_recorded = F.greatest(col("sent") - copies - col("dropped_as_duplicate"), zero)
    never_in_doubt = F.least(never_recorded, col("sent_in_doubt"))
    never_home = col("moved") - came_home
    never_home_in_doubt = F.when(is_uncertain, never_home).otherwise(F.least(never_home, col("moved_in_doubt")))
    refused = F.when(told == 0, F.least("refused", copies)).otherwise(zero)
    took_ms = col("settled_at") - col("first_at")
    is_late = F.coalesce((took_ms > late_after_ms).cast("int"), zero)
    classes = {
        "accepted": copies - surplus + never_recorded,
        "settled": col("settled_units") - surplus,
        "pending": col("units_pending"),
        "dead_lettered": col("units_dead_lettered"),
        "expired": col("units_expired"),
        "lost": col("units_lost") + never_home - never_home_in_doubt + never_recorded - never_in_doubt,
        "unjudged": col("units_unjudged") + never_home_in_doubt + never_in_doubt,
        "phantom": col("units_phantom") + refused,
        "duplicate": surplus + waiting + col("units_again"),
        "late": F.when(has_id, is_late).otherwise(col("late_units")),
        "reordered": col("reordered"),
        "unknown_outcome": col("unknown"),
        "reused": F.when(has_id, F.greatest(expected - 1, zero)).otherwise(zero),
        "dropped_as_duplicate": col("dropped_as_duplicate"),
        "before_audit": col("units_before_audit"),
    }
    return counted.select(
        *IDENTITY,
        "first_at",
        "seen_at",
        "settled_at",
        "last_at",
        *[value.cast("long").alias(name) for name, value in classes.items()],
    )


def _reordered(units: DataFrame) -> DataFrame:
    """Within a session or partition key: what came to its entity behind something that was accepted later. What was
    accepted in the same millisecond has no order that could be told over two namespaces.

    In one fragment, messages stand as they were accepted: only those that share a session or key with a message of the
    backlog need to be looked at.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    group = ["space", "entity_key", "group"]
    is_kept = F.col("group").isNotNull() & F.col("is_main") & F.col("opened_at").isNotNull()
    kept = units.where(is_kept & (F.col("message_id") != "") & (F.col("place") > 0))
    kept = kept.join(kept.where("is_backlog").select(*group).distinct(), group, "left_semi")
    each = kept.groupBy(*IDENTITY, "group").agg(
        F.min("opened_at").alias("first_at"),
        F.min(F.when(~F.col("is_backlog"), F.struct("lane_number", "place"))).alias("home"),
    )
    earlier = (
        Window.partitionBy("space", "entity_key", "group", "home.lane_number")
        .orderBy("first_at", "home.place")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    order = each.where("home is not null").withColumn("highest", F.max("home.place").over(earlier))
    return order.where(F.col("highest") > F.col("home.place")).select(*IDENTITY, F.lit(1).alias("reordered"))


def entities_of(identities: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    classes = [F.count_if(F.col(kind) > 0) for kind in EXCEPTIONS]
    return (
        identities.groupBy("space", "entity_key")
        .agg(
            *[F.sum(name).alias(name) for name in SUMS],
            functools.reduce(operator.add, classes).alias("exception_count"),
            F.max("last_at").alias("last_at"),
        )
        .orderBy("entity_key", "space")
    )


def flagged_of(identities: DataFrame) -> DataFrame:
    """Messages that need a word."""
    from pyspark.sql import functions as F  # noqa: N812

    return identities.where(functools.reduce(operator.or_, [F.col(kind) > 0 for kind in EXCEPTIONS]))


def exceptions_of(flagged: DataFrame) -> DataFrame:
    """A row for each message and class that needs a word. Takes a table that is kept: otherwise Spark writes each
    class out anew for each row that it may become."""
    from pyspark.sql import functions as F  # noqa: N812

    classes = F.array(
        *[
            F.struct(F.lit(rank).alias("rank"), F.lit(kind).alias("kind"), F.col(kind).alias("count"))
            for rank, kind in enumerate(EXCEPTIONS)
        ]
    )
    rows = flagged.select(*IDENTITY, "first_at", "settled_at", F.explode(classes).alias("class"))
    return rows.where("class.count > 0").select(*IDENTITY, "first_at", "settled_at", "class.*")
