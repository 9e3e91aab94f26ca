"""A checkpoint outlives what it was written for: entities are renamed and deleted, and operators release messages."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from tandembus.client import ServiceBus
from tandembus.client.administration import Administration
from tandembus.errors import EntityNotFound, InvalidArgument
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.unit.spark.stage import Stage, numbered
from tests.unit.spark.test_streaming import BOTH, Query, ids

Start = Callable[..., Query]


@pytest.fixture
def stage(namespace: EmbeddedNamespace, plain_namespace: EmbeddedNamespace, backend: str) -> Stage:
    stage = Stage(plain_namespace if backend == "azure" else namespace, f"q-{uuid.uuid4().hex[:12]}")
    stage.create()
    return stage


@pytest.fixture
def start(stage: Stage, backend: str) -> Iterator[Start]:
    started: list[Query] = []

    def begin(**options: str) -> Query:
        started.append(Query(stage, backend=backend, **options))
        return started[-1]

    yield begin
    for each in started:
        each.reader.stop()


def delete(stage: Stage, queue: str) -> None:
    async def work(bus: ServiceBus) -> None:
        async with Administration(stage.namespace.connection_string) as administration:
            await administration.delete_queue(queue)

    stage.run(work)


@covers("D1")
@BOTH
def test_another_spelling_of_an_entity_is_the_same_entity(stage: Stage, start: Start) -> None:
    stage.send(numbered(5))
    query = start(entities=stage.queue.upper())
    assert query.run(ReadMaxRows(2)) == ids(0, 2)
    query.restart(entities=stage.queue)
    assert query.run(ReadMaxRows(2)) == ids(2, 4)
    assert query.run() == ids(4, 5)
    assert query.plan() == query.offset
    assert stage.peek() == []


@covers("D1")
@BOTH
@pytest.mark.parametrize("is_done", [True, False])
def test_an_entity_that_is_deleted_and_not_read_any_more_stops_nothing(
    stage: Stage, start: Start, is_done: bool
) -> None:
    gone = stage.namespace.create_queue(f"{stage.queue}-2")
    stage.send(numbered(2), gone)
    query = start(entities=f"{stage.queue},{gone}")
    end = query.plan()
    if is_done:
        query.offset = end
    query.restart(entities=stage.queue)
    delete(stage, gone)
    stage.send(numbered(3))
    if not is_done:
        assert query.read(end) == []
        query.offset = end
    assert query.run() == ids(0, 3)
    assert query.plan() == query.offset
    assert stage.peek() == []


@covers("D1")
@pytest.mark.parametrize("backend", ["native"])
def test_what_an_operator_has_released_is_read_once_when_the_query_is_back(stage: Stage, start: Start) -> None:
    stage.send(numbered(5))
    query = start()
    end = query.plan()

    async def release(bus: ServiceBus) -> int:
        return await (await bus.reservations(stage.queue)).release("reader")

    assert stage.run(release) == 5
    query.restart()
    assert query.read(end) == []
    query.offset = end
    assert query.run() == ids(0, 5)
    assert query.plan() == query.offset
    assert stage.peek() == []


@covers("D1")
@BOTH
def test_another_owner_is_refused_and_the_last_batch_waits_for_its_own(stage: Stage, start: Start) -> None:
    stage.send(numbered(5))
    query = start()
    query.run()
    query.restart(owner="other")
    with pytest.raises(InvalidArgument, match="belongs to the owner 'reader'"):
        query.plan()
    query.restart(owner="reader")
    assert query.plan() == query.offset
    assert stage.peek() == []


@covers("D1")
@BOTH
def test_that_a_checkpoint_is_of_another_namespace_is_told_before_what_that_one_lacks(
    stage: Stage, start: Start
) -> None:
    query = start(entities="nosuch")
    query.reader.prepareForTriggerAvailableNow()
    query.offset = {**query.offset, "n": "elsewhere.example"}
    with pytest.raises(InvalidArgument, match="belongs to the namespace 'elsewhere"):
        query.plan()


@covers("D1")
@BOTH
def test_an_entity_that_is_not_there_ends_a_query_that_takes_what_is_there(stage: Stage, start: Start) -> None:
    query = start(entities="nosuch")
    query.reader.prepareForTriggerAvailableNow()
    with pytest.raises(EntityNotFound, match="nosuch"):
        query.plan()
