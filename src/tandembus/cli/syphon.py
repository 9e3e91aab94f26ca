"""`tandembus syphon`: brings messages home in the foreground, from the two namespaces to the last figure."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
from aiohttp import web

from tandembus import logs
from tandembus.cli.failures import INTERRUPTED, TRY_LATER, Failure
from tandembus.cli.output import counted, print_json, say, write_over
from tandembus.cli.pair import NAME_DEFAULT, BacklogDiscovery, backlog_options, syphon_options
from tandembus.cli.serve import run_fast
from tandembus.cli.target import PairTarget, pair_options
from tandembus.client import ClientFailure, connect
from tandembus.clock import SystemClock
from tandembus.config import ConfigurationError
from tandembus.pairing.aliases import backlog_path
from tandembus.pairing.syphon.client_port import ClientBacklog, ClientPrimary, SharedConnection
from tandembus.pairing.syphon.engine import Syphon
from tandembus.pairing.syphon.observer import SyphonFigures
from tandembus.pairing.syphon.ports import PrimaryPort
from tandembus.pairing.syphon.settings import SyphonSettings
from tandembus.prometheus import CONTENT_TYPE
from tandembus.tracing.exporting import check_can_trace

if TYPE_CHECKING:
    from tandembus.tracing.process_tracing import ProcessTracing
    from tandembus.tracing.spans import Spans

COLLECT_AFTER: Final = 100_000
log: Final = logging.getLogger("tandembus.syphon")
ANSWER_TIMEOUT_S: Final = 15.0
"""For everything that a namespace is asked, below the lock duration of a backlog queue: what a send that got no answer
held is still ours then."""
LOOK_AGAIN_S: Final = 5.0
"""How soon a backlog queue that was made just after the last one is noticed."""
LOOK_SELDOM_S: Final = 60.0
"""The longest: twice as long each time that none is found, as most pairs never get another."""
PROGRESS_S: Final = 1.0
METRICS_HOST: Final = "127.0.0.1"


def _run_collecting_less(work: Coroutine[Any, Any, None]) -> None:
    """Messages on their way make no cycles, so the collector looks for these less often: that took a tenth of the
    time."""
    usual = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, *usual[1:])
    try:
        run_fast(work)
    finally:
        gc.set_threshold(*usual)


@click.command()
@backlog_options(NAME_DEFAULT, "Empty the queues with the indices 0 to N - 1.")
@syphon_options
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
@partial(pair_options, run_loop=_run_collecting_less)
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
    none wait there and are tried again; malformed ones, and those that their destination refuses for good, go to the
    backlog queue's dead-letter queue. Any number of syphons may run at once.

    With --once the exit code is 7 if messages were left, because their destination took none or another syphon held
    them.

    \b
    Examples:
      tandembus syphon --once
      tandembus syphon --primary "$PRIMARY" --secondary "$SECONDARY" --primary-name contoso --metrics-port 9464
    """
    if tracing:
        try:
            check_can_trace()
        except ConfigurationError as error:
            raise click.UsageError(str(error)) from error
    settings = SyphonSettings(retry_interval_s=retry_interval_s)
    wanted = SyphonWanted(target, primary_name, backlog_queues, once, settings, metrics_port, tracing)
    logs.set_up("info", log_format, "syphon")
    raise SystemExit(await run(wanted))


@dataclass(frozen=True, slots=True)
class SyphonWanted:
    target: PairTarget
    primary_name: str | None
    backlog_queues: int | None
    once: bool
    settings: SyphonSettings
    metrics_port: int | None
    tracing: bool = False


async def run(wanted: SyphonWanted) -> int:
    """Until it is interrupted, or with `once` until nothing more can be moved. Returns the exit code. For programs it
    prints the figures however it ends: what was moved before a failure is moved."""
    figures = SyphonFigures(SystemClock())
    try:
        return await _run(wanted, figures)
    finally:
        if wanted.target.as_json:
            print_json(figures.record())


async def _run(wanted: SyphonWanted, figures: SyphonFigures) -> int:
    target = wanted.target
    primary = connection_to(target.primary, target.primary_ca)
    secondary = connection_to(target.secondary, target.secondary_ca)
    tracing = _start_tracing(wanted)
    syphons = Syphons(primary, secondary, wanted, figures, None if tracing is None else tracing.spans)
    metrics = await _serve_metrics(figures, wanted.metrics_port)
    try:
        return await _work(syphons, figures, wanted)
    finally:
        await primary.close()
        await secondary.close()
        if metrics is not None:
            await metrics.cleanup()
        if tracing is not None:
            await tracing.stop()


def _start_tracing(wanted: SyphonWanted) -> ProcessTracing | None:
    if not wanted.tracing:
        return None
    from tandembus.tracing.process_tracing import ProcessTracing

    return ProcessTracing.of("syphon")


class _LentPrimary(ClientPrimary):
    """The primary as each of many syphons has it: closing it leaves the connection open."""

    async def close(self) -> None:
        return None


def _traced(primary: PrimaryPort, spans: Spans | None) -> PrimaryPort:
    if spans is None:
        return primary
    from tandembus.tracing.syphon_spans import TracedPrimary

    return TracedPrimary(primary, spans)


class Syphons:
    """One syphon for each backlog queue, since queues may be made at any time."""

    def __init__(
        self,
        primary: SharedConnection,
        secondary: SharedConnection,
        wanted: SyphonWanted,
        figures: SyphonFigures,
        spans: Spans | None = None,
    ) -> None:
        self._primary: Final = _traced(_LentPrimary(primary), spans)
        self._secondary: Final = secondary
        self._wanted: Final = wanted
        self._figures: Final = figures
        self._discovery: Final = BacklogDiscovery(wanted.target, wanted.primary_name, secondary, ANSWER_TIMEOUT_S)
        self._at_work: Final[dict[asyncio.Future[bool], Syphon]] = {}
        self._is_stopping: Final = asyncio.Event()

    async def run(self) -> bool:
        """Until `stop`; with `once` until nothing more can be moved. Returns whether the queues are empty then."""
        if self._wanted.backlog_queues is not None:
            await self._add_named(self._wanted.backlog_queues)
        elif self._wanted.once:
            await self._add_those_there()
        else:
            await self._discover_until_stopped()
        return await self._ended()

    async def stop(self) -> None:
        """Each finishes what it has in hand; then `run` returns."""
        self._is_stopping.set()
        for syphon in list(self._at_work.values()):
            await syphon.stop()

    async def _add_named(self, count: int) -> None:
        """Missing queues may be made later; for `once` they are nothing to drain."""
        await self._discovery.learn_name()
        once = self._wanted.once
        indices = [index for index in range(count) if not once or await self._discovery.is_there(index)]
        self._add([backlog_path(self._discovery.name, index) for index in indices])
        self._check_any()

    async def _add_those_there(self) -> None:
        self._add(await self._discovery.look())
        self._check_any("--backlog-queues N empties those behind a gap, too.")
        await self._discovery.report_extra()

    def _check_any(self, further_advice: str = "") -> None:
        if not self._at_work and not self._is_stopping.is_set():
            raise Failure(
                f"There are no backlog queues of '{self._discovery.name}' on the secondary.",
                advice=f"Is it the right --primary-name? {further_advice}".rstrip(),
            )

    async def _discover_until_stopped(self) -> None:
        looking = asyncio.ensure_future(self._discover())
        stopping = asyncio.ensure_future(self._is_stopping.wait())
        await asyncio.wait((looking, stopping), return_when=asyncio.FIRST_COMPLETED)
        for each in (looking, stopping):
            each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking

    async def _discover(self) -> None:
        """Goes on looking for further queues."""
        is_extra_reported = False
        trouble = ""
        wait_s = LOOK_AGAIN_S
        while True:
            try:
                if found := await self._discovery.look():
                    wait_s = LOOK_AGAIN_S
                self._add(found)
                if not is_extra_reported:
                    await self._discovery.report_extra()
                    is_extra_reported = True
                trouble = ""
            except ClientFailure as error:
                if str(error) != trouble:
                    trouble = str(error)
                    log.warning("looking for backlog queues failed: %s", error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LOOK_SELDOM_S)

    def _add(self, queues: Sequence[str]) -> None:
        if self._is_stopping.is_set():
            return
        for queue in queues:
            backlog = ClientBacklog(self._secondary, queue)
            syphon = Syphon([backlog], self._primary, self._wanted.settings, self._figures, SystemClock())
            self._at_work[asyncio.ensure_future(syphon.run(self._wanted.once))] = syphon
        if queues:
            log.info("bringing home messages of '%s' from %d backlog queues", self._discovery.name, len(self._at_work))

    async def _ended(self) -> bool:
        """True if all of them left nothing behind. All come to their end before one's failure is raised."""
        outcomes = await asyncio.gather(*self._at_work, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return all(outcomes)


async def _work(syphons: Syphons, figures: SyphonFigures, wanted: SyphonWanted) -> int:
    is_interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, is_interrupted.set)
    stopping = asyncio.ensure_future(_stop_on(is_interrupted, syphons, loop))
    showing = asyncio.ensure_future(_show_progress(figures))
    try:
        is_empty = await syphons.run()
    finally:
        stopping.cancel()
        showing.cancel()
        write_over()
    _report_end(figures, wanted, is_empty)
    if is_interrupted.is_set():
        return INTERRUPTED if wanted.once else 0
    return 0 if is_empty else TRY_LATER


async def _stop_on(is_interrupted: asyncio.Event, syphons: Syphons, loop: asyncio.AbstractEventLoop) -> None:
    await is_interrupted.wait()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)  # A second Ctrl-C is obeyed at once; nothing is lost by that either.
    write_over()
    log.info("finishing what is in hand")
    await syphons.stop()


async def _show_progress(figures: SyphonFigures) -> None:
    """A line that is written over, for people who watch; those who read logs get figures that changed."""
    if not sys.stderr.isatty():
        return
    before = figures.moved_count
    while True:
        await asyncio.sleep(PROGRESS_S)
        now = figures.moved_count
        waiting = f", waiting for {', '.join(figures.stuck_paths)}" if figures.stuck_paths else ""
        rate = (now - before) / PROGRESS_S
        write_over(f"moved {now:,} ({rate:,.0f}/s), dead letters {figures.dead_lettered_count}{waiting}")
        before = now


def _report_end(figures: SyphonFigures, wanted: SyphonWanted, is_empty: bool) -> None:
    if wanted.target.as_json:
        return
    say(f"moved {counted(figures.moved_count, 'message')}; dead letters: {figures.dead_lettered_count:,}")
    if is_empty:
        return
    if figures.stuck_paths:
        say(("messages are left for destinations that take none now", "yellow"))
    else:
        say(("messages are left, some of them in the hands of another syphon", "yellow"))


def connection_to(connection_string: str, ca_path: str | None) -> SharedConnection:
    return SharedConnection(partial(connect, connection_string, ca_path=ca_path, timeout_s=ANSWER_TIMEOUT_S))


async def _serve_metrics(figures: SyphonFigures, port: int | None) -> web.AppRunner | None:
    if port is None:
        return None

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=figures.metrics().encode(), headers={"Content-Type": CONTENT_TYPE})

    application = web.Application()
    application.router.add_get("/metrics", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, METRICS_HOST, port).start()
    except OSError as error:
        await runner.cleanup()
        raise Failure(
            f"Metrics cannot be served on port {port} of {METRICS_HOST}: {os.strerror(error.errno or 0)}.",
            advice="--metrics-port chooses another port; 0 takes any free one.",
            kind="PortUnavailable",
        ) from error
    host, bound = runner.addresses[0][:2]
    log.info("metrics at http://%s:%d/metrics", host, bound)
    return runner
