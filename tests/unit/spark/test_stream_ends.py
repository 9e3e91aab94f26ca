"""Streams of several entities of which one is out, and streams that end while others hold messages."""

from __future__ import annotations

import asyncio
import logging
import uuid

import pytest

from tandembus.client import ServiceBus
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.unit.spark.stage import Stage, numbered
from tests.unit.spark.test_streaming import BOTH, Query, ids


@covers("D1")
@BOTH
def test_an_entity_that_is_out_does_not_keep_the_others_from_being_read(
    namespace: EmbeddedNamespace, plain_namespace: EmbeddedNamespace, backend: str
) -> None:
    stage = Stage(plain_namespace if backend == "azure" else namespace, f"q-{uuid.uuid4().hex[:12]}")
    stage.create()
    other = stage.namespace.create_queue(f"{stage.queue}-2")
    query = Query(stage, backend=backend, entities=f"{stage.queue},{other}", retryFor="0")
    assert query.plan() == query.offset
    stage.send(numbered(5), other)
    with stage.namespace.fault(f"entity/{stage.queue}", "unavailable"):
        assert query.run() == ids(0, 5)
        assert query.plan() == query.offset
    stage.send(numbered(3))
    assert query.run() == ids(0, 3)
    query.reader.stop()


@covers("D1")
@pytest.mark.parametrize("is_held", [True, False])
def test_a_query_that_ends_tells_of_messages_that_a_receiver_holds(
    stage: Stage, caplog: pytest.LogCaptureFixture, is_held: bool
) -> None:
    stage.create()
    stage.send(numbered(5))
    query = Query(stage)

    def consume() -> None:
        query.reader.prepareForTriggerAvailableNow()
        while (following := query.plan()) != query.offset:
            query.read(following)
            query.offset = following

    async def consume_beside(bus: ServiceBus) -> None:
        receiver = await bus.receiver(stage.queue)
        assert len(await receiver.receive(2, 5.0)) == 2
        await asyncio.to_thread(consume)

    with caplog.at_level(logging.WARNING, "tandembus.spark"):
        if is_held:
            stage.run(consume_beside)
        else:
            consume()
    assert ("messages are left that a receiver holds" in caplog.text) == is_held
    query.reader.stop()
