"""Running a syphon in the foreground: from the two namespaces to the last figure."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import click
from aiohttp import web

from tandembus.cli.failures import INTERRUPTED, TRY_LATER, Failure
from tandembus.cli.lookout import Lookout
from tandembus.cli.output import print_json, say
from tandembus.cli.pair_target import PairTarget
from tandembus.client import ClientFailure, ServiceBus, connect
from tandembus.clock import SystemClock
from tandembus.pairing.aliases import backlog_path
from tandembus.pairing.client_ports import ClientBacklog, ClientPrimary, SharedConnection
from tandembus.pairing.runtime import Runtime
from tandembus.pairing.syphon import Syphon
from tandembus.pairing.syphon_observer import SyphonFigures
from tandembus.pairing.syphon_ports import PrimaryPort
from tandembus.pairing.syphon_rules import SyphonSettings
from tandembus.prometheus import CONTENT_TYPE

if TYPE_CHECKING:
    from tandembus.tracing.process_tracing import ProcessTracing
    from tandembus.tracing.spans import Spans

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


@dataclass(frozen=True, slots=True)
class Wanted:
    target: PairTarget
    primary_name: str | None
    backlog_queues: int | None
    once: bool
    settings: SyphonSettings
    metrics_port: int | None
    tracing: bool = False


async def run(wanted: Wanted) -> int:
    """Until it is interrupted, or with `once` until nothing more can be moved. Returns the exit code. For programs it
    prints the figures however it ends: what was moved before a failure is moved."""
    figures = SyphonFigures(SystemClock())
    try:
        return await _run(wanted, figures)
    finally:
        if wanted.target.as_json:
            print_json(figures.record())


async def _run(wanted: Wanted, figures: SyphonFigures) -> int:
    target = wanted.target
    primary = SharedConnection(partial(_connect, target.primary, target.primary_ca))
    secondary = SharedConnection(partial(_connect, target.secondary, target.secondary_ca))
    tracing = _start_tracing(wanted)
    crew = Crew(primary, secondary, wanted, figures, None if tracing is None else tracing.spans)
    metrics = await _serve_metrics(figures, wanted.metrics_port)
    try:
        return await _work(crew, figures, wanted)
    finally:
        await primary.close()
        await secondary.close()
        if metrics is not None:
            await metrics.cleanup()
        if tracing is not None:
            await tracing.stop()


def _start_tracing(wanted: Wanted) -> ProcessTracing | None:
    if not wanted.tracing:
        return None
    from tandembus.tracing.process_tracing import ProcessTracing

    return ProcessTracing.of("syphon")


class _LentPrimary(ClientPrimary):
    """The primary as each of many syphons has it: the connection is not theirs to close."""

    async def close(self) -> None:
        return None


def _traced(primary: PrimaryPort, spans: Spans | None) -> PrimaryPort:
    if spans is None:
        return primary
    from tandembus.tracing.syphon_spans import TracedPrimary

    return TracedPrimary(primary, spans)


class Crew:
    """The syphons of all backlog queues. One for each queue, since queues may be made at any time."""

    def __init__(
        self,
        primary: SharedConnection,
        secondary: SharedConnection,
        wanted: Wanted,
        figures: SyphonFigures,
        spans: Spans | None = None,
    ) -> None:
        self._primary: Final = _traced(_LentPrimary(primary), spans)
        self._secondary: Final = secondary
        self._wanted: Final = wanted
        self._figures: Final = figures
        self._lookout: Final = Lookout(wanted.target, wanted.primary_name, secondary, ANSWER_TIMEOUT_S)
        self._runtime: Final = Runtime(SystemClock())
        self._at_work: Final[dict[asyncio.Future[bool], Syphon]] = {}
        self._is_stopping: Final = asyncio.Event()

    async def run(self) -> bool:
        """Until `stop`; with `once` until nothing more can be moved. Returns whether the queues are empty then."""
        if self._wanted.backlog_queues is not None:
            await self._add_named(self._wanted.backlog_queues)
        elif self._wanted.once:
            await self._add_those_there()
        else:
            await self._look_out_until_stopped()
        return await self._ended()

    async def stop(self) -> None:
        """Each finishes what it has in hand; then `run` returns."""
        self._is_stopping.set()
        for syphon in list(self._at_work.values()):
            await syphon.stop()

    async def _add_named(self, count: int) -> None:
        """Those that are missing may be made later; for `once` they are nothing to drain."""
        await self._lookout.learn_name()
        once = self._wanted.once
        indices = [index for index in range(count) if not once or await self._lookout.is_there(index)]
        self._add([backlog_path(self._lookout.name, index) for index in indices])
        self._check_any()

    async def _add_those_there(self) -> None:
        self._add(await self._lookout.look())
        self._check_any("--backlog-queues N empties those behind a gap, too.")
        await self._lookout.tell_extra()

    def _check_any(self, further_advice: str = "") -> None:
        if not self._at_work and not self._is_stopping.is_set():
            raise Failure(
                f"There are no backlog queues of '{self._lookout.name}' on the secondary.",
                advice=f"Is it the right --primary-name? {further_advice}".rstrip(),
            )

    async def _look_out_until_stopped(self) -> None:
        looking = asyncio.ensure_future(self._look_out())
        stopping = asyncio.ensure_future(self._is_stopping.wait())
        await asyncio.wait((looking, stopping), return_when=asyncio.FIRST_COMPLETED)
        for each in (looking, stopping):
            each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking

    async def _look_out(self) -> None:
        """Goes on looking for further queues."""
        is_extra_told = False
        trouble = ""
        wait_s = LOOK_AGAIN_S
        while True:
            try:
                if found := await self._lookout.look():
                    wait_s = LOOK_AGAIN_S
                self._add(found)
                if not is_extra_told:
                    await self._lookout.tell_extra()
                    is_extra_told = True
                trouble = ""
            except ClientFailure as error:
                if str(error) != trouble:
                    trouble = str(error)
                    log.warning("the secondary cannot be asked for backlog queues: %s", error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LOOK_SELDOM_S)

    def _add(self, queues: Sequence[str]) -> None:
        if self._is_stopping.is_set():
            return
        for queue in queues:
            backlog = ClientBacklog(self._secondary, queue)
            syphon = Syphon([backlog], self._primary, self._wanted.settings, self._figures, self._runtime)
            self._at_work[asyncio.ensure_future(syphon.run(self._wanted.once))] = syphon
        if queues:
            log.info("bringing home messages of '%s' from %d backlog queues", self._lookout.name, len(self._at_work))

    async def _ended(self) -> bool:
        """Whether all of them left nothing behind. All come to their end before one's failure is raised."""
        outcomes = await asyncio.gather(*self._at_work, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return all(outcomes)


async def _work(crew: Crew, figures: SyphonFigures, wanted: Wanted) -> int:
    is_interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, is_interrupted.set)
    stopping = asyncio.ensure_future(_stop_on(is_interrupted, crew, loop))
    telling = asyncio.ensure_future(_tell_progress(figures))
    try:
        is_empty = await crew.run()
    finally:
        stopping.cancel()
        telling.cancel()
    _tell_end(figures, wanted, is_empty)
    if is_interrupted.is_set():
        return INTERRUPTED if wanted.once else 0
    return 0 if is_empty else TRY_LATER


async def _stop_on(is_interrupted: asyncio.Event, crew: Crew, loop: asyncio.AbstractEventLoop) -> None:
    await is_interrupted.wait()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)  # A second Ctrl-C is obeyed at once; nothing is lost by that either.
    log.info("finishing what is in hand")
    await crew.stop()


async def _tell_progress(figures: SyphonFigures) -> None:
    """A line that is written over, for people who watch; those who read logs get figures that changed."""
    if not sys.stderr.isatty():
        return
    before = figures.moved_count
    while True:
        await asyncio.sleep(PROGRESS_S)
        now = figures.moved_count
        waiting = f", waiting for {', '.join(figures.stuck_paths)}" if figures.stuck_paths else ""
        rate = (now - before) / PROGRESS_S
        told = f"moved {now:,} ({rate:,.0f}/s), dead letters {figures.dead_lettered_count}{waiting}"
        click.echo(f"\r\x1b[K{told}", err=True, nl=False)
        before = now


def _tell_end(figures: SyphonFigures, wanted: Wanted, is_empty: bool) -> None:
    if wanted.target.as_json:
        return
    count = figures.moved_count
    say(f"moved {count} {'message' if count == 1 else 'messages'}; dead letters: {figures.dead_lettered_count}")
    if is_empty:
        return
    if figures.stuck_paths:
        say(("messages are left for destinations that take none now; they keep their order", "yellow"))
    else:
        say(("messages are left, some of them in the hands of another syphon", "yellow"))


async def _connect(connection_string: str, ca_path: str | None) -> ServiceBus:
    return await connect(connection_string, ca_path=ca_path, timeout_s=ANSWER_TIMEOUT_S)


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
