"""Results of usage jobs as reports are tried with: an outage, many entities, names that would be markup."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from tandembus.metering.bills import PriceBook, Used, day_of
from tandembus.metering.price_files import load_prices
from tandembus.spark.jobs.report import render_report
from tandembus.spark.jobs.report_reconciliation import FIGURES, Reconciled, Reconciliation
from tandembus.spark.jobs.usage_result import Gap, Point, SkippedLine, UsageResult

NOON = 1_794_830_400
DAY = date(2026, 11, 16)
BOOK = PriceBook([load_prices()])
HOSTILE = (
    "<script>document.title='caught'</script>",
    "\"><img src='https://example.invalid/x.png' onerror='document.title=1'>",
    "</title></svg><svg onload=document.title=2>",
    "&lt;b&gt; & ' \" \u202e reversed \x00 \x1b[2J",
    "a" * 260,
)


def point(second: int, namespace: str, operation: str, reason: str, messages: int) -> Point:
    return Point(second, namespace, operation, reason, messages, messages, 1024 * messages)


def used_by(points: Iterable[Point], entity: str = "orders") -> list[Used]:
    return [
        Used(
            each.namespace,
            entity,
            each.operation,
            each.reason,
            day_of(each.second),
            each.messages,
            each.messages,
            each.operations,
            each.size_bytes,
        )
        for each in points
    ]


def outage() -> UsageResult:
    """Two minutes: a minute of it into the backlog, and all of that home again."""
    points = [point(NOON + at, "contoso", "send", "normal", 50) for at in (*range(40), *range(100, 120))]
    points += [point(NOON + at, "backup", "send", "failover", 50) for at in range(45, 100)]
    points += [point(NOON + at, "backup", "complete", "syphon", 550) for at in range(105, 110)]
    points += [point(NOON + at, "contoso", "send", "syphon", 550) for at in range(105, 110)]
    points += [point(NOON + 99, "contoso", "send", "ping", 1)]
    rows = used_by(points)
    for place, name in enumerate((*HOSTILE, *[f"region-{number}" for number in range(40)])):
        rows.append(Used("contoso", name, "receive", "normal", DAY, 1, 1, 100 - place, 10))
    return UsageResult(
        files=2,
        records=len(points),
        period=(NOON, NOON + 119),
        used=tuple(rows),
        step_s=1,
        points=tuple(points),
        gaps=(Gap(HOSTILE[0], NOON + 41, NOON + 44),),
        skipped=1,
        skipped_files=((f"/data/{HOSTILE[0]}.jsonl", 1),),
        skipped_lines=(SkippedLine(f"/data/{HOSTILE[0]}.jsonl", 7),),
    )


def reconciliation(lost: int = 0) -> Reconciliation:
    figures = {**dict.fromkeys(FIGURES, 0), "accepted": 5750, "settled": 5700 - lost, "pending": 50, "lost": lost}
    return Reconciliation(
        "failed" if lost else "well",
        (
            Reconciled("contoso", "orders", figures),
            Reconciled(HOSTILE[2], HOSTILE[1], {**figures, "settled": 5700, "lost": 0}),
        ),
        ({"kind": "lost", "entity": HOSTILE[0], "message_id": HOSTILE[1], "at": HOSTILE[2]},) if lost else (),
        "2026-11-16T12:02:00Z",
    )


def page(result: UsageResult, found: Reconciliation | None = None, title: str = "A report") -> str:
    return render_report(result, result.bill(BOOK), found, title)
