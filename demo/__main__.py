"""`python -m demo`: a primary is killed while an application sends, comes back, and gets everything it missed.

Everything in it is real: processes, sockets, the public SDK, `kill -9`. The exit code says whether all went as
promised.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import click
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from rich.console import Console

from demo.acts import Demonstration, Plan
from demo.pipeline import run_pipeline
from demo.report import print_account
from demo.stage import BACKLOG_QUEUES, PRIMARY, SECONDARY, Stage
from demo.tally import Tally
from demo.view import View
from tandembus.clock import SystemClock
from tandembus.metering.price_files import load_prices
from tandembus.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions, pair_namespace

PIPED_WIDTH: Final = 120
REPORT: Final = Path(".build") / "demo" / "report.html"
LOWEST_RATE: Final = 50.0
"""With fewer, the time until the next send would hide how soon it is sent to the primary again."""


@contextlib.asynccontextmanager
async def _pair(stage: Stage, plan: Plan) -> AsyncIterator[tuple[PairedServiceBusClient, ServiceBusClient]]:
    """The application's clients. The SDK's own retries are left out, so that the failover interval is to be seen."""
    async with (
        ServiceBusClient.from_connection_string(stage.primary, retry_total=0) as primary,
        ServiceBusClient.from_connection_string(stage.secondary, retry_total=0) as secondary,
        ServiceBusAdministrationClient.from_connection_string(
            stage.secondary, connection_verify=stage.secondary_ca
        ) as admin,
    ):
        options = SendAvailabilityPairedNamespaceOptions(
            admin,
            secondary,
            backlog_queue_count=BACKLOG_QUEUES,
            failover_interval=timedelta(seconds=plan.failover_interval_s),
            ping_primary_interval=timedelta(seconds=plan.ping_interval_s),
        )
        async with await pair_namespace(primary, options, primary_name=PRIMARY) as paired:
            yield paired, primary


async def _run(plan: Plan, folder: Path, console: Console) -> int:
    clock = SystemClock()
    started_at = clock.monotonic()
    view = View(console, lambda: clock.monotonic() - started_at)
    async with Stage(folder) as stage:
        with view:
            view.tell("a primary and a secondary namespace are up, two message brokers each")
            async with _pair(stage, plan) as (paired, primary):
                account = await Demonstration(plan, stage, Tally(), view, clock, started_at).run(paired, primary)
        print_account(account, load_prices(), console)
        if not account.complaints():
            return 0
        console.print("What the processes said last:", *stage.log, sep="\n", markup=False, soft_wrap=True)
        return 1


@click.command()
@click.option(
    "--rate",
    type=click.FloatRange(min=LOWEST_RATE),
    default=100.0,
    show_default=True,
    help="Messages per second.",
)
@click.option("--calm", "calm_s", default=8.0, show_default=True, help="Seconds before the kill.")
@click.option("--outage", "outage_s", default=12.0, show_default=True, help="Seconds of sending into the backlog.")
@click.option("--failover-interval", default=5.0, show_default=True, help="Seconds until senders fail over.")
@click.option("--ping-interval", default=2.0, show_default=True, help="Seconds between two pings.")
@click.option(
    "--tolerance", default=0.1, show_default=True, help="Seconds by which a failover or a return may be off time."
)
@click.option("--spark/--no-spark", "with_spark", default=True, help="Let the data pipeline look at it, too.")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    default=REPORT,
    show_default=True,
    help="Where its report goes.",
)
def main(
    rate: float,
    calm_s: float,
    outage_s: float,
    failover_interval: float,
    ping_interval: float,
    tolerance: float,
    with_spark: bool,
    report: Path,
) -> None:
    """Watch an outage: kill a primary namespace under load, and count what became of every message."""
    logging.disable(logging.CRITICAL)  # the SDK tells of every broken connection, which is what this is about
    plan = Plan(rate, calm_s, outage_s, failover_interval, ping_interval, tolerance)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    with tempfile.TemporaryDirectory(prefix="tandembus-demo-", ignore_cleanup_errors=True) as folder:
        exit_code = asyncio.run(_run(plan, Path(folder), console))
        if with_spark:
            # Both namespaces have stopped, so all that they recorded is in their files.
            folders = [Path(folder) / name for name in (PRIMARY, SECONDARY)]
            is_well = run_pipeline(folders, Path(folder), report, console)
            exit_code = exit_code if is_well else 1
        raise SystemExit(exit_code)


if __name__ == "__main__":
    main()
