"""Messages that expire."""

from __future__ import annotations

import pytest

from tandembus.errors import MessageNotFound
from tests.behaviour.driver import DAY_S, Bus, Fault, Queue, message
from tests.covers import covers

SWEPT_S = 1.0
"""A sweep is at most so late."""


async def lived(bus: Bus, queue: Queue, seconds: float) -> list[str]:
    """What is left after so long."""
    await bus.advance(seconds)
    return await queue.held()


@covers("M6")
async def test_an_expired_message_is_dropped_and_no_other(bus: Bus, queue: Queue) -> None:
    await queue.send("a", ttl_s=10.0)
    await queue.send("b")
    assert await lived(bus, queue, 9.9) == ["a", "b"]
    assert await lived(bus, queue, 0.1 + SWEPT_S) == ["b"]
    assert await queue.dead_letters.held() == []


@covers("M6")
@pytest.mark.parametrize("crashes", [False, True])
async def test_an_expired_message_becomes_a_dead_letter_that_says_so_where_that_is_wanted(
    bus: Bus, crashes: bool
) -> None:
    queue = await bus.queue(dead_lettering_on_message_expiration=True)
    await queue.send("a", ttl_s=10.0)
    if crashes:
        await bus.kill()
    assert await lived(bus, queue, 10.0 + SWEPT_S) == []
    await bus.advance(DAY_S)
    dead = await queue.dead_letters.receive_one()
    assert (dead.body, dead.reason) == ("a", "TTLExpiredException")


@covers("M6")
@pytest.mark.parametrize(("own_s", "default_s"), [(10.0, 60.0), (60.0, 10.0), (None, 10.0)])
async def test_of_the_messages_and_the_queues_time_to_live_the_smaller_wins(
    bus: Bus, own_s: float | None, default_s: float
) -> None:
    queue = await bus.queue(default_message_time_to_live_s=default_s)
    await queue.send("a", ttl_s=own_s)
    assert await lived(bus, queue, 9.9) == ["a"]
    assert await lived(bus, queue, 0.1 + SWEPT_S) == []


@covers("M6")
async def test_an_expired_message_is_never_handed_over(bus: Bus, queue: Queue) -> None:
    receiver = await queue.receiver()
    await queue.send("a", ttl_s=1.0)
    await queue.send("b")
    bus.loop.skip(1.0)
    receiver.want(5)
    await bus.quiet()
    assert (receiver.bodies, await queue.held()) == (["b"], ["b"])


@covers("M6")
async def test_a_locked_message_outlives_its_time_until_its_lock_ends(bus: Bus) -> None:
    queue = await bus.queue(dead_lettering_on_message_expiration=True)
    await queue.send("completed", "abandoned", ttl_s=10.0)
    completed, abandoned = await queue.receive()
    assert await lived(bus, queue, 20.0) == ["completed", "abandoned"]
    await completed.complete()
    await abandoned.abandon()
    assert (await queue.bodies(), await queue.dead_letters.held()) == ([], ["abandoned"])


@covers("M6")
async def test_a_message_that_was_given_back_expires_at_its_time(bus: Bus, queue: Queue) -> None:
    await queue.send("a", ttl_s=10.0)
    await (await queue.receive_one()).abandon()
    assert await lived(bus, queue, 10.0 + SWEPT_S) == []


@covers("M3", "M6")
async def test_a_deferred_message_does_not_expire_until_somebody_asks_for_it(bus: Bus) -> None:
    queue = await bus.queue(dead_lettering_on_message_expiration=True)
    await queue.send("a", ttl_s=10.0)
    one = await queue.receive_one()
    await one.defer()
    assert await lived(bus, queue, 20.0) == ["a"]
    with pytest.raises(MessageNotFound):
        await queue.receive_deferred(one.number)
    await bus.quiet()
    assert (await queue.held(), await queue.dead_letters.held()) == ([], ["a"])
    assert (await queue.counts()).deferred == 0


@covers("M6")
async def test_messages_expire_at_their_own_times_over_many_blocks(bus: Bus, queue: Queue) -> None:
    for seconds in (30.0, 10.0, 20.0):
        await queue.send_batch(
            *[message(f"{seconds:.0f}", id=f"{seconds}-{index}") for index in range(400)], ttl_s=seconds
        )
    assert set(await lived(bus, queue, 11.0)) == {"20", "30"}
    await queue.send("kept")
    assert (await queue.counts()).active == 801
    assert set(await lived(bus, queue, 21.0)) == {"kept"}
    await bus.advance(10.0)
    assert bus.record_count("expiries") == 0


@covers("M6", "F9")
async def test_a_clock_set_forward_expires_and_a_clock_set_back_does_not_bring_back(bus: Bus, queue: Queue) -> None:
    await queue.send("a", ttl_s=10.0)
    bus.set_wall_clock(3600.0)
    await bus.advance(SWEPT_S)
    bus.set_wall_clock(-3600.0)
    assert await queue.held() == []


@covers("M6")
async def test_a_crash_in_the_middle_of_many_that_expire_leaves_none_of_them(bus: Bus, queue: Queue) -> None:
    await queue.send_batch(*[message(str(number)) for number in range(300)], ttl_s=10.0)
    await queue.send("locked", ttl_s=10.0)
    bus.fail_next(Fault.UNKNOWN_KEPT)
    await bus.advance(30.0)
    await bus.kill()
    assert await lived(bus, queue, 2.0) == []
    assert (await queue.counts()).active == 0


@covers("M6")
async def test_the_expiry_of_messages_that_were_received_is_forgotten(bus: Bus, queue: Queue) -> None:
    await queue.send("a", ttl_s=10.0)
    assert await queue.bodies() == ["a"]
    await bus.advance(20.0)
    assert bus.record_count("expiries") == 0


@covers("M5", "M6")
@pytest.mark.parametrize("ttl_s", [0.001, 10.0])
async def test_the_time_to_live_of_a_scheduled_message_counts_from_its_enqueueing(bus: Bus, ttl_s: float) -> None:
    queue = await bus.queue(dead_lettering_on_message_expiration=True)
    await queue.send("a", in_s=100.0, ttl_s=ttl_s)
    await bus.advance(100.0 + ttl_s / 2)
    assert await queue.held() == ["a"]
    await bus.advance(ttl_s / 2 + SWEPT_S)
    assert (await queue.held(), await queue.dead_letters.held()) == ([], ["a"])


@covers("M2", "M5", "M6")
async def test_a_process_that_was_stopped_and_continued_catches_up(bus: Bus, queue: Queue) -> None:
    await queue.send("locked")
    receiver = await queue.receiver()
    await receiver.take(1)
    await queue.send("expired", ttl_s=1.0)
    await queue.send("scheduled", in_s=100.0)
    bus.loop.skip(DAY_S)
    await bus.advance(SWEPT_S)
    assert [one.body for one in await receiver.take(5)] == ["locked", "scheduled"]
