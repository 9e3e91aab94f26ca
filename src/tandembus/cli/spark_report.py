"""`tandembus spark report`: bills, a timeline and a reconciliation as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from tandembus.cli.output import print_json, say
from tandembus.cli.price_option import given_price_lists
from tandembus.cli.spark import SparkTarget, spark_options
from tandembus.cli.spark_paths import require_shared, wrong_usage
from tandembus.cli.spark_usage import LARGEST
from tandembus.metering.bills import PriceBook
from tandembus.spark.jobs.report import TITLE, ReportOptions, run_report
from tandembus.spark.jobs.report_reconciliation import read_reconciliation
from tandembus.spark.jobs.usage_files import check_metering_paths


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--usage",
    type=click.Path(path_type=Path, exists=True),
    help="In place of PATH: what `tandembus spark usage --output` kept. Spark is not needed then.",
)
@click.option(
    "--reconciliation",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The answer of `tandembus spark reconcile --json`, to be in it.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="The file to write.",
)
@click.option("--title", default=TITLE, show_default=True, help="What it is called.")
@click.option(
    "--prices",
    metavar="LIST",
    multiple=True,
    callback=given_price_lists,
    help="Price list: us, china, or a file of your own. Of several each counts from its date on.  [default: us; "
    "with --usage those that it was kept with]",
)
@click.option(
    "--other-operations",
    type=click.IntRange(0, LARGEST),
    metavar="N",
    help="Operations that each month has beside these.  [default: as many as are included; with --usage as for that]",
)
@spark_options
def report(
    target: SparkTarget,
    paths: tuple[str, ...],
    usage: Path | None,
    reconciliation: Path | None,
    output: Path,
    title: str,
    prices: PriceBook | None,
    other_operations: int | None,
) -> None:
    """Write a report as one HTML file: the bill, what a failover cost, what happened when, whether all arrived.

    It needs no network and runs no script: keep it, send it, print it. PATH is as for `tandembus spark usage`.

    \b
    Examples:
      tandembus spark report primary-data secondary-data
      tandembus spark report primary-data secondary-data --reconciliation reconciled.json --output outage.html
      tandembus spark report --usage bill --prices ours.toml

    \b
    JSON: {"report"}
    """
    if bool(paths) == (usage is not None):
        raise click.UsageError("Give metering files (PATH), or the result of a usage job (--usage).")
    require_shared(target, paths)
    with wrong_usage():
        check_metering_paths(paths)
        if reconciliation is not None:
            read_reconciliation(reconciliation)
    spark = target.session("tandembus report") if paths else None
    options = ReportOptions(output, paths, usage, reconciliation, prices, other_operations, title)
    written = run_report(spark, options)
    if target.as_json:
        print_json({"report": str(written)})
    else:
        say(f"the report is in {written}")
