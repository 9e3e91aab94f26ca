"""While a cluster has no executor for a job, nothing happens, and Spark says nothing: somebody has to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOLD_AFTER_S: Final = (15.0, 60.0, 300.0)
"""The last one again and again."""
ON_DEMAND: Final = "spark.dynamicAllocation.enabled"


class ExecutorWatch:
    """Tells that a job waits for executors, until it has one."""

    def __init__(self, has_executors: Callable[[], bool], tell: Callable[[], None]) -> None:
        self._has_executors: Final = has_executors
        self._tell: Final = tell
        self._is_over: Final = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self.run, name="executor watch", daemon=True).start()

    def stop(self) -> None:
        self._is_over.set()

    def run(self, pauses_s: Sequence[float] = TOLD_AFTER_S) -> None:
        place = 0
        while not self._is_over.wait(pauses_s[min(place, len(pauses_s) - 1)]):
            try:
                if self._has_executors():
                    return
            except Exception:
                return  # Spark is gone, and with it what is waited for
            self._tell()
            place += 1


def watch_executors(session: SparkSession, master: str) -> ExecutorWatch | None:
    """None where executors come only when there is work for them."""
    if session.conf.get(ON_DEMAND, "false") == "true":
        return None
    watch = ExecutorWatch(
        # One is the driver itself.
        lambda: session._jsc.sc().getExecutorMemoryStatus().size() > 1,
        lambda: click.echo(f"waiting for executors: no worker of {master} has room for this job yet", err=True),
    )
    watch.start()
    return watch
