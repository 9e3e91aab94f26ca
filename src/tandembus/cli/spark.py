"""`tandembus spark`: where a job of the data pipeline runs, how it starts and ends. The jobs are loaded when they are
called, and nothing here imports Spark: help and wrong usage are answered at once, also on machines without it."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import click

from tandembus.cli.arguments import stacked
from tandembus.cli.failures import INTERRUPTED, UNREACHABLE, Failure
from tandembus.cli.main import LazyGroup
from tandembus.cli.output import print_json, say
from tandembus.cli.target import json_option
from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.query import say_at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS: Final = {
    "release": ("spark_jobs", "Hand messages back that a retired query has reserved."),
    "capture": ("spark_jobs", "Write an entity's messages to Parquet files, by entity and date."),
    "report": (
        "spark_reports",
        "Write a report as one HTML file: the bill, what a failover cost, what happened when, whether all arrived.",
    ),
    "usage": (
        "spark_reports",
        "Make a bill of the meter's files: by namespace, entity, operation and day, and what a failover cost.",
    ),
    "reconcile": (
        "spark_reports",
        "Prove that nothing was lost: accepted messages against what became of them, over both namespaces of a pair.",
    ),
    "syphon": ("spark_jobs", "Bring large backlogs home to the primary, on Spark."),
}
"""Command -> module, and the first line of its help."""

ANSWERS_WITHIN_S: Final = 5.0
STANDALONE: Final = "spark://"
REPORTED_AFTER_S: Final = (15.0, 60.0, 300.0)
"""Pauses between two notes that a job waits for executors; the last one is repeated."""
NOT_FOUND: Final = "DATA_SOURCE_NOT_FOUND"
NO_SOURCE: Final = (
    "PYSPARK_PYTHON must name a Python with 'tandembus[spark]', on this machine as on those of the cluster (see "
    "docs/clusters.md)."
)
INSTALL: Final = "`pip install 'tandembus[spark]'` installs Spark, and Java with it."
CLASSIC: Final = "Unset SPARK_REMOTE and SPARK_API_MODE, and give the cluster as --master, or none for this machine."
MEMORY: Final = "Start it again; if memory was short, with --conf spark.driver.memory=4g. Nothing is lost."
READABLE: Final = "Can Spark read and write these paths, on all its machines (see docs/clusters.md)?"
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[^\s,:/\[\]]+):[0-9]{1,5}"
_MASTERS: Final = re.compile(
    r"local(?:\[(?:\*|[1-9][0-9]*)(?:,\s*[1-9][0-9]*)?\])?"
    r"|local-cluster\[\s*[1-9][0-9]*\s*,\s*[1-9][0-9]*\s*,\s*[1-9][0-9]*\s*\]"
    rf"|spark://{_HOST}(?:,{_HOST})*"
    r"|yarn|k8s://\S+"
)


@dataclass(frozen=True, slots=True)
class SparkTarget:
    """Where a job runs, and how it answers."""

    master: str | None
    conf: tuple[tuple[str, str], ...]
    as_json: bool

    @property
    def runs_on(self) -> str | None:
        """The master that counts; None: this machine, or what `spark-submit` was told."""
        return dict(self.conf).get("spark.master", self.master)

    def require_shared(self, *paths: str | None) -> None:
        """For what a job reads or writes on all machines of its cluster; None: not given."""
        from tandembus.spark.jobs.files import check_shared

        with wrong_usage():
            check_shared([path for path in paths if path is not None], self.runs_on)

    def answer(self, record: dict[str, Any], text: str) -> None:
        if self.as_json:
            print_json(record)
        else:
            say(text)

    def session(self, app_name: str) -> SparkSession:
        """Started when it is asked for, and stopped when the program ends; a failure says what is missing."""
        require_spark()
        from pyspark import SparkContext

        from tandembus.spark.errors import SparkUnavailable
        from tandembus.spark.session import is_connect, spark_session

        if is_connect(dict(self.conf)):
            raise Failure("The jobs do not run over Spark Connect.", advice=CLASSIC, kind="SparkUnavailable")
        master = self.runs_on
        named = {} if master is None else {"spark.master": master}
        is_running = SparkContext._active_spark_context is not None
        if not is_running:
            require_answer(master)
        if not is_running and not self.as_json:
            click.echo(f"starting Spark ({master or 'on this machine'}) ...", err=True)
        advice = f"Is the master right ({master or 'local'}), and can it be reached from here?"
        try:
            with explained_failures(advice), signals_held(lambda: SparkContext._gateway is None):
                session = spark_session(**{"spark.app.name": app_name, **named, **dict(self.conf)})
        except SparkUnavailable as error:
            raise Failure(str(error), advice=INSTALL, kind="SparkUnavailable") from None
        if not is_running:
            atexit.register(_stop, session)
            if master is not None and not master.startswith("local"):
                watch_executors(session, master)
        return session


def require_spark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise Failure("Spark is not installed.", advice=INSTALL, kind="SparkUnavailable")


# Masters. Spark itself would take a minute to find out that one does not answer, and fill pages with Java.


def check_form(master: str) -> str:
    """Raises `click.BadParameter` for what Spark would not take for a master."""
    if _MASTERS.fullmatch(master) is None:
        raise click.BadParameter(
            f"{master!r} is no master of Spark: local[4], local[*], spark://HOST:PORT, yarn or k8s://ADDRESS"
        )
    return master


def require_answer(master: str | None) -> None:
    """Raises `Failure` if nobody takes connections at the address of a standalone master, or at any of several."""
    if master is None or not master.startswith(STANDALONE):
        return
    reasons = [_why_unreachable(address) for address in master.removeprefix(STANDALONE).split(",")]
    if all(reasons):
        advice = "Is it running, and is this the address that it shows as its URL? `--master` names another one."
        text = f"No Spark master answers at {master}: {reasons[0]}."
        raise Failure(text, UNREACHABLE, advice, "MasterUnreachable")


def _why_unreachable(address: str) -> str | None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWERS_WITHIN_S).close()
    except (OSError, OverflowError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None


# From the start to the end.


@contextmanager
def signals_held(is_launching: Callable[[], bool]) -> Iterator[None]:
    """Holds Ctrl-C and SIGTERM while Java is launched until Spark is up: Java would be left behind otherwise. From then
    on they raise KeyboardInterrupt and do nothing else: Spark's own handler calls Java in the midst of calls. Either
    way a line says at once that they were heard."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []

    def heard(number: int, _: FrameType | None) -> None:
        asked.append(number)
        if not is_launching():
            _interrupt(number, None)
        if len(asked) == 1:
            say_at_once("stopping: as soon as Spark is up, which takes some seconds more")

    logging.getLogger().addFilter(_is_no_interrupt)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, heard)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _interrupt)
    if asked:
        raise KeyboardInterrupt


def _interrupt(_: int, __: FrameType | None) -> NoReturn:
    say_at_once("stopping: Spark is ended")
    # The bridge to Java would log the call that is cut off here, with its trace.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    raise KeyboardInterrupt


def _stop(session: SparkSession) -> None:
    """At the end of the program. Whoever ended it may have ended Java, too."""
    logging.disable()
    with suppress(Exception, KeyboardInterrupt):
        session.stop()


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """The bridge to Java logs each call that an interrupt has cut off, with its trace."""
    return record.exc_info is None or record.exc_info[0] is not KeyboardInterrupt


@contextmanager
def wrong_usage() -> Iterator[None]:
    """What is refused inside is a mistake in the options."""
    try:
        yield
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from None


@contextmanager
def explained_failures(advice: str) -> Iterator[None]:
    """What Spark itself refuses, in a sentence."""
    from tandembus.spark.jobs.query import java_end, reason_of, spark_errors

    try:
        yield
    except Exception as error:
        if not isinstance(error, (ConnectionError, EOFError, *spark_errors())):
            raise
        if (end := java_end(error)) is not None:
            raise Failure(f"{end}.", advice=MEMORY, kind="JavaEnded") from None
        if not isinstance(error, spark_errors()):
            raise
        if NOT_FOUND in str(error):
            raise Failure("Spark's Python has no tandembus.", advice=NO_SOURCE, kind="SparkFailed") from None
        raise Failure(reason_of(error), advice=advice, kind="SparkFailed") from None


def run_to_its_end(
    spark: SparkTarget,
    app_name: str,
    once: bool,
    job: Callable[[SparkSession], int],
    interrupted: Callable[[], None],
    advice: str,
) -> NoReturn:
    """Runs a job until Ctrl-C, unless it runs `once`; ends with its exit code. `interrupted` reports what it has done
    until then, `advice` says what to do when it failed."""
    from tandembus.spark.jobs.query import JobFailed

    try:
        session = spark.session(app_name)
        with explained_failures(advice):
            code = job(session)
    except JobFailed as error:
        raise Failure(str(error), advice=advice, kind="JobFailed") from None
    except KeyboardInterrupt:
        interrupted()
        code = INTERRUPTED if once else 0
    raise SystemExit(code)


class ExecutorWatch:
    """Reports that a job waits for executors, until it has one: Spark itself says nothing."""

    def __init__(self, has_executors: Callable[[], bool], report: Callable[[], None]) -> None:
        self._has_executors: Final = has_executors
        self._report: Final = report

    def start(self) -> None:
        threading.Thread(target=self.run, name="executor watch", daemon=True).start()

    def run(self, pauses_s: Sequence[float] = REPORTED_AFTER_S) -> None:
        place = 0
        while not threading.Event().wait(pauses_s[min(place, len(pauses_s) - 1)]):
            try:
                if self._has_executors():
                    return
            except Exception:
                return  # Spark is gone.
            self._report()
            place += 1


def watch_executors(session: SparkSession, master: str) -> None:
    """Does nothing where executors come only when there is work for them."""
    if session.conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        ExecutorWatch(
            # One is the driver itself.
            lambda: session._jsc.sc().getExecutorMemoryStatus().size() > 1,
            lambda: click.echo(f"waiting for executors: no worker of {master} has room for this job yet", err=True),
        ).start()


# Options.


def _master_of(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    return None if text is None else check_form(text)


def _settings_of(_: click.Context, __: click.Parameter, texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    settings: list[tuple[str, str]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{text!r} is not of the form spark.NAME=VALUE")
        settings.append((name, check_form(value) if name == "spark.master" else value))
    return tuple(settings)


cluster_options: Final = stacked(
    click.option(
        "--master",
        envvar="TANDEMBUS_SPARK_MASTER",
        metavar="URL",
        callback=_master_of,
        help="Where the job runs: local[4], spark://host:7077, yarn, k8s://...  [default: all cores of this machine]",
    ),
    click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_settings_of,
        help="A setting of Spark, such as spark.executor.memory=4g. May be given several times.",
    ),
)


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--master`, `--conf` and `--json` and calls the command with the `SparkTarget` that they mean."""

    @wraps(command)
    def run(master: str | None, conf: tuple[tuple[str, str], ...], as_json: bool, **arguments: Any) -> Any:
        with explained_failures(READABLE):
            return command(SparkTarget(master, conf, as_json), **arguments)

    return stacked(cluster_options, json_option)(run)


class JobGroup(LazyGroup):
    """The jobs, each loaded when it is called."""

    commands_in: ClassVar[Mapping[str, str]] = {name: module for name, (module, _) in JOBS.items()}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in JOBS.items()])


@click.command(cls=JobGroup)
def spark() -> None:
    """Run a job of the data pipeline on Spark, on this machine or on a cluster.

    Spark comes with `pip install 'tandembus[spark]'`, and so does a Java runtime for machines that have none.
    """
