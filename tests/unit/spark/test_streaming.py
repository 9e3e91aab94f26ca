"""Streams without Spark, played as Spark plays them: both backends, against a real namespace."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from tandembus.amqp.encoding.sections import section
from tandembus.amqp.encoding.values import symbol
from tandembus.client import OutgoingMessage, ServiceBus
from tandembus.client.messages import Payload
from tandembus.errors import BusError, EntityNotFound, InvalidArgument, InvalidOperation, NotSupported, StaleEpoch
from tandembus.limits import Limits
from tandembus.spark.source.offsets import Offset
from tandembus.spark.source.stream_reader import StreamReader
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.unit.spark.stage import Stage, numbered, rows_of

BOTH = pytest.mark.parametrize("backend", ["native", "azure"])
LIMIT = ReadMaxRows(1000)


class Query:
    """Spark's part: a log of offsets, a log of commits, and rows."""

    def __init__(self, stage: Stage, **options: str) -> None:
        self._stage = stage
        self._options = {"entities": stage.queue, "owner": "reader", "numPartitions": "2", "retryFor": "2", **options}
        self.reader = StreamReader(stage.options(**self._options))
        self.offset: Offset = self.reader.initialOffset()

    def restart(self, **options: str) -> None:
        """As after a kill: the process is gone, the logs are not."""
        self._options |= options
        self.reader.stop()
        self.reader = StreamReader(self._stage.options(**self._options))

    def plan(self, limit: object = LIMIT) -> Offset:
        return self.reader.latestOffset(self.offset, limit)

    def read(self, end: Offset) -> list[str]:
        parts = self.reader.partitions(self.offset, end)
        return [str(row["message_id"]) for row in rows_of(b for part in parts for b in self.reader.read(part))]

    def run(self, limit: object = LIMIT) -> list[str]:
        """One whole batch; its offset is in both logs then."""
        end = self.plan(limit)
        found = self.read(end)
        self.offset = end
        return found


@pytest.fixture
def stage(namespace: EmbeddedNamespace, plain_namespace: EmbeddedNamespace, request: pytest.FixtureRequest) -> Stage:
    """Plain operations are tried where there is nothing else."""
    callspec = getattr(request.node, "callspec", None)
    is_plain = callspec is not None and callspec.params.get("backend") == "azure"
    return Stage(plain_namespace if is_plain else namespace, f"q-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def query(stage: Stage, backend: str) -> Iterator[Query]:
    stage.create()
    query = Query(stage, backend=backend)
    yield query
    query.reader.stop()


def ids(first: int, last: int) -> list[str]:
    return [f"m{index}" for index in range(first, last)]


@covers("D1")
@BOTH
def test_messages_are_read_in_batches_and_settled_when_the_next_is_planned(stage: Stage, query: Query) -> None:
    stage.send(numbered(25))
    assert query.run(ReadMaxRows(10)) == ids(0, 10)
    assert len(stage.peek()) == 25
    assert query.run(ReadMaxRows(10)) == ids(10, 20)
    assert len(stage.peek()) == 15
    assert query.run(ReadMaxRows(10)) == ids(20, 25)
    assert query.plan() == query.offset
    assert stage.peek() == []


@covers("D1")
@BOTH
def test_a_row_shows_the_state_that_its_message_had_before_it_was_set_aside(stage: Stage, query: Query) -> None:
    stage.send(numbered(2))
    end = query.plan()
    assert [message.state for message in stage.peek()] == ["deferred"] * 2
    (part,) = query.reader.partitions(query.offset, end)
    assert [row["state"] for row in rows_of(query.reader.read(part))] == ["active"] * 2


@BOTH
def test_commit_settles_as_well_and_may_come_again(stage: Stage, query: Query) -> None:
    stage.send(numbered(5))
    query.run()
    query.reader.commit(query.offset)
    query.reader.commit(query.offset)
    assert stage.peek() == []
    assert query.plan() == query.offset


@BOTH
def test_what_is_set_aside_is_not_received_by_others(stage: Stage, query: Query) -> None:
    stage.send(numbered(5))
    query.plan(ReadMaxRows(3))

    async def receive(bus: ServiceBus) -> list[str | None]:
        receiver = await bus.receiver(stage.queue)
        return [message.message_id for message in await receiver.receive(10, 1.0)]

    assert stage.run(receive) == ids(3, 5)


@BOTH
def test_nothing_new_is_the_same_offset_again(stage: Stage, query: Query) -> None:
    assert query.plan() == query.offset
    assert query.reader.partitions(query.offset, query.offset) == []


@covers("D1")
@BOTH
def test_a_driver_that_died_before_its_plan_was_written_down_has_lost_nothing(stage: Stage, query: Query) -> None:
    stage.send(numbered(12))
    query.run(ReadMaxRows(4))
    query.plan(ReadMaxRows(4))
    query.restart()
    assert query.run(ReadMaxRows(4)) == ids(4, 8)
    assert query.run(ReadMaxRows(4)) == ids(8, 12)
    query.plan()
    assert stage.peek() == []


@covers("D1")
@BOTH
def test_a_batch_that_was_written_down_is_read_again_after_a_kill(stage: Stage, query: Query) -> None:
    stage.send(numbered(6))
    end = query.plan()
    query.restart()
    assert query.read(end) == ids(0, 6)
    query.offset = end
    assert query.plan() == end
    assert stage.peek() == []


@BOTH
def test_a_lost_checkpoint_reads_what_is_set_aside_again(stage: Stage, query: Query) -> None:
    stage.send(numbered(6))
    query.run()
    query.restart()
    query.offset = query.reader.initialOffset()
    assert query.run() == ids(0, 6)


@BOTH
def test_without_a_limit_everything_is_planned(stage: Stage, query: Query) -> None:
    query.restart(maxMessages="2", maxBytes="10")
    stage.send(numbered(700))
    assert query.run(ReadAllAvailable()) == ids(0, 700)


@covers("D1")
@BOTH
def test_all_that_is_there_is_one_batch_whatever_the_service_sets_aside_at_once(backend: str) -> None:
    """What trigger(once=True) asks for: with what an earlier process left, and nothing that comes later."""
    limits = Limits(max_reserve_messages=7)
    with EmbeddedNamespace(reservations=backend == "native", limits=limits) as namespace:
        stage = Stage(namespace, "orders")
        stage.create(enable_partitioning=True)
        stage.send(OutgoingMessage("x", message_id=f"m{n}", partition_key=f"k{n % 8}") for n in range(60))
        query = Query(stage, backend=backend)
        query.plan(ReadMaxRows(5))
        query.restart()
        assert sorted(query.run(ReadAllAvailable())) == sorted(ids(0, 60))
        query.restart(retryFor="0")
        with namespace.fault("entity/orders", "unavailable"), pytest.raises((OSError, BusError)):
            query.plan(ReadAllAvailable())
        assert query.plan(ReadAllAvailable()) == query.offset
        assert stage.peek() == []
        query.reader.stop()


@BOTH
def test_a_limit_in_bytes_is_kept_but_one_message_always_fits(stage: Stage, query: Query) -> None:
    stage.send(numbered(5))
    assert query.run(ReadMaxBytes(1)) == ids(0, 1)
    query.restart(maxBytes="1")
    assert query.run() == ids(1, 2)
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(100_000)


@covers("D1")
@BOTH
def test_available_now_ends_with_what_was_there(backend: str) -> None:
    with EmbeddedNamespace(reservations=backend == "native") as namespace:
        stage = Stage(namespace, "orders")
        stage.create()
        query = Query(stage, backend=backend)
        stage.send(numbered(7))
        query.reader.prepareForTriggerAvailableNow()
        found = query.run(ReadMaxRows(5))
        namespace.clock.advance(60.0)
        stage.send(OutgoingMessage("late", message_id=f"late{n}") for n in range(3))
        found += query.run(ReadMaxRows(5))
        assert found == ids(0, 7)
        assert query.plan() == query.offset
        assert [message.message_id for message in stage.peek()] == ["late0", "late1", "late2"]
        query.reader.stop()


@BOTH
def test_fragments_are_read_in_parallel_and_each_in_its_order(stage: Stage, backend: str) -> None:
    stage.create(enable_partitioning=True)
    query = Query(stage, backend=backend)
    stage.send(OutgoingMessage("x", message_id=f"m{n}", partition_key=f"k{n % 8}") for n in range(200))
    end = query.plan()
    parts = query.reader.partitions(query.offset, end)
    assert len(parts) == 2
    rows = rows_of(batch for part in parts for batch in query.reader.read(part))
    assert sorted(int(row["message_id"][1:]) for row in rows) == list(range(200))
    for key in range(8):
        found = [int(row["message_id"][1:]) for row in rows if row["partition_key"] == f"k{key}"]
        assert found == sorted(found)
    query.offset = end
    query.plan()
    assert stage.peek() == []
    query.reader.stop()


@BOTH
def test_several_entities_take_turns_within_one_limit(stage: Stage, backend: str) -> None:
    stage.create()
    other = stage.namespace.create_queue(f"{stage.queue}-2")
    stage.send(numbered(10))
    stage.send(numbered(10), other)
    query = Query(stage, backend=backend, entities=f"{stage.queue},{other}")
    end = query.plan(ReadMaxRows(6))
    assert {entity: sum(hi - lo + 1 for lo, hi in by["0"]) for entity, by in end["b"].items()} == {
        stage.queue: 3,
        other: 3,
    }
    query.reader.stop()


@BOTH
def test_dead_letters_are_consumed_like_any_queue(stage: Stage, backend: str) -> None:
    stage.create()
    stage.send(numbered(3))

    async def dead_letter(bus: ServiceBus) -> None:
        receiver = await bus.receiver(stage.queue)
        await receiver.dead_letter(*await receiver.receive(3, 5.0), reason="bad")

    stage.run(dead_letter)
    query = Query(stage, backend=backend, subQueue="deadLetter")
    assert query.run() == ids(0, 3)
    query.plan()
    assert stage.read(subQueue="deadLetter") == []
    query.reader.stop()


@BOTH
def test_a_message_that_somebody_removed_is_missing_and_nothing_else(
    stage: Stage, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage.create()
    stage.send(numbered(2))
    query = Query(stage, backend=backend)
    end = query.plan()
    end["b"][stage.queue]["0"].append([900, 901])
    caplog.set_level("INFO")
    assert query.read(end) == ids(0, 2)
    # Between reserved numbers there may be gaps; of deferred ones each was a message.
    assert ("2 of 4 messages were removed" in caplog.text) == (backend == "azure")
    assert all(record.levelname == "INFO" for record in caplog.records)
    query.offset = end
    query.plan()
    assert stage.peek() == []
    query.reader.stop()


@covers("D1")
@BOTH
def test_messages_that_cannot_be_read_and_forged_ones_are_consumed_like_all(stage: Stage, query: Query) -> None:
    """Each is a row of its own number, in its place, and is settled with the others."""
    forged = section(0x72, {symbol("x"): b"\xa3\x15x-opt-sequence-number\x81" + (1).to_bytes(8, "big")})
    broken = b"\x00\x53\x74\xc1\x08\x02\xa1\x01a\xa1\x02\xff\xfe"
    payloads: list[Payload] = [message.encode() for message in numbered(6)]
    payloads[2:4] = [broken, forged + section(0x73, ["forged"])]
    stage.send(payloads)
    for count in (3, 3):
        end = query.plan(ReadMaxRows(count))
        parts = query.reader.partitions(query.offset, end)
        rows = rows_of(batch for part in parts for batch in query.reader.read(part))
        first = 1 if query.offset["e"] == 0 else 4
        assert [row["sequence_number"] for row in rows] == list(range(first, first + count))
        query.offset = end
    assert query.plan() == query.offset
    assert stage.peek() == []


@BOTH
def test_an_outage_plans_nothing_and_ends_nothing(stage: Stage, query: Query) -> None:
    stage.send(numbered(4))
    query.restart(retryFor="0")
    with stage.namespace.fault(f"entity/{stage.queue}", "unavailable"):
        assert query.plan() == query.offset
    assert query.run() == ids(0, 4)
    with stage.namespace.fault(f"entity/{stage.queue}", "unavailable"):
        query.reader.commit(query.offset)
        assert query.plan() == query.offset
    query.plan()
    assert stage.peek() == []


@covers("D1")
def test_of_two_queries_with_one_owner_the_older_is_told_to_end(stage: Stage) -> None:
    stage.create()
    stage.send(numbered(10))
    older = Query(stage)
    older.run(ReadMaxRows(3))
    newer = Query(stage)
    assert newer.run(ReadMaxRows(5)) == ids(0, 3)
    with pytest.raises(StaleEpoch, match="another query has started with the owner 'reader'"):
        older.plan()
    assert newer.run(ReadMaxRows(5)) == ids(3, 8)
    older.reader.stop()
    newer.reader.stop()


def test_a_batch_that_is_read_again_fences_the_query_that_planned_it(stage: Stage) -> None:
    stage.create()
    stage.send(numbered(5))
    older = Query(stage)
    end = older.plan()
    newer = Query(stage)
    assert newer.read(end) == ids(0, 5)
    with pytest.raises(StaleEpoch):
        older.reader.commit(end)
    assert len(stage.peek()) == 5
    newer.offset = end
    newer.plan()
    assert stage.peek() == []
    older.reader.stop()
    newer.reader.stop()


def test_owners_do_not_see_each_others_messages(stage: Stage) -> None:
    stage.create()
    stage.send(numbered(10))
    first, second = Query(stage, owner="a"), Query(stage, owner="b")
    assert first.run(ReadMaxRows(5)) == ids(0, 5)
    assert second.run(ReadMaxRows(5)) == ids(5, 10)
    first.reader.stop()
    second.reader.stop()


@covers("D1")
def test_sessions_are_consumed_each_in_its_order(stage: Stage) -> None:
    stage.create(requires_session=True, enable_partitioning=True)
    stage.send(OutgoingMessage("x", message_id=f"m{n}", session_id=f"s{n % 7}") for n in range(70))
    query = Query(stage)
    found = query.run(ReadMaxRows(40)) + query.run()
    assert len(found) == 70
    for session in range(7):
        assert [one for one in found if int(one[1:]) % 7 == session] == [f"m{n}" for n in range(session, 70, 7)]
    query.plan()
    assert stage.peek() == []
    query.reader.stop()


@pytest.mark.parametrize("backend", ["azure"])
def test_plain_operations_refuse_an_entity_with_sessions(stage: Stage, backend: str) -> None:
    stage.create(requires_session=True)
    query = Query(stage, backend=backend)
    with pytest.raises(InvalidOperation, match="subscriptions without sessions"):
        query.plan()
    query.reader.stop()


@BOTH
def test_an_unknown_entity_ends_the_query(stage: Stage, backend: str) -> None:
    query = Query(stage, backend=backend)
    with pytest.raises(EntityNotFound):
        query.plan()
    query.reader.stop()


@BOTH
def test_the_checkpoint_of_another_namespace_settles_nothing(stage: Stage, query: Query) -> None:
    stage.send(numbered(3))
    query.offset = {**query.plan(), "n": "elsewhere"}
    for step in (query.plan, lambda: query.reader.commit(query.offset), lambda: query.read({**query.offset, "e": 9})):
        with pytest.raises(InvalidArgument, match="belongs to the namespace 'elsewhere'"):
            step()
    assert len(stage.peek()) == 3


@covers("D1")
def test_a_service_without_reservations_is_read_as_a_table_and_told_how_to_be_a_stream(
    plain_namespace: EmbeddedNamespace,
) -> None:
    stage = Stage(plain_namespace, f"q-{uuid.uuid4().hex[:12]}")
    stage.create()
    stage.send(numbered(3))
    assert [row["message_id"] for row in stage.read()] == ids(0, 3)
    query = Query(stage)
    with pytest.raises(NotSupported, match="backend=azure"):
        query.plan()
    query.reader.stop()
