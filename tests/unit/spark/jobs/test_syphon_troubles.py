"""The syphon on Spark in bad company: queues that are out, other syphons, attempts of a task that run twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

pytest.importorskip("pyspark")

from tandembus.client import OutgoingMessage, connect
from tandembus.client.errors import ConnectionLost
from tandembus.errors import InvalidArgument, StoreUnavailable
from tandembus.pairing.client_ports import SharedConnection
from tandembus.spark.jobs.streaming import JobFailed
from tandembus.spark.jobs.syphon import SyphonResult, check_session
from tandembus.spark.jobs.syphon_ledger import LeftThere, QueueLedger
from tests.covers import covers
from tests.integration.syphons import Pair, bodies, numbered, pair
from tests.unit.spark.jobs.querying import Query, set_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def keyed(count: int) -> list[OutgoingMessage]:
    """Spread over the fragments of a partitioned queue."""
    return [OutgoingMessage(str(n), message_id=str(n), partition_key=f"key {n % 40}") for n in range(count)]


def in_order_by_key(home: list[int]) -> bool:
    return all([n for n in home if n % 40 == key] == sorted(n for n in home if n % 40 == key) for key in range(40))


async def reserved_in(both: Pair) -> int:
    async with await connect(both.secondary.connection_string) as bus:
        found = [await (await bus.reservations(queue)).owners() for queue in both.queues]
    return sum(one.message_count for owners in found for one in owners)


@covers("D2")
async def test_a_drain_empties_what_it_can_and_fails_with_the_names_of_queues_that_are_out() -> None:
    async with pair("orders", queues=3) as both:
        for queue in range(3):
            await both.divert("orders", numbered(20, queue * 100), queue)
        fault = await both.secondary.inject_fault(f"entity/{both.queues[1]}", "unavailable")
        query = Query(both)
        with pytest.raises(StoreUnavailable, match=f"messages may be left in backlog queues .*: {both.queues[1]}: "):
            await query.drain()
        assert sorted(bodies(await both.at_home("orders"))) == [*range(20), *range(200, 220)]
        await both.secondary.heal(fault)
        await query.drain()
        assert bodies(await both.at_home("orders")) == list(range(100, 120))


@covers("D2")
async def test_a_fragment_that_is_out_is_told_by_a_drain_and_brought_home_when_it_is_back() -> None:
    async with pair("orders", enable_partitioning=True) as both:
        await both.divert("orders", keyed(400))
        query = Query(both, max_messages=50)
        query.offset = await query.plan()  # Nothing is sent yet: all of it stays reserved.
        fault = await both.secondary.inject_fault(f"fragment/{both.queues[0]}/3", "unavailable")
        with pytest.raises(StoreUnavailable, match=r"messages may be left in backlog queues.*ragment.* 3"):
            await query.drain()
        await both.secondary.heal(fault)
        await query.drain()
        home = bodies(await both.at_home("orders"))
        assert sorted(home) == list(range(400))
        assert in_order_by_key(home)
        assert (await both.left(), await reserved_in(both)) == (0, 0)


@covers("D2")
async def test_a_queue_that_is_out_keeps_nobody_waiting_while_the_job_runs_on() -> None:
    async with pair("orders", queues=2) as both:
        await both.secondary.inject_fault(f"entity/{both.queues[0]}", "unavailable")
        query = Query(both)
        for number in range(3):
            await both.divert("orders", numbered(1, number), 1)
            await query.move(await query.plan())
        assert bodies(await both.at_home("orders")) == [0, 1, 2]
        await both.secondary.heal()
        await both.divert("orders", numbered(1, 3), 0)
        await query.move(await query.plan())
        assert bodies(await both.at_home("orders")) == [3]


@covers("D2")
async def test_a_job_that_was_superseded_gives_back_nothing_of_the_newer_one() -> None:
    async with pair("orders") as both:
        await both.divert("orders", numbered(30))
        older, newer = Query(both), Query(both)
        older.offset = await older.plan()
        planned = await newer.plan()
        await older.end()
        assert older.outcome["given_back"] == 0
        await newer.move(planned)
        assert bodies(await both.at_home("orders")) == list(range(30))


@covers("D2")
async def test_what_is_reserved_of_a_queue_that_is_not_given_any_more_is_given_back() -> None:
    async with pair("orders", queues=2) as both:
        await both.divert("orders", numbered(10), 0)
        await both.divert("orders", numbered(10, 10), 1)
        before = Query(both)
        before.offset = await before.plan()
        assert await reserved_in(both) == 20
        after = Query(both, queues=both.queues[:1])
        after.offset = json.loads(json.dumps(before.offset))
        await after.drain()
        assert bodies(await both.at_home("orders")) == list(range(10))
        assert (await both.left(), await reserved_in(both)) == (10, 0)


@covers("D2")
async def test_the_queues_that_were_not_given_back_are_named_once_all_were_asked() -> None:
    async with pair("orders", queues=3) as both:
        for queue in range(3):
            await both.divert("orders", numbered(5), queue)
        query = Query(both)
        query.offset = await query.plan()
        await both.secondary.inject_fault(f"entity/{both.queues[0]}", "unavailable")
        with pytest.raises(JobFailed, match=f"given back: {both.queues[0]}: .*spark release QUEUE --owner syphon"):
            await query.end()
        await both.secondary.heal()
        assert await reserved_in(both) == 5


@covers("D2")
async def test_what_other_syphons_have_put_aside_or_in_hand_is_counted_in_the_end() -> None:
    async with pair("orders", "dead") as both, await connect(both.secondary.connection_string) as bus:
        await both.divert("orders", numbered(30))
        receiver = await bus.receiver(both.queues[0])
        taken = await receiver.receive(10, 5.0)
        await receiver.defer(*taken[:4])
        await both.divert("dead", numbered(3))
        await set_status(both, "dead", "SendDisabled")
        query = Query(both)
        await query.drain()
        assert await query.end() == LeftThere(deferred=4, in_hands=6)
        assert query.outcome["given_back"] == 3
        assert bodies(await both.at_home("orders")) == list(range(10, 30))


@covers("D2")
async def test_dead_letters_of_a_partitioned_backlog_queue_are_found_behind_messages_of_other_fragments() -> None:
    async with pair("orders", enable_partitioning=True) as both:
        await both.divert("nowhere", keyed(80))
        query = Query(both)
        planned = await query.plan()
        await both.divert("orders", keyed(2_000))  # Not reserved, so that receivers get them, too.
        await query.move(planned)
        assert query.outcome["dead_lettered"] == 80
        await query.drain()
        reasons = Counter(letter.dead_letter_reason for letter in await both.dead_letters())
        assert reasons == {"DestinationNotFound": 80}
        home = bodies(await both.at_home("orders"))
        assert sorted(home) == list(range(2_000))
        assert in_order_by_key(home)
        assert await both.left() == 0


@covers("D2")
async def test_a_certificate_that_is_not_trusted_is_told_at_once() -> None:
    """Asked again and again, the test would be over before the answer."""
    async with pair("orders") as both:
        secondary = SharedConnection(partial(connect, both.secondary.tls_connection_string))
        ledger = QueueLedger(secondary, both.queues[0])
        ledger.patience_s = 100_000.0
        with pytest.raises(ConnectionLost, match="certificate verify failed"):
            await ledger.open()


@covers("D2")
async def test_two_attempts_of_a_task_at_once_lose_nothing_and_keep_the_order() -> None:
    """As after a network split, when an executor goes on that Spark has given up."""
    async with pair("orders") as both:
        await both.primary.create_queue("once", requires_duplicate_detection=True)
        await both.divert("orders", numbered(600))
        await both.divert("once", numbered(600))
        await both.divert("nowhere", numbered(5))
        query = Query(both, max_messages=2_000)
        parts = await asyncio.to_thread(query.reader.partitions, query.offset, await query.plan())
        await asyncio.gather(*[asyncio.to_thread(query.attempt, part) for part in parts for _ in range(2)])
        await query.drain()
        assert bodies(await both.at_home("once")) == list(range(600))
        assert list(dict.fromkeys(bodies(await both.at_home("orders")))) == list(range(600))
        assert len(await both.dead_letters()) == 5
        assert await both.left() == 0


@covers("D2")
def test_a_session_that_runs_tasks_twice_on_purpose_is_refused() -> None:
    def session(value: str) -> SparkSession:
        context = SimpleNamespace(getConf=lambda: {"spark.speculation": value})
        return cast("SparkSession", SimpleNamespace(sparkContext=context))

    check_session(session("false"))
    with pytest.raises(InvalidArgument, match=r"start Spark with spark\.speculation=false"):
        check_session(session("true"))


def test_destinations_are_dead_from_a_refusal_until_they_take_messages() -> None:
    def told(result: SyphonResult, waiting_for: list[str], took: list[str]) -> list[str]:
        counts = {"moved": len(took), "moved_bytes": 0, "dead_lettered": 0}
        result.add({"observedMetrics": {"syphon": {**counts, "waiting_for": waiting_for, "took": took}}})
        return result.dead_destinations

    result = SyphonResult()
    assert told(result, ["b", "a"], ["c"]) == ["a", "b"]
    assert told(result, [], ["c"]) == ["a", "b"], "nobody has asked them"
    assert told(result, ["b"], ["a", "b"]) == ["b"], "it took some, and then none"
    assert told(result, [], ["b"]) == []
    assert (result.moved, result.batches) == (5, 4)
