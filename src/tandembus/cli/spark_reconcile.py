"""`tandembus spark reconcile`: what was accepted, against what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tandembus.cli import data_folder
from tandembus.cli.failures import FAILED, NOT_PROVEN
from tandembus.cli.output import counted, print_json, print_table, say
from tandembus.cli.pair_target import PRIMARY_VARIABLE, SECONDARY_FOLDER, SECONDARY_VARIABLE
from tandembus.cli.parameters import duration, past_moment
from tandembus.cli.spark import SparkTarget, spark_options
from tandembus.cli.spark_paths import require_shared, wrong_usage
from tandembus.cli.target import check_certificate, checked_connection_string
from tandembus.spark.jobs.reconcile_files import check_audit_paths
from tandembus.spark.jobs.usage_files import check_paths

if TYPE_CHECKING:
    from tandembus.spark.jobs.reconcile_result import ReconcileResult

COLUMNS: Final = (
    "accepted",
    "settled",
    "pending",
    "dead_lettered",
    "expired",
    "lost",
    "unjudged",
    "phantom",
    "duplicate",
    "late",
    "reordered",
    "unknown_outcome",
)
SHOWN_EXCEPTIONS: Final = 20


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--cut-off", type=past_moment, metavar="MOMENT", help="Leave out what was first accepted later.")
@click.option(
    "--late-after", type=duration, default="5m", show_default=True, help="What is settled later than this is late."
)
@click.option("--sends", metavar="FILE", help="A sender's own record of its sends, JSON lines.")
@click.option("--browse", is_flag=True, help="Look into the namespaces for what is in flight, last of all.")
@click.option(
    "--primary",
    envvar=PRIMARY_VARIABLE,
    metavar="CS",
    help=f"For --browse. Default: ${PRIMARY_VARIABLE}; without both, the namespaces of ./{data_folder.DEFAULT_FOLDER} "
    f"and ./{SECONDARY_FOLDER}.",
)
@click.option(
    "--secondary", envvar=SECONDARY_VARIABLE, metavar="CS", help=f"For --browse. Default: ${SECONDARY_VARIABLE}."
)
@click.option(
    "--ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=check_certificate,
    help="CA certificate to trust when a connection string asks for TLS.",
)
@click.option("--exactly-once", is_flag=True, help="Duplicates are a failure, too.")
@click.option("--output", metavar="FOLDER", help="Keep all exceptions in FOLDER/exceptions, as JSON lines.")
@click.option(
    "--exceptions",
    "max_exceptions",
    type=click.IntRange(0, 100_000),
    default=1000,
    show_default=True,
    help="In JSON, at most.",
)
@spark_options
def reconcile(
    target: SparkTarget,
    paths: tuple[str, ...],
    cut_off: float | None,
    late_after: float,
    sends: str | None,
    browse: bool,
    primary: str | None,
    secondary: str | None,
    ca: Path | None,
    exactly_once: bool,
    output: str | None,
    max_exceptions: int,
) -> None:
    """Prove that nothing was lost: accepted messages against what became of them, over both namespaces of a pair.

    PATH is a namespace's data folder, its folder `audit`, or a file of it; give those of the primary and of the
    secondary. They are written by `tandembus serve --audit`. The exit code is 1 if something was lost, or received that
    nobody sent; 8 if nothing of that was found, but records are missing, nothing says that they are all, or not all
    messages could be judged. While a namespace runs, or when it was killed, only --browse can tell that they are all.

    \b
    Examples:
      tandembus spark reconcile primary-data secondary-data
      tandembus spark reconcile primary-data secondary-data --browse --cut-off 10m --exactly-once
      tandembus spark reconcile hdfs://archive/audit --master yarn --output exceptions --json

    \b
    JSON: {"verdict": "well", "failed" or "incomplete", "cut_off", "entities": [{"namespace", "entity", "accepted",
           "settled", "pending", "dead_lettered", "expired", "lost", "unjudged", "phantom", "duplicate", "late",
           "reordered", "unknown_outcome", ...}], "exceptions": [{"kind", "namespace", "entity", "message_id", "count",
           "first_at", "settled_at", "places"}], "exception_count", "skipped_lines", "skipped_sends"}
    """
    given = namespaces_to_browse(primary, secondary) if browse else []
    namespaces = [(each, None if ca is None else str(ca)) for each in given]
    require_shared(target, [*paths, sends, output])
    with wrong_usage():
        check_paths([*paths, *([sends] if sends else [])])
        check_audit_paths(paths)
    session = target.session("tandembus reconcile")
    from tandembus.spark.jobs.reconcile import ReconcileOptions, run_reconcile

    options = ReconcileOptions(
        paths,
        cut_off=None if cut_off is None else datetime.fromtimestamp(cut_off, UTC),
        late_after_s=late_after,
        namespaces=namespaces,
        sends=sends,
        output=output,
        max_exceptions=max_exceptions,
    )
    result = run_reconcile(session, options)
    if target.as_json:
        print_json(result.document(exactly_once))
    else:
        show(result, output, exactly_once)
    if exit_code := _EXIT_CODES[result.verdict(exactly_once).value]:
        raise SystemExit(exit_code)


def namespaces_to_browse(primary: str | None, secondary: str | None) -> list[str]:
    """Connection strings; where none is given, those of the folders of `tandembus up`."""
    given = [checked_connection_string(each) for each in (primary, secondary) if each]
    if given:
        return given
    folders = [Path(each) for each in (data_folder.DEFAULT_FOLDER, SECONDARY_FOLDER)]
    there = [data_folder.connection_string_of(each) for each in folders if data_folder.is_there(each)]
    if not there:
        raise click.UsageError(
            "Which namespaces are to be browsed? Give --primary and --secondary, or run this where `tandembus up` "
            f"keeps its data (no namespace in ./{folders[0]} or ./{folders[1]})."
        )
    return there


_EXIT_CODES: Final = {"well": 0, "failed": FAILED, "incomplete": NOT_PROVEN}
_VERDICTS: Final = {
    "well": "nothing was lost, and nothing was received that nobody sent",
    "failed": "this is not as it should be",
    "incomplete": "nothing is proven: something is missing, or could not be judged",
}


def show(result: ReconcileResult, output: str | None, exactly_once: bool) -> None:
    document = result.document(exactly_once)
    say("up to ", (str(document["cut_off"]), "bold"), ": ", _VERDICTS[str(document["verdict"])])
    print_table(["entity", *[name.replace("_", " ") for name in COLUMNS]], [_row(one) for one in result.entities])
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


def _row(entity: Mapping[str, Any]) -> list[object]:
    return [entity["entity"], *[entity[name] for name in COLUMNS]]


def _store(one: Mapping[str, Any]) -> str:
    """An earlier version has not said which one it is."""
    number = "" if one["index"] is None else f"{one['index']} "
    return f"store {number}({one['store']}) of {one['namespace']}"


def _sentence(one: Mapping[str, Any]) -> str:
    match one["kind"]:
        case "missing_records":
            return f"missing records: {one['count']} of {_store(one)}"
        case "missing_store":
            return (
                f"no records of messaging store {one['index']} of {one['namespace']}: give its folder "
                f"audit/store-{one['index']}, too"
            )
        case "unknown_end":
            return (
                f"unknown end: the records of {_store(one)} stop at number "
                f"{one['number']} ({one['at'] or 'no record'}), and nothing says that these are all: reconcile with "
                "--browse while the namespace runs, or stop it in order"
            )
        case "completeness_unknown":
            return (
                f"completeness unknown: the records of {_store(one)} are of an earlier "
                "version, which did not mark where they end"
            )
        case "paused":
            return (
                f"interrupted: {_store(one)} was open without an audit, or put back from "
                f"a copy, {counted(one['count'], 'time')}"
            )
        case "damaged_file":
            return f"damaged: {counted(one['count'], 'line')} of {one['file']}"
        case "unread_file":
            return f"not read: {one['file']}"
        case "unrecorded":
            return (
                f"no records of {one['namespace']}, which a backlog is held for: give its data folder, too. Two "
                "namespaces of the same name cannot be told apart: give them names (`tandembus serve --name`)"
            )
        case "unreached":
            part = "" if one["fragment"] is None else f" fragment {one['fragment']}"
            return f"not browsed: {one['entity']}{part} of {one['namespace']}: {one['reason']}"
    states = ", ".join(f"{place['entity']} {place['sequence_number']} {place['state']}" for place in one["places"][:3])
    return f"{one['kind'].replace('_', ' ')}: {one['entity']} {one['message_id']} ({states or 'no record'})"
