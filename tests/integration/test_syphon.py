"""The syphon between two real namespaces: everything comes home, in order, and nobody waits for anybody else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from tandembus.amqp.encoding.sections import (
    amqp_value_section,
    application_properties_section,
    data_section,
    decode_message,
)
from tandembus.amqp.encoding.values import int_, timestamp
from tandembus.client import OutgoingMessage, connect
from tandembus.client.messages import as_new
from tandembus.errors import EntityDisabled
from tandembus.limits import Limits
from tandembus.pairing.aliases import PATH, SCHEDULED_ENQUEUE_TIME, SESSION_ID, TIME_TO_LIVE, backlog_path
from tandembus.pairing.client_ports import ClientBacklog, ClientPrimary, SharedConnection
from tandembus.pairing.payloads import to_backlog
from tandembus.pairing.syphon_hands import SHORTEST_LOCK_S
from tandembus.pairing.syphon_messages import Delivery
from tandembus.pairing.syphon_rules import SyphonSettings
from tests.covers import covers
from tests.integration.syphons import PATIENCE_S, Pair, bodies, everything, numbered, pair, until
from tests.unit.pairing.sdk_messages import BODIES, PROPERTIES, annotated, full_message, wire


async def have_arrived(both: Pair, path: str, count: int) -> None:
    async def are_there() -> bool:
        return (await both.primary.counts(path)).active >= count

    await until(are_there)


async def is_empty(both: Pair) -> bool:
    return await both.left() == 0


async def are_left(both: Pair, count: int) -> bool:
    return await both.left() == count


@covers("N11")
async def test_messages_of_all_backlog_queues_come_home_in_the_order_of_their_queue() -> None:
    async with pair("orders", "events", queues=3) as both:
        for queue in range(3):
            await both.divert("orders", numbered(700, queue * 1000), queue)
            await both.divert("events", numbered(50, queue * 1000), queue)
        assert await both.syphon().run(once=True)
        orders, events = bodies(await both.at_home("orders")), bodies(await both.at_home("events"))
        for queue in range(3):
            assert [n for n in orders if n // 1000 == queue] == list(range(queue * 1000, queue * 1000 + 700))
            assert [n for n in events if n // 1000 == queue] == list(range(queue * 1000, queue * 1000 + 50))
        assert await both.left() == 0
        assert both.figures.moved_count == 2250


@covers("N8")
async def test_messages_of_all_shapes_arrive_as_if_they_had_been_sent_to_the_primary() -> None:
    shapes = [wire(annotated(BODIES[kind])) for kind in BODIES]
    for name, value in PROPERTIES.items():
        message = annotated(BODIES["data"])
        message.application_properties = {name: value}
        shapes.append(wire(message))
    shapes.append(OutgoingMessage(b"x" * 260_000).encode())  # Near the limit of 256 KB.
    async with pair("direct", "orders") as both:
        async with await connect(both.primary.connection_string) as bus:
            await (await bus.sender("direct")).send_many(shapes)
        await both.divert("orders", shapes)
        assert await both.syphon().run(once=True)
        direct, home = await both.at_home("direct"), await both.at_home("orders")
        assert len(direct) == len(home) == len(shapes)
        for one, other in zip(direct, home, strict=True):
            assert without_id(as_new(one.payload)) == without_id(as_new(other.payload))


def without_id(payload: bytes) -> tuple[object, ...]:
    """All sections with their types; ids that the service gave differ."""
    found = decode_message(payload, True)
    rest = None if found.properties is None else found.properties[1:]
    return found.header, found.message_annotations, rest, found.application_properties, found.bodies, found.footer


@covers("N8")
async def test_a_session_a_time_to_live_and_a_schedule_are_what_they_were() -> None:
    async with pair() as both:
        await both.primary.create_queue("orders", requires_session=True)
        sent = full_message()
        sent.scheduled_enqueue_time_utc = None
        later = OutgoingMessage("later", session_id="s", scheduled_at=4_000_000_000.0).encode()
        await both.divert("orders", [wire(sent), later])
        assert await both.syphon().run(once=True)
        counts = await both.primary.counts("orders")
        assert (counts.active, counts.scheduled) == (1, 1)
        async with await connect(both.primary.connection_string) as bus:
            session = await bus.accept_session("orders", "session-1")
            (message,) = await session.receive(1, 5.0)
            assert message.time_to_live_s == 3 * 3600.0
            assert message.partition_key == "session-1"
            assert PATH not in message.properties


@covers("N8")
async def test_a_schedule_that_is_past_is_enqueued_at_once() -> None:
    async with pair("orders") as both:
        await both.divert("orders", [OutgoingMessage("1", scheduled_at=1_000_000_000.0)])
        assert await both.syphon().run(once=True)
        assert bodies(await both.at_home("orders")) == [1]


@covers("N12")
async def test_malformed_and_refused_messages_become_dead_letters_with_a_reason() -> None:
    async with pair("orders") as both:
        await both.primary.create_queue("sessions", requires_session=True)
        odd = [
            data_section(b"no path"),
            application_properties_section({PATH: b"orders"}) + data_section(b"x"),
            application_properties_section({PATH: "../orders"}) + data_section(b"x"),
            application_properties_section({PATH: "sb://evil.example/orders"}) + data_section(b"x"),
            application_properties_section({PATH: "orders", TIME_TO_LIVE: int_(5)}) + data_section(b"x"),
            application_properties_section({PATH: "orders", SESSION_ID: 5}) + data_section(b"x"),
            application_properties_section({PATH: "orders", SCHEDULED_ENQUEUE_TIME: 5}) + data_section(b"x"),
            application_properties_section({PATH: "orders", SCHEDULED_ENQUEUE_TIME: timestamp(-5)}) + data_section(b""),
            application_properties_section({PATH: "nobody"}) + amqp_value_section("x"),
            application_properties_section({PATH: "sessions"}) + data_section(b"without a session"),
        ]
        await both.store(odd)
        await both.divert("orders", numbered(3))
        assert await both.syphon().run(once=True)
        letters = await both.dead_letters()
        reasons = [letter.dead_letter_reason for letter in letters]
        assert sorted(reasons) == sorted(  # type: ignore[type-var]
            ["NoPath"]
            + ["MalformedPath"] * 3
            + ["MalformedProperty"] * 4
            + ["DestinationNotFound", "RefusedByDestination"]
        )
        assert all(letter.dead_letter_description for letter in letters)
        assert bodies(await both.at_home("orders")) == [0, 1, 2]
        assert await both.left() == 0


@covers("N12")
async def test_one_refused_message_does_not_take_its_neighbours_with_it() -> None:
    async with pair() as both:
        await both.primary.create_queue("orders", requires_session=True)
        await both.divert("orders", [OutgoingMessage(str(n), session_id="s" if n != 5 else None) for n in range(10)])
        assert await both.syphon().run(once=True)
        assert bodies(await both.dead_letters()) == [5]
        assert (await both.primary.counts("orders")).active == 9


@covers("N12")
@pytest.mark.parametrize("kind", ["unavailable", "throttled"])
async def test_messages_for_a_dead_destination_do_not_hold_up_those_behind_them(kind: str) -> None:
    async with pair("dead", "live") as both:
        await both.divert("dead", numbered(1000))
        await both.divert("live", numbered(100))
        fault = await both.primary.inject_fault("entity/dead", kind)  # type: ignore[arg-type]
        async with both.syphoning():
            await have_arrived(both, "live", 100)
            assert bodies(await both.at_home("live")) == list(range(100))
            await until(lambda: are_left(both, 1000))
            assert both.figures.stuck_paths == ["dead"]
            await both.divert("dead", numbered(50, 1000))
            await both.primary.heal(fault)
            await have_arrived(both, "dead", 1050)
            await until(lambda: is_empty(both))
        assert bodies(await both.at_home("dead")) == list(range(1050))
        assert both.figures.dead_lettered_count == 0


@covers("N12")
async def test_a_destination_over_quota_is_tried_again() -> None:
    async with pair(limits=Limits(size_choices_megabytes=(1, 1024))) as both:
        await both.primary.create_queue("orders", max_size_in_megabytes=1)
        large = [OutgoingMessage(b"%d" % n + b" " * 100_000) for n in range(25)]
        await both.divert("orders", large)
        assert not await both.syphon().run(once=True)
        first = await both.at_home("orders")
        assert await both.left() == 25 - len(first) > 0
        async with both.syphoning():
            found = bodies(first)
            while len(found) < 25:
                found += bodies(await both.at_home("orders"))
        assert found == list(range(25))
        assert both.figures.dead_lettered_count == 0


@covers("N12")
async def test_a_new_syphon_finds_what_an_earlier_one_deferred() -> None:
    async with pair("dead", "live") as both:
        await both.divert("dead", numbered(400))
        await both.divert("live", numbered(1))
        async with both.primary.fault("entity/dead", "unavailable"):
            assert not await both.syphon().run(once=True)
        await both.divert("dead", numbered(20, 400))
        assert await both.syphon().run(once=True)
        assert bodies(await both.at_home("dead")) == list(range(420))
        assert await both.left() == 0


@covers("N12")
async def test_deferred_messages_whose_lead_was_removed_come_home_too() -> None:
    async with pair("dead") as both:
        await both.divert("dead", numbered(30))
        async with both.primary.fault("entity/dead", "unavailable"):
            assert not await both.syphon().run(once=True)
        assert bodies(await everything(both.secondary, both.queues[0])) == [0]
        assert await both.syphon().run(once=True)
        assert bodies(await both.at_home("dead")) == list(range(1, 30))


@covers("N12")
async def test_while_the_primary_is_away_nothing_is_deferred() -> None:
    async with pair("orders", "events") as both:
        await both.divert("orders", numbered(200))
        await both.divert("events", numbered(10))
        syphon = both.syphon()
        await both.primary.stop()
        assert not await syphon.run(once=True)
        assert both.figures.record()["deferred"] == 0
        assert await both.left() == 210


@covers("N12")
async def test_a_connection_to_the_secondary_that_is_lost_is_made_anew() -> None:
    async with pair("orders") as both, both.syphoning():
        await both.divert("orders", numbered(10))
        await have_arrived(both, "orders", 10)
        await both.cut_off()
        await both.divert("orders", numbered(10, 10))
        await have_arrived(both, "orders", 20)


@covers("N11")
async def test_several_syphons_at_once_bring_each_message_home_once() -> None:
    async with pair("orders", "dead", queues=2) as both:
        for queue in range(2):
            await both.divert("orders", numbered(1000, queue * 1000), queue)
            await both.divert("dead", numbered(100, queue * 1000), queue)
        fault = await both.primary.inject_fault("entity/dead", "unavailable")
        async with both.syphoning(), both.syphoning(), both.syphoning():
            await have_arrived(both, "orders", 2000)
            await both.primary.heal(fault)
            await have_arrived(both, "dead", 200)
            await until(lambda: is_empty(both))
        assert sorted(bodies(await both.at_home("orders"))) == list(range(2000))
        assert sorted(bodies(await both.at_home("dead"))) == [*range(100), *range(1000, 1100)]


@covers("N1", "N11")
async def test_several_primaries_share_one_secondary() -> None:
    async with pair("orders") as one, pair("orders") as other:
        other.secondary = one.secondary
        other.queues = [backlog_path("fabrikam", 0)]
        await one.secondary.create_queue(other.queues[0])
        await one.divert("orders", numbered(50))
        await other.divert("orders", numbered(50, 50))
        assert await one.syphon().run(once=True)
        assert bodies(await one.at_home("orders")) == list(range(50))
        assert (await other.primary.counts("orders")).active == 0
        assert await other.syphon().run(once=True)
        assert bodies(await other.at_home("orders")) == list(range(50, 100))


@covers("N11")
async def test_an_idle_syphon_does_nothing_but_long_polls() -> None:
    async with pair(queues=3) as both:
        async with both.syphoning(SyphonSettings(poll_s=0.5)):
            await until(lambda: polls(both, 6))
        found = operations(both)
        assert found.pop("peek") == 3  # One look at each queue when it starts, and never again.
        assert set(found) == {"empty_receive"}


async def polls(both: Pair, count: int) -> bool:
    return operations(both).get("empty_receive", 0) >= count


def operations(both: Pair) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in both.secondary.node.meter.totals().since_start:
        found[one.operation] = found.get(one.operation, 0) + one.count.operations
    return found


@covers("N12")
async def test_a_syphon_that_is_stopped_gives_back_what_it_holds() -> None:
    async with pair("dead") as both, both.primary.fault("entity/dead", "unavailable"):
        await both.divert("dead", numbered(3))
        async with both.syphoning():
            await until(lambda: asyncio.sleep(0, bool(both.figures.stuck_paths)))
        assert bodies(await everything(both.secondary, both.queues[0])) == [0]


class Overlooked(ClientBacklog):
    """A port that the service gives nothing, as long as there are others that wait."""

    def __init__(self, secondary: SharedConnection, queue: str) -> None:
        super().__init__(secondary, queue)
        self.is_waiting = asyncio.Event()
        self.is_noticed = asyncio.Event()

    async def receive(self, max_count: int, wait_s: float) -> Sequence[Delivery]:
        self.is_waiting.set()
        await self.is_noticed.wait()
        return await super().receive(max_count, wait_s)


class Reluctant(ClientPrimary):
    """A port to destinations that take as many sends as they are told to."""

    sends_left = 0

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        if not self.sends_left:
            raise EntityDisabled("not now")
        self.sends_left -= 1
        await super().send(path, payloads)


@covers("N11", "N12")
@pytest.mark.parametrize("moved", [0, 1, 2])
async def test_an_idle_syphon_inherits_what_one_that_is_stopped_has_deferred(moved: int) -> None:
    """At once, in order and once: whether its lead was home, and a message behind it, or not."""
    async with pair("orders") as both:
        idle = Overlooked(both.connection_to(both.secondary), both.queues[0])
        reluctant = Reluctant(both.connection_to(both.primary))
        async with both.syphoning(backlog=idle):
            await asyncio.wait_for(idle.is_waiting.wait(), PATIENCE_S)
            async with both.syphoning(primary=reluctant):
                await both.divert("orders", numbered(100))
                await until(lambda: asyncio.sleep(0, both.figures.record()["deferred"] == 99))
                reluctant.sends_left = moved
                await have_arrived(both, "orders", moved)
            idle.is_noticed.set()
            await until(lambda: is_empty(both))
        assert bodies(await both.at_home("orders")) == list(range(100))


@covers("N12")
async def test_the_lock_of_a_lead_is_renewed_as_long_as_its_destination_is_dead() -> None:
    async with pair("dead", lock_duration_s=SHORTEST_LOCK_S) as both:
        await both.divert("dead", numbered(3))
        fault = await both.primary.inject_fault("entity/dead", "unavailable")
        began = time.monotonic()
        async with both.syphoning():
            await until(lambda: has_retried(both, since=began + 1.5 * SHORTEST_LOCK_S))
            await both.primary.heal(fault)
            await have_arrived(both, "dead", 3)
            await until(lambda: is_empty(both))
        assert bodies(await both.at_home("dead")) == [0, 1, 2]
        assert both.figures.lost_lock_count == 0


async def has_retried(both: Pair, since: float) -> bool:
    return time.monotonic() > since and both.figures.record()["retries"] != 0


@covers("N12")
async def test_the_backlog_form_of_a_message_is_not_taken_for_a_command() -> None:
    """A message whose path is a backlog queue goes to the primary's entity of that name, if it has one: never back."""
    async with pair() as both:
        payload = to_backlog(OutgoingMessage("x").encode(), both.queues[0])
        await both.store([payload])
        assert await both.syphon().run(once=True)
        (letter,) = await both.dead_letters()
        assert letter.dead_letter_reason == "DestinationNotFound"
