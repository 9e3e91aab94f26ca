"""The report job: what was used, what a failover cost, what happened when and whether all arrived, as an HTML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tandembus.errors import InvalidArgument
from tandembus.metering.bills import PriceBook
from tandembus.metering.price_files import load_prices
from tandembus.spark.jobs.local_files import write_whole
from tandembus.spark.jobs.report_page import render_report
from tandembus.spark.jobs.report_reconciliation import read_reconciliation
from tandembus.spark.jobs.usage_result import Kept, read_kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE: Final = "Usage and failover report"


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """`paths`: metering files, as for the usage job; or `usage`: what that job kept, and Spark is not needed. Its
    prices and other operations then count where none are given here."""

    output: Path
    paths: tuple[str, ...] = ()
    usage: Path | None = None
    reconciliation: Path | None = None
    book: PriceBook | None = None
    others: int | None = None
    title: str = TITLE

    def __post_init__(self) -> None:
        if bool(self.paths) == (self.usage is not None):
            raise InvalidArgument(
                "a report is made of metering files, or of the result of a usage job: give one of them"
            )


def run_report(spark: SparkSession | None, options: ReportOptions) -> Path:
    """Returns where the file is."""
    reconciliation = None if options.reconciliation is None else read_reconciliation(options.reconciliation)
    kept = _usage(spark, options)
    book = options.book or kept.book or PriceBook([load_prices()])
    bill = kept.result.bill(book, kept.others if options.others is None else options.others)
    page = render_report(kept.result, bill, reconciliation, options.title)
    write_whole(options.output, page)
    return options.output.resolve()


def _usage(spark: SparkSession | None, options: ReportOptions) -> Kept:
    if options.usage is not None:
        return read_kept(options.usage)
    if spark is None:
        raise InvalidArgument("metering files are read by Spark: give a session")
    from tandembus.spark.jobs.usage import UsageOptions, run_usage

    return Kept(run_usage(spark, UsageOptions(options.paths)))
