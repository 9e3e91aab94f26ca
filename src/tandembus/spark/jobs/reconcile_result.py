"""What a reconciliation found, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tandembus.spark.jobs.reconcile_in_flight import EVERY_FRAGMENT, InFlight
from tandembus.spark.jobs.reconcile_judging import SUMS

if TYPE_CHECKING:
    from tandembus.spark.jobs.reconcile_names import Names
    from tandembus.spark.jobs.reconcile_records import Records
    from tandembus.spark.jobs.reconcile_sends import Sends

MISSING: Final = "missing_records"
DAMAGED: Final = "damaged_file"
UNREAD: Final = "unread_file"
UNRECORDED: Final = "unrecorded"
UNREACHED: Final = "unreached"
BALANCED: Final = ("settled", "pending", "dead_lettered", "expired", "lost", "unjudged")


class Verdict(Enum):
    WELL = "well"
    """Proven: nothing lost, nothing that nobody sent; if asked for, nothing twice."""
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    """Nothing of that was found, but not all could be judged: nothing is proven."""


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    entities: Sequence[Mapping[str, Any]]
    """Counts of each entity, by name."""
    exceptions: Sequence[Mapping[str, Any]]
    """What the records lack, then messages, the worst first; not always all of them."""
    exception_count: int
    cut_off: datetime
    skipped_count: int
    """Lines of the files that are no records."""
    skipped_sends: int = 0
    """Lines of a sender's record that say nothing that could be compared."""

    def total(self, name: str) -> int:
        return sum(int(entity[name]) for entity in self.entities)

    @property
    def is_complete(self) -> bool:
        """All records are there, and all messages could be judged."""
        lacking = (MISSING, DAMAGED, UNREAD, UNRECORDED, UNREACHED)
        return self.total("unjudged") == 0 and not any(one["kind"] in lacking for one in self.exceptions)

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


def result_of(
    rows: Iterable[Mapping[str, Any]],
    listed: Sequence[Mapping[str, Any]],
    lacking: Sequence[Mapping[str, Any]],
    names: Names,
    skipped_count: int,
    sends: Sends | None,
    cut_off: datetime | None,
) -> ReconcileResult:
    rows = list(rows)
    last_ms = max([row["last_at"] or 0 for row in rows], default=0)
    return ReconcileResult(
        [_entity(row, names) for row in rows],
        [*lacking, *[_exception(one) for one in listed]],
        len(lacking) + sum([row["exception_count"] for row in rows]),
        cut_off or datetime.fromtimestamp(last_ms / 1000, timezone.utc),
        skipped_count,
        0 if sends is None else sends.skipped_count,
    )


def _entity(row: Mapping[str, Any], names: Names) -> dict[str, object]:
    return {
        "namespace": names.namespace(row["space"]),
        "entity": names.entity(row["space"], row["entity_key"]),
        **{name: row[name] for name in SUMS},
        "is_balanced": row["accepted"] == sum([row[name] for name in BALANCED]),
    }


def lacks(records: Records, unrecorded: Iterable[str], in_flight: InFlight | None) -> list[dict[str, object]]:
    """What the records do not say."""
    spaces: list[dict[str, object]] = [{"kind": UNRECORDED, "namespace": namespace} for namespace in unrecorded]
    return [*_gaps(records), *_damage(records), *_unread(records), *spaces, *_unreached(in_flight)]


def _gaps(records: Records) -> list[dict[str, object]]:
    return [
        {"kind": MISSING, "namespace": store.namespace, "store": store.store, "count": store.missing_count}
        for store in records.stores
        if store.missing_count
    ]


def _damage(records: Records) -> list[dict[str, object]]:
    return [{"kind": DAMAGED, "file": file, "count": count} for file, count in records.damaged]


def _unread(records: Records) -> list[dict[str, object]]:
    return [{"kind": UNREAD, "file": file} for file in records.unread]


def _unreached(in_flight: InFlight | None) -> list[dict[str, object]]:
    if in_flight is None:
        return []
    targets = {target.number: target for target in in_flight.targets}
    return [
        {
            "kind": UNREACHED,
            "namespace": targets[number].namespace,
            "entity": targets[number].entity,
            "fragment": None if fragment == EVERY_FRAGMENT else fragment,
            "reason": reason,
        }
        for (number, fragment), reason in sorted(in_flight.unreached.items())
    ]


def _exception(row: Mapping[str, Any]) -> dict[str, object]:
    moments = {name: _moment_of_ms(row[name]) for name in ("first_at", "settled_at")}
    return {**row, **moments}


def _moment_of_ms(at_ms: int | None) -> str | None:
    return None if at_ms is None else _moment(datetime.fromtimestamp(at_ms / 1000, timezone.utc))


def _moment(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
