"""The commands on a standalone cluster: a master and two workers of the pip-installed pyspark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow.dataset
import pytest

from tandembus.errors import EntityNotFound
from tandembus.pairing.aliases import backlog_path
from tandembus.pairing.payloads import to_backlog
from tandembus.spark.jobs.usage_result import read_result
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.integration.syphons import bodies, everything_in, numbered, send_all, wait_until
from tests.spark.audit_writing import WrittenAudit
from tests.spark.cluster import standalone_cluster, started_commands

QUEUES = [backlog_path("contoso", index) for index in range(2)]
CAPTURED = "events/subscriptions/capture"
COUNT = 3_000
PATIENCE_S = 130.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the workers and executors write."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def master(folder: Path) -> Iterator[str]:
    with standalone_cluster(folder) as address:
        yield address


@pytest.fixture
def secondary() -> Iterator[EmbeddedNamespace]:
    with EmbeddedNamespace(name="secondary") as running:
        yield running


@pytest.fixture
def primary() -> Iterator[EmbeddedNamespace]:
    with EmbeddedNamespace(name="contoso") as running:
        yield running


@covers("D1", "D2", "D3", "D6")
@pytest.mark.timeout(290)
def test_jobs_run_on_a_standalone_cluster_and_survive_a_kill_of_their_driver(
    master: str, folder: Path, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, tmp_path: Path
) -> None:
    primary.create_queue("orders")
    primary.create_topic("events")
    for index, queue in enumerate(QUEUES):
        secondary.create_queue(queue)
        send_all(secondary, queue, [to_backlog(each.encode(), "orders") for each in numbered(COUNT, index * COUNT)])
    secrets = {
        "TANDEMBUS_PRIMARY": primary.connection_string,
        "TANDEMBUS_SECONDARY": secondary.connection_string,
        "TANDEMBUS_CONNECTION_STRING": primary.connection_string,
        "TANDEMBUS_SPARK_MASTER": master,
    }
    captured, log = tmp_path / "captured", tmp_path / "driver.log"
    capture = ["spark", "capture", "--topic", "events", "--create-subscription", "--every", "1s"]
    capture += ["--output", captured.as_uri(), "--json"]
    syphon = ["spark", "syphon", "--checkpoint", (tmp_path / "checkpoint").as_uri(), "--json"]
    with started_commands([capture, [*syphon, "--once"]], secrets, log) as driver:
        wait_for(lambda: is_there(primary, CAPTURED), driver, log)
        send_all(primary, "events", [each.encode() for each in numbered(200)])
        wait_for(lambda: captured.exists() and primary.counts(CAPTURED).active == 0, driver, log)
        os.killpg(driver.pid, signal.SIGINT)  # As Ctrl-C: the capture ends, and the next command begins.
        wait_for(lambda: primary.counts("orders").active > 0, driver, log)
        os.killpg(driver.pid, signal.SIGKILL)
    assert json.loads(log.read_text().splitlines()[-1])["rows"] == 200, log.read_text()
    rows = pyarrow.dataset.dataset(captured, partitioning="hive").to_table(["body"]).to_pylist()
    assert sorted(int(row["body"]) for row in rows) == list(range(200))
    with started_commands([[*syphon, *logging_events(tmp_path / "events")]], secrets, log) as driver:
        wait_for(lambda: sum(secondary.counts(queue).active for queue in QUEUES) == 0, driver, log)
        lines = command_lines()
        os.killpg(driver.pid, signal.SIGINT)
        assert driver.wait(PATIENCE_S) == 0, log.read_text()
    told = json.loads(log.read_text().splitlines()[-1])
    assert (told["left"], told["dead_lettered"]) == (0, 0)
    written = [file.read_bytes() for place in (tmp_path, folder) for file in place.rglob("*") if file.is_file()]
    assert any(b"SparkListenerApplicationStart" in text for text in written)
    assert any(b"CoarseGrainedExecutorBackend" in text for text in (*lines, *written))
    for key in (key_of(primary), key_of(secondary)):
        assert not any(key in text for text in (*lines, *written))
    # What was in hand at the kill may come later than others, or twice; none is missing.
    assert sorted(set(bodies(everything_in(primary, "orders")))) == list(range(len(QUEUES) * COUNT))


@covers("D4", "D5", "D6")
@pytest.mark.timeout(290)
def test_jobs_that_read_files_leave_their_results_on_the_machine_of_the_command(master: str, tmp_path: Path) -> None:
    audit = WrittenAudit(tmp_path / "audit")
    audit.leave("orders", *audit.take("orders", "m1"))
    audit.stop()
    (tmp_path / "meter").mkdir()
    names = {"second": 1_794_830_400, "namespace": "contoso", "entity": "orders", "operation": "send"}
    figures = {"reason": "normal", "calls": 1, "messages": 1, "operations": 1, "bytes": 100}
    (tmp_path / "meter" / "00000001.jsonl").write_text(json.dumps({**names, **figures}) + "\n")
    bill, report, log = tmp_path / "bill", tmp_path / "report.html", tmp_path / "driver.log"
    few_parts = ["--conf", "spark.sql.shuffle.partitions=1", "--json"]
    commands = [
        ["spark", "usage", f"file://{tmp_path}/meter", "--output", str(bill), *few_parts],
        ["spark", "reconcile", f"file://{tmp_path}/audit", *few_parts],
        ["spark", "report", "--usage", str(bill), "--output", str(report), "--json"],
    ]
    with started_commands(commands, {"TANDEMBUS_SPARK_MASTER": master}, log) as driver:
        assert driver.wait(2 * PATIENCE_S) == 0, log.read_text()
    assert pyarrow.dataset.dataset(bill / "lines").count_rows() == read_result(bill).records == 1
    assert report.read_text().startswith("<!DOCTYPE html>")


def logging_events(folder: Path) -> list[str]:
    folder.mkdir()
    settings = {"enabled": "true", "compress": "false", "dir": f"file:{folder}"}
    return [part for name, value in settings.items() for part in ("--conf", f"spark.eventLog.{name}={value}")]


def key_of(namespace: EmbeddedNamespace) -> bytes:
    return namespace.connection_string.partition("SharedAccessKey=")[2].partition(";")[0].encode()


def command_lines() -> list[bytes]:
    """Of all processes on this machine."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found.append((process / "cmdline").read_bytes())
    return found


def is_there(namespace: EmbeddedNamespace, path: str) -> bool:
    try:
        namespace.counts(path)
    except EntityNotFound:
        return False
    return True


def wait_for(condition: Callable[[], bool], driver: subprocess.Popen[bytes], log: Path) -> None:
    wait_until(lambda: condition() or driver.poll() is not None, patience_s=PATIENCE_S)
    assert driver.poll() is None, log.read_text()
