"""`tandembus spark usage`, `report` and `reconcile`: what was used, what a failover cost, and whether all arrived."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tandembus.cli.arguments import ca_option, past_moment, stacked
from tandembus.cli.cost import price_lists
from tandembus.cli.failures import FAILED, NOT_PROVEN
from tandembus.cli.options import options_of
from tandembus.cli.output import Size, counted, print_json, print_table, say
from tandembus.cli.spark import SparkTarget, spark_options, wrong_usage
from tandembus.cli.target import (
    DATA_VARIABLE,
    DEFAULT_FOLDER,
    PRIMARY_VARIABLE,
    SECONDARY_FOLDER,
    SECONDARY_VARIABLE,
    checked_connection_string,
    connection_string_of,
    is_served_from,
)
from tandembus.metering.bills import Bill, Group, PriceBook, largest_first
from tandembus.metering.failover_costs import failover_bill
from tandembus.metering.money import money
from tandembus.metering.price_files import load_prices
from tandembus.spark.jobs.files import check_paths
from tandembus.spark.jobs.reconcile import ReconcileOptions, run_reconcile
from tandembus.spark.jobs.reconcile_records import check_audit_paths
from tandembus.spark.jobs.report import TITLE, ReportOptions, read_reconciliation, run_report
from tandembus.spark.jobs.usage import UsageOptions, check_metering_paths, run_usage
from tandembus.spark.jobs.usage_result import UsageResult, bill_document, keep_result

if TYPE_CHECKING:
    from tandembus.spark.jobs.reconcile import ReconcileResult

LARGEST: Final = 10**15
NAMED_LINES: Final = 10
SHOWN_EXCEPTIONS: Final = 20
COLUMNS: Final = (
    *("accepted", "settled", "pending", "dead_lettered", "expired", "lost", "unjudged", "phantom", "duplicate"),
    *("late", "reordered", "unknown_outcome"),
)
EXIT_CODES: Final = {"well": 0, "failed": FAILED, "incomplete": NOT_PROVEN}
VERDICTS: Final = {
    "well": "nothing was lost, and nothing was received that nobody sent",
    "failed": "messages were lost, or received that nobody sent, or more often than allowed",
    "incomplete": "nothing is proven: something is missing, or could not be judged",
}
SENTENCES: Final = {
    "missing_records": "missing records: {count} of {which}",
    "missing_store": "no records of messaging store {index} of {namespace}: give its folder audit/store-{index}, too",
    "unknown_end": "unknown end: the records of {which} stop at number {number} ({at}), and nothing says that these "
    "are all: reconcile with --browse while the namespace runs, or stop it in order",
    "completeness_unknown": "completeness unknown: the records of {which} are of an earlier version, which did not "
    "mark where they end",
    "paused": "interrupted: {which} was open without an audit, or put back from a copy, {times}",
    "damaged_file": "damaged: {lines} of {file}",
    "unread_file": "not read: {file}",
    "unrecorded": "no records of {namespace}, which a backlog is held for: give its data folder, too. Two namespaces "
    "of the same name cannot be told apart: give them names (`tandembus serve --name`)",
    "unreached": "not browsed: {entity}{part} of {namespace}: {reason}",
}

paths_argument: Final = click.argument("paths", nargs=-1, required=True, metavar="PATH...")
others_option: Final = click.option(
    "--other-operations",
    type=click.IntRange(0, LARGEST),
    metavar="N",
    help="Operations that each month has beside these.  [default: as many as are included]",
)


def _given_price_lists(
    context: click.Context, parameter: click.Parameter, names_or_files: tuple[str, ...]
) -> PriceBook | None:
    return price_lists(context, parameter, names_or_files) if names_or_files else None


prices_option: Final = click.option(
    "--prices",
    metavar="LIST",
    multiple=True,
    callback=_given_price_lists,
    help="Price list: us, china, or a file of your own. Of several each counts from its date on.  [default: us]",
)


@click.command()
@paths_argument
@prices_option
@others_option
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
    prices: PriceBook | None,
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
      tandembus spark usage primary-data secondary-data --other-operations 0
      tandembus spark usage hdfs://archive/meters --master yarn --output bill --json
    """
    target.require_shared(*paths)
    with wrong_usage():
        check_metering_paths(paths)
    spark = target.session("tandembus usage")
    result = run_usage(spark, UsageOptions(paths))
    bill = result.bill(prices or PriceBook([load_prices()]), other_operations)
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
        (*names, "messages", "billable", "size", currency),
        [_row(group, len(names)) for group in (*shown, *([rest] if rest else []))],
    )


def _row(group: Group, columns: int) -> list[object]:
    names = [part or "(namespace)" for part in group.key] + [None] * (columns - len(group.key))
    return [*names, group.messages, group.operations, Size(group.size_bytes), money(group.cost)]


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
    lines: list[tuple[object, ...]] = [
        (line.what, line.count.messages or None, line.count.operations, _size(line.count.size_bytes), money(line.cost))
        for line in made.shown_lines
    ]
    left, further = Size(made.use.left_secondary_bytes), made.use.further_operations
    lines.append(("bytes out of the secondary's region", None, None, left, money(made.bandwidth_cost)))
    lines.append(("what the failover adds in all", None, further, None, money(made.cost)))
    print_table(("what the failover cost", "messages", "operations", "size", bill.book.currency), lines)
    if made.use.is_looked_at:
        say(("the syphon on Spark looks at messages and receives none: what line 2 would be stands under peeks", "dim"))
    if made.use.missing is not None:
        say((made.use.missing, "yellow"))
    if made.use.waiting:
        say((f"{counted(made.use.waiting, 'message')} sent to the backlog and not home yet", "yellow"))
    if not made.do_lines_add_up:
        say(("each row is priced as if it came alone; all together reach other tiers, and the last row counts", "dim"))


def _size(size_bytes: int) -> Size | None:
    return Size(size_bytes) if size_bytes else None


def moment(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")


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
@prices_option
@others_option
@spark_options
def report(
    target: SparkTarget, paths: tuple[str, ...], prices: PriceBook | None, other_operations: int | None, **given: Any
) -> None:
    """Write a report as one HTML file: the bill, what a failover cost, what happened when, whether all arrived.

    It needs no network and runs no script: keep it, send it, print it. PATH is as for `tandembus spark usage`. With
    --usage, prices and other operations are those that it was kept with, unless others are given.

    \b
    Examples:
      tandembus spark report primary-data secondary-data --reconciliation reconciled.json --output outage.html
      tandembus spark report --usage bill --prices ours.toml
    """
    if bool(paths) == (given["usage"] is not None):
        raise click.UsageError("Give metering files (PATH), or the result of a usage job (--usage).")
    target.require_shared(*paths)
    with wrong_usage():
        check_metering_paths(paths)
        if given["reconciliation"] is not None:
            read_reconciliation(given["reconciliation"])
    spark = target.session("tandembus report") if paths else None
    written = run_report(spark, ReportOptions(paths=paths, book=prices, others=other_operations, **given))
    target.answer({"report": str(written)}, f"the report is in {written}")


@click.command()
@paths_argument
@click.option("--cut-off", type=past_moment, metavar="MOMENT", help="Leave out what was first accepted later.")
@options_of(ReconcileOptions)
@click.option("--browse", is_flag=True, help="Look into the namespaces for what is in flight, last of all.")
@stacked(
    *[
        click.option(
            f"--{side}",
            envvar=variable,
            metavar="CS",
            help=f"For --browse. Default: the namespace of {folder}, where neither is given.  [env: {variable}]",
        )
        for side, variable, folder in (
            ("primary", PRIMARY_VARIABLE, "--data"),
            ("secondary", SECONDARY_VARIABLE, f"./{SECONDARY_FOLDER}"),
        )
    ]
)
@click.option(
    "--data",
    envvar=DATA_VARIABLE,
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_FOLDER,
    show_default=True,
    help="For --browse: data folder of the primary.",
)
@ca_option(whose="a connection string asks")
@click.option("--exactly-once", is_flag=True, help="Duplicates are a failure, too.")
@spark_options
def reconcile(
    target: SparkTarget,
    paths: tuple[str, ...],
    cut_off: float | None,
    chosen: Callable[..., ReconcileOptions],
    browse: bool,
    primary: str | None,
    secondary: str | None,
    data: Path,
    ca_path: str | None,
    exactly_once: bool,
) -> None:
    """Prove that nothing was lost: accepted messages against what became of them, over both namespaces of a pair.

    PATH is a namespace's data folder, its folder `audit`, or a file of it; give those of the primary and of the
    secondary. They are written by `tandembus serve --audit`. The exit code is 1 if something was lost, or received that
    nobody sent; 8 if nothing of that was found, but records are missing, nothing says that they are all, or not all
    messages could be judged. While a namespace runs, or when it was killed, only --browse shows that they are all.

    \b
    Examples:
      tandembus spark reconcile primary-data secondary-data --browse --cut-off 10m --exactly-once
      tandembus spark reconcile hdfs://archive/audit --master yarn --output exceptions --json
    """
    given = namespaces_to_browse(primary, secondary, data) if browse else []
    options = chosen(
        paths=paths,
        cut_off=None if cut_off is None else datetime.fromtimestamp(cut_off, UTC),
        namespaces=[(each, ca_path) for each in given],
    )
    target.require_shared(*paths, options.sends, options.output)
    with wrong_usage():
        check_paths([*paths, *([options.sends] if options.sends else [])])
        check_audit_paths(paths)
    result = run_reconcile(target.session("tandembus reconcile"), options)
    if target.as_json:
        print_json(result.document(exactly_once))
    else:
        show(result, options.output, exactly_once)
    if exit_code := EXIT_CODES[result.verdict(exactly_once).value]:
        raise SystemExit(exit_code)


def namespaces_to_browse(primary: str | None, secondary: str | None, data: Path = Path(DEFAULT_FOLDER)) -> list[str]:
    """Connection strings; where none is given, those of the folders of `tandembus up`."""
    given = [checked_connection_string(each) for each in (primary, secondary) if each]
    if given:
        return given
    folders = [data, Path(SECONDARY_FOLDER)]
    there = [connection_string_of(each) for each in folders if is_served_from(each)]
    if not there:
        raise click.UsageError(
            "Which namespaces are to be browsed? Give --primary and --secondary, or run this where `tandembus up` "
            f"keeps its data (no namespace in {folders[0]} or {folders[1]})."
        )
    return there


def show(result: ReconcileResult, output: str | None, exactly_once: bool) -> None:
    document = result.document(exactly_once)
    say("up to ", (str(document["cut_off"]), "bold"), ": ", VERDICTS[str(document["verdict"])])
    rows = [[entity["entity"], *[entity[name] for name in COLUMNS]] for entity in result.entities]
    print_table(["entity", *[name.replace("_", " ") for name in COLUMNS]], rows)
    for one in result.exceptions[:SHOWN_EXCEPTIONS]:
        say(_sentence(one))
    left = result.exception_count - min(len(result.exceptions), SHOWN_EXCEPTIONS)
    if left > 0:
        where = f"in {output}/exceptions" if output else "with --output FOLDER; --json has as many as --exceptions says"
        say(f"and {counted(left, 'more exception')}: all of them {where}")
    elif output and result.exception_count:
        say(f"exceptions kept in {output}/exceptions")
    if result.skipped_count:
        say(f"{counted(result.skipped_count, 'line')} could not be read and did not count")
    if result.skipped_sends:
        say(f"{counted(result.skipped_sends, 'line')} of the sender's record said nothing that could be compared")


def _sentence(one: Mapping[str, Any]) -> str:
    if (sentence := SENTENCES.get(one["kind"])) is not None:
        count, fragment = one.get("count") or 0, one.get("fragment")
        # An earlier version did not record the store's index.
        number = "" if one.get("index") is None else f"{one['index']} "
        words = {
            "which": f"store {number}({one.get('store')}) of {one.get('namespace')}",
            "at": one.get("at") or "no record",
            "times": counted(count, "time"),
            "lines": counted(count, "line"),
            "part": "" if fragment is None else f" fragment {fragment}",
        }
        return sentence.format_map({**one, **words})
    states = ", ".join(f"{place['entity']} {place['sequence_number']} {place['state']}" for place in one["places"][:3])
    return f"{one['kind'].replace('_', ' ')}: {one['entity']} {one['message_id']} ({states or 'no record'})"
