"""Streams of which an entity or a fragment is out, and streams that end while others hold messages."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator

import pytest

from tandembus.client import OutgoingMessage, ServiceBus
from tandembus.errors import FragmentUnavailable, StaleEpoch
from tandembus.spark.source.decoding import NUMBER_BITS
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


@covers("D1")
def test_a_stream_that_is_started_while_an_entity_is_out_reads_the_others_and_catches_up(stage: Stage) -> None:
    stage.create()
    other = stage.namespace.create_queue(f"{stage.queue}-2")
    stage.send(numbered(5))
    before = Query(stage)
    before.plan()  # sets them aside, and is never heard of again
    before.reader.stop()
    query = Query(stage, entities=f"{stage.queue},{other}", retryFor="0")
    stage.send(numbered(3), other)
    with stage.namespace.fault(f"entity/{stage.queue}", "unavailable"):
        assert query.run() == ids(0, 3)
    assert query.run() == ids(0, 5)
    assert query.plan() == query.offset
    assert stage.peek() == []
    query.reader.stop()


OUT = 5
"""The fragment that goes out."""


def by_fragment(stage: Stage) -> dict[int, set[str | None]]:
    found: dict[int, set[str | None]] = {}
    for message in stage.peek():
        found.setdefault(message.sequence_number >> NUMBER_BITS, set()).add(message.message_id)
    return found


def spread(first: int, last: int) -> Iterator[OutgoingMessage]:
    """A few for each fragment."""
    return (
        OutgoingMessage("x", message_id=f"m{index}", partition_key=f"k{index % 64}") for index in range(first, last)
    )


@pytest.fixture
def spread_out(stage: Stage) -> Stage:
    stage.create(enable_partitioning=True)
    stage.send(spread(0, 64))
    return stage


@covers("D1", "P19")
def test_a_stream_that_is_started_while_a_fragment_is_out_reads_the_others_and_catches_up(spread_out: Stage) -> None:
    there = by_fragment(spread_out)
    query = Query(spread_out, retryFor="0")
    with spread_out.namespace.fault(f"fragment/{spread_out.queue}/{OUT}", "unavailable"):
        first = query.run()
        assert set(first) == set().union(*there.values()) - there[OUT]
        assert query.plan() == query.offset
    assert set(query.run()) == there[OUT]
    spread_out.send(spread(64, 80))
    assert set(query.run()) == {*ids(64, 80)}
    assert query.plan() == query.offset
    assert spread_out.peek() == []
    query.reader.stop()


@covers("D1")
def test_what_is_done_in_a_fragment_that_is_out_is_settled_later_and_never_read_again(spread_out: Stage) -> None:
    there = by_fragment(spread_out)
    query = Query(spread_out, retryFor="0")
    assert {*query.run()} == {*ids(0, 64)}
    query.restart()
    with spread_out.namespace.fault(f"fragment/{spread_out.queue}/{OUT}", "unavailable"):
        spread_out.send([OutgoingMessage("x", message_id="without a key")])
        assert query.run() == ["without a key"]
        query.restart()
        assert query.plan() == query.offset
        assert by_fragment(spread_out) == {}
    assert by_fragment(spread_out) == {OUT: there[OUT]}
    query.restart()
    assert query.plan() == query.offset
    assert spread_out.peek() == []
    query.reader.stop()


@covers("D1")
def test_a_batch_that_was_under_way_waits_for_its_fragments(spread_out: Stage) -> None:
    """Spark settles it as a whole: what would not be read now would be lost."""
    query = Query(spread_out, retryFor="0")
    end = query.plan()
    query.restart()
    with (
        spread_out.namespace.fault(f"fragment/{spread_out.queue}/{OUT}", "unavailable"),
        pytest.raises(FragmentUnavailable, match=f"the batch that was under way has messages of fragments {OUT},"),
    ):
        query.read(end)
    query.restart()
    assert {*query.read(end)} == {*ids(0, 64)}
    query.reader.stop()


@covers("D1")
def test_a_query_that_was_started_during_an_outage_stops_an_older_one_for_good(spread_out: Stage) -> None:
    older, newer = Query(spread_out, retryFor="0"), Query(spread_out, retryFor="0")
    assert len(older.run()) == 64
    spread_out.send(spread(64, 96))
    with spread_out.namespace.fault(f"fragment/{spread_out.queue}/{OUT}", "unavailable"):
        newer.run()
    with pytest.raises(StaleEpoch, match="another query has started"):
        older.plan()
    newer.run()
    with pytest.raises(StaleEpoch, match="another query has started"):
        older.plan()
    older.reader.stop()
    while newer.run():
        pass
    assert spread_out.peek() == []
    newer.reader.stop()
