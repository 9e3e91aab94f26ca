"""`tandembus spark syphon`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from tandembus.cli.failures import TRY_LATER, Failure
from tandembus.cli.output import counted, print_json, say
from tandembus.cli.pair_target import PairTarget, pair_options
from tandembus.cli.parameters import duration
from tandembus.cli.spark import SparkTarget, checkpoint_option, cluster_options, require_spark, run_to_its_end
from tandembus.cli.spark_paths import require_shared
from tandembus.pairing.aliases import MAX_BACKLOG_QUEUES, backlog_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tandembus.spark.jobs.syphon import SyphonOptions, SyphonResult

ANSWER_TIMEOUT_S: Final = 15.0
START_AGAIN: Final = "Nothing is lost. Mend the cause, and start it again."


def _prepare_then_run(preparing: Coroutine[Any, Any, Callable[[], None]]) -> None:
    """Spark is waited for without an event loop, which would keep the first Ctrl-C to itself."""
    asyncio.run(preparing)()


@click.command()
@click.option(
    "--primary-name",
    metavar="NAME",
    help="The name that the backlog queues' paths begin with.  [default: as for `tandembus syphon`]",
)
@click.option(
    "--backlog-queues",
    type=click.IntRange(1, MAX_BACKLOG_QUEUES),
    metavar="N",
    help="Empty the queues with the indices 0 to N - 1.  [default: all from 0 on without a gap]",
)
@click.option("--once", is_flag=True, help="End when nothing more can be moved.")
@click.option(
    "--retry-interval",
    "retry_interval_s",
    type=duration,
    default="1s",
    show_default=True,
    help="How long to wait, the first time, before a destination that takes no messages is tried again; 1s to 2m.",
)
@checkpoint_option
@cluster_options
@partial(pair_options, run_loop=_prepare_then_run)
async def syphon(
    target: PairTarget,
    primary_name: str | None,
    backlog_queues: int | None,
    once: bool,
    retry_interval_s: float,
    checkpoint: str,
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
      tandembus spark syphon --checkpoint /var/lib/tandembus/syphon --once
      tandembus spark syphon --checkpoint hdfs:///syphon --master spark://spark.example:7077

    \b
    JSON, at the end: {"moved", "moved_bytes", "dead_lettered", "left", "dead_destinations", "troubles", "batches"}
    """
    require_spark()
    from tandembus.pairing.syphon_rules import SyphonSettings
    from tandembus.spark.jobs.syphon import SyphonOptions, guarantee
    from tandembus.spark.jobs.syphon_task import Pair

    try:
        SyphonSettings(retry_interval_s=retry_interval_s)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--retry-interval") from error
    # Of two attempts of a task only one would be counted.
    spark = SparkTarget(master, (("spark.speculation", "false"), *conf), target.as_json)
    require_shared(spark, (checkpoint,))
    pair = Pair(target.primary, target.secondary, target.primary_ca, target.secondary_ca)
    name, queues = await _queues(target, primary_name, backlog_queues)
    _tell(target, f"bringing home messages of '{name}' from {len(queues)} backlog queues: {await guarantee(pair)}")
    options = SyphonOptions(pair, name, tuple(queues), checkpoint, once, retry_interval_s)
    return partial(_run, spark, target, options)


async def _queues(target: PairTarget, primary_name: str | None, count: int | None) -> tuple[str, list[str]]:
    from tandembus.cli.lookout import Lookout
    from tandembus.client import connect
    from tandembus.pairing.client_ports import SharedConnection

    secondary = SharedConnection(
        partial(connect, target.secondary, ca_path=target.secondary_ca, timeout_s=ANSWER_TIMEOUT_S)
    )
    lookout = Lookout(target, primary_name, secondary, ANSWER_TIMEOUT_S)
    try:
        if count is None:
            queues = await lookout.look()
            await lookout.tell_extra()
        else:
            await lookout.learn_name()
            queues = [backlog_path(lookout.name, index) for index in range(count) if await lookout.is_there(index)]
    finally:
        await secondary.close()
    if not queues:
        raise Failure(
            f"There are no backlog queues of '{lookout.name}' on the secondary.",
            advice="Is it the right --primary-name? Pairing makes them; --backlog-queues N empties those behind a gap.",
        )
    return lookout.name, queues


def _run(spark: SparkTarget, target: PairTarget, options: SyphonOptions) -> None:
    from tandembus.spark.jobs.syphon import SyphonResult, named, run_syphon

    result = SyphonResult()

    def tell(so_far: SyphonResult) -> None:
        nonlocal result
        result = so_far
        waiting = f", waiting for {named(so_far.dead_destinations)}" if so_far.dead_destinations else ""
        troubles = f", cannot use {'; '.join(so_far.troubles)}" if so_far.troubles else ""
        _tell(target, f"moved {so_far.moved:,}, dead letters {so_far.dead_lettered:,}{waiting}{troubles}")

    def job(session: SparkSession) -> int:
        nonlocal result
        result = run_syphon(session, options, tell)
        _answer(target, result)
        return TRY_LATER if result.left else 0

    run_to_its_end(spark, "tandembus syphon", options.once, job, lambda: _answer(target, result), START_AGAIN)


def _tell(target: PairTarget, text: str) -> None:
    if not target.as_json:
        say(text)


def _answer(target: PairTarget, result: SyphonResult) -> None:
    from dataclasses import asdict

    if target.as_json:
        print_json(asdict(result))
        return
    batches = "1 batch" if result.batches == 1 else f"{result.batches:,} batches"
    say(f"moved {counted(result.moved, 'message')} in {batches}; dead letters: {result.dead_lettered:,}")
    if result.left:
        say(
            (
                f"{counted(result.left, 'message')} left: no destination takes them now, or another syphon has them",
                "yellow",
            )
        )
