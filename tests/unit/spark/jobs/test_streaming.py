"""What is told of a query that failed."""

from tandembus.spark.jobs.streaming import reason_of

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
