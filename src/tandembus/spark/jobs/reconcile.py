"""Reconciliation: what two namespaces have accepted, against what became of it, message by message.

A message is known by the entity it was sent to and its message id. What a sender put into a backlog queue belongs to
the entity it is for, so a failover send and its copy that came home are one. What each class means:
docs/reconciliation.md.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from tandembus.spark.jobs.reconcile_in_flight import InFlight, browse
from tandembus.spark.jobs.reconcile_judging import entities_of, exceptions_of, flagged_of, identities_of
from tandembus.spark.jobs.reconcile_listing import Listing
from tandembus.spark.jobs.reconcile_names import Names, Written
from tandembus.spark.jobs.reconcile_records import Records, read_records
from tandembus.spark.jobs.reconcile_result import MISSING, ReconcileResult, lacks, result_of
from tandembus.spark.jobs.reconcile_sends import Sends, read_sends
from tandembus.spark.jobs.reconcile_stores import ALWAYS_MS, Spaces
from tandembus.spark.jobs.reconcile_units import units_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDED_WITHIN_S: Final = 3.0
"""Records are in the files about a second after they are durable."""
PATIENCE_S: Final = 15.0
"""For records that are late, before what browsing did not find is called lost."""


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
    if not options.namespaces:
        return _reconciled(spark, options)
    before = read_records(spark, options.paths)
    before.forget()
    in_flight = browse(spark, options.namespaces, before.lanes, {store.store: store.last for store in before.stores})
    browsed = replace(options, namespaces=(), in_flight=in_flight)
    # What was settled before it was looked for is missing: the records must say so before it is called lost.
    for wait_s in (RECORDED_WITHIN_S, PATIENCE_S):
        threading.Event().wait(wait_s)
        result = _reconciled(spark, browsed)
        is_late = any(one["kind"] == MISSING for one in result.exceptions)
        if result.total("lost") == 0 and result.total("phantom") == 0 and not is_late:
            break
    return result


def _reconciled(spark: SparkSession, options: ReconcileOptions) -> ReconcileResult:
    records = read_records(spark, options.paths)
    in_flight = options.in_flight
    if in_flight is not None:
        records = replace(records, stores=[in_flight.ends(store, records.lanes) for store in records.stores])
    units = units_of(spark, records, in_flight).cache()
    try:
        return _result(spark, records, units, options)
    finally:
        units.unpersist()
        records.forget()


def _result(spark: SparkSession, records: Records, units: DataFrame, options: ReconcileOptions) -> ReconcileResult:
    cut_off_ms = ALWAYS_MS if options.cut_off is None else int(options.cut_off.timestamp() * 1000)
    written = units.groupBy("space", "entity_key", "entity", "is_backlog").count().collect()
    names = Names.of([Written(*row[:4]) for row in written], [store.namespace for store in records.stores])
    spaces = Spaces.of(records.stores)
    sends: Sends | None = None
    if options.sends is not None:
        sends = read_sends(spark, options.sends, cut_off_ms, names.homes, spaces)
        names.add(sends.written)
    backlogs = {row["space"] for row in written if row["is_backlog"]}
    # A message that has left a backlog belongs elsewhere, even where no record names its entity any more.
    queues = {(row["space"], row["entity_key"]) for row in written}
    backlogs |= {spaces.home_of(lane) for lane in records.lanes if lane.primary_name and lane.key in queues}
    identities = identities_of(
        units,
        None if sends is None else sends.rows,
        int(options.late_after_s * 1000),
        has_backlog=bool(backlogs),
    )
    # Not kept: that costs more than to judge once more where there are exceptions, and those are few.
    identities = identities.where(f"coalesce(seen_at, 0) <= {cut_off_ms}")
    rows = [row.asDict() for row in entities_of(identities).collect()]
    listed: list[dict[str, Any]] = []
    if options.output is not None or any(row["exception_count"] for row in rows):
        flagged = flagged_of(identities).cache()
        listing = Listing(spark, exceptions_of(flagged), units, records.lanes, names)
        listed = listing.first(options.max_exceptions)
        if options.output is not None:
            listing.keep(options.output)
        flagged.unpersist()
    lacking = lacks(records, spaces.unrecorded(records.lanes, backlogs), options.in_flight)
    return result_of(rows, listed, lacking, names, records.skipped_count, sends, options.cut_off)
