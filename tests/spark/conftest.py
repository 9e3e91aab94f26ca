"""One Spark session for all tests of this folder: starting Java takes longer than most of them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tandembus.spark import spark_session
from tandembus.spark.java import ensure_java
from tandembus.testing import EmbeddedNamespace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CACHE = Path(__file__).parent.parent.parent / ".build" / "spark"
CONNECTION_VARIABLE = "BUS"
"""Holds the connection string of `namespace`, for the option `connectionEnv`."""
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def class_archive_option() -> str:
    """Java's classes as they are in memory, kept from one run to the next: a session then starts in half the time.

    The first run leaves the archive behind when its Java ends. A damaged one is ignored by Java.
    """
    import pyspark

    version = subprocess.run([str(ensure_java()), "-version"], capture_output=True, check=True).stderr
    key = hashlib.sha256(version + pyspark.__version__.encode()).hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    archive = CACHE / f"classes-{key}.jsa"
    return f"-XX:SharedArchiveFile={archive}" if archive.exists() else f"-XX:ArchiveClassesAtExit={archive}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, namespace: EmbeddedNamespace) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    os.environ[CONNECTION_VARIABLE] = namespace.connection_string  # Spark's processes have what is there at its start
    os.environ["SPARK_LOCAL_DIRS"] = str(folder)
    session = spark_session(
        master="local[2]",
        app_name="tests",
        **{
            "spark.sql.shuffle.partitions": 1,
            "spark.sql.adaptive.enabled": False,
            "spark.driver.extraJavaOptions": f"{QUICK} {class_archive_option()} -Xshare:auto -Xlog:disable",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def namespace() -> Iterator[EmbeddedNamespace]:
    """A namespace in this process, on real sockets, for the whole session: tests take entities of their own."""
    with EmbeddedNamespace() as running:
        yield running
