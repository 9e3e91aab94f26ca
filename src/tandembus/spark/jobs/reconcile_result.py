"""What a reconciliation found, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tandembus.spark.jobs.reconcile_records import Records

MISSING: Final = "missing_records"
BALANCED: Final = ("settled", "pending", "dead_lettered", "expired", "lost")


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    entities: Sequence[Mapping[str, Any]]
    """Counts of each entity, by name."""
    exceptions: Sequence[Mapping[str, Any]]
    """The first of them: the worst come first."""
    exception_count: int
    cut_off: datetime
    skipped_count: int
    """Lines of the files that are no records."""

    def total(self, name: str) -> int:
        return sum(int(entity[name]) for entity in self.entities)

    @property
    def missing_records(self) -> bool:
        """Whether numbers are missing in between: then nothing is proven."""
        return any(one["kind"] == MISSING for one in self.exceptions)

    def is_well(self, exactly_once: bool = False) -> bool:
        """Nothing lost, nothing that nobody sent; if asked for, nothing twice."""
        is_complete = not self.missing_records and self.total("lost") == 0 and self.total("phantom") == 0
        return is_complete and not (exactly_once and self.total("duplicate"))

    def document(self) -> dict[str, object]:
        return {
            "cut_off": _moment(self.cut_off),
            "entities": [dict(entity) for entity in self.entities],
            "exceptions": [dict(one) for one in self.exceptions],
            "exception_count": self.exception_count,
            "skipped_lines": self.skipped_count,
        }


def result_of(
    entities: DataFrame, exceptions: DataFrame, records: Records, cut_off: datetime | None, max_exceptions: int
) -> ReconcileResult:
    gaps = [_gap(row.asDict()) for row in records.stores.where("count < last - first + 1").collect()]
    rows = [row.asDict() for row in entities.drop("entity_key").collect()]
    exception_count = sum([row.pop("exception_count") for row in rows])
    last_ms = max([row.pop("last_at") or 0 for row in rows], default=0)
    most = max_exceptions if exception_count else 0
    listed = [_exception(row.asDict(recursive=True)) for row in exceptions.limit(most).collect()] if most else []
    return ReconcileResult(
        [{**row, "is_balanced": row["accepted"] == sum(row[name] for name in BALANCED)} for row in rows],
        gaps + listed,
        len(gaps) + exception_count,
        cut_off or datetime.fromtimestamp(last_ms / 1000, timezone.utc),
        records.skipped_count,
    )


def _gap(row: dict[str, Any]) -> dict[str, object]:
    missing = row["last"] - row["first"] + 1 - row["count"]
    return {"kind": MISSING, "namespace": row["namespace"], "store": row["store"], "count": missing}


def _exception(row: dict[str, Any]) -> dict[str, object]:
    for name in ("first_at", "settled_at"):
        row[name] = _moment_of_ms(row[name])
    places = row["places"] or []
    row["places"] = [
        {
            "namespace": place["namespace"],
            "entity": place["place_entity"],
            "sequence_number": place["sequence"],
            "state": place["state"],
        }
        for place in places
    ]
    return row


def _moment_of_ms(at_ms: int | None) -> str | None:
    return None if at_ms is None else _moment(datetime.fromtimestamp(at_ms / 1000, timezone.utc))


def _moment(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
