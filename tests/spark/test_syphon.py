"""The syphon on Spark, on Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tandembus.client import OutgoingMessage
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.pairing.aliases import backlog_path
from tandembus.pairing.payloads import to_backlog
from tandembus.spark.jobs.streaming import JobFailed
from tandembus.spark.jobs.syphon import SyphonOptions, SyphonResult, run_syphon
from tandembus.spark.jobs.syphon_task import Pair
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.integration.syphons import bodies, everything_in, numbered, send_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUES = tuple(backlog_path("contoso", index) for index in range(3))


@pytest.fixture
def pair() -> Iterator[tuple[EmbeddedNamespace, EmbeddedNamespace]]:
    with EmbeddedNamespace(name="contoso") as primary, EmbeddedNamespace(name="secondary") as secondary:
        for queue in QUEUES:
            secondary.create_queue(queue)
        for queue in ("orders", "events", "dead"):
            primary.create_queue(queue)
        yield primary, secondary


def set_status(namespace: EmbeddedNamespace, queue: str, status: str) -> None:
    async def update() -> None:
        async with Administration(namespace.connection_string) as administration:
            await administration.update_queue(queue, QueueSettings(status=status))

    asyncio.run(update())


async def in_a_loop(work: Callable[[], SyphonResult]) -> SyphonResult:
    """As in a notebook."""
    return work()


@covers("D2")
def test_a_backlog_is_drained_in_order_and_again_after_a_restart(
    spark: SparkSession, pair: tuple[EmbeddedNamespace, EmbeddedNamespace], tmp_path: Path
) -> None:
    primary, secondary = pair
    for index, queue in enumerate(QUEUES):
        orders = [to_backlog(each.encode(), "orders") for each in numbered(200, index * 1000)]
        send_all(secondary, queue, orders)
    send_all(secondary, QUEUES[0], [to_backlog(each.encode(), "dead") for each in numbered(30)])
    send_all(secondary, QUEUES[0], [OutgoingMessage(b"no path").encode()])
    set_status(primary, "dead", "SendDisabled")
    namespaces = Pair(primary.connection_string, secondary.connection_string)
    options = SyphonOptions(namespaces, "contoso", QUEUES, str(tmp_path / "checkpoint"), once=True)
    told: list[SyphonResult] = []
    result = run_syphon(spark, options, told.append)
    assert (result.moved, result.dead_lettered, result.left) == (600, 1, 30)
    assert result.dead_destinations == ["dead"]
    assert told
    home = bodies(everything_in(primary, "orders"))
    for index in range(3):
        assert [n for n in home if n // 1000 == index] == list(range(index * 1000, index * 1000 + 200))
    set_status(primary, "dead", "Active")
    again = asyncio.run(in_a_loop(lambda: run_syphon(spark, options)))
    assert (again.moved, again.left, again.dead_destinations) == (30, 0, [])
    assert bodies(everything_in(primary, "dead")) == list(range(30))
    assert sum(secondary.counts(queue).active for queue in QUEUES) == 0
    other = SyphonOptions(namespaces, "fabrikam", QUEUES, options.checkpoint, once=True)
    with pytest.raises(JobFailed, match="this checkpoint is of the backlog of 'contoso', not of 'fabrikam'"):
        run_syphon(spark, other)
