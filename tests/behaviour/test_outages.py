"""Throttling, stores that are slow, full, broken or gone, and what is damaged in them."""

from __future__ import annotations

import contextlib

import pytest

from tandembus.errors import (
    BusError,
    MessageLockLost,
    OperationTimeout,
    QuotaExceeded,
    ServerBusy,
    StoreFull,
)
from tandembus.limits import Limits
from tests.behaviour.driver import Bus, Fault, Queue, message, ping
from tests.behaviour.shapes import PLAIN, UNPARTITIONED, on_shapes
from tests.covers import covers

OUTAGE_S = 5.0
NOTICED_S = 1.0

pytestmark = on_shapes(*UNPARTITIONED)


# Throttling.


@covers("M14")
@pytest.mark.parametrize("limits", [Limits(uncommitted_bytes_limit=300)])
async def test_over_the_limit_of_uncommitted_bytes_a_send_is_told_to_come_again(bus: Bus, queue: Queue) -> None:
    first, second = await queue.stage("a", padding=200), await queue.stage("b", padding=200)
    await bus.quiet()
    assert (first.is_accepted, second.is_accepted) in ((True, False), (True, True))
    bus.fail_next(Fault.HANG)
    first = await queue.stage("c", padding=200)
    await bus.quiet()
    second = await queue.stage("d", padding=200)
    await bus.quiet()
    assert isinstance(second.error, ServerBusy)
    bus.go_on()
    await bus.quiet()
    assert first.is_accepted
    await queue.send("e", padding=200)


@covers("M14")
@pytest.mark.parametrize("limits", [Limits(operations_per_second=2)])
async def test_over_the_limit_of_operations_a_send_or_ping_is_told_to_come_again(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b")
    for refused in (message("c"), ping()):
        with pytest.raises(ServerBusy):
            await queue.send(refused)
    await bus.advance(0.5)
    await queue.send("c")
    assert await queue.held() == ["a", "b", "c"]


# A store that hangs.


@covers("M14")
async def test_a_commit_that_hangs_is_an_outage_until_it_comes_through(bus: Bus, queue: Queue) -> None:
    bus.fail_next(Fault.HANG)
    first = await queue.stage("a")
    await bus.advance(OUTAGE_S - NOTICED_S)
    second = await queue.stage("b")
    await bus.advance(2 * NOTICED_S)
    for refused in (message("c"), ping()):
        answer = await queue.stage(refused)
        await bus.quiet()
        assert answer.error is not None
        assert not isinstance(answer.error, ServerBusy)
    bus.go_on()
    await bus.advance(NOTICED_S)
    assert first.is_accepted
    assert second.is_accepted
    await queue.send("d")
    assert await queue.held() == ["a", "b", "d"]


@covers("M14", "F9")
async def test_setting_the_wall_clock_is_no_outage(bus: Bus, queue: Queue) -> None:
    bus.fail_next(Fault.HANG)
    await queue.stage("a")
    await bus.quiet()
    bus.set_wall_clock(3600.0)
    await bus.advance(NOTICED_S)
    answer = await queue.stage("b")
    bus.go_on()
    await bus.quiet()
    assert answer.is_accepted


@covers("M14")
@on_shapes(PLAIN)
async def test_a_commit_of_administration_that_hangs_is_an_outage_too(bus: Bus, queue: Queue) -> None:
    assert await queue.held() == []
    bus.fail_next(Fault.HANG)
    making = bus.loop.create_task(bus.queue("other"))
    await bus.advance(OUTAGE_S + NOTICED_S)
    with pytest.raises(OperationTimeout):
        await queue.send("a")
    bus.go_on()
    await bus.advance(NOTICED_S)
    await making
    await queue.send("a")


# A commit whose outcome is unknown.


@covers("M1", "M2", "M3", "M12", "F3")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_LOST, Fault.UNKNOWN_KEPT])
@pytest.mark.parametrize("what", ["send", "settle", "receive and delete"])
async def test_after_a_failed_commit_the_store_says_what_is_true(
    bus: Bus, queue: Queue, fault: Fault, what: str
) -> None:
    await queue.send("a", "z")
    one = await queue.receive_one()
    waiting = await queue.receiver(is_destructive=what == "receive and delete")
    bus.fail_next(fault)
    if what == "send":
        answer = await queue.stage("b")
    elif what == "settle":
        answer = await one.stage("complete")
    else:
        waiting.want(1)
    is_kept = fault is Fault.UNKNOWN_KEPT
    await bus.advance(0.2)
    if what == "settle" or not bus.shape.has_channel:
        refused = await queue.stage("refused")
        assert isinstance(refused.error, BusError)
    await bus.advance(20.0)
    if what != "receive and delete":
        assert answer.is_given
        assert bus.shape.has_channel or not answer.is_accepted
        assert is_kept or not answer.is_accepted
    elif is_kept:
        assert waiting.bodies in ([], ["z"], ["a"], ["z", "a"]), "removed, and perhaps never seen"
    with pytest.raises(MessageLockLost):
        await one.complete()
    expected = {
        "send": ["a", "z", *(["b"] if is_kept else [])],
        "settle": ["z"] if is_kept else ["a", "z"],
        "receive and delete": [body for body in ("a", "z") if body not in waiting.bodies],
    }[what]
    left = await queue.held()
    assert left == expected or (what == "receive and delete" and is_kept and set(left) <= {"a", "z"})


@covers("M12", "F3")
async def test_credit_given_before_a_failure_is_used_after_it(bus: Bus, queue: Queue) -> None:
    receiver = await queue.receiver()
    await receiver.take(5)
    bus.fail_next(Fault.UNKNOWN_KEPT)
    await queue.stage("a")
    await bus.advance(10.0)
    await queue.send("b")
    assert receiver.bodies == ["a", "b"]


@covers("F3")
async def test_a_store_that_cannot_be_opened_yet_is_tried_again(bus: Bus, queue: Queue) -> None:
    await queue.send("a")
    await bus.take_out(0)
    await bus.take_out(1) if bus.shape.stores > 1 else None
    with pytest.raises(BusError):
        await queue.send("b")
    await bus.advance(5.0)
    await bus.bring_back()
    await queue.send("c")
    assert await queue.held() == ["a", "c"]


@covers("F7", "M1")
@on_shapes(PLAIN)
@pytest.mark.parametrize("is_under_way", [False, True])
async def test_a_broker_that_lost_its_store_to_another_accepts_nothing_and_settles_nothing(
    bus: Bus, queue: Queue, is_under_way: bool
) -> None:
    await queue.send("before")
    one = await queue.receive_one()
    if is_under_way:
        bus.fail_next(Fault.HANG)
    sent, settled = await queue.stage("late"), await one.stage("complete")
    if is_under_way:
        await bus.quiet()
    bus.seize_stores()
    bus.go_on()
    await bus.quiet()
    assert isinstance(sent.error, BusError)
    assert isinstance(settled.error, BusError)
    await bus.kill()
    assert await queue.held() == ["before"]


# A store without room.


@covers("M1", "M13", "F4", "P26")
@pytest.mark.parametrize("count", [1, 23, 24, 25, 1100])
async def test_sends_refused_by_a_full_store_leave_no_trace(bus: Bus, queue: Queue, count: int) -> None:
    """Within a block of numbers, to its very end, and across one boundary."""
    before = [f"m{number}" for number in range(1000)]
    await queue.send_batch(*before)
    bus.fail_next(Fault.FULL)
    with pytest.raises(StoreFull):
        await queue.send(ping(), *[message(f"refused {number}", ttl_s=10.0) for number in range(count)], ping())
    await bus.advance(20.0)
    assert (await queue.counts()).active == 1000
    assert bus.record_count("expiries") == 0
    await bus.kill()
    await queue.send("after")
    found = await queue.receive(2000)
    assert [one.body for one in found] == [*before, "after"]
    assert found[-1].number == found[-2].number + 1


@covers("M1", "F4", "P26")
@pytest.mark.parametrize("count", [1, 1024, 1025])
async def test_numbers_go_on_when_the_block_before_was_dropped_by_the_refused_commit(
    bus: Bus, queue: Queue, count: int
) -> None:
    await queue.send_batch(*[f"m{number}" for number in range(1023)])
    found = await queue.receive(2000)
    settled = [await one.stage("complete") for one in found]
    bus.fail_next(Fault.FULL)
    refused = await queue.stage(*[f"refused {number}" for number in range(count)])
    await bus.advance(20.0)
    assert isinstance(refused.error, StoreFull)
    assert all(answer.is_accepted for answer in settled)
    await bus.kill()
    await queue.send("after")
    (one,) = await queue.receive()
    assert (one.body, one.number) == ("after", found[-1].number + 1)


@covers("M13", "F4", "N10")
async def test_short_of_room_sends_are_refused_and_receiving_and_settling_go_on(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b", "c")
    await queue.send("due", in_s=10.0)
    bus.set_room(10, 100)
    await bus.advance(20.0)
    for refused in (message("d"), ping()):
        with pytest.raises(StoreFull):
            await queue.send(refused)
    first, second, third = await queue.receive(3)
    await first.complete()
    await second.abandon()
    await third.defer()
    bus.set_room()
    await bus.advance(20.0)
    await queue.send("d")
    assert sorted(await queue.held()) == ["b", "c", "d", "due"]
    assert (await queue.counts()).scheduled == 0


# Pings.


@covers("N10")
async def test_a_ping_is_answered_after_a_commit_and_leaves_nothing_behind(bus: Bus) -> None:
    queue = await bus.queue(dead_lettering_on_message_expiration=True)
    receiver = await queue.receiver()
    await receiver.take(10)
    before = bus.commit_count
    bus.fail_next(Fault.HANG)
    answer = await queue.stage(ping())
    await bus.quiet()
    assert not answer.is_given
    bus.go_on()
    await bus.quiet()
    assert answer.is_accepted
    assert bus.commit_count == before + 1
    assert bus.record_count("bodies", "overlays", "expiries") == 0
    await queue.send_batch(ping(), "a", ping(), "b")
    await bus.advance(10.0)
    assert receiver.bodies == ["a", "b"]
    assert receiver.received[1].number == receiver.received[0].number + 1
    assert (await queue.dead_letters.held(), (await queue.counts()).active) == ([], 2)


async def fill(queue: Queue, padding: int) -> None:
    """Up to its maximum size, with messages of this size."""
    with contextlib.suppress(QuotaExceeded):
        while True:
            await queue.send(message("m", padding=padding))


@covers("N10", "M13")
@pytest.mark.parametrize("fault", [Fault.FULL, Fault.UNKNOWN_LOST])
async def test_a_ping_is_refused_over_quota_and_when_its_commit_fails(bus: Bus, fault: Fault) -> None:
    queue = await bus.queue(max_size_in_megabytes=1)
    for padding in (600_000, 100_000, 10_000, 1000, 100, 0):
        await fill(queue, padding)
    with pytest.raises(QuotaExceeded):
        await queue.send(ping())
    await queue.bodies()
    bus.fail_next(fault)
    answer = await queue.stage(ping())
    await bus.advance(20.0)
    assert isinstance(answer.error, BusError)
    await queue.send(ping())


# Damage.


@covers("F6")
@pytest.mark.parametrize("harm", ["damage", "lose"])
@pytest.mark.parametrize("lane", ["main", "dead letters"])
async def test_a_damaged_message_is_set_aside_and_the_rest_goes_on(
    bus: Bus, queue: Queue, harm: str, lane: str
) -> None:
    await queue.send("a", "b", "c")
    if lane == "dead letters":
        for one in await queue.receive():
            await one.dead_letter()
        queue = queue.dead_letters
    await bus.kill()
    getattr(bus, harm)("b")
    assert [one.body for one in await queue.receive()] == ["a", "c"]
    await bus.quiet()
    assert bus.record_count("quarantine") == (1 if harm == "damage" else 0)
    counts = await queue.counts()
    assert counts.active + counts.dead_letter == 2


@covers("F6", "M3")
@pytest.mark.parametrize("kind", ["dead-letter", "defer"])
async def test_settling_a_message_that_went_bad_ends_it_and_is_answered(bus: Bus, queue: Queue, kind: str) -> None:
    await queue.send("a", "b")
    one = await queue.receive_one()
    bus.damage("a")
    await one.settle(kind)  # type: ignore[arg-type]
    assert (await queue.held(), await queue.dead_letters.held()) == (["b"], [])
    await bus.quiet()
    counts = await queue.counts()
    assert (counts.active, counts.deferred, bus.record_count("quarantine")) == (1, 0, 1)
