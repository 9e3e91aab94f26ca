"""Readers and writers without Spark, against a real namespace on real sockets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from tandembus.testing import EmbeddedNamespace
from tests.unit.spark.stage import Stage


@pytest.fixture(scope="module")
def namespace() -> Iterator[EmbeddedNamespace]:
    with EmbeddedNamespace() as running:
        yield running


@pytest.fixture(scope="module")
def plain_namespace() -> Iterator[EmbeddedNamespace]:
    """One that offers what every Service Bus does, and no more."""
    with EmbeddedNamespace(reservations=False) as running:
        yield running


@pytest.fixture
def stage(namespace: EmbeddedNamespace) -> Stage:
    """Entities of the test's own, and the ways to fill and to look at them."""
    return Stage(namespace, f"q-{uuid.uuid4().hex[:12]}")
