"""The commands on a standalone cluster: a master and two workers of the pip-installed pyspark."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset
import pytest

from tandembus.pairing.aliases import backlog_path
from tandembus.pairing.payloads import to_backlog
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.integration.syphons import bodies, everything_in, numbered, send_all, wait_until
from tests.spark.cluster import standalone_cluster, started_commands

QUEUES = [backlog_path("contoso", index) for index in range(2)]
COUNT = 3_000
PATIENCE_S = 130.0


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


@pytest.fixture
def secondary() -> Iterator[EmbeddedNamespace]:
    with EmbeddedNamespace(name="secondary") as running:
        yield running


@pytest.fixture
def primary() -> Iterator[EmbeddedNamespace]:
    with EmbeddedNamespace(name="contoso") as running:
        yield running


@covers("D2", "D3", "D6")
@pytest.mark.timeout(290)
def test_jobs_run_on_a_standalone_cluster_and_survive_a_kill_of_their_driver(
    master: str, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, tmp_path: Path
) -> None:
    primary.create_queue("orders")
    send_all(primary, primary.create_queue("events"), [each.encode() for each in numbered(200)])
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
    capture = ["spark", "capture", "events", "--output", str(captured), "--once", "--json"]
    syphon = ["spark", "syphon", "--checkpoint", str(tmp_path / "checkpoint"), "--once", "--json"]
    with started_commands([capture, syphon], secrets, log) as driver:
        wait_until(lambda: primary.counts("orders").active > 0 or driver.poll() is not None, patience_s=PATIENCE_S)
        assert driver.poll() is None, log.read_text()
        os.killpg(driver.pid, signal.SIGKILL)
    rows = pyarrow.dataset.dataset(captured, partitioning="hive").to_table(["body"]).to_pylist()
    assert sorted(int(row["body"]) for row in rows) == list(range(200))
    assert primary.counts("events").active == 0
    with started_commands([syphon], secrets, log) as driver:
        assert driver.wait(PATIENCE_S) == 0, log.read_text()
    assert sum(secondary.counts(queue).active for queue in QUEUES) == 0
    # What was under way at the kill may have come twice: the first arrivals are in order, and none is missing.
    first_arrivals = list(dict.fromkeys(bodies(everything_in(primary, "orders"))))
    for index in range(len(QUEUES)):
        of_queue = [number for number in first_arrivals if number // COUNT == index]
        assert of_queue == list(range(index * COUNT, (index + 1) * COUNT))
