"""One Spark session for all tests of this folder: starting Java takes longer than most of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tandembus.spark import spark_session
from tandembus.testing import EmbeddedNamespace
from tests.spark.starting import quick_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_FILES = ("test_cluster", "test_batches", "test_kills", "test_memory", "test_without_java")
CONNECTION_VARIABLE = "BUS"
"""Holds the connection string of `namespace`, for the option `connectionEnv`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files are given to two processes in this order: one gets those that start Spark for themselves, the other has the
    session for the rest."""
    items.sort(
        key=lambda item: FIRST_FILES.index(item.path.stem) if item.path.stem in FIRST_FILES else len(FIRST_FILES)
    )


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, namespace: EmbeddedNamespace) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    os.environ[CONNECTION_VARIABLE] = namespace.connection_string  # Spark's processes have what is there at its start
    os.environ["SPARK_LOCAL_DIRS"] = str(folder)
    session = spark_session(
        master="local[2]",
        app_name="tests",
        **{
            **quick_settings(),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.eventLog.enabled": True,
            "spark.eventLog.compress": False,
            "spark.eventLog.dir": make_folder(folder / "events").as_uri(),
        },
    )
    yield session
    session.stop()


def make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def namespace() -> Iterator[EmbeddedNamespace]:
    """A namespace in this process, on real sockets, for the whole session: tests take entities of their own."""
    with EmbeddedNamespace() as running:
        yield running
