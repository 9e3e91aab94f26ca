"""`tandembus spark capture`."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tandembus.cli import data_folder
from tandembus.cli.output import counted, print_json, say
from tandembus.cli.parameters import duration
from tandembus.cli.spark import SparkTarget, explained_failures, run_to_its_end, spark_options
from tandembus.cli.spark_paths import require_shared
from tandembus.cli.target import CONNECTION_STRING_VARIABLE, Target, check_certificate, resolve
from tandembus.client import subscription_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBSCRIPTION: Final = "capture"
START_AGAIN: Final = "Nothing is lost. Mend the cause, and start it again with the same --output."


@click.command()
@click.argument("entity", required=False)
@click.option("--topic", metavar="TOPIC", help="Capture a topic, through a subscription of the job's own.")
@click.option(
    "--subscription",
    metavar="NAME",
    default=SUBSCRIPTION,
    show_default=True,
    help="The name of that subscription.",
)
@click.option("--create-subscription", is_flag=True, help="Create the subscription if it is not there: needs Manage.")
@click.option("--output", required=True, metavar="PATH", help="The folder for the Parquet files.")
@click.option(
    "--checkpoint", metavar="PATH", help="Where the job remembers how far it came.  [default: OUTPUT/_checkpoint]"
)
@click.option("--once", is_flag=True, help="End when all that was there at the start is captured.")
@click.option(
    "--every",
    "every_s",
    type=duration,
    default="60s",
    show_default=True,
    help="How often messages that came are written: each time makes files.",
)
@click.option("--compact", metavar="PATH", help="Capture nothing: write what was captured in PATH into few files.")
@click.option(
    "--connection-string",
    envvar=CONNECTION_STRING_VARIABLE,
    metavar="CS",
    help=f"The namespace. Default: ${CONNECTION_STRING_VARIABLE}, else that of ./{data_folder.DEFAULT_FOLDER}.",
)
@click.option(
    "--ca",
    "ca_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=check_certificate,
    help="CA certificate to trust when the connection string asks for TLS (`tandembus ca` names it).",
)
@spark_options
def capture(
    spark: SparkTarget,
    entity: str | None,
    topic: str | None,
    subscription: str,
    create_subscription: bool,
    output: str,
    checkpoint: str | None,
    once: bool,
    every_s: float,
    compact: str | None,
    connection_string: str | None,
    ca_path: Path | None,
) -> None:
    """Write an entity's messages to Parquet files, by entity and date.

    ENTITY is a queue or TOPIC/subscriptions/NAME. Its messages are consumed, so it should have no other receivers:
    capture a topic through a subscription of its own. Each message is in one row, also after a restart.

    Runs until Ctrl-C, or with --once until all is captured. Started again with the same --output and --checkpoint, it
    goes on where it stopped. Needs Listen.

    --compact writes a copy with few files and each message once. It can be repeated at any time, and is the one to read
    with other programs than Spark.

    \b
    Examples:
      tandembus spark capture --topic orders --create-subscription --output /archive/orders
      tandembus spark capture orders-copy --output /archive/orders --once
      tandembus spark capture --compact /archive/orders --output /archive/orders-compact

    \b
    JSON, at the end: {"rows", "batches"}; of --compact: {"rows", "duplicates", "files"}
    """
    require_shared(spark, (output, checkpoint, compact))
    if compact is not None:
        if entity is not None or topic is not None:
            raise click.UsageError("--compact takes what was captured, and no entity.")
        _compact(spark, compact, output)
        return
    path = _path(entity, topic, subscription)
    target = resolve(connection_string, ca_path, spark.as_json)
    if create_subscription:
        if topic is None:
            raise click.UsageError("--create-subscription goes with --topic.")
        asyncio.run(_create(target, topic, subscription))
    asyncio.run(_require(target, path, once))
    _capture(spark, target, path, output, checkpoint or f"{output.rstrip('/')}/_checkpoint", once, every_s)


def _path(entity: str | None, topic: str | None, subscription: str) -> str:
    if (entity is None) == (topic is None):
        both = "not both of them" if entity is not None else "one of them"
        raise click.UsageError(
            f"What is to be captured? Give a queue or TOPIC/subscriptions/NAME, or a topic with --topic: {both}."
        )
    return subscription_path(topic, subscription) if topic is not None else str(entity)


async def _create(target: Target, topic: str, subscription: str) -> None:
    from tandembus.client.administration import Administration
    from tandembus.client.entities import SubscriptionSettings
    from tandembus.errors import EntityAlreadyExists

    async with Administration(target.connection_string, ca_path=target.ca_path) as namespace:
        try:
            await namespace.create_subscription(topic, subscription, SubscriptionSettings())
        except EntityAlreadyExists:
            return
    if not target.as_json:
        say(f"created the subscription '{subscription}' of '{topic}': it gets what is sent from now on")


async def _require(target: Target, path: str, once: bool) -> None:
    """Raises what a query would meet that is to reserve messages of this entity, before Spark is started for it. A part
    that is out of reach is captured when it is back; only `once` needs all of it."""
    from tandembus.client import connect
    from tandembus.errors import StoreUnavailable

    async with (
        await connect(target.connection_string, ca_path=target.ca_path) as namespace,
        await namespace.reservations(path) as reservations,
    ):
        try:
            await reservations.ends()
        except StoreUnavailable:
            if once:
                raise


def _capture(
    spark: SparkTarget, target: Target, path: str, output: str, checkpoint: str, once: bool, every_s: float
) -> None:
    from tandembus.spark.jobs.capture import CaptureOptions, CaptureResult, run_capture

    source_options = {} if target.ca_path is None else {"ca": target.ca_path}
    options = CaptureOptions(target.connection_string, path, output, checkpoint, once, every_s, source_options)
    result = CaptureResult()

    def tell(so_far: CaptureResult) -> None:
        nonlocal result
        result = so_far
        if not spark.as_json:
            say(f"captured {result.rows:,} messages of '{path}' so far")

    def answer(more: str = "") -> None:
        _answer(spark, asdict(result), f"captured {result.rows:,} messages{more}")

    def job(session: SparkSession) -> int:
        run_capture(session, options, tell)
        answer()
        return 0

    run_to_its_end(
        spark, f"tandembus capture of {path}", once, job, lambda: answer("; start it again to go on"), START_AGAIN
    )


def _compact(spark: SparkTarget, captured: str, output: str) -> None:
    from tandembus.spark.jobs.compaction import run_compaction

    session = spark.session("tandembus compaction")
    with explained_failures("Nothing that was captured is changed. Mend the cause, and repeat it."):
        result = run_compaction(session, captured, output)
    facts = {"rows": result.rows, "duplicates": result.duplicates, "files": result.files}
    _answer(
        spark,
        facts,
        f"{result.rows:,} messages in {counted(result.files, 'file')}; copies left out: {result.duplicates:,}",
    )


def _answer(spark: SparkTarget, facts: dict[str, Any], text: str) -> None:
    if spark.as_json:
        print_json(facts)
    else:
        say(text)
