"""The tasks of the syphon on Spark, without Spark: between two real namespaces, batch by batch."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import date

import pytest

pytest.importorskip("pyspark")


from tandembus.amqp.encoding.sections import application_properties_section, data_section
from tandembus.client import OutgoingMessage, connect
from tandembus.client.administration import Administration
from tandembus.client.meter import in_total, since_start
from tandembus.errors import InvalidArgument, StaleEpoch
from tandembus.metering.bills import Used
from tandembus.metering.failover_costs import failover_use
from tandembus.metering.paired_costs import diverted
from tandembus.metering.prices import Counting
from tandembus.pairing.aliases import PATH, SESSION_ID
from tandembus.pairing.syphon_rules import SyphonSettings
from tandembus.spark.jobs.syphon import guarantee, guarantee_with, sending_home
from tandembus.spark.jobs.syphon_home import Pair as Namespaces
from tandembus.testing import AsyncEmbeddedNamespace
from tests.covers import covers
from tests.integration.syphons import bodies, numbered, pair
from tests.unit.spark.jobs.querying import Query, set_status


@covers("D2")
async def test_backlogs_come_home_in_the_order_of_their_queue() -> None:
    async with pair("orders", "events", queues=3) as both:
        for queue in range(3):
            await both.divert("orders", numbered(300, queue * 1000), queue)
            await both.divert("events", numbered(50, queue * 1000), queue)
        query = Query(both, max_messages=400)
        await query.drain()
        orders, events = bodies(await both.at_home("orders")), bodies(await both.at_home("events"))
        for queue in range(3):
            assert [n for n in orders if n // 1000 == queue] == list(range(queue * 1000, queue * 1000 + 300))
            assert [n for n in events if n // 1000 == queue] == list(range(queue * 1000, queue * 1000 + 50))
        assert await both.left() == 0
        assert query.outcome["moved"] == 1050


@covers("D2")
async def test_messages_come_home_as_they_were_sent() -> None:
    async with pair() as both:
        await both.primary.create_queue("orders", requires_session=True)
        sent = OutgoingMessage(b"shoes", message_id="1", session_id="s", properties={"size": 42, "wide": True})
        await both.divert("orders", [sent])
        await Query(both).drain()
        async with await connect(both.primary.connection_string) as bus:
            receiver = await bus.accept_session("orders", "s")
            (message,) = await receiver.receive(1, wait_s=5.0)
        assert (message.message_id, message.session_id) == ("1", "s")
        assert message.properties == {"size": 42, "wide": True}


@covers("D2")
async def test_a_destination_that_takes_none_is_in_nobodys_way_and_gets_its_messages_in_order_later() -> None:
    async with pair("dead", "alive") as both:
        await both.divert("dead", numbered(500))
        await both.divert("alive", numbered(20))
        await set_status(both, "dead", "SendDisabled")
        query = Query(both, max_messages=100)
        await query.drain()
        assert bodies(await both.at_home("alive")) == list(range(20))
        assert await both.left() == 500
        await set_status(both, "dead", "Active")
        await both.divert("dead", numbered(30, 500))
        await query.drain()
        assert bodies(await both.at_home("dead")) == list(range(530))
        assert await both.left() == 0


@covers("D2")
async def test_what_cannot_come_home_becomes_dead_letters_with_a_reason() -> None:
    async with pair("orders") as both:
        await both.primary.create_queue("sessions", requires_session=True)
        await both.divert("orders", numbered(3))
        await both.divert("sessions", [OutgoingMessage(b"without a session")])
        await both.divert("nowhere", [OutgoingMessage(b"x")] * 3)
        wrong: list[dict[str, object]] = [
            {PATH: "orders/$deadletterqueue"},
            {PATH: b"orders"},
            {PATH: "orders", SESSION_ID: 5},
        ]
        await both.store([application_properties_section(each) + data_section(b"x") for each in wrong])
        await both.store([data_section(b"no path")])
        query = Query(both)
        await query.drain()
        reasons = Counter(letter.dead_letter_reason for letter in await both.dead_letters())
        assert reasons == {
            "RefusedByDestination": 1,
            "DestinationNotFound": 3,
            "NoPath": 1,
            "MalformedPath": 2,
            "MalformedProperty": 1,
        }
        assert bodies(await both.at_home("orders")) == [0, 1, 2]
        assert await both.left() == 0
        assert query.outcome["dead_lettered"] == 8


@covers("D2")
async def test_while_the_primary_is_away_everything_stays() -> None:
    async with pair("orders") as both:
        await both.divert("orders", numbered(50))
        query = Query(both)
        await both.primary.stop()
        await query.drain()
        assert await both.left() == 50
        assert query.outcome["moved"] == 0


@covers("D2")
async def test_a_batch_that_is_repeated_sends_only_what_was_not_accepted() -> None:
    """A task that failed, or a driver that was killed before it could note that the batch is done."""
    async with pair("orders") as both:
        await both.divert("orders", numbered(40))
        first = Query(both)
        before, planned = first.offset, await first.plan()
        await first.move(planned)
        second = Query(both)
        second.offset = before
        await second.move(planned)
        await second.drain()
        assert bodies(await both.at_home("orders")) == list(range(40))


@covers("D2")
async def test_what_a_killed_run_had_reserved_is_moved_by_the_next_one_without_a_checkpoint() -> None:
    async with pair("orders") as both:
        await both.divert("orders", numbered(40))
        await Query(both).plan()
        await Query(both).drain()
        assert bodies(await both.at_home("orders")) == list(range(40))
        assert await both.left() == 0


@covers("D2")
async def test_an_older_syphon_is_fenced_by_a_newer_one_before_it_sends_anything() -> None:
    async with pair("orders") as both:
        await both.divert("orders", numbered(10))
        older, newer = Query(both), Query(both)
        planned = await older.plan()
        parts = await asyncio.to_thread(older.reader.partitions, older.offset, planned)
        await newer.plan()
        with pytest.raises(StaleEpoch, match="another syphon on Spark has taken over"):
            await older.plan()
        with pytest.raises(StaleEpoch):
            await asyncio.to_thread(lambda: list(sending_home(older.namespaces)(older.reader.read(parts[0]))))
        assert (await both.primary.counts("orders")).active == 0


@covers("D2")
async def test_what_waits_is_given_back_in_the_end_and_found_by_any_syphon() -> None:
    async with pair("orders") as both:
        await both.divert("orders", numbered(25))
        await set_status(both, "orders", "SendDisabled")
        query = Query(both)
        await query.drain()
        await query.end()
        assert query.outcome["given_back"] == 25
        await set_status(both, "orders", "Active")
        assert await both.syphon(SyphonSettings(quiet_s=0.1)).run(once=True)
        assert bodies(await both.at_home("orders")) == list(range(25))


@covers("D2")
async def test_both_syphons_at_once_bring_each_message_home_once() -> None:
    async with pair("orders", queues=2) as both:
        for queue in range(2):
            await both.divert("orders", numbered(400, queue * 1000), queue)
        query = Query(both, max_messages=100)
        await asyncio.gather(both.syphon(SyphonSettings(quiet_s=0.1)).run(once=True), query.drain())
        await query.drain()
        home = bodies(await both.at_home("orders"))
        assert sorted(home) == [*range(400), *range(1000, 1400)]


@covers("D2")
async def test_the_links_home_say_what_they_are_for() -> None:
    async with pair("orders") as both:
        await both.divert("orders", numbered(5))
        await Query(both).drain()
        async with Administration(both.primary.connection_string) as administration:
            counted = {(one.operation, one.reason): one.operations for one in await in_total(administration.requests)}
        assert counted["send", "syphon"] == 5


@covers("D2", "D4", "N13")
async def test_what_the_job_takes_is_what_the_calculator_says_but_for_looks_and_reservations() -> None:
    """Two units each. It looks where the program receives, so that what the calculator has there stands under peeks."""
    async with pair("orders", queues=2) as both:
        for queue in range(2):
            await both.divert("orders", [OutgoingMessage(bytes(70_000), message_id=str(n)) for n in range(6)], queue)
        query = Query(both)
        await query.drain()
        use = failover_use([*await counted_by(both.primary), *await counted_by(both.secondary)])
        expected = diverted(12, 70_000, Counting())
        assert use.diverted.charges == (expected.charges[0], 0, *expected.charges[2:])
        assert use.peeks == expected.receives_from_backlog
        assert use.diverted.settlements == expected.settlements
        assert use.left_secondary_bytes >= expected.size_bytes
        assert use.diverted.further_operations + use.peeks == expected.further_operations
        assert (use.pings, use.long_polls, use.renewals, use.waiting) == (0, 0, 0, 0)
        for _ in range(3):
            await query.plan()
        idle = failover_use(await counted_by(both.secondary))
        assert idle.rest - use.rest == 3 * 2, "an idle job asks each queue once, every second"
        assert idle.peeks == use.peeks


async def counted_by(namespace: AsyncEmbeddedNamespace) -> list[Used]:
    async with Administration(namespace.connection_string) as administration:
        day = date(2026, 11, 16)
        return [
            Used(
                "",
                one.entity,
                one.operation,
                one.reason,
                day,
                one.calls,
                one.messages,
                one.operations,
                one.size_bytes,
            )
            async for one in since_start(administration.requests)
        ]


@covers("D2")
async def test_a_checkpoint_of_another_primary_is_refused() -> None:
    async with pair("orders") as both:
        other, query = Query(both, primary_name="fabrikam"), Query(both)
        query.offset = other.offset
        with pytest.raises(InvalidArgument, match="this checkpoint is of the backlog of 'fabrikam', not of 'contoso'"):
            await query.plan()


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
