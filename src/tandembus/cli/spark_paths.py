"""Paths that are given to a job: what is wrong with them is wrong usage, told before Spark is started."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click

from tandembus.cli.spark import SparkTarget
from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.usage_files import check_shared


@contextmanager
def wrong_usage() -> Iterator[None]:
    """What is refused inside is a mistake in the options."""
    try:
        yield
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from None


def require_shared(spark: SparkTarget, paths: Iterable[str | None]) -> None:
    """For what a job reads or writes on all machines of its cluster; None: not given."""
    with wrong_usage():
        check_shared([path for path in paths if path is not None], spark.runs_on)
