"""A reconciliation's result, read from its JSON for a report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tandembus.errors import InvalidArgument

OUTCOMES: Final = ("settled", "pending", "dead_lettered", "expired", "lost", "unjudged")
"""What becomes of an accepted message."""
FIGURES: Final = ("accepted", *OUTCOMES, "phantom", "duplicate", "late", "reordered", "unknown_outcome")
VERDICTS: Final = ("well", "failed", "incomplete")
"""As the job says them."""
LACKS: Final = {
    "missing_records": "places where audit records are missing",
    "damaged_file": "audit files with lines that could not be read",
    "unreached": "places that could not be browsed",
}
"""Exceptions that keep a reconciliation from being a proof."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    namespace: str
    entity: str
    figures: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    verdict: str
    """The job's own: what counts as a failure depends on how it was called."""
    entities: tuple[Reconciled, ...]
    exceptions: tuple[Mapping[str, object], ...]
    cut_off: str
    exception_count: int = 0
    """All of them; `exceptions` may be the first only."""
    skipped_lines: int = 0
    skipped_sends: int = 0

    @property
    def worst_first(self) -> list[Reconciled]:
        return sorted(
            self.entities,
            key=lambda each: (
                -each.figures["lost"] - each.figures["phantom"],
                -each.figures["accepted"],
                each.namespace,
                each.entity,
            ),
        )

    @property
    def lacks(self) -> list[str]:
        """What keeps it from being a proof."""
        kinds = Counter([str(each.get("kind")) for each in self.exceptions if "message_id" not in each])
        texts = [f"{LACKS.get(kind, kind)}: {count:,}" for kind, count in kinds.items()]
        unjudged = self.totals["unjudged"]
        return [f"messages that could not be judged: {unjudged:,}", *texts] if unjudged else texts

    @property
    def totals(self) -> Mapping[str, int]:
        return {name: sum([each.figures[name] for each in self.entities]) for name in FIGURES}


def read_reconciliation(path: Path) -> Reconciliation:
    """Raises `InvalidArgument` for a file that is none."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidArgument(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path}: no JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("entities"), list):
        raise InvalidArgument(f"{path}: no result of `tandembus spark reconcile --json`")
    verdict = document.get("verdict")
    if verdict not in VERDICTS:
        raise InvalidArgument(
            f"{path}: has no verdict ({', '.join(VERDICTS)}): make it again with `tandembus spark reconcile --json`"
        )
    listed = document.get("exceptions")
    exceptions = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    return Reconciliation(
        verdict,
        tuple([_entity(path, row) for row in document["entities"]]),
        tuple(exceptions),
        str(document.get("cut_off") or ""),
        _count(path, "exception_count", document.get("exception_count", len(exceptions))),
        _count(path, "skipped_lines", document.get("skipped_lines", 0)),
        _count(path, "skipped_sends", document.get("skipped_sends", 0)),
    )


def _entity(path: Path, row: object) -> Reconciled:
    if not isinstance(row, dict):
        raise InvalidArgument(f"{path}: entities are expected to be objects, with a figure for each outcome")
    whose = f"of {row.get('entity')!r}"
    figures = {name: _count(path, f"{name} {whose}", row.get(name, 0)) for name in FIGURES}
    return Reconciled(str(row.get("namespace") or ""), str(row.get("entity")), figures)


def _count(path: Path, what: str, value: object) -> int:
    if type(value) is not int or value < 0:
        raise InvalidArgument(f"{path}: {what} is no count")
    return value
