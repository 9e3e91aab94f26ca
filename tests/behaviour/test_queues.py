"""Sending, receiving and settling."""

from __future__ import annotations

import pytest

from tandembus.errors import EntityNotFound, InvalidOperation, MessageLockLost, QuotaExceeded
from tests.behaviour.driver import Bus, Fault, Queue, Settlement
from tests.behaviour.shapes import UNPARTITIONED, on_shapes
from tests.covers import covers

BODIES = [f"m{index:02}" for index in range(20)]


@covers("M1")
async def test_a_send_is_answered_and_seen_only_after_its_commit(bus: Bus, queue: Queue) -> None:
    receiver = await queue.receiver()
    await receiver.take(5)
    bus.fail_next(Fault.HANG)
    answer = await queue.stage("a")
    await bus.quiet()
    assert (answer.is_given, receiver.bodies, await queue.held()) == (False, [], [])
    bus.go_on()
    await bus.quiet()
    assert answer.is_accepted
    assert receiver.bodies == ["a"]


@covers("M1")
async def test_what_was_accepted_is_there_after_a_crash_and_numbers_go_on(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b", "c")
    before = [one.number for one in await queue.peek()]
    await bus.kill()
    assert await queue.bodies() == ["a", "b", "c"]
    await bus.kill()
    await queue.send("d")
    assert [one.number for one in await queue.peek()] == [before[-1] + 1]


@covers("M1", "M2")
async def test_an_orderly_stop_commits_what_was_accepted(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b")
    one = await queue.receive_one()
    sent, settled = await queue.stage("c"), await one.stage("complete")
    await bus.restart()
    assert sent.is_accepted
    assert settled.is_accepted
    assert await queue.bodies() == ["b", "c"]


@covers("M12")
async def test_a_batch_is_stored_whole_with_consecutive_numbers_in_one_commit(bus: Bus, queue: Queue) -> None:
    await queue.send("first")
    commits = bus.commit_count
    await queue.send_batch(*BODIES)
    assert bus.commit_count == commits + 1
    found = await queue.receive()
    assert [one.number - found[0].number for one in found] == list(range(21))
    assert [one.body for one in found[1:]] == BODIES


@covers("M1")
@on_shapes(*UNPARTITIONED)
async def test_many_sends_of_one_turn_share_one_commit(bus: Bus, queue: Queue) -> None:
    await queue.send("first")
    commits = bus.commit_count
    await queue.send(*BODIES)
    assert bus.commit_count == commits + 1


@covers("M13")
async def test_beyond_the_maximum_size_a_send_is_over_quota_and_receiving_makes_room(bus: Bus) -> None:
    queue = await bus.queue(max_size_in_megabytes=1)
    half = 600_000
    await queue.send("a", padding=half)
    with pytest.raises(QuotaExceeded):
        await queue.send("b", padding=half)
    await (await queue.receive_one()).dead_letter()
    with pytest.raises(QuotaExceeded):
        await queue.send("b", padding=half)
    assert await queue.dead_letters.bodies() == ["a"]
    await queue.send("b", padding=half)


@covers("M13")
async def test_what_waits_for_its_commit_counts_towards_the_maximum_size(bus: Bus) -> None:
    queue = await bus.queue(max_size_in_megabytes=1)
    first = await queue.stage("a", padding=600_000)
    second = await queue.stage("b", padding=600_000)
    await bus.quiet()
    assert first.is_accepted
    assert isinstance(second.error, QuotaExceeded)


@covers("M3")
async def test_a_settlement_is_answered_only_after_its_commit(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b")
    one = await queue.receive_one()
    bus.fail_next(Fault.HANG)
    answer = await one.stage("complete")
    await bus.quiet()
    assert not answer.is_given
    bus.go_on()
    await bus.quiet()
    assert answer.is_accepted
    await bus.kill()
    assert await queue.bodies() == ["b"]


@covers("M3")
async def test_messages_may_be_settled_in_any_order(bus: Bus, queue: Queue) -> None:
    await queue.send(*BODIES)
    found = await queue.receive()
    settled = (19, 3, 0, 11, 7, 1)
    for index in settled:
        await found[index].complete()
    left = [body for index, body in enumerate(BODIES) if index not in settled]
    assert await queue.held() == left
    await bus.kill()
    assert await queue.bodies() == left


@covers("M2", "M3")
@pytest.mark.parametrize(("kind", "count"), [("abandon", 1), ("release", 0)])
async def test_what_is_given_back_comes_again_before_the_others(
    bus: Bus, queue: Queue, kind: Settlement, count: int
) -> None:
    await queue.send("a", "b")
    receiver = await queue.receiver()
    await (await receiver.take(1))[0].settle(kind)
    (again,) = await receiver.take(1)
    assert (again.body, again.delivery_count) == ("a", count)
    await again.settle(kind)
    await bus.kill()
    assert [(one.body, one.delivery_count) for one in await queue.receive()] == [("a", 2 * count), ("b", 0)]


@covers("M2")
async def test_the_last_failed_delivery_ends_among_the_dead_letters(bus: Bus) -> None:
    queue = await bus.queue(max_delivery_count=2)
    await queue.send("a")
    for _ in range(2):
        await (await queue.receive_one()).abandon()
    assert await queue.held() == []
    dead = await queue.dead_letters.receive_one()
    assert (dead.body, dead.delivery_count) == ("a", 2)
    assert dead.properties == {
        "DeadLetterReason": "MaxDeliveryCountExceeded",
        "DeadLetterErrorDescription": "Message could not be consumed after 2 delivery attempts.",
    }


@covers("M3")
@pytest.mark.parametrize("kind", ["abandon", "defer", "dead-letter"])
async def test_a_settlement_may_change_properties_durably(bus: Bus, queue: Queue, kind: Settlement) -> None:
    await queue.send("a", properties={"own": 1, "kept": 2})
    one = await queue.receive_one()
    await one.settle(kind, tries="one", own=3)
    await bus.kill()
    if kind == "defer":
        (found,) = await queue.receive_deferred(one.number)
    else:
        found = await (queue.dead_letters if kind == "dead-letter" else queue).receive_one()
    assert found.properties == {"own": 3, "kept": 2, "tries": "one"}


@covers("M3", "M13")
async def test_changes_that_outgrow_the_limit_make_a_dead_letter_of_the_message_as_it_was(queue: Queue) -> None:
    await queue.send("a")
    await (await queue.receive_one()).abandon(large="x" * 66_000)
    dead = await queue.dead_letters.receive_one()
    assert dead.reason == "HeaderSizeExceeded"
    assert "large" not in dead.properties


@covers("M3")
async def test_a_dead_letter_says_why_and_keeps_the_number_it_was_enqueued_under(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b", properties={"own": 1})
    _, one = await queue.receive(2)
    one.lock.description = "it is broken"
    await one.dead_letter("Broken")
    await bus.kill()
    assert await queue.held() == ["a"]
    dead = await queue.dead_letters.receive_one()
    assert (dead.number & 0xFFFF, dead.original_number) == (1, one.number)
    assert dead.properties == {"own": 1, "DeadLetterReason": "Broken", "DeadLetterErrorDescription": "it is broken"}


@covers("M2", "M3")
async def test_a_dead_letter_may_be_abandoned_for_ever_and_not_dead_lettered_again(bus: Bus) -> None:
    queue = await bus.queue(max_delivery_count=1)
    await queue.send("a")
    await (await queue.receive_one()).dead_letter()
    for _ in range(3):
        await (await queue.dead_letters.receive_one()).abandon()
    dead = await queue.dead_letters.receive_one()
    with pytest.raises(InvalidOperation):
        await dead.dead_letter()
    await dead.complete()
    assert await queue.dead_letters.held() == []


@covers("M12")
async def test_only_a_window_of_a_long_queue_is_in_memory_and_all_of_it_comes_in_order(bus: Bus, queue: Queue) -> None:
    """More than two blocks."""
    bodies = [f"{index:04}" for index in range(2100)]
    await queue.send_batch(*bodies)
    receiver = await queue.receiver()
    await receiver.take(900)
    for one in receiver.received[::2]:
        await one.stage("complete")
    await bus.quiet()
    await bus.kill()
    assert await queue.bodies(5000) == [body for index, body in enumerate(bodies) if index >= 900 or index % 2]
    assert bus.record_count("bodies") < 1024, "only those of the last block are still to go"


@covers("M1")
async def test_receive_and_delete_removes_a_message_before_it_delivers_it(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b")
    receiver = await queue.receiver(is_destructive=True)
    bus.fail_next(Fault.HANG)
    receiver.want(1)
    await bus.quiet()
    assert receiver.bodies == []
    bus.go_on()
    await bus.quiet()
    assert receiver.bodies == ["a"]
    await bus.kill()
    assert await queue.held() == ["b"]


@covers("M12")
async def test_competing_receivers_get_each_message_once(bus: Bus, queue: Queue) -> None:
    receivers = [await queue.receiver() for _ in range(3)]
    for one in receivers:
        one.want(7)
    await queue.send(*BODIES)
    assert sorted(body for one in receivers for body in one.bodies) == BODIES
    assert max(len(one.received) for one in receivers) <= 7


@covers("M12")
async def test_a_receiver_that_takes_its_credit_back_gets_nothing_more(bus: Bus, queue: Queue) -> None:
    receiver = await queue.receiver()
    receiver.want(5)
    await bus.quiet()
    receiver.stop_wanting()
    await queue.send("a")
    assert receiver.bodies == []
    assert [one.body for one in await receiver.take(1)] == ["a"]


@covers("M12")
async def test_a_drain_brings_what_there_is_and_ends(bus: Bus, queue: Queue) -> None:
    receiver = await queue.receiver()
    receiver.want(5, is_draining=True)
    await bus.advance(1.0)
    assert (receiver.bodies, receiver.drain_count) == ([], 1)
    await queue.send("a", "b")
    receiver.want(5, is_draining=True)
    await bus.advance(1.0)
    assert (receiver.bodies, receiver.drain_count) == (["a", "b"], 2)


@covers("M1")
async def test_a_deleted_queue_takes_its_messages_along_and_one_of_its_name_is_new(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b", ttl_s=50.0)
    await queue.schedule("later", in_s=10.0)
    one = await queue.receive_one()
    await queue.delete()
    with pytest.raises((EntityNotFound, MessageLockLost)):
        await one.complete()
    with pytest.raises(EntityNotFound):
        await queue.send("c")
    await bus.queue()
    await bus.advance(60.0)
    assert bus.record_count("bodies", "blocks", "schedules", "expiries", "overlays") == 0
    assert await queue.held() == []
