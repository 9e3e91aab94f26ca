"""Following a streaming query to its end: what it has done so far, and why it failed, in a sentence."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

LOOK_EVERY_S: Final = 0.5
FINISH_LOOKS: Final = 20
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
Batch: TypeAlias = Mapping[str, Any]
"""What Spark tells of one batch."""
_OURS: Final = re.compile(r"^tandembus(?:\.\w+)+\.(\w+): (\S.*)$", re.MULTILINE)
_ANY: Final = re.compile(r"^(?:[a-z_]\w*\.)*(\w+Error): (\S.*)$", re.MULTILINE)


class JobFailed(Exception):
    """A job on Spark ended before its time; nothing of what it was to move is lost."""


def follow(query: StreamingQuery, heard: Callable[[Batch], None]) -> None:
    """Until the query ends, or Ctrl-C or SIGTERM stops it (`KeyboardInterrupt`); each batch is told once. Raises
    `JobFailed`."""
    told: set[int] = set()
    try:
        with _noting_signals() as is_asked_to_stop:
            while not query.awaitTermination(LOOK_EVERY_S):
                _tell_new(query, told, heard)
                if is_asked_to_stop():
                    _finish_batch(query)
                    query.stop()
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        _tell_last(query, told, heard)
        raise
    except Exception as error:
        _tell_last(query, told, heard)
        raise JobFailed(reason_of(error)) from None
    _tell_new(query, told, heard)


def _finish_batch(query: StreamingQuery) -> None:
    """The one under way may end, if it does soon: what is cut off has to be done again."""
    before = query.lastProgress
    looks = 0
    while looks < FINISH_LOOKS and query.status["isTriggerActive"] and _number(query.lastProgress) == _number(before):
        query.awaitTermination(LOOK_EVERY_S)
        looks += 1


def _number(batch: Batch | None) -> int | None:
    return None if batch is None else batch["batchId"]


def spark_errors() -> tuple[type[Exception], ...]:
    """For `except`: what Spark raises, and what its Java side does; nothing, where Spark was not even loaded."""
    if "pyspark" not in sys.modules:
        return ()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def reason_of(error: BaseException) -> str:
    """What was raised first: deep in a worker's traceback that Spark passed on as text, or in Java."""
    java = getattr(error, "java_exception", None)
    if java is not None:
        while java.getCause() is not None:
            java = java.getCause()
        return str(java.getMessage() or java.toString()).splitlines()[0]
    text = str(error)
    raised = _OURS.findall(text) or _ANY.findall(text)
    if raised:
        kind, message = raised[-1]
        return f"{message} ({kind})"
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def _tell_new(query: StreamingQuery, told: set[int], heard: Callable[[Batch], None]) -> None:
    for batch in query.recentProgress:
        if batch["batchId"] not in told and batch["numInputRows"] > 0:
            told.add(batch["batchId"])
            heard(batch)


def _tell_last(query: StreamingQuery, told: set[int], heard: Callable[[Batch], None]) -> None:
    """Of a query that is over: where Spark is gone, too, that is no more than a pity."""
    with suppress(Exception):
        _tell_new(query, told, heard)


@contextmanager
def _noting_signals() -> Iterator[Callable[[], bool]]:
    """Noted, not raised: an exception in the midst of a call to Java breaks the connection to it. The second one is
    obeyed at once. Python has signals in the main thread only."""
    asked: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        asked.append(number)
        if len(asked) > 1:
            raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, note) for number in (SIGNALS if is_main else ())}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
