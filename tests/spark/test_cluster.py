"""The commands on a standalone cluster: a master and two workers of the pip-installed pyspark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.covers import covers
from tests.spark.cluster import run_tandembus, standalone_cluster


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


@covers("D6")
def test_a_command_runs_on_a_standalone_cluster_as_it_does_here(master: str, tmp_path: Path) -> None:
    part = tmp_path / "captured" / "entity=orders" / "date=2026-03-01"
    part.mkdir(parents=True)
    numbers = pa.array(range(100), pa.int64())
    table = pa.table({"fragment": pa.array([0] * 100, pa.int32()), "sequence_number": numbers})
    pyarrow.parquet.write_table(table, part / "some.parquet")
    pyarrow.parquet.write_table(table, part / "same.parquet")
    done = run_tandembus(
        *("spark", "capture", "--compact", str(tmp_path / "captured"), "--output", str(tmp_path / "compacted")),
        *("--master", master, "--conf", "spark.executor.memory=512m", "--json"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"rows": 100, "duplicates": 100, "files": 1}
