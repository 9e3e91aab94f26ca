"""Locks of messages: how long they hold, and how they end."""

from __future__ import annotations

import pytest

from tandembus.errors import MessageLockLost, ServerBusy
from tandembus.limits import Limits
from tests.behaviour.driver import Bus, Queue, Received, Settlement
from tests.covers import covers

DURATION_S = 60.0


async def locked(queue: Queue) -> Received:
    await queue.send("a")
    return await queue.receive_one()


@covers("M2")
async def test_a_locked_message_is_nobody_elses_until_it_lapses_and_is_counted_then(bus: Bus, queue: Queue) -> None:
    one = await locked(queue)
    assert one.locked_until_ms == bus.now_ms() + DURATION_S * 1000
    receiver = await queue.receiver()
    await receiver.take(5)
    await bus.advance(DURATION_S - 1)
    assert receiver.bodies == []
    await bus.advance(1.5)
    assert [(one.body, one.delivery_count) for one in receiver.received] == [("a", 1)]


@covers("M2")
@pytest.mark.parametrize("kind", ["complete", "abandon", "defer", "dead-letter", "release"])
async def test_a_lapsed_lock_is_lost(bus: Bus, queue: Queue, kind: Settlement) -> None:
    one = await locked(queue)
    await bus.advance(DURATION_S)
    with pytest.raises(MessageLockLost):
        await one.settle(kind)
    with pytest.raises(MessageLockLost):
        await one.renew()
    assert await queue.held() == ["a"]


@covers("M2")
async def test_a_renewed_lock_holds_and_gives_its_message_back_once(bus: Bus, queue: Queue) -> None:
    one = await locked(queue)
    for _ in range(3):
        await bus.advance(DURATION_S - 1)
        assert await one.renew() == bus.now_ms() + DURATION_S * 1000
    await bus.advance(1000.0)
    assert [(one.body, one.delivery_count) for one in await queue.receive()] == [("a", 1)]


@covers("M2")
async def test_setting_the_wall_clock_lapses_no_lock(bus: Bus, queue: Queue) -> None:
    one = await locked(queue)
    bus.set_wall_clock(86_400.0)
    await bus.advance(5.0)
    await one.complete()
    assert await queue.held() == []


@covers("M2")
async def test_a_settled_lock_cannot_be_settled_again(bus: Bus, queue: Queue) -> None:
    one = await locked(queue)
    first, second = await one.stage("complete"), await one.stage("abandon")
    await bus.quiet()
    assert first.is_accepted
    assert isinstance(second.error, MessageLockLost)
    with pytest.raises(MessageLockLost):
        await one.renew()
    assert await queue.held() == []


@covers("M2")
async def test_a_lock_of_an_earlier_life_is_lost(bus: Bus, queue: Queue) -> None:
    one = await locked(queue)
    await bus.kill()
    with pytest.raises(MessageLockLost):
        await one.complete()
    assert await queue.bodies() == ["a"]


@covers("M2")
@pytest.mark.parametrize("token", [b"", bytes(16), b"x" * 40])
async def test_a_token_that_was_never_given_is_lost(bus: Bus, queue: Queue, token: bytes) -> None:
    for request in ("renew", "find_locks"):
        with pytest.raises(MessageLockLost):
            await queue.ask(request, [token], *([queue.lane] if request == "find_locks" else []))


@covers("M2")
async def test_whoever_was_delivered_to_keeps_its_locks_after_it_has_left(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b")
    receiver = await queue.receiver()
    (one,) = await receiver.take(1)
    await receiver.leave()
    assert [other.body for other in await queue.receive()] == ["b"]
    await one.complete()
    assert await queue.held() == ["b"]


@covers("M14")
@pytest.mark.parametrize("limits", [Limits(max_locks=3)])
async def test_no_more_messages_are_locked_than_a_fragment_allows(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b", "c", "d")
    receiver = await queue.receiver()
    first, *_ = await receiver.take(10)
    assert receiver.bodies == ["a", "b", "c"]
    await first.complete()
    assert receiver.bodies == ["a", "b", "c", "d"]


@covers("M2")
@pytest.mark.parametrize("limits", [Limits(operations_per_second=2)])
async def test_throttling_leaves_receiving_and_settling_alone(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b")
    with pytest.raises(ServerBusy):
        await queue.send("c")
    for one in await queue.receive():
        await one.complete()
    await bus.advance(1.0)
    await queue.send("c")
    assert await queue.bodies() == ["c"]
