"""Messages that go on from one entity to another."""

from __future__ import annotations

import pytest

from tandembus.descriptions import EntityStatus
from tandembus.errors import InvalidOperation
from tests.behaviour.driver import Bus, Draft, Fault, Queue, message
from tests.behaviour.shapes import PARTITIONED, PARTITIONED_CHANNEL, PLAIN, on_shapes
from tests.covers import covers

BODIES = [f"m{number:02}" for number in range(20)]


async def chain(bus: Bus, *names: str, **settings: object) -> list[Queue]:
    """Each forwards to the next; the last one has these settings."""
    made = [await bus.queue(names[-1], **settings)]
    for name, target in zip(names[-2::-1], names[:0:-1], strict=True):
        made.insert(0, await bus.queue(name, forward_to=target))
    return made


async def arrived(bus: Bus, seconds: float = 2.0) -> None:
    await bus.advance(seconds)


async def reasons(queue: Queue) -> list[tuple[str, object]]:
    return [(one.body, one.reason) for one in await queue.transfer_dead_letters.peek_all()]


@covers("M10", "P17")
@pytest.mark.parametrize("is_spread", [False, True])
async def test_messages_go_on_once_in_order_and_leave_nothing_behind(bus: Bus, is_spread: bool) -> None:
    first, middle, last = await chain(bus, "a", "b", "c")
    await first.send(*BODIES, is_spread=is_spread)
    await arrived(bus)
    assert (await first.held(), await middle.held()) == ([], [])
    found = await last.peek_all()
    assert (sorted if is_spread else list)([one.body for one in found]) == BODIES
    assert (await first.counts()).size_bytes == 0
    with pytest.raises(InvalidOperation, match="forwards its messages to 'b'"):
        await first.receive()


@covers("M10")
@on_shapes(PLAIN, PARTITIONED, PARTITIONED_CHANNEL)  # to another store nothing overtakes what is locked
async def test_more_than_one_pass_takes_and_what_lay_there_before_goes_on_too(bus: Bus) -> None:
    source, target = await bus.queue("a"), await bus.queue("b")
    bodies = [f"{number:04}" for number in range(1100)]
    await source.send_batch(*bodies)
    (locked,) = await source.receive(1)
    await source.update(forward_to="b")
    await arrived(bus)
    assert (await source.held(), (await target.counts()).active) == (bodies[:1], 1099)
    await locked.abandon(colour="red")
    await arrived(bus)
    found = await target.receive(2000)
    assert [one.body for one in found] == [*bodies[1:], bodies[0]]
    assert (found[-1].properties, found[-1].delivery_count) == ({"colour": "red"}, 0)
    assert found[-1].original_number == locked.number, "as at the first entity"
    await source.update(forward_to=None)
    await source.send("z")
    assert await source.held() == ["z"]


@covers("M5", "M6", "M10")
async def test_time_to_live_counts_again_and_scheduled_messages_go_on_when_they_are_due(bus: Bus) -> None:
    source, target = await chain(bus, "a", "b", default_message_time_to_live_s=50.0)
    await source.send("short", ttl_s=10.0)
    await source.send("long", ttl_s=80.0)
    await source.send("later", in_s=5.0)
    await arrived(bus, 1.0)
    assert await target.held() == ["short", "long"]
    await bus.advance(12.0)
    assert await target.held() == ["long", "later"]
    await bus.advance(40.0)
    assert await target.held() == ["later"]


@covers("M10")
async def test_a_fifth_hop_is_not_allowed(bus: Bus) -> None:
    names = list("abcdef")
    queues = [await bus.queue(name) for name in names]
    for queue, target in zip(queues, names[1:], strict=False):
        if target != "f":
            await queue.update(forward_to=target)
    await queues[0].send("x")
    await arrived(bus)
    assert await queues[4].held() == ["x"]


@covers("M10")
@pytest.mark.parametrize("end", ["deleted", "sessions"])
async def test_what_a_destination_can_never_take_goes_to_the_transfer_dead_letters(bus: Bus, end: str) -> None:
    source, target = await chain(bus, "a", "b", requires_session=end == "sessions")
    await source.send(message("x", session="s"), "y")
    await arrived(bus)
    if end == "deleted":
        await target.delete()
        await source.send("z")
        await arrived(bus)
        assert await reasons(source) == [("z", "TransferDestinationNotFound")]
    else:
        assert await target.held() == ["x"]
        assert await reasons(source) == [("y", "TransferNotAllowed")]
    assert await source.held() == []


@covers("M10", "M13")
@pytest.mark.parametrize("why", ["disabled", "full", "no room"])
async def test_what_a_destination_does_not_take_for_now_waits_in_order(bus: Bus, why: str) -> None:
    source, target = await chain(bus, "a", "b", max_size_in_megabytes=1)
    if why == "disabled":
        await target.update(status=EntityStatus.SEND_DISABLED)
    elif why == "no room":
        await source.update(status=EntityStatus.RECEIVE_DISABLED)
    await source.send("x", "y", "z", padding=200_000 if why == "full" else 0)
    await source.send("large", "last", padding=250_000 if why == "full" else 0)
    await arrived(bus)
    held = await target.held()
    assert len(held) == (4 if why == "full" else 0)
    if why == "disabled":
        await target.update(status=EntityStatus.ACTIVE)
    elif why == "no room":
        bus.set_room(10, 100)
        await bus.advance(20.0)
        await source.update(status=EntityStatus.ACTIVE)
        await arrived(bus)
        assert await target.held() == []
        bus.set_room()
    else:
        assert await target.bodies(3) == ["x", "y", "z"]
    await bus.advance(130.0)
    expected = ["x", "y", "z", "large", "last"]
    assert await target.bodies() == (expected[3:] if why == "full" else expected)


@covers("M8", "M10")
async def test_duplicates_are_detected_where_messages_arrive(bus: Bus) -> None:
    source, target = await chain(bus, "a", "b", requires_duplicate_detection=True)
    await target.send("x")
    await source.send("x", "y", "y", "z")
    await arrived(bus)
    await bus.kill()
    await source.send("z", "w")
    await arrived(bus)
    assert await target.held() == ["x", "y", "z", "w"]


@covers("M3", "M9", "M10", "P17")
async def test_dead_letters_and_subscriptions_go_on_and_say_where_they_come_from(bus: Bus) -> None:
    failed, work = await bus.queue("failed"), await bus.queue("work")
    topic = await bus.topic()
    await bus.subscription(topic, "on", forward_to="work")
    kept = await bus.subscription(topic, "kept", forward_dead_lettered_messages_to="failed")
    await topic.send(*BODIES)
    await arrived(bus)
    assert await work.held() == BODIES
    for one in await kept.receive():
        await one.dead_letter("Broken")
    await arrived(bus)
    found = await failed.receive()
    assert [one.body for one in found] == BODIES
    assert {(one.reason, one.source) for one in found} == {("Broken", "news/Subscriptions/kept")}


@covers("M10", "M11")
async def test_what_is_sent_via_an_entity_leaves_through_its_transfer_lane(bus: Bus) -> None:
    source, target = await bus.queue("a"), await bus.queue("b")
    await source.send("kept")
    one = await source.receive_one()
    await source.transaction([Draft("on")], [(one, "complete")], via="b")
    await source.send("nowhere", via="gone")
    await arrived(bus)
    assert (await source.held(), await source.transfers.held(), await target.held()) == ([], [], ["on"])
    assert await reasons(source) == [("nowhere", "TransferDestinationNotFound")]


@covers("F2", "F3", "P17")
@pytest.mark.parametrize("trouble", ["kill", *Fault])
@pytest.mark.parametrize("commit", range(3))
async def test_whatever_happens_on_the_way_each_message_arrives_once(
    bus: Bus, trouble: str | Fault, commit: int
) -> None:
    source, target = await chain(bus, "a", "b", status=EntityStatus.SEND_DISABLED)
    await source.send(*BODIES)
    await target.update(status=EntityStatus.ACTIVE)
    if isinstance(trouble, Fault):
        bus.fail_next(trouble, after=commit)
        await bus.advance(1.0)
        bus.go_on()
    else:
        await bus.turn(5 * commit)
        await bus.kill()
    await bus.advance(200.0)
    assert await target.bodies() == BODIES
    assert (await source.counts()).active == 0
