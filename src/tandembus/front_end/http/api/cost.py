"""`/$api/cost`: what was counted, what today would cost, and what the last failover has cost beside the same traffic
without one. Prices and formulas are those of `tandembus cost` and `tandembus spark usage` (`tandembus.metering`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache, partial
from typing import Final

from aiohttp import web

from tandembus.errors import InvalidArgument
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.api.cost_watch import CostWatch, FailoverUsed, rows_to_document
from tandembus.front_end.http.api.routes import Route, asked, told_beside
from tandembus.front_end.http.surroundings import MeterSource
from tandembus.front_end.http.values import format_time, parse_integer
from tandembus.metering import MeterTotals, figures
from tandembus.metering.bills import Bill, PriceBook, Used
from tandembus.metering.failover_costs import failover_bill
from tandembus.metering.files import Totals
from tandembus.metering.looking_back import LAST_SECOND
from tandembus.metering.price_files import DEFAULT_LIST, load_prices, shipped_lists
from tandembus.metering.prices import PriceList
from tandembus.metering.slot import NORMAL, Count
from tandembus.namespace.namespace import Namespace
from tandembus.security.claims import Right

UNIT_NOTE: Final = (
    "an operation is a message, for every started 64 KiB of it; those that a month includes count as used up"
)


class CostRoutes:
    def __init__(self, namespace: Namespace, access: Access, meter: MeterSource, watch: CostWatch) -> None:
        self._namespace = namespace
        self._access = access
        self._meter = meter
        self._watch = watch

    def routes(self) -> list[Route]:
        return [
            Route("GET", "cost", self._tell, is_about_itself=True),
            Route("GET", "cost/used", self._tell_used, is_about_itself=True),
        ]

    async def _tell(self, request: web.Request) -> web.Response:
        self._access.check(request, Right.MANAGE, "")
        prices = await asyncio.to_thread(_prices, request.query.get("prices", DEFAULT_LIST))
        now = self._namespace.clock.now()
        totals = await self._meter()
        day, counted = await self._watch.today()
        failover = await self._watch.failover()
        return await told_beside(
            lambda: {
                "at": format_time(now),
                "prices": {
                    "name": prices.name,
                    "date": prices.as_of.isoformat(),
                    "currency": prices.currency,
                    "unit_note": UNIT_NOTE,
                },
                "since": format_time(totals.started_at),
                "counters": _counters(totals),
                "today": _today(self._namespace, day, counted, prices, now),
                "failover": None if failover is None else _failover(failover, prices),
            }
        )

    async def _tell_used(self, request: web.Request) -> web.Response:
        """For the partner."""
        self._access.check(request, Right.MANAGE, "")
        since = _second(asked(request, "since"), "since")
        until = request.query.get("until")
        rows = await self._watch.used(since, None if until is None else _second(until, "until"))
        return await told_beside(partial(rows_to_document, rows))


def _second(text: str, name: str) -> float:
    second = parse_integer(text, name)
    if not 0 <= second <= LAST_SECOND:
        raise InvalidArgument(f"'{name}' must be a time in seconds since 1970.")
    return float(second)


@lru_cache(maxsize=8)
def _prices(name: str) -> PriceList:
    """Only lists of the package: a file of the server's is nobody's business."""
    if name not in shipped_lists():
        raise InvalidArgument(f"'{name[:64]}' is none of the price lists: {', '.join(shipped_lists())}.")
    return load_prices(name)


def _counters(totals: MeterTotals) -> list[Mapping[str, object]]:
    sums: Totals = {}
    for row in totals.since_start:
        sums.setdefault((row.operation, row.reason), Count()).include(row.count)
    return [
        {"operation": operation, "reason": reason, **figures(count)}
        for (operation, reason), count in sorted(sums.items())
    ]


def _today(namespace: Namespace, day: date, counted: Totals, prices: PriceList, now: float) -> Mapping[str, object]:
    """With the base charge for every hour that has begun since midnight, or since the namespace was made."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
    period = int(min(max(midnight, namespace.created_at), now)), int(now)
    bill = Bill(_used(namespace.name, day, counted), PriceBook([prices]), None, period)
    lines = [
        {"what": _what(*group.key), "quantity": group.operations, "cost": f"{group.cost:f}"}
        for group in bill.by("operation", "reason")
    ]
    base = {"what": "base charge, by the hour", "quantity": bill.base_hours, "cost": f"{bill.base_cost:f}"}
    return {
        "date": day.isoformat(),
        "operations": bill.operations,
        "total": f"{bill.cost:f}",
        "lines": [*lines, base],
    }


def _used(name: str, day: date, counted: Totals) -> Iterable[Used]:
    return [
        Used(name, "", operation, reason, day, count.calls, count.messages, count.operations, count.size_bytes)
        for (operation, reason), count in counted.items()
    ]


def _what(operation: str, reason: str) -> str:
    return operation if reason == NORMAL else f"{operation} ({reason})"


def _failover(failover: FailoverUsed, prices: PriceList) -> Mapping[str, object]:
    made = failover_bill(Bill(failover.rows, PriceBook([prices])))
    use = made.use
    total: Decimal = made.normal_cost + made.cost
    return {
        "since": format_time(failover.since),
        "until": None if failover.until is None else format_time(failover.until),
        "operations": use.diverted.normal_operations + use.further_operations,
        "total": f"{total:f}",
        "without": f"{made.normal_cost:f}",
        "extra": f"{made.cost:f}",
        "lines": [
            {"what": line.what, "quantity": line.count.operations, "cost": f"{line.cost:f}"}
            for line in made.shown_lines
        ],
        "is_partial": failover.is_partial,
    }
