"""The usage job: a real failover, beside the live counters and the calculator; and damaged metering files."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient
from click.testing import CliRunner
from rich.console import Console

from demo.pipeline import run_jobs
from tandembus.cli import main
from tandembus.client.administration import Administration
from tandembus.client.meter import Counted, in_total
from tandembus.errors import InvalidArgument
from tandembus.metering.bills import PriceBook
from tandembus.metering.failover_costs import failover_bill
from tandembus.metering.paired_costs import HOUR_S, diverted, pings_accepted
from tandembus.metering.price_files import load_prices
from tandembus.metering.prices import Counting
from tandembus.pairing import EntityHealthy
from tandembus.spark.jobs.usage import UsageOptions, run_usage
from tandembus.spark.jobs.usage_files import shown_name
from tandembus.spark.jobs.usage_output import keep_result
from tandembus.spark.jobs.usage_result import SkippedLine, read_result
from tests.covers import covers
from tests.integration.pairs import Form, Pair
from tests.integration.python_sdk import LoopThread
from tests.integration.serving import RunningNamespace, start_namespace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOOK = PriceBook([load_prices()])
DIVERTED = 12
SIZE = 70_000
"""Two units of 64 KiB."""
Sums = dict[tuple[str, str], tuple[int, int, int, int]]


class Outage:
    """A primary that is killed under a paired sender, comes back, and gets everything: what its meters say then."""

    def __init__(self, folder: Path, form: Form) -> None:
        self._form = form
        self.primary = start_namespace(folder / "primary", "--name", "contoso", "--audit")
        self.secondary = start_namespace(
            folder / "secondary", "--name", "backup", "--front-ends", "2", "--brokers", "1", "--audit"
        )
        self.live: dict[str, list[Counted]] = {}

    def happen(self) -> None:
        with ServiceBusAdministrationClient.from_connection_string(
            self.primary.admin_connection_string, connection_verify=str(self.primary.ca_path)
        ) as admin:
            admin.create_queue("orders", requires_duplicate_detection=True)
        pair = Pair(
            self._form,
            self._form.client(self.primary.connection_string),
            self._form.client(self.secondary.connection_string),
            self._form.admin(self.secondary.admin_connection_string, self.secondary.ca_path),
            primary_name="contoso",
            operation_timeout=timedelta(seconds=3),
            backlog_queue_count=1,
        )
        self._send(pair)
        pair.close()
        self._bring_home()
        self._receive()
        for name, namespace in (("contoso", self.primary), ("backup", self.secondary)):
            self.live[name] = asyncio.run(self._ask(namespace))
            assert namespace.stop() == 0

    def _send(self, pair: Pair) -> None:
        sender = pair.sender("orders")
        sender.send_messages(ServiceBusMessage("before"))
        self.primary.kill()
        sent = 0
        while sent < DIVERTED:
            try:
                sender.send_messages(ServiceBusMessage(bytes(SIZE)))
            except ServiceBusError:
                continue
            sent += 1
        self.primary = start_namespace(self.primary.data, "--name", "contoso", "--audit", port=self.primary.port)
        pair.events.wait_for(EntityHealthy)

    def _bring_home(self) -> None:
        options = ["--primary", self.primary.connection_string, "--secondary", self.secondary.connection_string]
        result = CliRunner().invoke(main, ["syphon", *options, "--primary-name", "contoso", "--once"])
        assert result.exit_code == 0, result.output

    def _receive(self) -> None:
        with (
            ServiceBusClient.from_connection_string(self.primary.connection_string) as client,
            client.get_queue_receiver("orders", max_wait_time=20) as receiver,
        ):
            for _ in range(1 + DIVERTED):
                receiver.complete_message(next(receiver))

    async def _ask(self, namespace: RunningNamespace) -> list[Counted]:
        async with Administration(namespace.connection_string) as administration:
            return await in_total(administration.requests)

    def end(self) -> None:
        for each in (self.primary, self.secondary):
            if each.process.poll() is None:
                each.kill()


@pytest.fixture
def outage(tmp_path: Path) -> Iterator[Outage]:
    loop = LoopThread()
    form = Form("sync", loop)
    outage = Outage(tmp_path, form)
    try:
        outage.happen()
        yield outage
    finally:
        form.close()
        outage.end()
        loop.stop()


def sums(rows: list[Counted]) -> Sums:
    found: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        figures = {name: value for name, value in asdict(row).items() if isinstance(value, int)}
        found.setdefault((row.operation, row.reason), Counter()).update(figures)
    names = ("calls", "messages", "operations", "size_bytes")
    return {key: (each[names[0]], each[names[1]], each[names[2]], each[names[3]]) for key, each in found.items()}


@covers("D4", "N11", "N13")
def test_live_counters_job_and_calculator_agree_about_a_failover(
    spark: SparkSession, outage: Outage, tmp_path: Path
) -> None:
    result = run_usage(spark, UsageOptions((str(outage.primary.data), str(outage.secondary.data))))
    for namespace, live in outage.live.items():
        told = [
            Counted(
                each.entity, each.operation, each.reason, each.calls, each.messages, each.operations, each.size_bytes
            )
            for each in result.used
            if each.namespace == namespace
        ]
        assert sums(told) == sums(live)
    assert {gap.namespace for gap in result.gaps} == {"contoso"}
    assert (result.skipped, result.earlier) == (0, ())
    made = failover_bill(result.bill(BOOK)).use
    expected = diverted(DIVERTED, SIZE, Counting())
    assert made.diverted.charges == expected.charges
    assert made.diverted.further_operations == expected.further_operations
    assert made.diverted.normal_operations == expected.normal_operations
    assert made.pings == pings_accepted(entities=1, clients=1, outage_s=HOUR_S)
    assert made.waiting == 0
    assert sum(point.operations for point in result.points) == sum(each.operations for each in result.used)
    # What the demonstration does with its outage.
    console = Console(record=True, width=200)
    report = tmp_path / "new" / "report.html"
    assert run_jobs(spark, [outage.primary.data, outage.secondary.data], tmp_path, report, console)
    screen = console.export_text()
    counted = sum(row.operations for rows in outage.live.values() for row in rows)
    assert f"{1 + DIVERTED:,} accepted, {1 + DIVERTED:,} settled, 0 lost, 0 phantom" in screen
    assert f"{counted:,} operations" in screen
    assert "on Azure, and the base charge of " in screen
    assert str(report) in screen
    assert "Reconciliation" in report.read_text()


# Damage.


def record(second: int, **changes: object) -> str:
    names = {"namespace": "contoso", "entity": "orders", "operation": "send", "reason": "normal"}
    figures = {"calls": 1, "messages": 2, "operations": 3, "bytes": 4}
    return json.dumps({"second": second, **names, **figures, **changes}, separators=(",", ":"))


HEAD = json.dumps({"meter": {"format": 1, "namespace": "contoso", "carried": []}})
GAP = json.dumps({"gap": {"from": 5, "to": 9, "namespace": "contoso"}})
NOON = 1_794_830_400
BLOCK_BYTES = "spark.sql.files.maxPartitionBytes"
DAMAGED = [
    "no JSON at all",
    record(NOON)[:40],
    "[" + record(NOON) + "]",
    record(NOON).replace(":3", ":3.5"),
    record(NOON, operations=None),
    record(NOON, operations="3"),
    record(NOON, operations=-3),
    record(NOON, calls=10**30),
    record(NOON, entity=None),
    record(-1),
    record(10**14),
    "{}",
    '{"unheard": "of"}',
    '{"meter": {}}',
    '{"gap": {"from": 1, "to": 2}}',
    "\0\0\0\0",
    record(NOON).replace('"', "'"),
    record(NOON) + record(NOON),
]


@covers("D4")
def test_damaged_lines_are_counted_and_named_and_the_rest_is_billed(spark: SparkSession, tmp_path: Path) -> None:
    good = [record(NOON), record(NOON + 1, entity="café/é\u2028\"'\\<b>"), record(NOON + 86_400, operation="receive")]
    folder = tmp_path / "odd [names]*, 100%" / "meter"
    folder.mkdir(parents=True)
    file = folder / "00000001.jsonl"
    # The end is torn, as it is while somebody writes.
    file.write_text("\n".join([HEAD, good[0], *DAMAGED, "", good[1], GAP]) + "\n" + good[2] + "\n" + good[2][:50])
    (folder / "00000002.jsonl").write_text(HEAD + "\n" + good[0] + "\n")
    packed = folder / "00000003.jsonl.gz"
    packed.write_bytes(gzip.compress(f"{HEAD}\n{good[0]}\nno JSON\n".encode()))
    spark.conf.set(BLOCK_BYTES, 500)  # as large files are read
    try:
        result = run_usage(spark, UsageOptions((str(folder.parent), str(folder), str(file))))
    finally:
        spark.conf.unset(BLOCK_BYTES)
    assert (result.files, result.records, result.period) == (3, 5, (NOON, NOON + 86_400))
    assert sum(each.operations for each in result.used) == 15
    assert {each.entity for each in result.used} == {"orders", "café/é\u2028\"'\\<b>"}
    numbers = [*range(3, 3 + len(DAMAGED)), 3 + len(DAMAGED) + 4]
    located = [number for number in numbers if number != 3 + DAMAGED.index('{"gap": {"from": 1, "to": 2}}')]
    in_packed = SkippedLine(str(packed), 3)
    assert result.skipped_lines == (*[SkippedLine(str(file), number) for number in located], in_packed)
    assert result.skipped == len(numbers) + 1
    assert result.skipped_files == ((str(file), len(numbers)), (str(packed), 1))
    assert [(gap.from_second, gap.to_second) for gap in result.gaps] == [(5, 9)]
    bill = result.bill(BOOK)
    assert [group.key for group in bill.by("day")] == [("2026-11-16",), ("2026-11-17",)]
    for output in (tmp_path / "kept", tmp_path / "kept", f"file:{tmp_path}/by-spark"):
        kept = keep_result(spark, result, bill, str(output))
        assert read_result(Path(shown_name(kept))) == result
    for name in ("kept", "by-spark"):
        rows = spark.read.parquet((tmp_path / name / "lines").as_uri()).collect()
        assert sum(row["cost"] for row in rows) == bill.operations_cost
        assert len(rows) == len(bill.lines)


def test_sums_that_no_meter_can_have_are_refused_and_do_not_wrap_around(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "00000001.jsonl"
    file.write_text((record(NOON, bytes=10**15) + "\n") * 9_300)
    with pytest.raises(InvalidArgument, match="add up to more than"):
        run_usage(spark, UsageOptions((str(file),)))


def test_a_place_without_metering_files_is_told(spark: SparkSession, tmp_path: Path) -> None:
    for path in (str(tmp_path), f"file:{tmp_path}/nowhere"):
        with pytest.raises(InvalidArgument, match=r"no metering files.*give a namespace's data folder"):
            run_usage(spark, UsageOptions((path,)))
    for address in ("nosuchscheme://host/meter", "file://host/meter", "hdfs:meter", "s3a://"):
        with pytest.raises(InvalidArgument, match="cannot be read"):
            run_usage(spark, UsageOptions((address,)))


def test_what_spark_refuses_midway_is_told_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    """An archive that is none, and a place that cannot be written to."""
    file = tmp_path / "00000001.jsonl.gz"
    file.write_bytes(b"no archive at all")
    damaged = CliRunner().invoke(main, ["spark", "usage", str(file), "--json"])
    file.write_bytes(gzip.compress(record(NOON).encode()))
    unwritable = CliRunner().invoke(main, ["spark", "usage", str(file), "--output", "nosuchscheme://bill", "--json"])
    for result in (damaged, unwritable):
        assert result.exit_code == 1
        told = json.loads(result.stderr.splitlines()[-1])["error"]
        assert told["kind"] == "SparkFailed"
        assert "Can Spark read and write" in told["advice"]
    assert "00000001.jsonl.gz: not a gzip file" in damaged.stderr
