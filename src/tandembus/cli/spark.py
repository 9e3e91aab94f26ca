"""`tandembus spark`: the jobs of the data pipeline, each loaded when it is called, and the options they share.

Nothing here imports Spark: help and wrong usage are answered at once, and on machines without it.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from tandembus.cli import LazyGroup
from tandembus.cli.failures import INTERRUPTED, Failure
from tandembus.cli.spark_master import check_form, is_cluster, require_answer
from tandembus.cli.spark_waiting import watch_executors
from tandembus.cli.target import json_option
from tandembus.spark.jobs.streaming import say_at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS: Final[dict[str, str]] = {
    "release": "tandembus.cli.spark_release:release",
    "capture": "tandembus.cli.spark_capture:capture",
    "report": "tandembus.cli.spark_report:report",
    "usage": "tandembus.cli.spark_usage:usage",
    "reconcile": "tandembus.cli.spark_reconcile:reconcile",
    "syphon": "tandembus.cli.spark_syphon:syphon",
}
"""Command -> module and attribute."""

NOT_FOUND: Final = "DATA_SOURCE_NOT_FOUND"
NO_SOURCE: Final = (
    "PYSPARK_PYTHON must name a Python with 'tandembus[spark]', on this machine as on those of the cluster (see "
    "docs/clusters.md)."
)
INSTALL: Final = "`pip install 'tandembus[spark]'` installs Spark, and Java with it."
CLASSIC: Final = "Unset SPARK_REMOTE and SPARK_API_MODE, and give the cluster as --master, or none for this machine."
MEMORY: Final = "Start it again; if memory was short, with --conf spark.driver.memory=4g. Nothing is lost."
READABLE: Final = "Can Spark read and write these paths, on all its machines (see docs/clusters.md)?"
Command = Callable[..., Any]


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
            if master is not None and is_cluster(master):
                watch_executors(session, master)
        return session


@contextmanager
def signals_held(is_launching: Callable[[], bool]) -> Iterator[None]:
    """Ctrl-C and SIGTERM while Java is launched are obeyed when Spark is up: it would be left behind otherwise. From
    then on they raise KeyboardInterrupt and do nothing else: Spark's own handler calls Java in the midst of calls.
    Either way it is said at once that they were heard."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        asked.append(number)
        if not is_launching():
            _interrupt(number, None)
        if len(asked) == 1:
            say_at_once("stopping: as soon as Spark is up, which takes some seconds more")

    logging.getLogger().addFilter(_is_no_interrupt)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, note)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _interrupt)
    if asked:
        raise KeyboardInterrupt


def _interrupt(_: int, __: FrameType | None) -> NoReturn:
    say_at_once("stopping: Spark is ended")
    # The bridge to Java would tell of the call that is cut off here, with its trace.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    raise KeyboardInterrupt


def _stop(session: SparkSession) -> None:
    """At the end of the program. Whoever ended it may have ended Java, too, and then there is nobody to tell."""
    logging.disable()
    with suppress(Exception, KeyboardInterrupt):
        session.stop()


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """The bridge to Java logs each call that an interrupt has cut off, with its trace."""
    return record.exc_info is None or record.exc_info[0] is not KeyboardInterrupt


@contextmanager
def explained_failures(advice: str) -> Iterator[None]:
    """What Spark itself refuses, in a sentence."""
    from tandembus.spark.jobs.streaming import java_end, reason_of, spark_errors

    try:
        yield
    except (ConnectionError, EOFError) as error:
        end = java_end(error)
        if end is None:
            raise
        raise Failure(f"{end}.", advice=MEMORY, kind="JavaEnded") from None
    except spark_errors() as error:
        end = java_end(error)
        if end is not None:
            raise Failure(f"{end}.", advice=MEMORY, kind="JavaEnded") from None
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
    """A job that goes on until Ctrl-C, unless it runs `once`; ends with its exit code. `interrupted` tells what it has
    done until then, `advice` what to do when it failed."""
    from tandembus.spark.jobs.streaming import JobFailed

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


def require_spark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise Failure("Spark is not installed.", advice=INSTALL, kind="SparkUnavailable")


def spark_options(command: Command) -> Command:
    """Adds `--master`, `--conf` and `--json` and calls the command with the `SparkTarget` that they mean."""

    @wraps(command)
    def run(master: str | None, conf: tuple[tuple[str, str], ...], as_json: bool, **arguments: Any) -> Any:
        with explained_failures(READABLE):
            return command(SparkTarget(master, conf, as_json), **arguments)

    return cluster_options(json_option(run))


def cluster_options(command: Command) -> Command:
    """`--master` and `--conf` alone, as the arguments `master` and `conf`."""
    with_master = click.option(
        "--master",
        envvar="TANDEMBUS_SPARK_MASTER",
        metavar="URL",
        callback=_master_of,
        help="Where the job runs: local[4], spark://host:7077, yarn, k8s://...  [default: all cores of this machine]",
    )
    with_conf = click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_settings_of,
        help="A setting of Spark, such as spark.executor.memory=4g. May be given several times.",
    )
    return with_master(with_conf(command))


def checkpoint_option(command: Command) -> Command:
    """`--checkpoint`, for jobs that go on where they stopped."""
    return click.option(
        "--checkpoint",
        required=True,
        metavar="PATH",
        help="Where the job remembers how far it came; one for each job and pair of namespaces. All machines of a "
        "cluster must see it.",
    )(command)


def _master_of(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    return None if text is None else check_form(text)


def _settings_of(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    settings: list[tuple[str, str]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{text!r} is not of the form spark.NAME=VALUE")
        if name == "spark.master":
            check_form(value)
        settings.append((name, value))
    return tuple(settings)


class JobGroup(LazyGroup):
    """Loads a job's command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in JOBS:
            return None
        module, _, attribute = JOBS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """With whole texts."""
        commands = [(name, self.get_command(ctx, name)) for name in JOBS]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(200)) for name, one in commands if one is not None])


@click.command(cls=JobGroup)
def spark() -> None:
    """Run a job of the data pipeline on Spark, on this machine or on a cluster.

    Spark comes with `pip install 'tandembus[spark]'`, and so does a Java runtime for machines that have none.
    """
