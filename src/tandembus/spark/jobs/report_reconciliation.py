"""A reconciliation's result, read from its JSON for a report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tandembus.errors import InvalidArgument

FIGURES: Final = (
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
)
BAD: Final = ("lost", "phantom")
"""What must not be."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    entity: str
    figures: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    entities: tuple[Reconciled, ...]
    exceptions: tuple[Mapping[str, object], ...]
    cut_off: str

    def total(self, figure: str) -> int:
        return sum([each.figures[figure] for each in self.entities])


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
    exceptions = document.get("exceptions")
    return Reconciliation(
        tuple([_entity(path, row) for row in document["entities"]]),
        tuple([row for row in exceptions if isinstance(row, dict)]) if isinstance(exceptions, list) else (),
        str(document.get("cut_off") or ""),
    )


def _entity(path: Path, row: object) -> Reconciled:
    if not isinstance(row, dict):
        raise InvalidArgument(f"{path}: entities are expected to be objects, with a figure for each outcome")
    figures = {}
    for name in FIGURES:
        value = row.get(name, 0)
        if type(value) is not int or value < 0:
            raise InvalidArgument(f"{path}: {name} of {row.get('entity')!r} is no count")
        figures[name] = value
    return Reconciled(str(row.get("entity")), figures)
