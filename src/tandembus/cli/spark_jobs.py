"""`tandembus spark capture`, `syphon` and `release`: jobs that take messages, and what retired queries leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tandembus.cli.arguments import entity_argument, sub_queue_option
from tandembus.cli.failures import NOT_FOUND, TRY_LATER, Failure
from tandembus.cli.options import options_of
from tandembus.cli.output import counted, print_json, say
from tandembus.cli.pair import BacklogDiscovery, backlog_options, syphon_options
from tandembus.cli.spark import (
    SparkTarget,
    cluster_options,
    explained_failures,
    require_spark,
    run_to_its_end,
    spark_options,
)
from tandembus.cli.target import (
    PairTarget,
    Target,
    namespace_options,
    pair_options,
    part_of,
    target_of,
    where_options,
)
from tandembus.client import subscription_path
from tandembus.client.addresses import address_of
from tandembus.client.reservations import Reservations
from tandembus.errors import EntityAlreadyExists, InvalidArgument, NotSupported, StoreUnavailable
from tandembus.pairing.aliases import backlog_path
from tandembus.spark.jobs.capture import CaptureOptions, CaptureResult, run_capture
from tandembus.spark.source.ledger import settle_stopped
from tandembus.spark.source.options import parse_options
from tandembus.spark.source.ranges import FragmentRanges
from tandembus.spark.source.stream import COMMITS, NONE_YET, OFFSETS, done_at, newest, offsets_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tandembus.spark.jobs.syphon import SyphonOptions, SyphonResult

START_AGAIN: Final = "Nothing is lost. Remove the cause, and start it again with the same paths."
PLAIN: Final = (
    "Only tandembus namespaces have them, unless started with --no-reservations. With backend=azure a query defers its "
    "messages: start it again to finish them."
)
REPEATED: Final = (
    "Stop the query, and give its checkpoint with --checkpoint PATH: what it has done is settled, and the rest handed "
    "back. With --without-checkpoint all is handed back, and what is done already comes again."
)
LOCAL: Final = "file:"
TRANSFER: Final = "/x-servicebus-transfer/"
"""In the path of a backlog queue."""
SYPHON: Final = "syphon"
"""As which the syphon of earlier versions reserved messages of backlog queues."""


# Capture.


@click.command()
@click.argument("entity", required=False)
@click.option("--topic", metavar="TOPIC", help="Capture a topic, through a subscription of the job's own.")
@click.option(
    "--subscription",
    metavar="NAME",
    default="capture",
    show_default=True,
    help="The name of that subscription.",
)
@click.option("--create-subscription", is_flag=True, help="Create the subscription if it is not there: needs Manage.")
@options_of(CaptureOptions)
@click.option(
    "--checkpoint", metavar="PATH", help="Where the job remembers how far it came.  [default: OUTPUT/_checkpoint]"
)
@click.option("--compact", metavar="PATH", help="Capture nothing: write what was captured in PATH into few files.")
@where_options
@spark_options
def capture(
    spark: SparkTarget,
    entity: str | None,
    topic: str | None,
    subscription: str,
    create_subscription: bool,
    chosen: Callable[..., CaptureOptions],
    checkpoint: str | None,
    compact: str | None,
    **where: Any,
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
      tandembus spark capture --compact /archive/orders --output /archive/orders-compact
    """
    asked = chosen(connection="", entity="", checkpoint=checkpoint or "")
    spark.require_shared(asked.output, checkpoint, compact)
    if compact is not None:
        if entity is not None or topic is not None:
            raise click.UsageError("--compact takes what was captured, and no entity.")
        _compact(spark, compact, asked.output)
        return
    if (entity is None) == (topic is None):
        both = "not both of them" if entity is not None else "one of them"
        raise click.UsageError(
            f"What is to be captured? Give a queue or TOPIC/subscriptions/NAME, or a topic with --topic: {both}."
        )
    target = target_of(where, spark.as_json)
    if create_subscription:
        if topic is None:
            raise click.UsageError("--create-subscription goes with --topic.")
        asyncio.run(_create(target, topic, subscription))
    path = subscription_path(topic, subscription) if topic is not None else str(entity)
    asyncio.run(_require(target, path, asked.once))
    _capture(
        spark,
        chosen(
            connection=target.connection_string,
            entity=path,
            checkpoint=checkpoint or f"{asked.output.rstrip('/')}/_checkpoint",
            source_options={} if target.ca_path is None else {"ca": target.ca_path},
        ),
    )


async def _create(target: Target, topic: str, subscription: str) -> None:
    async with target.administration() as namespace:
        try:
            await namespace.create_subscription(topic, subscription)
        except EntityAlreadyExists:
            return
    if not target.as_json:
        say(f"created the subscription '{subscription}' of '{topic}': it gets what is sent from now on")


async def _require(target: Target, path: str, once: bool) -> None:
    """Raises what a query would meet that is to reserve messages of this entity, before Spark is started for it. A part
    that is out of reach is captured when it is back; only `once` needs all of it."""
    async with await target.connect() as namespace, await namespace.reservations(path) as reservations:
        try:
            await reservations.ends()
        except StoreUnavailable:
            if once:
                raise


def _capture(spark: SparkTarget, options: CaptureOptions) -> None:
    result = CaptureResult()

    def report(so_far: CaptureResult) -> None:
        nonlocal result
        result = so_far
        if not spark.as_json:
            say(f"captured {result.rows:,} messages of '{options.entity}' so far")

    def answer(more: str = "") -> None:
        spark.answer(asdict(result), f"captured {result.rows:,} messages{more}")

    def job(session: SparkSession) -> int:
        run_capture(session, options, report)
        answer()
        return 0

    name = f"tandembus capture of {options.entity}"
    run_to_its_end(spark, name, options.once, job, lambda: answer("; start it again to go on"), START_AGAIN)


def _compact(spark: SparkTarget, captured: str, output: str) -> None:
    from tandembus.spark.jobs.compaction import run_compaction

    session = spark.session("tandembus compaction")
    with explained_failures("Nothing that was captured is changed. Remove the cause, and repeat it."):
        result = run_compaction(session, captured, output)
    files = counted(result.files, "file")
    record = {"rows": result.rows, "duplicates": result.duplicates, "files": result.files}
    spark.answer(record, f"{result.rows:,} messages in {files}; copies left out: {result.duplicates:,}")


# Syphon.


def _prepare_then_run(preparing: Coroutine[Any, Any, Callable[[], None]]) -> None:
    """Spark is waited for without an event loop, which would keep the first Ctrl-C to itself."""
    asyncio.run(preparing)()


@click.command()
@backlog_options("as for `tandembus syphon`", "Empty the queues with the indices 0 to N - 1.")
@syphon_options
@click.option(
    "--checkpoint",
    required=True,
    metavar="PATH",
    help="Where the job remembers how far it came; one for each pair of namespaces. All machines of a cluster must see "
    "it.",
)
@cluster_options
@partial(pair_options, run_loop=_prepare_then_run)
async def syphon(
    target: PairTarget,
    primary_name: str | None,
    backlog_queues: int | None,
    checkpoint: str,
    once: bool,
    retry_interval_s: float,
    master: str | None,
    conf: tuple[tuple[str, str], ...],
) -> Callable[[], None]:
    """Bring large backlogs home to the primary, on Spark.

    Its tasks run the engine of `tandembus syphon`, each for its share of the backlog queues. On a single machine run
    that program; this job is for many backlog queues and several machines. Any number of both may run at once.

    Runs until Ctrl-C, or with --once until nothing more can be moved. Nothing is lost however it ends, and started
    again it goes on. Needs Send on the primary and Listen on the secondary.

    With --once the exit code is 7 if messages are left: their destination took none, or another syphon has them. It is
    1 if the job failed, or a backlog queue could not be used.

    \b
    Examples:
      tandembus spark syphon --checkpoint hdfs:///syphon --master spark://spark.example:7077 --once
    """
    require_spark()
    from tandembus.spark.jobs.syphon import SyphonOptions, guarantee
    from tandembus.spark.jobs.syphon_task import Pair

    pair = Pair(target.primary, target.secondary, target.primary_ca, target.secondary_ca)
    # Of two attempts of a task only one would be counted.
    spark = SparkTarget(master, (("spark.speculation", "false"), *conf), target.as_json)
    spark.require_shared(checkpoint)
    name, queues = await _queues(target, primary_name, backlog_queues)
    if not target.as_json:
        say(f"bringing home messages of '{name}' from {len(queues)} backlog queues: {await guarantee(pair)}")
    options = SyphonOptions(pair, name, tuple(queues), checkpoint, once, retry_interval_s)
    return partial(_syphon, spark, options)


async def _queues(target: PairTarget, primary_name: str | None, count: int | None) -> tuple[str, list[str]]:
    from tandembus.cli.syphon import ANSWER_TIMEOUT_S, connection_to

    secondary = connection_to(target.secondary, target.secondary_ca)
    discovery = BacklogDiscovery(target, primary_name, secondary, ANSWER_TIMEOUT_S)
    try:
        if count is None:
            queues = await discovery.look()
            await discovery.report_extra()
        else:
            await discovery.learn_name()
            queues = [backlog_path(discovery.name, each) for each in range(count) if await discovery.is_there(each)]
    finally:
        await secondary.close()
    if not queues:
        raise Failure(
            f"There are no backlog queues of '{discovery.name}' on the secondary.",
            advice="Is it the right --primary-name? Pairing makes them; --backlog-queues N empties those behind a gap.",
        )
    return discovery.name, queues


def _syphon(spark: SparkTarget, options: SyphonOptions) -> None:
    from tandembus.spark.jobs.syphon import SyphonResult, named, run_syphon

    result = SyphonResult()

    def report(so_far: SyphonResult) -> None:
        nonlocal result
        result = so_far
        waiting = f", waiting for {named(so_far.dead_destinations)}" if so_far.dead_destinations else ""
        troubles = f", cannot use {'; '.join(so_far.troubles)}" if so_far.troubles else ""
        if not spark.as_json:
            say(f"moved {so_far.moved:,}, dead letters {so_far.dead_lettered:,}{waiting}{troubles}")

    def answer() -> None:
        batches = "1 batch" if result.batches == 1 else f"{result.batches:,} batches"
        moved = f"moved {counted(result.moved, 'message')} in {batches}"
        spark.answer(asdict(result), f"{moved}; dead letters: {result.dead_lettered:,}")
        if result.left and not spark.as_json:
            left = counted(result.left, "message")
            say((f"{left} left: no destination takes them now, or another syphon has them", "yellow"))

    def job(session: SparkSession) -> int:
        nonlocal result
        result = run_syphon(session, options, report)
        answer()
        return TRY_LATER if result.left else 0

    run_to_its_end(spark, "tandembus syphon", options.once, job, answer, START_AGAIN)


# Release.


@click.command()
@entity_argument
@click.option("--owner", metavar="NAME", help="Whose messages to hand back: the option `owner` of the query.")
@click.option(
    "--checkpoint",
    metavar="PATH",
    help="The checkpoint of the query, which has stopped: what is done by it is settled, not handed back.",
)
@click.option(
    "--without-checkpoint", is_flag=True, help="Hand back also what the query may have done: it comes again then."
)
@sub_queue_option("Messages of this sub-queue, for a query with the option `subQueue`.")
@namespace_options
async def release(
    target: Target,
    entity: str,
    owner: str | None,
    checkpoint: str | None,
    without_checkpoint: bool,
    sub_queue: str | None,
) -> None:
    """Hand messages back that a retired query has reserved.

    Without --owner nothing is changed: it lists who has reserved messages of the entity, and how many. With it the
    owner is given up, and its messages can be received again, in their old places.

    Stop the query first. A query settles a batch when it plans the next one, so a query that was stopped may have
    reserved messages that it has done: its checkpoint shows which. They are settled with --checkpoint; without it the
    command refuses to hand them back, unless --without-checkpoint says that they may come again. The syphon's messages
    need neither: what it has moved is settled.

    ENTITY is a queue or TOPIC/subscriptions/NAME. An owner with 0 messages is that of a query that runs, or of one that
    has ended well. Needs no Spark.

    \b
    Examples:
      tandembus spark release orders --owner billing --checkpoint /var/lib/billing
    """
    if checkpoint is not None and (owner is None or without_checkpoint):
        raise click.UsageError("--checkpoint goes with --owner, and not with --without-checkpoint.")
    entity = address_of(entity, part_of(sub_queue))
    async with await target.connect() as namespace:
        reservations = await namespace.reservations(entity)
        try:
            if owner is None:
                await _list_owners(target, entity, reservations)
                return
            reserved = await _reserved_by(entity, owner, reservations)
            settled = 0
            if checkpoint is not None:
                done = done_ranges(checkpoint, target.connection_string, entity, owner)
                settled = await settle_stopped(reservations, owner, done)
            elif reserved and not without_checkpoint and not (owner == SYPHON and TRANSFER in entity.lower()):
                raise Failure(
                    f"{counted(reserved, 'message')} of {entity} are reserved by '{owner}', and some of "
                    "them may be done: only the query's checkpoint shows which.",
                    advice=REPEATED,
                    kind="CheckpointNeeded",
                )
            released = await reservations.release(owner)
        except NotSupported:
            raise Failure(f"{entity} has no reservations.", advice=PLAIN, kind="NotSupported") from None
    if target.as_json:
        print_json({"entity": entity, "owner": owner, "settled": settled, "released": released})
        return
    if settled:
        say(("settled", "green"), f" {counted(settled, 'message')} that the query had done")
    say(("released", "green"), f" {counted(released, 'message')} of ", (entity, "bold"), f", reserved by {owner}")


async def _list_owners(target: Target, entity: str, reservations: Reservations) -> None:
    owners = sorted(await reservations.owners(), key=lambda one: one.owner)
    if target.as_json:
        records = [{"owner": one.owner, "message_count": one.message_count} for one in owners]
        print_json({"entity": entity, "owners": records})
        return
    rows = [(one.owner, one.message_count) for one in owners]
    nothing = f"nobody has reserved messages of {entity}"
    target.list([{"owner": owner} for owner, _ in rows], nothing, ("owner", "reserved messages"), rows)


async def _reserved_by(entity: str, owner: str, reservations: Reservations) -> int:
    for known in await reservations.owners():
        if known.owner == owner:
            return known.message_count
    advice = f"`tandembus spark release {entity}` lists the owners there are."
    raise Failure(f"'{owner}' owns nothing of {entity}.", NOT_FOUND, advice, "OwnerNotFound")


def done_ranges(checkpoint: str, connection_string: str, entity: str, owner: str) -> FragmentRanges:
    """The entity's messages in the last batch of a checkpoint, if that batch is done, and what was left of those
    before. Raises `InvalidArgument` for what is not this query's checkpoint."""
    if "://" in checkpoint.removeprefix(LOCAL + "//"):
        raise InvalidArgument(
            f"{checkpoint} is not on this machine: copy its folders offsets and commits, and give that."
        )
    folder = Path(checkpoint.removeprefix(LOCAL + "//").removeprefix(LOCAL))
    if not (folder / OFFSETS).is_dir():
        raise InvalidArgument(f"{checkpoint} is no checkpoint of a query: it has no folder '{OFFSETS}'.")
    planned, done = (
        newest([each.name for each in (folder / log).iterdir()] if (folder / log).is_dir() else ())
        for log in (OFFSETS, COMMITS)
    )
    if planned == NONE_YET:
        return {}
    offsets = offsets_in((folder / OFFSETS / str(planned)).read_text(), owner)
    namespace = parse_options({"connection": connection_string}).namespace()
    ours = [offset for offset in offsets if offset["n"] == namespace]
    if not ours:
        others = ", ".join(sorted({str(offset["n"]) for offset in offsets}))
        raise InvalidArgument(
            f"{checkpoint} is the checkpoint of another query: it has nothing of the owner '{owner}' and the namespace "
            f"'{namespace}'" + (f", but of {others}." if others else ".")
        )
    found: FragmentRanges = {}
    for offset in ours:
        for name, ranges in done_at(offset, is_done=planned == done).items():
            if name.lower() == entity.lower():
                found |= ranges
    return found
