"""Reconciliation: what two namespaces have accepted, against what became of it, message by message.

A message is identified by the entity it was sent to and its message id. A message in a backlog queue belongs to the
entity it is for, so a failover send and the copy that came home are one. What each class means: docs/reconciliation.md.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tandembus.spark.jobs.query import fitted_shuffles, selected
from tandembus.spark.jobs.reconcile_browser import EVERY_FRAGMENT, InFlight, browse
from tandembus.spark.jobs.reconcile_records import Records, read_records
from tandembus.spark.jobs.reconcile_rows import (
    ALL_PLACED,
    ENTITIES,
    EXCEPTIONS_FOLDER,
    IDENTITY,
    IS_EXCEPTION,
    LISTED,
    SUMS,
    messages_of,
    places_of,
    sends_of,
    small,
    units_of,
)
from tandembus.spark.jobs.reconcile_stores import ALWAYS_MS, Lane, Spaces, StoreRecords, missing_stores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDED_WITHIN_S: Final = 3.0
"""A record is in a file about a second after it is durable."""
PATIENCE_S: Final = 15.0
"""How long to wait for late records before messages that browsing did not find are called lost."""
BALANCED: Final = ("settled", "pending", "dead_lettered", "expired", "lost", "unjudged")
LACKING: Final = frozenset(
    (
        "missing_store",
        "missing_records",
        "unknown_end",
        "completeness_unknown",
        "paused",
        "damaged_file",
        "unread_file",
        "unrecorded",
        "unreached",
    )
)
"""Exceptions that are gaps in the records. With any of them nothing is proven."""


@dataclass(frozen=True, slots=True)
class ReconcileOptions:
    paths: Sequence[str]
    """Data folders, audit folders or audit files, of both namespaces."""
    cut_off: datetime | None = None
    """What was first accepted later is left out."""
    late_after_s: float = field(default=300.0, metadata={"help": "What is settled later than this is late."})
    namespaces: Sequence[tuple[str, str | None]] = field(default=(), repr=False)
    """Where to browse what is in flight: connection strings, each with a certificate to trust or None. Without any, the
    records decide what is in flight."""
    in_flight: InFlight | None = None
    """What was browsed already, by whoever calls this."""
    sends: str | None = field(
        default=None, metadata={"help": "A sender's own record of its sends, JSON lines.", "metavar": "FILE"}
    )
    output: str | None = field(
        default=None,
        metadata={"help": "Keep all exceptions in FOLDER/exceptions, as JSON lines.", "metavar": "FOLDER"},
    )
    max_exceptions: int = field(
        default=1000, metadata={"help": "In JSON, at most.", "option": "--exceptions", "range": (0, 100_000)}
    )


class Verdict(Enum):
    WELL = "well"
    """Proven: nothing is lost and nothing a phantom; if asked for, nothing is there twice."""
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    """Nothing of that was found, but not all could be judged: nothing is proven."""


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    entities: Sequence[Mapping[str, Any]]
    """Counts of each entity, by name."""
    exceptions: Sequence[Mapping[str, Any]]
    """Gaps in the records, then messages, the worst first; not always all of them."""
    exception_count: int
    cut_off: datetime
    skipped_count: int
    """Lines of the files that are no records."""
    skipped_sends: int = 0
    """Lines of a sender's record that cannot be compared."""

    def total(self, name: str) -> int:
        return sum(int(entity[name]) for entity in self.entities)

    @property
    def is_complete(self) -> bool:
        """All records are there, and all messages could be judged."""
        return self.total("unjudged") == 0 and not any(one["kind"] in LACKING for one in self.exceptions)

    def verdict(self, exactly_once: bool = False) -> Verdict:
        if self.total("lost") or self.total("phantom") or (exactly_once and self.total("duplicate")):
            return Verdict.FAILED
        return Verdict.WELL if self.is_complete else Verdict.INCOMPLETE

    def is_well(self, exactly_once: bool = False) -> bool:
        return self.verdict(exactly_once) is Verdict.WELL

    def document(self, exactly_once: bool = False) -> dict[str, object]:
        return {
            "verdict": self.verdict(exactly_once).value,
            "cut_off": _moment(self.cut_off),
            "entities": [dict(entity) for entity in self.entities],
            "exceptions": [dict(one) for one in self.exceptions],
            "exception_count": self.exception_count,
            "skipped_lines": self.skipped_count,
            "skipped_sends": self.skipped_sends,
        }


class Names:
    """Names of namespaces and entities: equal whatever their case, and shown as they are written at home."""

    def __init__(self, namespaces: Iterable[str], written: Iterable[Sequence[Any]]) -> None:
        """`written`: rows of namespace, entity in lower case, entity as it was written, and whether that was in a
        backlog, by a sender who may write it otherwise."""
        self.spaces: Final = {each.lower(): each for each in namespaces}
        self.entities: Final[dict[tuple[str, str], str]] = {}
        self.homes: Final[dict[str, str]] = {}
        """The namespace of each entity; if there are several, one that has a backlog somewhere."""
        rows = sorted([tuple(row[:4]) for row in written], key=lambda row: (row[3], row[0], row[2]))
        self.add(rows)
        primaries = {space for space, _, _, is_backlog in rows if is_backlog}
        for space, key, _, _ in sorted(rows, key=lambda row: row[0] not in primaries):
            self.homes.setdefault(key, space)

    def add(self, written: Iterable[Sequence[Any]]) -> None:
        for row in written:
            self.entities.setdefault((row[0], row[1]), row[2])

    def shown(self, space: str, key: str) -> dict[str, object]:
        return {"namespace": self.spaces.get(space, space), "entity": self.entities.get((space, key), key)}


def run_reconcile(spark: SparkSession, options: ReconcileOptions) -> ReconcileResult:
    if not options.namespaces:
        return _reconciled(spark, options)
    before = read_records(spark, options.paths)
    before.forget()
    in_flight = browse(spark, options.namespaces, before.lanes, {store.store: store.last for store in before.stores})
    browsed = replace(options, namespaces=(), in_flight=in_flight)
    # A message that was settled before it was looked for is missing: its record must be read before it is called lost.
    for wait_s in (RECORDED_WITHIN_S, PATIENCE_S):
        threading.Event().wait(wait_s)
        result = _reconciled(spark, browsed)
        is_late = any(one["kind"] == "missing_records" for one in result.exceptions)
        if result.total("lost") == 0 and result.total("phantom") == 0 and not is_late:
            break
    return result


def _reconciled(spark: SparkSession, options: ReconcileOptions) -> ReconcileResult:
    records = read_records(spark, options.paths)
    in_flight = options.in_flight
    if in_flight is not None:
        records = replace(records, stores=[in_flight.ends(store, records.lanes) for store in records.stores])
    with fitted_shuffles(spark, records.size_bytes):
        units = units_of(spark, records, in_flight).cache()
        try:
            return _result(spark, records, units, options)
        finally:
            units.unpersist()
            records.forget()


def _result(spark: SparkSession, records: Records, units: DataFrame, options: ReconcileOptions) -> ReconcileResult:
    cut_off_ms = ALWAYS_MS if options.cut_off is None else int(options.cut_off.timestamp() * 1000)
    written = units.groupBy("space", "entity_key", "entity", "is_backlog").count().collect()
    names = Names([store.namespace for store in records.stores], written)
    spaces = Spaces.of(records.stores)
    sends, skipped_sends = None, 0
    if options.sends is not None:
        sends, skipped_sends = sends_of(spark, options.sends, cut_off_ms, names.homes, spaces)
        names.add(sends.select("space", "entity_key", "entity").distinct().collect())
    backlogs = {row["space"] for row in written if row["is_backlog"]}
    # A message that has left a backlog belongs elsewhere, even where no record names its entity any more.
    queues = {(row["space"], row["entity_key"]) for row in written}
    backlogs |= {spaces.home_of(lane) for lane in records.lanes if lane.primary_name and lane.key in queues}
    messages = messages_of(
        spark,
        units,
        sends,
        late_after_ms=int(options.late_after_s * 1000),
        cut_off_ms=cut_off_ms,
        has_backlog=bool(backlogs),
    )
    # Not cached: that costs more than to classify again where there are exceptions, and those are few.
    rows = selected(spark, ENTITIES, messages=messages).collect()
    exception_count = sum([row["exception_count"] for row in rows])
    listed: list[dict[str, object]] = []
    if options.output is not None or exception_count:
        # Cached, or Spark would compute each class again for each row that it may become.
        flagged = messages.where(IS_EXCEPTION).cache()
        exceptions = selected(spark, LISTED, flagged=flagged)
        listed = _first(spark, exceptions, units, records.lanes, names, options.max_exceptions)
        if options.output is not None:
            _keep(spark, exceptions, units, records.lanes, names, options.output)
        flagged.unpersist()
    gaps = gaps_in(records, spaces.unrecorded(records.lanes, backlogs), options.in_flight)
    last_ms = max([row["last_at"] or 0 for row in rows], default=0)
    return ReconcileResult(
        [_entity(row.asDict(), names) for row in rows],
        [*gaps, *listed],
        len(gaps) + exception_count,
        options.cut_off or datetime.fromtimestamp(last_ms / 1000, UTC),
        records.skipped_count,
        skipped_sends,
    )


def _entity(row: Mapping[str, Any], names: Names) -> dict[str, object]:
    return {
        **names.shown(row["space"], row["entity_key"]),
        **{name: row[name] for name in SUMS},
        "is_balanced": row["accepted"] == sum([row[name] for name in BALANCED]),
    }


def _first(
    spark: SparkSession, exceptions: DataFrame, units: DataFrame, lanes: Sequence[Lane], names: Names, count: int
) -> list[dict[str, object]]:
    """The worst exceptions, each with the places where its message was."""
    if not count:
        return []
    rows = exceptions.orderBy("rank", "entity_key", "message_id", "space").limit(count).collect()
    keys = sorted({(row["space"], row["entity_key"], row["message_id"]) for row in rows})
    found = places_of(spark, units, small(spark, keys, IDENTITY), lanes).collect()
    places = {tuple(row[:3]): [place.asDict() for place in row["places"]] for row in found}
    return [
        {
            "kind": row["kind"],
            **names.shown(row["space"], row["entity_key"]),
            "message_id": row["message_id"],
            "count": row["count"],
            "first_at": _moment_of_ms(row["first_at"]),
            "settled_at": _moment_of_ms(row["settled_at"]),
            "places": places.get((row["space"], row["entity_key"], row["message_id"]), []),
        }
        for row in rows
    ]


def _keep(
    spark: SparkSession, exceptions: DataFrame, units: DataFrame, lanes: Sequence[Lane], names: Names, output: str
) -> None:
    """Writes all exceptions to a folder of their own: other files beside it are not replaced."""
    table = [(space, names.spaces.get(space, space), key, name) for (space, key), name in names.entities.items()]
    placed = selected(
        spark,
        ALL_PLACED,
        listed=exceptions,
        names=small(spark, table, "space string, namespace string, entity_key string, entity string"),
        places=places_of(spark, units, exceptions, lanes),
    )
    placed.write.mode("overwrite").json(f"{output.rstrip('/')}/{EXCEPTIONS_FOLDER}")


def gaps_in(records: Records, unrecorded: Iterable[str], in_flight: InFlight | None) -> list[dict[str, object]]:
    """What the records cannot tell, as exceptions."""
    gaps: list[dict[str, object]] = [
        {"kind": "missing_store", "namespace": namespace, "index": index}
        for namespace, index in missing_stores(records.stores)
    ]
    gaps += [gap for store in records.stores for gap in _gaps_of(store)]
    gaps += [{"kind": "damaged_file", "file": file, "count": count} for file, count in records.damaged]
    gaps += [{"kind": "unread_file", "file": file} for file in records.unread]
    gaps += [{"kind": "unrecorded", "namespace": namespace} for namespace in unrecorded]
    return [*gaps, *_unreached(in_flight)]


def _gaps_of(store: StoreRecords) -> list[dict[str, object]]:
    index = None if store.stream is None else store.stream.index
    whose = {"namespace": store.namespace, "store": store.store, "index": index}
    found: list[dict[str, object]] = []
    if missing := store.lost_before + store.missing_count:
        found.append({"kind": "missing_records", **whose, "count": missing})
    if store.stream is None:
        found.append({"kind": "completeness_unknown", **whose})
    elif store.end_at < ALWAYS_MS:
        found.append({"kind": "unknown_end", **whose, "number": store.last, "at": _moment_of_ms(store.end_at or None)})
    if store.pause_count:
        found.append({"kind": "paused", **whose, "count": store.pause_count})
    return found


def _unreached(in_flight: InFlight | None) -> list[dict[str, object]]:
    if in_flight is None:
        return []
    targets = {target.number: target for target in in_flight.targets}
    return [
        {
            "kind": "unreached",
            "namespace": targets[number].namespace,
            "entity": targets[number].entity,
            "fragment": None if fragment == EVERY_FRAGMENT else fragment,
            "reason": reason,
        }
        for (number, fragment), reason in sorted(in_flight.unreached.items())
    ]


def _moment_of_ms(at_ms: int | None) -> str | None:
    return None if at_ms is None else _moment(datetime.fromtimestamp(at_ms / 1000, UTC))


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
