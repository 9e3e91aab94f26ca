"""Following a streaming query to its end: what it has done so far, and why it failed, in a sentence."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from traceback import walk_tb
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

LOOK_EVERY_S: Final = 0.5
FINISH_LOOKS: Final = 20
STANDARD_ERROR: Final = 2
JAVA_ENDS_S: Final = 10.0
"""How long a Java process may take to end that does not answer any more."""
OUT_OF_MEMORY: Final = 52
"""With which Spark ends Java then."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
Batch: TypeAlias = Mapping[str, Any]
"""What Spark tells of one batch."""
_OURS: Final = re.compile(r"^tandembus(?:\.\w+)+\.(\w+): (\S.*)$", re.MULTILINE)
_FILE: Final = re.compile(r"\[FAILED_READ_FILE\S*\] Encountered error while reading file (.+?)\.\s+SQLSTATE")
_ANY: Final = re.compile(r"^(?:[a-z_]\w*\.)*(\w+Error): (\S.*)$", re.MULTILINE)


class JobFailed(Exception):
    """A job on Spark ended before its time; nothing of what it was to move is lost."""


def follow(query: StreamingQuery, heard: Callable[[Batch], None]) -> None:
    """Until the query ends, or Ctrl-C or SIGTERM stops it (`KeyboardInterrupt`); each batch is told once. Raises
    `JobFailed`. However it ends, the query is over: whoever gives back what it had takes nothing out of its hands."""
    told: set[int] = set()
    with _noting_signals() as signals:
        try:
            while not query.awaitTermination(LOOK_EVERY_S):
                _tell_new(query, told, heard)
                if signals:
                    _finish_batch(query, signals)
                    raise KeyboardInterrupt
            _tell_new(query, told, heard)
        except BaseException as error:
            _end(query, told, heard)
            if isinstance(error, Exception):
                raise JobFailed(reason_of(error)) from None
            raise


def _finish_batch(query: StreamingQuery, signals: Sequence[int]) -> None:
    """The one under way may end, if it does soon and nobody asks again: what is cut off has to be done again."""
    before = query.lastProgress
    looks = 0
    while looks < FINISH_LOOKS and len(signals) == 1 and _is_under_way(query, before):
        query.awaitTermination(LOOK_EVERY_S)
        looks += 1


def _is_under_way(query: StreamingQuery, before: Batch | None) -> bool:
    return query.status["isTriggerActive"] and _number(query.lastProgress) == _number(before)


def _number(batch: Batch | None) -> int | None:
    return None if batch is None else batch["batchId"]


def spark_errors() -> tuple[type[Exception], ...]:
    """For `except`: what Spark raises, and what its Java side does; nothing, where Spark was not even loaded."""
    if "pyspark" not in sys.modules:
        return ()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def java_end(error: BaseException) -> str | None:
    """How Spark's Java process ended, if that is what an error of the bridge to it means."""
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
    """Whether Java did not answer; what it answers may be an error as well."""
    from py4j.protocol import Py4JError, Py4JJavaError

    return isinstance(error, (ConnectionError, EOFError, Py4JError)) and not isinstance(error, Py4JJavaError)


def reason_of(error: BaseException) -> str:
    """What was raised first: deep in a worker's traceback that Spark passed on as text, or in Java."""
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
    """With the file in whose midst it came up: that is told by what was raised above."""
    file = _FILE.search(str(java.getMessage()))
    while java.getCause() is not None:
        java = java.getCause()
        file = _FILE.search(str(java.getMessage())) or file
    reason = str(java.getMessage() or java.toString()).splitlines()[0]
    return reason if file is None or file[1] in reason else f"{file[1]}: {reason}"


def _tell_new(query: StreamingQuery, told: set[int], heard: Callable[[Batch], None]) -> None:
    for batch in query.recentProgress:
        if batch["batchId"] not in told and batch["numInputRows"] > 0:
            told.add(batch["batchId"])
            heard(batch)


def _end(query: StreamingQuery, told: set[int], heard: Callable[[Batch], None]) -> None:
    """Where Spark is gone, so is the query."""
    with suppress(Exception):
        query.stop()
    with suppress(Exception):
        _tell_new(query, told, heard)


def say_at_once(text: str) -> None:
    """On standard error, from within a handler of signals, which may come in the midst of any other output."""
    with suppress(OSError):
        os.write(STANDARD_ERROR, f"{text}\n".encode())


@contextmanager
def _noting_signals() -> Iterator[Sequence[int]]:
    """Noted, not raised: an exception in the midst of a call to Java breaks the connection to it, and nothing could be
    stopped any more. Python has signals in the main thread only."""
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
