"""`tandembus spark` without Spark: help and mistakes are answered before anything is loaded."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from tandembus.cli.spark import SparkTarget, checkpoint_option, spark_options


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


def test_a_machine_without_spark_is_told_what_to_install() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['pyspark.sql'] = None\n"
        "from tandembus.cli.spark import SparkTarget\n"
        "SparkTarget(None, (), False).session('job')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "Spark is not installed" in done.stderr
