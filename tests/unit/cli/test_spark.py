"""`tandembus spark` without Spark: help and mistakes are answered before anything is loaded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from tandembus.cli.spark import SparkTarget, checkpoint_option, signals_held, spark_options
from tandembus.cli.spark_waiting import ExecutorWatch
from tests.covers import covers


@click.command()
@spark_options
@checkpoint_option
def job(target: SparkTarget, checkpoint: str) -> None:
    click.echo(f"{target.master} {dict(target.conf)} {target.as_json} {checkpoint}")


def test_the_shared_options_reach_a_job_as_one_target() -> None:
    arguments = [
        "--master",
        "local[2]",
        "--conf",
        "spark.a=1=2",
        "--conf",
        "spark.b=",
        "--checkpoint",
        "there",
        "--json",
    ]
    result = CliRunner().invoke(job, arguments)
    assert result.output == "local[2] {'spark.a': '1=2', 'spark.b': ''} True there\n"


@pytest.mark.parametrize("setting", ["executor.memory=4g", "spark.executor.memory"])
def test_a_setting_that_is_none_is_refused(setting: str) -> None:
    result = CliRunner().invoke(job, ["--conf", setting, "--checkpoint", "there"])
    assert result.exit_code == 2
    assert "is not of the form spark.NAME=VALUE" in result.output


def test_help_does_not_load_spark() -> None:
    program = (
        "import sys; from tandembus.cli import main\n"
        "try: main(['spark', '--help'])\n"
        "finally: assert not {'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Run a job of the data pipeline" in done.stdout
    assert "..." not in done.stdout.partition("Commands:")[2], "a text that is cut off"


def test_a_machine_without_spark_is_told_what_to_install() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['pyspark.sql'] = None\n"
        "from tandembus.cli.spark import SparkTarget\n"
        "SparkTarget(None, (), False).session('job')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "Spark is not installed" in done.stderr


@pytest.fixture
def own_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def start(number: int, is_launching: bool, steps: list[str]) -> None:
    with signals_held(lambda: is_launching):
        os.kill(os.getpid(), number)
        steps.append("up")


@pytest.mark.usefixtures("own_handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("is_launching", [True, False])
def test_an_interrupt_waits_only_while_java_is_launched_and_is_answered_at_once(
    number: int, is_launching: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        start(number, is_launching, steps)
    assert steps == (["up"] if is_launching else [])
    told = "stopping: as soon as Spark is up" if is_launching else "stopping: Spark is ended"
    assert capfd.readouterr().err.startswith(told)


@pytest.mark.usefixtures("own_handlers")
def test_when_spark_is_up_its_own_handler_of_interrupts_is_gone() -> None:
    with signals_held(lambda: False):
        signal.signal(signal.SIGINT, lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


@covers("D6")
def test_a_job_without_executors_says_that_it_waits_until_it_has_one() -> None:
    told: list[str] = []
    watch = ExecutorWatch(lambda: len(told) == 3, lambda: told.append("waiting"))
    watch.run(pauses_s=(0.0, 0.0))
    assert told == ["waiting"] * 3


@covers("D6")
def test_where_spark_is_gone_nobody_is_told_to_wait() -> None:
    def gone() -> bool:
        raise ConnectionRefusedError

    told: list[str] = []
    ExecutorWatch(gone, lambda: told.append("waiting")).run(pauses_s=(0.0,))
    assert told == []
