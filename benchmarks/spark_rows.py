"""Spark against the broker: rows per second in and out, and the syphon as a job against the program.

    python -m benchmarks.spark_rows            # 10,000 and 100,000 messages; --big adds a million, --quick takes few

Beside each figure stand what Spark does with the same rows from memory, which is as fast as it can be, and what the
plain SDK does. A stream's rate is that of its batches, planning, reading and settling; what its start takes is told
beside it. Leaves a table in `results/`.
"""

import asyncio
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from pyspark.sql import DataFrame, SparkSession

from benchmarks.processes import anonymous_memory_bytes, family_of, processor_s
from benchmarks.report import RESULTS, commit, describe_machine
from benchmarks.spark_memory import MemorySource
from benchmarks.tandembus_node import COMMAND, Tandembus
from tandembus.client import OutgoingMessage, connect
from tandembus.pairing.aliases import backlog_path
from tandembus.pairing.payloads import to_backlog
from tandembus.spark import spark_session
from tandembus.spark.jobs.syphon import SyphonOptions, run_syphon
from tandembus.spark.jobs.syphon_task import Pair

BODY = b"x" * 1024
PRIMARY_NAME = "contoso"
HOME = "home"
BACKLOGS = 10
MEGABYTE = 1_000_000
SDK_SHARE = 20
"""The SDK gets so many times fewer messages, or it would never end."""
AZURE_SHARE = 10
WARM_UP = 2_000
TARGETS = {
    "source, native, stream": 100_000.0,
    "source, native, partitioned stream": 100_000.0,
    "sink, native": 50_000.0,
}


@dataclass
class Table:
    rates: dict[str, float] = field(default_factory=dict)
    syphon: list[dict[str, float]] = field(default_factory=list)
    memory: dict[str, float] = field(default_factory=dict)
    stream_starts: list[float] = field(default_factory=list)
    processor_us: dict[str, dict[str, float]] = field(default_factory=dict)
    """Processor time of a row, by row of the table and by whose it is."""

    def rate(self, row: str, count: int, seconds: float) -> None:
        self.rates[row] = count / seconds
        click.echo(f"{row}: {count / seconds:,.0f} rows/s")


class Workers:
    """The most memory that one of Spark's Python workers had, looked at ten times a second."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "Workers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(0.1):
            try:
                family = family_of(os.getpid())
            except OSError:
                continue  # One of them has ended just now.
            self.peak_bytes = max(self.peak_bytes, *map(_worker_bytes, family))


def _worker_bytes(pid: int) -> int:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return anonymous_memory_bytes(pid) if b"pyspark" in command and b"java" not in command.split(b"\0")[0] else 0
    except (OSError, RuntimeError):
        return 0


def timed(work: Callable[[], object]) -> float:
    began_at = time.monotonic()
    work()
    return time.monotonic() - began_at


def measure_source(spark: SparkSession, node: Tandembus, count: int, table: Table, folder: Path) -> None:
    """The queue is empty before and after."""
    asyncio.run(_fill(node, "source", count))
    rows = memory_rows(spark, count)
    table.rate("source, from memory", count, timed(lambda: _drop(rows)))
    for backend in ("native", "azure"):
        frame = _reader(spark, node, backend).option("entities", "source").load()
        table.rate(f"source, {backend}, batch", count, timed(lambda frame=frame: _drop(frame)))  # type: ignore[misc]
    table.rate("plain SDK, peek", count // SDK_SHARE, asyncio.run(_peek_with_sdk(node, count // SDK_SHARE)))
    few = count // AZURE_SHARE
    asyncio.run(_fill(node, "deferred", few))
    table.rate("source, azure, stream", few, _stream(spark, node, "azure", "deferred", folder, 64 << 20)[1])
    _measure_stream(spark, node, count, table, folder, "source", "source, native, stream", 256 << 20)
    asyncio.run(_fill(node, "partitioned", count))
    _measure_stream(spark, node, count, table, folder, "partitioned", "source, native, partitioned stream", 256 << 20)
    asyncio.run(_fill(node, "source", count))
    row = "source, native, stream in batches of 16 MiB"
    _measure_stream(spark, node, count, table, folder / "small", "source", row, 16 << 20)
    asyncio.run(_fill(node, "source", count // SDK_SHARE))
    seconds = asyncio.run(_receive_with_sdk(node, count // SDK_SHARE))
    table.rate("plain SDK, receive and complete", count // SDK_SHARE, seconds)


def _measure_stream(
    spark: SparkSession, node: Tandembus, count: int, table: Table, folder: Path, queue: str, row: str, max_bytes: int
) -> None:
    before = _spent(node)
    with Workers() as workers:
        seconds, batches_s = _stream(spark, node, "native", queue, folder, max_bytes)
    table.processor_us[row] = {part: (spent - before[part]) / count * 1e6 for part, spent in _spent(node).items()}
    table.rate(row, count, batches_s)
    table.stream_starts.append(seconds - batches_s)
    table.memory[f"largest Python worker, {row}"] = workers.peak_bytes / MEGABYTE


def _spent(node: Tandembus) -> dict[str, float]:
    """Processor time so far, by whose it is."""
    spent = {"namespace": node.processor_s(), "Java": 0.0, "Python workers": 0.0}
    for one in family_of(os.getpid()):
        with suppress(OSError):  # a worker that has ended just now counts in the process that started it
            command = Path(f"/proc/{one}/cmdline").read_bytes()
            if b"java" in command.split(b"\0")[0]:
                spent["Java"] += processor_s(one)
            elif b"pyspark" in command:
                spent["Python workers"] += processor_s(one, with_ended=True)
    return spent


def measure_sink(spark: SparkSession, node: Tandembus, count: int, table: Table) -> None:
    rows = memory_rows(spark, count).select("message_id", "body")
    table.rate("sink, from memory", count, timed(lambda: rows.write.format("memory-rows").mode("append").save()))
    for backend in ("native", "azure"):
        writer = rows.write.format("servicebus").option("connection", node.connection_string)
        writer = writer.option("backend", backend).option("entity", f"sink-{backend}").mode("append")
        table.rate(f"sink, {backend}", count, timed(writer.save))
    table.rate("plain SDK, send", count // SDK_SHARE, asyncio.run(_send_with_sdk(node, count // SDK_SHARE)))


def measure_syphon(
    spark: SparkSession, primary: Tandembus, secondary: Tandembus, counts: list[int], table: Table, folder: Path
) -> None:
    queues = [backlog_path(PRIMARY_NAME, index) for index in range(BACKLOGS)]
    pair = Pair(primary.connection_string, secondary.connection_string)
    for count in counts:
        asyncio.run(_fill_backlog(secondary, queues, count))
        program_s = timed(partial(_run_program, primary, secondary, count))
        primary.run("queue", "purge", HOME, "--yes")
        asyncio.run(_fill_backlog(secondary, queues, count))
        options = SyphonOptions(pair, PRIMARY_NAME, tuple(queues), str(folder / f"syphon-{count}"), once=True)
        with Workers() as workers:
            spark_s = timed(partial(_run_job, spark, options, count))
        primary.run("queue", "purge", HOME, "--yes")
        table.syphon.append({"messages": count, "program_s": program_s, "spark_s": spark_s})
        table.memory[f"largest Python worker of the syphon, {count:,} messages"] = workers.peak_bytes / MEGABYTE
        click.echo(f"syphon, {count:,} messages: program {program_s:.1f} s, Spark {spark_s:.1f} s")


def crossing(points: list[dict[str, float]], start_s: float) -> str:
    """Where both take as long, by the straight lines through the last two points."""
    if len(points) < 2:
        return "too few points to tell"
    (one, two) = points[-2:]
    more = two["messages"] - one["messages"]
    slopes = {kind: (two[kind] - one[kind]) / more for kind in ("program_s", "spark_s")}
    told = f"of each further million, {slopes['program_s'] * 1e6:.0f} s and {slopes['spark_s'] * 1e6:.0f} s"
    if slopes["spark_s"] >= slopes["program_s"]:
        return f"none: the program is faster per message, too, on this machine ({told})"
    ahead_s = two["spark_s"] + start_s - two["program_s"]
    at = two["messages"] + ahead_s / (slopes["program_s"] - slopes["spark_s"])
    return f"about {max(at, 0.0):,.0f} messages, the start of Spark included ({told})"


def _reader(spark: SparkSession, node: Tandembus, backend: str) -> Any:
    reader = spark.read.format("servicebus").option("connection", node.connection_string)
    return reader.option("backend", backend)


def _drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def memory_rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.read.format("memory-rows").option("rows", str(count)).load()


def _stream(
    spark: SparkSession, node: Tandembus, backend: str, queue: str, folder: Path, max_bytes: int
) -> tuple[float, float]:
    """Seconds in all, and of its batches."""
    reader = spark.readStream.format("servicebus").option("connection", node.connection_string)
    reader = reader.option("backend", backend).option("entities", queue).option("owner", "bench")
    frame = reader.option("maxMessages", "100000").option("maxBytes", str(max_bytes)).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / f"{backend}-{queue}"))
    began_at = time.monotonic()
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches_ms = sum(batch.durationMs["triggerExecution"] for batch in query.recentProgress)
    return time.monotonic() - began_at, batches_ms / 1000


def _run_program(primary: Tandembus, secondary: Tandembus, count: int) -> None:
    command = [
        *COMMAND,
        "syphon",
        "--once",
        "--json",
        "--primary-name",
        PRIMARY_NAME,
        "--backlog-queues",
        str(BACKLOGS),
    ]
    command += ["--primary", primary.connection_string, "--secondary", secondary.connection_string]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _check(json.loads(done.stdout)["moved"], count)


def _run_job(spark: SparkSession, options: SyphonOptions, count: int) -> None:
    _check(run_syphon(spark, options).moved, count)


def _check(moved: int, count: int) -> None:
    if moved != count:
        raise RuntimeError(f"the syphon moved {moved} of {count} messages")


async def _fill(node: Tandembus, queue: str, count: int) -> None:
    async with await connect(node.connection_string) as bus:
        payloads = (OutgoingMessage(BODY, message_id=str(number)).encode() for number in range(count))
        await (await bus.sender(queue)).send_batches(payloads, 200, window=4)


async def _fill_backlog(secondary: Tandembus, queues: list[str], count: int) -> None:
    async with await connect(secondary.connection_string) as bus:
        for queue in queues:
            payloads = (to_backlog(OutgoingMessage(BODY).encode(), HOME) for _ in range(count // len(queues)))
            await (await bus.sender(queue)).send_batches(payloads, 200, window=4)


async def _peek_with_sdk(node: Tandembus, count: int) -> float:
    async with (
        ServiceBusClient.from_connection_string(node.connection_string) as client,
        client.get_queue_receiver("source") as receiver,
    ):
        began_at = time.monotonic()
        seen, following = 0, 1
        while seen < count:
            messages = await receiver.peek_messages(250, sequence_number=following)
            seen += len(messages)
            following = (messages[-1].sequence_number or 0) + 1
        return time.monotonic() - began_at


async def _receive_with_sdk(node: Tandembus, count: int) -> float:
    async with (
        ServiceBusClient.from_connection_string(node.connection_string) as client,
        client.get_queue_receiver("source") as receiver,
    ):
        began_at = time.monotonic()
        seen = 0
        while seen < count:
            messages = await receiver.receive_messages(100, max_wait_time=5)
            for message in messages:
                await receiver.complete_message(message)
            seen += len(messages)
        return time.monotonic() - began_at


async def _send_with_sdk(node: Tandembus, count: int) -> float:
    async with (
        ServiceBusClient.from_connection_string(node.connection_string) as client,
        client.get_queue_sender("sink-sdk") as sender,
    ):
        began_at = time.monotonic()
        for _ in range(count // 100):
            await sender.send_messages([ServiceBusMessage(BODY) for _ in range(100)])
        return time.monotonic() - began_at


def as_text(table: Table, start_s: float) -> str:
    lines = ["# Spark against the broker", "", "Messages of 1 KiB, broker and Spark on the same machine.", ""]
    lines += ["| what | rows/s | target | met |", "|---|---|---|---|"]
    for row, rate in table.rates.items():
        target = TARGETS.get(row)
        met = "" if target is None else "yes" if rate >= target else "no"
        lines.append(f"| {row} | {rate:,.0f} | {'' if target is None else f'>= {target:,.0f}'} | {met} |")
    starts = ", ".join(f"{one:.1f}" for one in table.stream_starts)
    lines += ["", f"The streams took {starts} s besides their batches, to start and to end.", ""]
    lines += ["## Processor time of a row, in microseconds", ""]
    for row, parts in table.processor_us.items():
        lines.append(f"- {row}: " + ", ".join(f"{part} {spent:.1f}" for part, spent in parts.items()))
    lines += ["", "## Syphon", "", f"Start of Spark: {start_s:.1f} s, not in its figures below.", ""]
    lines += ["| messages | program, s | Spark, s |", "|---|---|---|"]
    lines += [f"| {one['messages']:,} | {one['program_s']:.1f} | {one['spark_s']:.1f} |" for one in table.syphon]
    lines += ["", f"Crossing point: {crossing(table.syphon, start_s)}.", "", "## Memory", ""]
    lines += [f"- {what}: {megabytes:,.0f} MB" for what, megabytes in table.memory.items()]
    lines += ["", "## Machine", "", *[f"- {name}: {value}" for name, value in describe_machine().items()], ""]
    return "\n".join(lines)


def namespaces(folder: Path) -> Iterator[Tandembus]:
    for name in ("primary", "secondary"):
        node = Tandembus(folder / name)
        node.start()
        yield node


@click.command()
@click.option("--messages", default=300_000, show_default=True, help="Rows of the source and the sink.")
@click.option("--big", is_flag=True, help="The syphon with a million messages, too.")
@click.option("--syphon-only", is_flag=True, help="Neither the source nor the sink.")
@click.option("--quick", is_flag=True, help="Few messages: shows that it works, not how fast; writes no result.")
def main(messages: int, big: bool, syphon_only: bool, quick: bool) -> None:
    """Measure Spark's source, sink and syphon."""
    counts = [1_000, 2_000] if quick else [10_000, 100_000, *([1_000_000] if big else [])]
    messages = 2_000 if quick else messages
    table = Table()
    with tempfile.TemporaryDirectory(prefix="tandembus-bench-") as name:
        folder = Path(name)
        primary, secondary = namespaces(folder)
        began_at = time.monotonic()
        spark = spark_session(app_name="benchmark")
        start_s = time.monotonic() - began_at
        try:
            spark.dataSource.register(MemorySource)
            for queue in ("source", "deferred", "sink-native", "sink-azure", "sink-sdk", HOME):
                primary.create_queue(queue)
            primary.run("queue", "create", "partitioned", "--enable-partitioning")
            for index in range(BACKLOGS):
                secondary.create_queue(backlog_path(PRIMARY_NAME, index))
            click.echo("warming up: the first jobs load what all need")
            if not syphon_only:
                measure_source(spark, primary, WARM_UP, Table(), folder / "first")
                measure_sink(spark, primary, WARM_UP, Table())
            measure_syphon(spark, primary, secondary, [WARM_UP], Table(), folder / "first")
            click.echo("measuring")
            if not syphon_only:
                measure_source(spark, primary, messages, table, folder)
                measure_sink(spark, primary, messages, table)
            measure_syphon(spark, primary, secondary, counts, table, folder)
        finally:
            spark.stop()
            primary.stop()
            secondary.stop()
    text = as_text(table, start_s)
    click.echo(text)
    if not quick:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{commit()}-spark"
        path.with_suffix(".md").write_text(text)
        facts = {**asdict(table), "start_s": start_s}
        path.with_suffix(".json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
