"""Queries followed to their end, and what is told of those that failed."""

from __future__ import annotations

import os
import signal
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming import StreamingQuery

from tandembus.spark.jobs.streaming import FINISH_LOOKS, Batch, JobFailed, follow, reason_of

TEXT = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_RUNTIME_ERROR] \
Failed when Python streaming data source perform latestOffset: Traceback (most recent call last):
  File "worker.py", line 1, in main
    raise InvalidArgument(
{raised}
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: syphon [id = 1, runId = 2]
Current Committed Offsets: {{}}
"""


def test_the_reason_is_what_was_raised_in_the_worker() -> None:
    text = TEXT.format(raised="tandembus.errors.InvalidArgument: which entities? Give the option entities")
    assert reason_of(RuntimeError(text)) == "which entities? Give the option entities (InvalidArgument)"


def test_errors_of_python_itself_count_where_none_of_ours_was_raised() -> None:
    text = TEXT.format(raised="ConnectionRefusedError: [Errno 111] Connect call failed")
    assert reason_of(RuntimeError(text)) == "[Errno 111] Connect call failed (ConnectionRefusedError)"


def test_any_other_error_is_told_by_its_first_line() -> None:
    assert reason_of(RuntimeError("no space left\nat java...")) == "no space left"


class Raised:
    """As Java's exceptions are seen from here."""

    def __init__(self, message: str | None, cause: Raised | None = None) -> None:
        self._message = message
        self._cause = cause

    def getCause(self) -> Raised | None:  # noqa: N802
        return self._cause

    def getMessage(self) -> str | None:  # noqa: N802
        return self._message

    def toString(self) -> str:  # noqa: N802
        return "java.io.EOFException"


class RaisedInJava(Exception):
    def __init__(self, raised: Raised) -> None:
        super().__init__("An error occurred while calling o77.collect")
        self.java_exception = raised


@pytest.mark.parametrize(("message", "told"), [("not a gzip file", "not a gzip file"), (None, "java.io.EOFException")])
def test_of_a_file_that_cannot_be_read_the_name_is_told(message: str | None, told: str) -> None:
    reading = (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///meter/1.jsonl.gz.  SQLSTATE: KD001"
    )
    raised = Raised("Job aborted due to stage failure: ...", Raised(reading, Raised(message)))
    assert reason_of(RaisedInJava(raised)) == f"file:///meter/1.jsonl.gz: {told}"


class Running:
    """A query of Spark that goes on until it is stopped, or fails."""

    def __init__(self, signals: tuple[int, ...] = (), failure: Exception | None = None) -> None:
        self.batches: list[Batch] = []
        self.is_stopped = False
        self._signals = list(signals)
        self._failure = failure

    @property
    def recentProgress(self) -> list[Batch]:  # noqa: N802
        return self.batches

    @property
    def lastProgress(self) -> Batch | None:  # noqa: N802
        return self.batches[-1] if self.batches else None

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": True}

    def awaitTermination(self, _: float) -> bool:  # noqa: N802
        self.batches.append({"batchId": len(self.batches), "numInputRows": 1})
        if self._failure is not None:
            raise self._failure
        if self._signals:
            os.kill(os.getpid(), self._signals.pop(0))
        return False

    def stop(self) -> None:
        self.is_stopped = True


def followed(query: Any, told: list[Batch]) -> None:
    follow(cast(StreamingQuery, query), told.append)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_query_between_two_calls_to_java(number: int) -> None:
    query, told = Running((number,)), list[Batch]()
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        followed(query, told)
    assert query.is_stopped
    assert [batch["batchId"] for batch in told] == [0, 1], "the batch under way was not finished"
    assert signal.getsignal(number) is before


class Stuck(Running):
    """In one batch, for ever."""

    looks = 0

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        self.looks += 1
        super().awaitTermination(timeout)
        self.batches.clear()
        return False

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        super().stop()


def test_a_second_signal_cuts_the_batch_off_and_a_third_one_does_not_keep_the_query_from_being_stopped() -> None:
    query = Stuck((signal.SIGINT, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        followed(query, [])
    assert query.is_stopped
    assert query.looks == 2


def test_a_batch_that_does_not_end_is_cut_off_after_a_while() -> None:
    query = Stuck((signal.SIGTERM,))
    with pytest.raises(KeyboardInterrupt):
        followed(query, [])
    assert query.is_stopped
    assert query.looks == 1 + FINISH_LOOKS


def test_a_query_is_stopped_when_its_progress_cannot_be_told() -> None:
    def closed(_: Batch) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    query = Running()
    with pytest.raises(JobFailed, match="Broken pipe"):
        follow(cast(StreamingQuery, query), closed)
    assert query.is_stopped


class Gone(Running):
    """With Spark."""

    @property
    def recentProgress(self) -> list[Batch]:  # noqa: N802
        raise ConnectionError


def test_why_a_query_failed_is_told_though_spark_is_gone() -> None:
    with pytest.raises(JobFailed, match="no space left"):
        followed(Gone(failure=RuntimeError("no space left")), [])


def test_batches_are_told_before_the_failure() -> None:
    told: list[Batch] = []
    with pytest.raises(JobFailed):
        followed(Running(failure=RuntimeError("no space left")), told)
    assert len(told) == 1
