"""Following a streaming query to its end: what it has done so far, and why it failed, in a sentence."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

LOOK_EVERY_S: Final = 0.5
Batch: TypeAlias = Mapping[str, Any]
"""What Spark tells of one batch."""
_OURS: Final = re.compile(r"^tandembus(?:\.\w+)+\.(\w+): (\S.*)$", re.MULTILINE)
_ANY: Final = re.compile(r"^(?:[a-z_]\w*\.)*(\w+Error): (\S.*)$", re.MULTILINE)


class JobFailed(Exception):
    """A job on Spark ended before its time; nothing of what it was to move is lost."""


def follow(query: StreamingQuery, heard: Callable[[Batch], None]) -> None:
    """Until the query ends, or Ctrl-C stops it; each batch is told once. Raises `JobFailed`."""
    told: set[int] = set()
    try:
        with _stopping_on_signals():
            while not query.awaitTermination(LOOK_EVERY_S):
                _tell_new(query, told, heard)
    except KeyboardInterrupt:
        query.stop()
        _tell_last(query, told, heard)
        raise
    except Exception as error:
        _tell_last(query, told, heard)
        raise JobFailed(reason_of(error)) from None
    _tell_new(query, told, heard)


def reason_of(error: BaseException) -> str:
    """What was raised first, deep in a worker's traceback that Spark passed on as text."""
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
def _stopping_on_signals() -> Iterator[None]:
    """SIGTERM is as good as Ctrl-C, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
