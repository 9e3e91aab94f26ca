"""What the data pipeline makes of the outage: proof that nothing is lost, the bill, and a report to keep."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tandembus.metering.bills import Bill
    from tandembus.spark.jobs.reconcile_result import ReconcileResult

SETTINGS: Final = {
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""For jobs that take seconds: Spark starts sooner, and has few parts to look after."""


def run_pipeline(folders: Sequence[Path], work: Path, report: Path, console: Console, package: str = "pyspark") -> bool:
    """Reconcile, usage and report over the data folders of both namespaces. Whether nothing is missing, as far as it
    could be found out."""
    if importlib.util.find_spec(package) is None:
        console.print(
            "Spark is not installed: `pip install 'tandembus[spark]'` adds a reconciliation, a bill and a report.",
            markup=False,
            soft_wrap=True,
        )
        return True
    from tandembus.spark import spark_session

    console.print("Spark reads what both namespaces have recorded ...")
    session = spark_session(app_name="tandembus demo", **SETTINGS)
    try:
        return run_jobs(session, folders, work, report, console)
    finally:
        session.stop()


def run_jobs(session: SparkSession, folders: Sequence[Path], work: Path, report: Path, console: Console) -> bool:
    from tandembus.metering.bills import PriceBook
    from tandembus.metering.price_files import load_prices
    from tandembus.spark.jobs.reconcile import ReconcileOptions, run_reconcile
    from tandembus.spark.jobs.report import ReportOptions, run_report
    from tandembus.spark.jobs.usage import UsageOptions, run_usage
    from tandembus.spark.jobs.usage_output import keep_result

    paths = tuple(str(folder) for folder in folders)
    reconciled = run_reconcile(session, ReconcileOptions(paths))
    reconciliation = work / "reconciliation.json"
    reconciliation.write_text(json.dumps(reconciled.document(), default=str))
    usage = run_usage(session, UsageOptions(paths))
    book = PriceBook([load_prices()])
    bill = usage.bill(book, None)
    kept = work / "usage"
    keep_result(session, usage, bill, str(kept))
    written = run_report(None, ReportOptions(report, (), kept, reconciliation, book))
    console.print(_proof(reconciled), soft_wrap=True)
    console.print(_billed(bill), soft_wrap=True)
    console.print(f"The report is in {written}", markup=False, soft_wrap=True)
    return reconciled.is_well(exactly_once=False)


def _billed(bill: Bill) -> str:
    """The balance above prices operations alone, as they stood when it was drawn."""
    currency = bill.book.currency
    hours = f"{bill.base_hours} started hour" + ("" if bill.base_hours == 1 else "s")
    return (
        f"usage, until both namespaces had stopped: {bill.charged:,} operations for {bill.operations_cost:.4f} "
        f"{currency} on Azure, and the base charge of {hours}, {bill.base_cost:.4f} {currency}"
    )


def _proof(result: ReconcileResult) -> str:
    total = {
        name: sum(entity[name] for entity in result.entities) for name in ("accepted", "settled", "lost", "phantom")
    }
    figures = ", ".join(f"{count:,} {name}" for name, count in total.items())
    colour = "green" if result.is_well(exactly_once=False) else "red"
    return f"reconciled: [bold {colour}]{figures}[/]"
