"""What all jobs do with Spark: run SQL text, follow a streaming query to its end, and explain in a sentence why it
failed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from traceback import walk_tb
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

LOOK_EVERY_S: Final = 0.5
FINISH_LOOKS: Final = 20
STANDARD_ERROR: Final = 2
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
PART_BYTES: Final = 32 << 20
"""Bytes of input files for each part of a shuffle where there is much to do."""
SMALL_PART_BYTES: Final = 1 << 20
"""No part is smaller: to start its task would take longer than its work."""
JAVA_ENDS_S: Final = 10.0
"""How long a Java process that does not answer any more may take to end."""
OUT_OF_MEMORY: Final = 52
"""The exit code with which Spark then ends Java."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
Batch: TypeAlias = Mapping[str, Any]
"""What Spark reports of one batch."""
_OURS: Final = re.compile(r"^tandembus(?:\.\w+)+\.(\w+): (\S.*)$", re.MULTILINE)
_FILE: Final = re.compile(r"\[FAILED_READ_FILE\S*\] Encountered error while reading file (.+?)\.\s+SQLSTATE")
_ANY: Final = re.compile(r"^(?:[a-z_]\w*\.)*(\w+Error): (\S.*)$", re.MULTILINE)


class JobFailed(Exception):
    """A job on Spark ended early. No message is lost."""


def follow(query: StreamingQuery, heard: Callable[[Batch], None]) -> None:
    """Follows the query until it ends, or until Ctrl-C or SIGTERM stops it (`KeyboardInterrupt`); `heard` gets each
    batch once. Raises `JobFailed`. However it ends, the query is over: its messages can be given back safely."""
    told: set[int] = set()
    with _noting_signals() as signals:
        try:
            while not query.awaitTermination(LOOK_EVERY_S):
                _report_new(query, told, heard)
                if signals:
                    _finish_batch(query, signals)
                    raise KeyboardInterrupt
            _report_new(query, told, heard)
        except BaseException as error:
            _end(query, told, heard)
            if isinstance(error, Exception):
                raise JobFailed(reason_of(error)) from None
            raise


def _finish_batch(query: StreamingQuery, signals: Sequence[int]) -> None:
    """Waits for the batch under way for a while, unless the user asks again: a batch that is cut off is repeated."""
    before = query.lastProgress
    looks = 0
    while looks < FINISH_LOOKS and len(signals) == 1 and _is_under_way(query, before):
        query.awaitTermination(LOOK_EVERY_S)
        looks += 1


def _is_under_way(query: StreamingQuery, before: Batch | None) -> bool:
    return query.status["isTriggerActive"] and _number(query.lastProgress) == _number(before)


def _number(batch: Batch | None) -> int | None:
    return None if batch is None else batch["batchId"]


@contextmanager
def fitted_shuffles(spark: SparkSession, size_bytes: int) -> Iterator[None]:
    """Sets the number of parts of each shuffle by the size of the input, unless the user has set it. Spark's default of
    200 makes a small job wait for tasks that have nothing to do."""
    if SHUFFLE_PARTITIONS in spark.conf.getAll:
        yield
        return
    spread = min(spark.sparkContext.defaultParallelism, -(-size_bytes // SMALL_PART_BYTES))
    spark.conf.set(SHUFFLE_PARTITIONS, max(1, spread, -(-size_bytes // PART_BYTES)))
    try:
        yield
    finally:
        spark.conf.unset(SHUFFLE_PARTITIONS)


def selected(spark: SparkSession, text: str, **values: DataFrame | int) -> DataFrame:
    """The result of SQL text in which `{name}` stands for a table or a number. `spark.sql` can do that too, but when it
    drops the views that it makes for tables, it removes these tables from Spark's memory."""
    views: dict[str, str] = {}
    for name, value in values.items():
        if not isinstance(value, int):
            views[name] = f"tandembus_{name}_{uuid.uuid4().hex}"
            value.createOrReplaceTempView(views[name])
    try:
        return spark.sql(text.format(**{**values, **views}))
    finally:
        catalog: Any = spark._jsparkSession.sessionState().catalog()
        for view in views.values():
            catalog.dropTempView(view)


def spark_errors() -> tuple[type[Exception], ...]:
    """The errors of Spark and of its Java side, for `except`; none if Spark has not been loaded."""
    if "pyspark" not in sys.modules:
        return ()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def java_end(error: BaseException) -> str | None:
    """How Spark's Java process ended, if an error of the bridge to it means that."""
    is_bridge = any(frame.f_globals["__name__"].startswith("py4j.") for frame, _ in walk_tb(error.__traceback__))
    if not is_bridge or not _is_broken(error):
        return None
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    code = None
    if process is not None:
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(JAVA_ENDS_S)
    if code is None:
        return "Spark's Java process does not answer any more"
    if code == OUT_OF_MEMORY:
        return f"Spark's Java process ran out of memory, and ended (exit code {code})"
    if code < 0:
        return f"Spark's Java process was killed (signal {-code}), as the system does when memory is short"
    return f"Spark's Java process ended (exit code {code})"


def _is_broken(error: BaseException) -> bool:
    """Whether Java did not answer; an answer may be an error as well."""
    from py4j.protocol import Py4JError, Py4JJavaError

    return isinstance(error, (ConnectionError, EOFError, Py4JError)) and not isinstance(error, Py4JJavaError)


def reason_of(error: BaseException) -> str:
    """The first error of a chain: deep in a worker's traceback that Spark passed on as text, or in Java."""
    end = java_end(error)
    if end is not None:
        return end
    java = getattr(error, "java_exception", None)
    if java is not None:
        return _reason_in_java(java)
    text = str(error)
    raised = _OURS.findall(text) or _ANY.findall(text)
    if raised:
        kind, message = raised[-1]
        return f"{message} ({kind})"
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def _reason_in_java(java: Any) -> str:
    """The reason with the file that was being read, which an outer error names."""
    file = _FILE.search(str(java.getMessage()))
    while java.getCause() is not None:
        java = java.getCause()
        file = _FILE.search(str(java.getMessage())) or file
    reason = str(java.getMessage() or java.toString()).splitlines()[0]
    return reason if file is None or file[1] in reason else f"{file[1]}: {reason}"


def _report_new(query: StreamingQuery, told: set[int], heard: Callable[[Batch], None]) -> None:
    for batch in query.recentProgress:
        if batch["batchId"] not in told and batch["numInputRows"] > 0:
            told.add(batch["batchId"])
            heard(batch)


def _end(query: StreamingQuery, told: set[int], heard: Callable[[Batch], None]) -> None:
    """Stops the query; if Spark is gone, so is the query."""
    with suppress(Exception):
        query.stop()
    with suppress(Exception):
        _report_new(query, told, heard)


def say_at_once(text: str) -> None:
    """Writes to standard error from within a signal handler, which may interrupt any other output."""
    with suppress(OSError):
        os.write(STANDARD_ERROR, f"{text}\n".encode())


@contextmanager
def _noting_signals() -> Iterator[Sequence[int]]:
    """Records signals instead of raising: an exception within a call to Java would break the connection to it, and
    nothing could be stopped any more. Python handles signals in the main thread only."""
    asked: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if not asked:
            say_at_once("stopping: the batch under way has ten seconds to end; once more cuts it off")
        asked.append(number)

    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, note) for number in (SIGNALS if is_main else ())}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
