"""Messages captured to Parquet, and compacted."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset
import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.cli.failures import TRY_LATER
from tandembus.client import OutgoingMessage
from tandembus.errors import InvalidArgument
from tandembus.spark.jobs import capture
from tandembus.spark.jobs.capture import OWNER, SINK_LOG, CaptureOptions, CaptureResult, run_capture
from tandembus.spark.jobs.compaction import run_compaction
from tandembus.spark.jobs.streaming import JobFailed, reason_of, spark_errors
from tandembus.spark.source.offsets import newest
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.integration.syphons import numbered, send_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPTURED = "entity string, fragment int, sequence_number long, enqueued_time timestamp, body binary, date date"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIRST, SECOND = date(2026, 3, 1), date(2026, 3, 2)


def write_captured(spark: SparkSession, rows: list[tuple[str, int, int, datetime, bytes, date]], path: Path) -> None:
    frame = spark.createDataFrame(rows, CAPTURED).repartition(3)
    frame.write.mode("append").partitionBy("entity", "date").parquet(str(path))


@covers("D3")
def test_compaction_leaves_each_message_once_in_few_files_and_can_be_repeated(
    spark: SparkSession, tmp_path: Path
) -> None:
    captured, compacted = tmp_path / "captured", tmp_path / "compacted"
    rows = [("events/subscriptions/all", 0, number, NOON, b"x", FIRST) for number in range(19)]
    # Of a subscription that was made anew, and counts from 1 again.
    rows.append(("events/subscriptions/all", 0, 1, NOON + timedelta(hours=1), b"z", FIRST))
    write_captured(spark, rows, captured)
    write_captured(spark, [*rows[:5], ("007", 1, 30, NOON, b"y", SECOND)], captured)
    first = run_compaction(spark, str(captured), str(compacted))
    assert (first.rows, first.duplicates, first.files) == (21, 5, 2)
    assert run_compaction(spark, str(captured), str(compacted)) == first
    plain = pyarrow.dataset.dataset(compacted, partitioning="hive").to_table().to_pylist()
    assert len(plain) == 21
    assert len({row["sequence_number"] for row in plain}) == 20
    assert (compacted / "entity=007").is_dir()


@covers("D3")
def test_compaction_refuses_what_is_no_capture(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="there is nothing at"):
        run_compaction(spark, str(tmp_path / "missing"), str(tmp_path / "out"))
    spark.range(3).write.parquet(str(tmp_path / "numbers"))
    with pytest.raises(InvalidArgument, match="no date, enqueued_time, entity, fragment, sequence_number"):
        run_compaction(spark, str(tmp_path / "numbers"), str(tmp_path / "out"))
    with pytest.raises(InvalidArgument, match="a folder of its own"):
        run_compaction(spark, str(tmp_path / "numbers"), f"file://{tmp_path}/numbers/compact")
    (tmp_path / "text").mkdir()
    with pytest.raises(InvalidArgument, match="holds no captured messages: there are no Parquet files"):
        run_compaction(spark, str(tmp_path / "text"), str(tmp_path / "out"))
    (tmp_path / "text" / "file.txt").write_text("hello")
    with pytest.raises(spark_errors()) as damaged:
        run_compaction(spark, str(tmp_path / "text"), str(tmp_path / "out"))
    assert "file.txt is not a Parquet file" in reason_of(damaged.value)


@covers("D3")
def test_each_message_is_captured_in_one_row_also_after_a_restart(
    spark: SparkSession, namespace: EmbeddedNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it stopped: with files that do not count yet, with a batch that is not committed, or at its end."""
    queue = namespace.create_queue("captured")
    output, copy = str(tmp_path / "output"), tmp_path / "copy"
    checkpoint, log = Path(output) / "_checkpoint", Path(output) / SINK_LOG
    options = CaptureOptions(
        namespace.connection_string,
        "Captured",
        output,
        str(checkpoint),
        once=True,
        source_options={"maxMessages": "60"},
    )
    send_all(namespace, queue, [each.encode() for each in numbered(100)])
    with monkeypatch.context() as killed:
        killed.setattr(capture, "settle_written", lambda *_: None)
        with failing_after(log / "1"), pytest.raises(JobFailed):
            run_capture(spark, options)
    (log / "1").unlink()  # So that the files of this batch do not count.
    assert namespace.counts(queue).active == 40
    with failing_after(log / "1"), pytest.raises(JobFailed):
        run_capture(spark, options)
    assert [newest(os.listdir(each)) for each in (checkpoint / "offsets", log, checkpoint / "commits")] == [1, 1, 0]
    assert namespace.counts(queue).active == 0
    shutil.copytree(checkpoint, copy)
    send_all(namespace, queue, [each.encode() for each in numbered(20, 100)])
    assert run_capture(spark, replace(options, entity="captured")).rows == 20
    rows = spark.read.parquet(output).collect()
    assert sorted(int(row.body) for row in rows) == list(range(120))
    assert {row.entity for row in rows} == {queue}
    assert namespace.counts(queue).active == 0
    with pytest.raises(InvalidArgument, match="is older than"):
        run_capture(spark, replace(options, checkpoint=str(copy)))


@covers("D3")
def test_a_capture_that_is_stopped_released_and_started_again_repeats_nothing(
    spark: SparkSession, namespace: EmbeddedNamespace, tmp_path: Path
) -> None:
    queue, output = namespace.create_queue("stopped"), str(tmp_path)
    options = CaptureOptions(namespace.connection_string, queue, output, f"{output}/_checkpoint", every_s=3600.0)
    send_all(namespace, queue, [each.encode() for each in numbered(50)])

    def interrupt(_: CaptureResult) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_capture(spark, options, interrupt)
    assert namespace.counts(queue).active == 0
    runner = CliRunner(env={"TANDEMBUS_CONNECTION_STRING": namespace.connection_string})
    released = runner.invoke(main, ["spark", "release", queue, "--owner", OWNER])
    assert (released.exit_code, released.stdout.split()[:2]) == (0, ["released", "0"])
    send_all(namespace, queue, [each.encode() for each in numbered(10, 50)])
    run_capture(spark, replace(options, once=True))
    assert sorted(int(row.body) for row in spark.read.parquet(output).collect()) == list(range(60))


@covers("D3", "P19")
def test_a_capture_that_is_started_while_a_fragment_is_out_catches_up_later(
    spark: SparkSession, namespace: EmbeddedNamespace, tmp_path: Path
) -> None:
    queue = namespace.create_queue(f"q-{uuid.uuid4().hex}", enable_partitioning=True)
    send_all(namespace, queue, [OutgoingMessage(str(n), partition_key=f"k{n}").encode() for n in range(64)])
    runner = CliRunner(env={"TANDEMBUS_CONNECTION_STRING": namespace.connection_string})
    arguments = ["spark", "capture", queue, "--output", str(tmp_path)]
    batches = tmp_path / SINK_LOG
    has_ended = threading.Event()
    fault = namespace.inject_fault(f"fragment/{queue}/5", "unavailable")

    def wait_for(batch: str) -> None:
        while not (batches / batch).exists() and not has_ended.wait(0.1):
            pass

    def heal_and_interrupt() -> None:
        wait_for("0")
        namespace.heal(fault)
        wait_for("1")
        if not has_ended.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    refused = runner.invoke(main, [*arguments, "--once"])
    assert (refused.exit_code, "Fragment 5" in refused.output) == (TRY_LATER, True), "it needs all of them"
    with ThreadPoolExecutor() as beside:
        healed = beside.submit(heal_and_interrupt)
        result = runner.invoke(main, [*arguments, "--every", "1"])
        has_ended.set()
        healed.result()
    assert (result.exit_code, "captured 64 messages; start it again" in result.output) == (0, True), result.output
    told = re.findall(r"captured (\d+) messages of '[^']*' so far", " ".join(result.output.split()))
    assert int(told[0]) < int(told[-1]) == 64, "it has what it could reach before the fragment was back"
    assert sorted(int(row.body) for row in spark.read.parquet(str(tmp_path)).collect()) == list(range(64))


@contextmanager
def failing_after(path: Path) -> Iterator[None]:
    """The file is written, and what Spark does next fails: its checksum has no place."""
    place = path.with_name(f".{path.name}.crc")
    (place / "taken").mkdir(parents=True)
    try:
        yield
    finally:
        shutil.rmtree(place)
