"""Peeking, deferred messages, and deleting many."""

from __future__ import annotations

import pytest

from tandembus.errors import InvalidArgument, MessageNotFound
from tests.behaviour.driver import Bus, Queue
from tests.covers import covers

BODIES = [f"m{index:02}" for index in range(20)]


async def deferred(queue: Queue, *bodies: str) -> list[int]:
    """Returns their numbers."""
    await queue.send(*bodies)
    found = await queue.receive(len(bodies))
    for one in found:
        await one.defer()
    return [one.number for one in found]


async def mixed(queue: Queue) -> dict[str, int]:
    """One message in each state; returns their numbers."""
    await deferred(queue, "deferred")
    await queue.send("gone")
    await queue.bodies()
    await queue.send("locked", "active")
    await queue.receive_one()
    await queue.send("scheduled", in_s=10.0)
    found = {one.body: one.number for one in await queue.peek()}
    return {**found, "gone": found["deferred"] + 1, "never given": found["scheduled"] + 999}


@covers("M4")
async def test_peek_shows_what_is_there_in_every_state_and_passes_over_what_is_gone(queue: Queue) -> None:
    await mixed(queue)
    states = [(one.body, one.state) for one in await queue.peek()]
    active = [("locked", "active"), ("active", "active")]
    assert states == [("deferred", "deferred"), *active, ("scheduled", "scheduled")]
    counts = await queue.counts()
    assert (counts.active, counts.deferred, counts.scheduled) == (3, 1, 1)


@covers("M4")
async def test_peek_changes_nothing(bus: Bus, queue: Queue) -> None:
    await queue.send(*BODIES)
    before = bus.commit_count
    assert await queue.held() == BODIES
    assert bus.commit_count == before
    assert {one.delivery_count for one in await queue.receive()} == {0}


@covers("M4")
async def test_peek_begins_at_the_number_asked_for_and_is_bounded(queue: Queue) -> None:
    await queue.send(*BODIES, padding=1000)
    numbers = [one.number for one in await queue.peek()]

    async def peek(*bounds: int) -> list[str]:
        return [one.body for one in await queue.peek(*bounds)]

    assert await peek(numbers[14], 3) == BODIES[14:17]
    assert await peek(numbers[-1] + 1) == []
    assert await peek(0, 100, 1) == BODIES[:1], "at least one"
    assert await peek(0, 100, 2500) == BODIES[:2]
    await queue.bodies(12)
    assert await peek(0, 2) == BODIES[12:14]


@covers("M3", "M4")
async def test_dead_letters_can_be_peeked_and_deferred(queue: Queue) -> None:
    await queue.send("a", "b")
    await (await queue.receive_one()).dead_letter()
    dead = await queue.dead_letters.receive_one()
    await dead.defer(tries="one")
    assert await queue.held() == ["b"]
    (peeked,) = await queue.dead_letters.peek()
    assert (peeked.body, peeked.properties["tries"], peeked.state) == ("a", "one", "deferred")
    assert await queue.dead_letters.receive() == []
    assert [one.body for one in await queue.dead_letters.receive_deferred(dead.number)] == ["a"]


@covers("M3")
async def test_a_deferred_message_is_received_by_its_number_only(bus: Bus, queue: Queue) -> None:
    (number,) = await deferred(queue, "a")
    await bus.kill()
    assert await queue.receive() == []
    (one,) = await queue.receive_deferred(number)
    assert (one.body, one.delivery_count) == ("a", 1)
    await one.complete()
    assert (await queue.held(), (await queue.counts()).deferred) == ([], 0)


@covers("M3")
@pytest.mark.parametrize("end", ["abandon", "defer", "lapse", "release"])
async def test_a_deferred_message_that_comes_back_is_deferred_again(bus: Bus, queue: Queue, end: str) -> None:
    (number,) = await deferred(queue, "a")
    (one,) = await queue.receive_deferred(number)
    if end == "lapse":
        await bus.advance(61.0)
    else:
        await one.settle(end)  # type: ignore[arg-type]
    assert await queue.receive() == []
    assert (await queue.counts()).deferred == 1
    (one,) = await queue.receive_deferred(number)
    assert one.delivery_count == (1 if end == "release" else 2)
    await one.dead_letter()
    assert (await queue.held(), await queue.dead_letters.held()) == ([], ["a"])
    assert (await queue.counts()).deferred == 0


@covers("M2", "M3")
async def test_deferred_messages_received_and_deleted_are_gone_when_that_is_answered(bus: Bus, queue: Queue) -> None:
    numbers = await deferred(queue, "a", "b")
    assert [one.body for one in await queue.receive_deferred(*numbers, is_destructive=True)] == ["a", "b"]
    await bus.kill()
    assert await queue.held() == []


@covers("M3")
@pytest.mark.parametrize("which", ["active", "locked", "scheduled", "gone", "never given"])
async def test_deferred_messages_are_received_all_or_none(queue: Queue, which: str) -> None:
    numbers = await mixed(queue)
    with pytest.raises(MessageNotFound):
        await queue.receive_deferred(numbers["deferred"], numbers[which])
    assert [one.body for one in await queue.receive_deferred(numbers["deferred"])] == ["deferred"]


@covers("M3")
async def test_a_number_that_stands_twice_is_refused(queue: Queue) -> None:
    (number,) = await deferred(queue, "a")
    with pytest.raises(InvalidArgument):
        await queue.receive_deferred(number, number)


@covers("M3")
async def test_of_two_who_ask_for_one_deferred_message_one_gets_it(queue: Queue) -> None:
    (number,) = await deferred(queue, "a")
    assert len(await queue.receive_deferred(number)) == 1
    with pytest.raises(MessageNotFound):
        await queue.receive_deferred(number)


@covers("M3")
async def test_a_batch_delete_takes_the_oldest_that_wait(bus: Bus, queue: Queue) -> None:
    await queue.send(*BODIES)
    assert await queue.delete_batch(5) == 5
    assert await queue.held() == BODIES[5:]
    await bus.kill()
    receiver = await queue.receiver()
    await receiver.take(1)
    await queue.delete_batch(10)
    assert [one.body for one in await queue.receive()] == BODIES[16:]


@covers("M3")
async def test_a_batch_delete_leaves_what_was_enqueued_later_and_what_does_not_wait(bus: Bus, queue: Queue) -> None:
    await mixed(queue)
    await bus.advance(5.0)
    await queue.send("new")
    assert await queue.delete_batch(before_s=-1.0) == 1
    assert await queue.held() == ["deferred", "locked", "scheduled", "new"]
