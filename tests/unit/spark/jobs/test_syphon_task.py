"""The tasks of the syphon on Spark, without Spark: between two real namespaces, batch by batch."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.client.meter import in_total
from tandembus.errors import InvalidArgument
from tandembus.pairing.syphon_rules import SyphonSettings
from tandembus.spark.jobs import syphon_task
from tandembus.spark.jobs.syphon import SyphonResult, guarantee, guarantee_with
from tandembus.spark.jobs.syphon_task import BacklogReader, Row, Share, Work, work_on
from tandembus.spark.jobs.syphon_task import Pair as Namespaces
from tests.covers import covers
from tests.integration.syphons import PRIMARY, Pair, bodies, numbered, pair

SETTINGS = SyphonSettings(quiet_s=0.1, others_wait_s=2.0)


def work_between(both: Pair, is_drain: bool = True, most: int = 100_000, tasks: int = 2, name: str = PRIMARY) -> Work:
    namespaces = Namespaces(both.primary.connection_string, both.secondary.connection_string)
    return Work(namespaces, name, tuple(both.queues), SETTINGS, is_drain, tasks, most)


def shares_of(work: Work) -> list[Share]:
    return [each for each in BacklogReader(work).partitions({}, {}) if isinstance(each, Share)]


async def batch(work: Work) -> list[Row]:
    """As Spark makes one, task by task."""
    return [row for share in shares_of(work) for row in await work_on(work, share.queues, share.slice_s)]


def total(rows: Sequence[Row]) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows:
        found.update({"moved": row.moved, "dead_lettered": row.dead_lettered, "left": row.left, "done": row.is_done})
    return +found


async def set_status(both: Pair, queue: str, status: str) -> None:
    async with Administration(both.primary.connection_string) as administration:
        await administration.update_queue(queue, QueueSettings(status=status))


@covers("D2")
async def test_backlogs_come_home_in_the_order_of_their_queue_and_say_what_they_are() -> None:
    async with pair("orders", "events", queues=3) as both:
        for queue in range(3):
            await both.divert("orders", numbered(300, queue * 1000), queue)
            await both.divert("events", numbered(50, queue * 1000), queue)
        assert total(await batch(work_between(both))) == {"moved": 1050, "done": 3}
        orders, events = bodies(await both.at_home("orders")), bodies(await both.at_home("events"))
        for queue in range(3):
            assert [n for n in orders if n // 1000 == queue] == list(range(queue * 1000, queue * 1000 + 300))
            assert [n for n in events if n // 1000 == queue] == list(range(queue * 1000, queue * 1000 + 50))
        assert await both.left() == 0
        async with Administration(both.primary.connection_string) as administration:
            counted = {(one.operation, one.reason): one.operations for one in await in_total(administration.requests)}
        assert counted["send", "syphon"] == 1050


@covers("D2")
async def test_what_a_dead_destination_does_not_take_is_left_and_comes_in_order_later() -> None:
    async with pair("dead", "alive") as both:
        await both.divert("dead", numbered(300))
        await both.divert("alive", numbered(20))
        await both.divert("nowhere", numbered(3))
        await set_status(both, "dead", "SendDisabled")
        rows = await batch(work_between(both))
        assert total(rows) == {"moved": 20, "dead_lettered": 3, "left": 300, "done": 1}
        assert [row.path for row in rows if row.is_dead] == ["dead"]
        await set_status(both, "dead", "Active")
        assert total(await batch(work_between(both))) == {"moved": 300, "done": 1}
        assert bodies(await both.at_home("dead")) == list(range(300))


@covers("D2")
async def test_a_queue_that_is_out_is_named_and_the_others_are_emptied() -> None:
    async with pair("orders", queues=3) as both:
        for queue in range(3):
            await both.divert("orders", numbered(20, queue * 100), queue)
        fault = await both.secondary.inject_fault(f"entity/{both.queues[1]}", "unavailable")
        rows = await batch(work_between(both))
        (trouble,) = [row.trouble for row in rows if row.trouble]
        assert trouble.startswith(f"{both.queues[1]}: ")
        assert sorted(bodies(await both.at_home("orders"))) == [*range(20), *range(200, 220)]
        await both.secondary.heal(fault)
        assert total(await batch(work_between(both))) == {"moved": 20, "done": 3}


@covers("D2")
async def test_a_drain_goes_on_in_the_next_batch_where_one_had_enough() -> None:
    async with pair("orders") as both:
        await both.divert("orders", numbered(3_000))
        work, moved = work_between(both, most=1_000), list[int]()
        while True:
            found = total(await batch(work))
            moved.append(found["moved"])
            if found["done"]:
                break
        assert sum(moved) == 3_000
        assert max(moved) < 3_000
        assert bodies(await both.at_home("orders")) == list(range(3_000))


@covers("D2")
async def test_a_job_that_runs_on_ends_its_batches_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syphon_task, "SLICE_S", 1.0)
    async with pair("orders", queues=2) as both:
        await both.divert("orders", numbered(10))
        assert total(await batch(work_between(both, is_drain=False, tasks=1))) == {"moved": 10}


@covers("D2", "N11")
async def test_batches_that_move_nothing_last_longer_and_longer_up_to_a_long_poll(tmp_path: Path) -> None:
    """A batch begins with a receive for each queue: 4 an hour while the backlog is empty."""
    async with pair(queues=3) as both:
        work = replace(work_between(both, is_drain=False), idle_file=str(tmp_path / "idle"))
        lasting = []
        for idle in ("", "0", "1", "3", "10"):
            if idle:
                (tmp_path / "idle").write_text(idle)
            lasting.append({share.slice_s for share in shares_of(work)})
        assert lasting == [{8.0}, {8.0}, {16.0}, {64.0}, {900.0}]


@covers("D2")
async def test_a_job_that_runs_on_names_a_queue_that_is_out_and_uses_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syphon_task, "SLICE_S", 1.0)
    async with pair("orders", queues=2) as both:
        fault = await both.secondary.inject_fault(f"entity/{both.queues[1]}", "unavailable")
        rows = await batch(work_between(both, is_drain=False))
        (trouble,) = [row.trouble for row in rows if row.trouble]
        assert trouble.startswith(f"{both.queues[1]}: ")
        await both.secondary.heal(fault)
        await both.divert("orders", numbered(10), 1)
        rows = await batch(work_between(both, is_drain=False))
        assert total(rows) == {"moved": 10}
        assert [row.trouble for row in rows if row.trouble] == []


@covers("D2")
async def test_both_syphons_at_once_bring_each_message_home_once() -> None:
    async with pair("orders", queues=2) as both:
        for queue in range(2):
            await both.divert("orders", numbered(400, queue * 1000), queue)
        await asyncio.gather(both.syphon(SETTINGS).run(once=True), batch(work_between(both)))
        assert sorted(bodies(await both.at_home("orders"))) == [*range(400), *range(1000, 1400)]


@covers("D2")
async def test_a_checkpoint_of_another_primary_is_refused() -> None:
    async with pair("orders") as both:
        offset = BacklogReader(work_between(both, name="fabrikam")).initialOffset()
        with pytest.raises(InvalidArgument, match="this checkpoint is of the backlog of 'fabrikam', not of 'contoso'"):
            BacklogReader(work_between(both)).latestOffset(offset, ReadAllAvailable())


def test_destinations_are_dead_from_a_refusal_until_they_take_messages() -> None:
    def told(result: SyphonResult, waiting_for: list[str], took: list[str]) -> list[str]:
        counts = {"moved": len(took), "moved_bytes": 0, "dead_lettered": 0, "left": 0, "troubles": []}
        result.add({"observedMetrics": {"syphon": {**counts, "waiting_for": waiting_for, "took": took}}})
        return result.dead_destinations

    result = SyphonResult()
    assert told(result, ["b", "a"], ["c"]) == ["a", "b"]
    assert told(result, [], ["c"]) == ["a", "b"], "nobody has asked them"
    assert told(result, ["b"], ["a", "b"]) == ["b"], "it took some, and then none"
    assert told(result, [], ["b"]) == []
    assert (result.moved, result.batches) == (5, 4)


@covers("D2")
async def test_the_guarantee_names_destinations_without_duplicate_detection() -> None:
    async with pair() as both:
        await both.primary.create_queue("safe", requires_duplicate_detection=True)
        namespaces = Namespaces(both.primary.connection_string, both.secondary.connection_string)
        assert (
            "exactly once at queues and topics with duplicate detection (1 of 1), unless the job is interrupted for "
            "longer than ids are remembered (10 min at 'safe')"
        ) in await guarantee(namespaces)
        await both.primary.create_topic(
            "short", requires_duplicate_detection=True, duplicate_detection_history_time_window=60
        )
        await both.primary.create_queue("plain")
        told = await guarantee(namespaces)
        assert "(2 of 3)" in told
        assert "(1 min at 'short')" in told
        assert told.endswith("at least once at those without: plain")


def test_without_duplicate_detection_anywhere_nothing_is_promised_exactly_once() -> None:
    assert guarantee_with({"plain": None}).startswith("each message arrives at least once: no queue or topic")
