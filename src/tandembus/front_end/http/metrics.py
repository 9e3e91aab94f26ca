"""The meter's live counters as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from tandembus.errors import InvalidArgument
from tandembus.front_end.http.values import parse_integer
from tandembus.metering import MeterTotals, figures

JSON_CONTENT_TYPE: Final = "application/json;charset=utf-8"
MAX_ROWS: Final = 1_000


def meter_document(totals: MeterTotals, namespace_name: str, query: Mapping[str, str]) -> bytes:
    """Counters since the start by entity, a page of them, and all that was ever counted by operation.

    `entity` narrows the first part to one entity, `skip` and `top` to a slice of it.
    """
    rows = sorted(totals.since_start, key=lambda row: (row.entity, row.operation, row.reason))
    wanted = query.get("entity")
    if wanted is not None:
        rows = [row for row in rows if row.entity.lower() == wanted.lower()]
    skip = parse_integer(query.get("skip", "0"), "skip")
    top = parse_integer(query.get("top", str(MAX_ROWS)), "top")
    if skip < 0 or top < 1:
        raise InvalidArgument("skip must not be negative, and top must be at least 1.")
    top = min(top, MAX_ROWS)
    document = {
        "namespace": namespace_name,
        "started_at": totals.started_at,
        "gap": {"from": totals.gap[0], "to": totals.gap[1]} if totals.gap is not None else None,
        "row_count": len(rows),
        "since_start": [
            {"entity": row.entity, "operation": row.operation, "reason": row.reason, **figures(row.count)}
            for row in rows[skip : skip + top]
        ],
        "cumulative": [
            {"operation": operation, "reason": reason, **figures(count)}
            for (operation, reason), count in sorted(totals.cumulative.items())
        ],
    }
    return json.dumps(document, separators=(",", ":")).encode()
