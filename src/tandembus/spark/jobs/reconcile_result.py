"""What a reconciliation found, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tandembus.spark.jobs.reconcile_in_flight import EVERY_FRAGMENT, InFlight
from tandembus.spark.jobs.reconcile_judging import SUMS
from tandembus.spark.jobs.reconcile_stores import ALWAYS_MS, StoreRecords, missing_stores

if TYPE_CHECKING:
    from tandembus.spark.jobs.reconcile_names import Names
    from tandembus.spark.jobs.reconcile_records import Records
    from tandembus.spark.jobs.reconcile_sends import Sends

MISSING: Final = "missing_records"
DAMAGED: Final = "damaged_file"
UNREAD: Final = "unread_file"
UNRECORDED: Final = "unrecorded"
UNREACHED: Final = "unreached"
MISSING_STORE: Final = "missing_store"
UNKNOWN_END: Final = "unknown_end"
OLDER: Final = "completeness_unknown"
PAUSED: Final = "paused"
LACKING: Final = (MISSING_STORE, MISSING, UNKNOWN_END, OLDER, PAUSED, DAMAGED, UNREAD, UNRECORDED, UNREACHED)
"""Kinds of gaps in the records. With any of them nothing is proven."""
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
        cut_off or datetime.fromtimestamp(last_ms / 1000, UTC),
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
    absent: list[dict[str, object]] = [
        {"kind": MISSING_STORE, "namespace": namespace, "index": index}
        for namespace, index in missing_stores(records.stores)
    ]
    gaps = [one for store in records.stores for one in _gaps(store)]
    return [*absent, *gaps, *_damage(records), *_unread(records), *spaces, *_unreached(in_flight)]


def _gaps(store: StoreRecords) -> list[dict[str, object]]:
    index = None if store.stream is None else store.stream.index
    whose = {"namespace": store.namespace, "store": store.store, "index": index}
    found: list[dict[str, object]] = []
    if missing := store.lost_before + store.missing_count:
        found.append({"kind": MISSING, **whose, "count": missing})
    if store.stream is None:
        found.append({"kind": OLDER, **whose})
    elif store.end_at < ALWAYS_MS:
        found.append({"kind": UNKNOWN_END, **whose, "number": store.last, "at": _moment_of_ms(store.end_at or None)})
    if store.pause_count:
        found.append({"kind": PAUSED, **whose, "count": store.pause_count})
    return found


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
    return None if at_ms is None else _moment(datetime.fromtimestamp(at_ms / 1000, UTC))


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
