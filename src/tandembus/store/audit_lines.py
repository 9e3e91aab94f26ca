"""Audit pages as JSON lines: what `DATA/audit/` holds. The format is told in docs/reconciliation.md.

A line is about all messages of one commit to which the same happened in the same place, in columns: as many lines as
there are kinds of things, not as there are messages.
"""

from __future__ import annotations

import json
from typing import Final

from tandembus.store.audit_trail import (
    ACCEPTED,
    ACTIVATED,
    ARRIVED,
    BEGAN,
    CANCELLED,
    COMPLETED,
    COPIED,
    DAMAGED,
    DEAD_LETTERED,
    DISTRIBUTED,
    DROPPED,
    DUPLICATE,
    EXPIRED,
    FIRST_CLOSING,
    FORWARDED,
    LEFT,
    PUBLISHED,
    REMOVED,
    SCHEDULED,
    AuditEntry,
    AuditName,
    entries_in,
    names_in,
)
from tandembus.store.audit_trail import DEAD_LETTER as DEAD_LETTER_ENTRY
from tandembus.store.messaging_store import (
    DEAD_LETTER,
    MAIN,
    NUMBER_BITS,
    TRANSFER,
    TRANSFER_DEAD_LETTER,
    AuditPage,
)

FORMAT_VERSION: Final = 2
"""Version 1 had no marks."""

STREAM: Final = "stream"
"""Here a file begins, or its writer was started: which of how many stores of the namespace it is."""
ROLLED: Final = "rolled"
"""Here a file ends, and the records go on in the next one."""
ENDED: Final = "ended"
"""Here the records end: the store was closed in order."""

KINDS: Final = {
    ACCEPTED: "accepted",
    SCHEDULED: "scheduled",
    COPIED: "copied",
    ARRIVED: "arrived",
    ACTIVATED: "activated",
    DEAD_LETTER_ENTRY: "dead_letter",
    DUPLICATE: "duplicate",
    PUBLISHED: "published",
    COMPLETED: "completed",
    REMOVED: "removed",
    DEAD_LETTERED: "dead_lettered",
    EXPIRED: "expired",
    FORWARDED: "forwarded",
    LEFT: "left",
    DISTRIBUTED: "distributed",
    CANCELLED: "cancelled",
    DAMAGED: "damaged",
    DROPPED: "dropped",
    BEGAN: "began",
}
SUFFIXES: Final = {
    MAIN: "",
    DEAD_LETTER: "/$deadletterqueue",
    TRANSFER: "/$transfer",
    TRANSFER_DEAD_LETTER: "/$transfer/$deadletterqueue",
}
_PARTS: Final = (("sessions", "session_id"), ("keys", "partition_key"), ("paths", "path"))

_Group = tuple[int, int, int]


def lines_of(page: AuditPage, namespace: str, store: str) -> str:
    """Ends each line. A page without entries has one, too: numbers have no gaps."""
    names = {name.fragment: name for name in names_in(page.data)[0]}
    groups: dict[_Group, list[AuditEntry]] = {}
    for entry in entries_in(page.data):
        groups.setdefault((entry.kind, entry.fragment, entry.lane), []).append(entry)
    head = _head(namespace, store, page.number)
    if not groups:
        return _line({**head, "part": 0, "parts": 1, "at": page.at_ms, "epoch": page.epoch, "kind": "nothing"})
    lines: list[str] = []
    for part, (key, entries) in enumerate(groups.items()):
        place = {"part": part, "parts": len(groups), "at": page.at_ms, "epoch": page.epoch, "kind": KINDS[key[0]]}
        lines.append(_line({**head, **place, **_where(key, names.get(key[1])), **_columns(key, entries, names)}))
    return "".join(lines)


def mark_of(kind: str, namespace: str, store: str, number: int, **facts: int) -> str:
    """A line between pages. `number` is that of the page before it."""
    return _line({**_head(namespace, store, number), "kind": kind, **facts})


def _head(namespace: str, store: str, number: int) -> dict[str, object]:
    return {"audit": FORMAT_VERSION, "namespace": namespace, "store": store, "number": number}


def _where(key: _Group, name: AuditName | None) -> dict[str, object]:
    _, fragment, lane = key
    where: dict[str, object] = {"fragment": fragment, "lane": lane}
    if name is not None:
        where["entity"] = name.path + SUFFIXES[lane]
    return where


def _columns(key: _Group, entries: list[AuditEntry], names: dict[int, AuditName]) -> dict[str, object]:
    """Left out where all of it is empty."""
    name = names.get(key[1])
    base = 0 if name is None else name.index << NUMBER_BITS
    columns: dict[str, object] = {"numbers": [entry.number and base | entry.number for entry in entries]}
    if key[0] < FIRST_CLOSING:
        columns["ids"] = [entry.message_id for entry in entries]
        for column, field in _PARTS:
            values = [getattr(entry, field) for entry in entries]
            if any(values):
                columns[column] = values
    counts = [entry.count for entry in entries]
    if any(counts):
        columns["counts"] = counts
    return columns


def _line(content: dict[str, object]) -> str:
    return json.dumps(content, separators=(",", ":")) + "\n"
