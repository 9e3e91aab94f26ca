"""`tandembus spark usage`: a bill out of the meter's files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import click

from tandembus.cli.output import counted, print_json, print_table, say
from tandembus.cli.price_option import price_lists
from tandembus.cli.spark import SparkTarget, spark_options
from tandembus.cli.spark_paths import require_shared, wrong_usage
from tandembus.metering.bills import Bill, Group, PriceBook, largest_first
from tandembus.metering.failover_costs import failover_bill
from tandembus.metering.money import money
from tandembus.spark.jobs.usage_files import check_metering_paths
from tandembus.spark.jobs.usage_result import UsageResult, bill_document

LARGEST: Final = 10**15
NAMED_LINES: Final = 10


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--prices",
    metavar="LIST",
    multiple=True,
    callback=price_lists,
    help="Price list: us, china, or a file of your own. Of several each counts from its date on.  [default: us]",
)
@click.option(
    "--other-operations",
    type=click.IntRange(0, LARGEST),
    metavar="N",
    help="Operations that each month has beside these.  [default: as many as are included]",
)
@click.option("--rows", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Rows of each table.")
@click.option(
    "--output",
    metavar="FOLDER",
    help="A folder of this machine to keep the result in, or an address that Spark can write to, such as hdfs://...",
)
@spark_options
def usage(
    target: SparkTarget,
    paths: tuple[str, ...],
    prices: PriceBook,
    other_operations: int | None,
    rows: int,
    output: str | None,
) -> None:
    """Make a bill of the meter's files: by namespace, entity, operation and day, and what a failover cost.

    PATH is a namespace's data folder, its folder `meter`, or a file of it; of one namespace or of several. What a
    failover cost takes those of both the primary and the secondary. Lines that cannot be read are counted, named and
    left out.

    \b
    Examples:
      tandembus spark usage tandembus-data tandembus-data-secondary
      tandembus spark usage primary-data secondary-data --other-operations 0
      tandembus spark usage hdfs://archive/meters --master yarn --output bill --json

    \b
    JSON: {"prices", "files", "records", "period", "total", "months", "namespaces", "entities", "operations", "days",
           "lines", "failover", "gaps", "skipped", "earlier"}; money stands in texts, so that it keeps its digits
    """
    from tandembus.spark.jobs.usage import UsageOptions, run_usage
    from tandembus.spark.jobs.usage_output import keep_result

    require_shared(target, paths)
    with wrong_usage():
        check_metering_paths(paths)
    spark = target.session("tandembus usage")
    result = run_usage(spark, UsageOptions(paths))
    bill = result.bill(prices, other_operations)
    kept = None if output is None else keep_result(spark, result, bill, output)
    if target.as_json:
        print_json(bill_document(result, bill))
        return
    show_bill(result, bill, rows)
    if kept is not None:
        say(f"kept in {kept}")


def show_bill(result: UsageResult, bill: Bill, rows: int) -> None:
    for each in bill.book.lists:
        say(f"Azure Service Bus, list prices of {each.as_of} ({each.name}, {each.currency}; seen {each.seen})")
    _show_source(result)
    if not bill.lines:
        say(("nothing was counted", "dim"))
        return
    for names in (("namespace",), ("namespace", "entity"), ("operation", "reason"), ("day",)):
        say()
        _show_groups(names, bill.by(*names), rows, bill.book.currency)
    _show_total(bill)
    _show_failover(bill)


def _show_source(result: UsageResult) -> None:
    when = "" if result.period is None else f", {moment(result.period[0])} to {moment(result.period[1])} UTC"
    say((f"{counted(result.records, 'record')} in {counted(result.files, 'file')}{when}", "dim"))
    if result.skipped:
        say((f"{counted(result.skipped, 'line')} could not be read, and not billed:", "yellow"))
        for line in result.skipped_lines[:NAMED_LINES]:
            say((f"  {line.file}, line {line.line}", "yellow"))
        if result.skipped > NAMED_LINES:
            files = ", ".join([f"{count:,} in {name}" for name, count in result.skipped_files[:NAMED_LINES]])
            say((f"  in all {files}", "yellow"))
    for gap in result.gaps:
        between = f"between {moment(gap.from_second)} and {moment(gap.to_second)} UTC"
        say((f"{gap.namespace}: a process was killed; what it counted {between} may be missing", "yellow"))
    earlier = sum([each.operations for each in result.earlier])
    if earlier:
        say(
            (f"{counted(earlier, 'operation')} were counted in files that are not here, and are not in the bill", "dim")
        )


def _show_groups(names: tuple[str, ...], groups: list[Group], rows: int, currency: str) -> None:
    if names == ("day",):
        # The last days are what people look for, whatever was used on them.
        shown, rest = groups[-rows:], None
    else:
        shown, rest = largest_first(groups, rows)
    print_table(
        (*names, "messages", "billable", "bytes", currency),
        [_row(group, len(names)) for group in (*shown, *([rest] if rest else []))],
    )


def _row(group: Group, columns: int) -> list[object]:
    names = [part or "(namespace)" for part in group.key] + [None] * (columns - len(group.key))
    return [*names, group.messages, group.operations, group.size_bytes, money(group.cost)]


def _show_total(bill: Bill) -> None:
    say()
    rows: list[tuple[str, int | None, str]] = []
    for each in bill.stretches_in_use:
        beside = f", beside {each.others:,} others" if each.others else ""
        rows.append((f"{each.month:%B %Y} at {each.prices.name}{beside}", each.charged, money(each.cost)))
    rows.append(
        (f"base charge, {counted(bill.base_hours, 'hour')}, once for all namespaces", None, money(bill.base_cost))
    )
    rows.append(("in all, without connections and bandwidth", bill.charged, money(bill.cost)))
    print_table(("bill", "operations", bill.book.currency), rows)


def _show_failover(bill: Bill) -> None:
    made = failover_bill(bill)
    if made.use.is_nothing:
        return
    say()
    print_table(
        ("what the failover cost", "messages", "operations", "bytes", bill.book.currency),
        [
            (
                line.what,
                line.count.messages or None,
                line.count.operations,
                line.count.size_bytes or None,
                money(line.cost),
            )
            for line in made.shown_lines
        ]
        + [
            (
                "bytes out of the secondary's region",
                None,
                None,
                made.use.left_secondary_bytes,
                money(made.bandwidth_cost),
            ),
            ("what the failover adds in all", None, made.use.further_operations, None, money(made.cost)),
        ],
    )
    if made.use.is_looked_at:
        say(("the syphon on Spark looks at messages and receives none: what line 2 would be stands under peeks", "dim"))
    if made.use.missing is not None:
        say((made.use.missing, "yellow"))
    if made.use.waiting:
        say((f"{counted(made.use.waiting, 'message')} sent to the backlog and not home yet", "yellow"))
    if not made.do_lines_add_up:
        say(("each row is priced as if it came alone; all together reach other tiers, and the last row counts", "dim"))


def moment(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")
