"""`tandembus syphon`."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

import click

from tandembus import logs
from tandembus.cli.pair_target import PairTarget, pair_options
from tandembus.cli.parameters import duration
from tandembus.pairing.aliases import MAX_BACKLOG_QUEUES

COLLECT_AFTER: Final = 100_000


def _run_fast(work: Coroutine[Any, Any, None]) -> None:
    """Messages on their way make no cycles, so these are looked for less often: that took a tenth of the time."""
    usual = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, *usual[1:])
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)
    finally:
        gc.set_threshold(*usual)


@click.command()
@click.option(
    "--primary-name",
    metavar="NAME",
    help="The name that the backlog queues' paths begin with.  [default: the primary's own name, else the first label "
    "of its host, else the only one with a backlog there]",
)
@click.option(
    "--backlog-queues",
    type=click.IntRange(1, MAX_BACKLOG_QUEUES),
    metavar="N",
    help="Empty the queues with the indices 0 to N - 1.  [default: all from 0 on without a gap, also those made later]",
)
@click.option("--once", is_flag=True, help="End when nothing more can be moved.")
@click.option(
    "--retry-interval",
    "retry_interval_s",
    type=duration,
    default="1s",
    show_default=True,
    help="How long to wait before a destination that takes no messages is tried again; 1s to 2m.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve Prometheus metrics at http://127.0.0.1:PORT/metrics; 0 takes any free port.",
)
@click.option("--tracing", is_flag=True, help="Make spans of OpenTelemetry; OTEL_... variables say for whom.")
@click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    default=logs.AUTO,
    show_default=True,
    envvar="TANDEMBUS_LOG_FORMAT",
    help="The log for people or as JSON lines; auto: for people on a terminal.",
)
@partial(pair_options, run_loop=_run_fast)
async def syphon(
    target: PairTarget,
    primary_name: str | None,
    backlog_queues: int | None,
    once: bool,
    retry_interval_s: float,
    metrics_port: int | None,
    tracing: bool,
    log_format: str,
) -> None:
    """Bring the messages in the backlog queues home to the primary.

    Runs until Ctrl-C, which lets it finish what is in its hands. Needs Send on the primary, Listen on the secondary.

    A message is completed in the backlog only after the primary has accepted it. Messages for a destination that takes
    none wait there, in order, and are tried again; malformed ones, and those that their destination refuses for good,
    go to the backlog queue's dead-letter queue. Any number of syphons may run at once.

    With --once the exit code is 7 if messages were left, because their destination took none or another syphon held
    them.

    \b
    Examples:
      tandembus syphon
      tandembus syphon --primary "$PRIMARY" --secondary "$SECONDARY" --once
      tandembus syphon --primary "$PRIMARY" --secondary "$SECONDARY" --primary-name contoso --metrics-port 9464

    \b
    JSON, at the end, with every exit code unless the options are wrong: {"moved", "moved_bytes", "moving_s",
          "dead_lettered", "deferred", "retries", "locks_lost", "dead_destinations"}
    """
    from tandembus.cli.syphoning import Wanted, run
    from tandembus.config import ConfigurationError
    from tandembus.pairing.syphon_rules import SyphonSettings
    from tandembus.tracing.exporting import check_can_trace

    try:
        settings = SyphonSettings(retry_interval_s=retry_interval_s)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--retry-interval") from error
    if tracing:
        try:
            check_can_trace()
        except ConfigurationError as error:
            raise click.UsageError(str(error)) from error
    wanted = Wanted(target, primary_name, backlog_queues, once, settings, metrics_port, tracing)
    logs.set_up("info", log_format, "syphon")
    raise SystemExit(await run(wanted))
