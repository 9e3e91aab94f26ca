"""What is asked of an entity by number or by token: all of it is done, or nothing."""

from __future__ import annotations

import pytest

from tandembus.errors import BusError, EntityNotFound, MessageLockLost, MessageNotFound, SessionLockLost
from tests.behaviour.driver import Bus, Queue
from tests.covers import covers

FOREIGN = [40 << 48 | 1, 1 << 62, 0]
"""Numbers that name no message of any entity."""


@covers("M2")
async def test_locks_are_found_and_renewed_by_their_tokens_all_or_none(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b")
    first, second = await queue.receive()
    tokens = [bytes(one.lock.token) for one in (second, first)]
    assert [bytes(one.token) for one in await queue.ask("find_locks", tokens, queue.lane)] == tokens
    await bus.advance(30.0)
    for lost in ([tokens[0], bytes(16)], [tokens[0][:-1]]):
        with pytest.raises(MessageLockLost):
            await queue.ask("renew", lost)
        with pytest.raises(MessageLockLost):
            await queue.ask("find_locks", lost, queue.lane)
    with pytest.raises(MessageLockLost):
        await queue.ask("find_locks", tokens, queue.dead_letters.lane)
    assert list(await queue.ask("renew", tokens[:1])) == [bus.now_ms() + 60_000]
    await bus.advance(31.0)
    with pytest.raises(MessageLockLost):
        await first.complete()
    await second.complete()
    assert await queue.held() == ["a"]


@covers("M2", "M3")
async def test_what_is_found_by_its_token_is_settled_as_by_its_receiver(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b")
    for one in await queue.receive():
        (one.lock,) = await queue.ask("find_locks", [bytes(one.lock.token)], queue.lane)
        await one.settle("complete" if one.body == "a" else "abandon")
    assert [(one.body, one.delivery_count) for one in await queue.receive()] == [("b", 1)]


@covers("P26")
@pytest.mark.parametrize("number", FOREIGN)
async def test_a_number_that_names_no_fragment_is_one_of_no_message(queue: Queue, number: int) -> None:
    await queue.send("a")
    one = await queue.receive_one()
    await one.defer()
    for request in (
        queue.receive_deferred(one.number, number),
        queue.cancel(number),
        queue.ask("delete_one", queue.lane, number),
    ):
        with pytest.raises(MessageNotFound):
            await request
    assert len(await queue.receive_deferred(one.number)) == 1


@covers("P22", "P26")
async def test_a_peek_before_all_numbers_sees_everything_and_one_behind_them_nothing(queue: Queue) -> None:
    await queue.send("a", "b")
    for first, expected in ((-5, 2), (0, 2), (40 << 48, 0)):
        assert len(await queue.peek(first)) == expected


@covers("P19")
async def test_counts_are_those_of_all_states(queue: Queue) -> None:
    await queue.send("dead", "deferred", "waiting")
    dead, deferred = await queue.receive(2)
    await dead.dead_letter()
    await deferred.defer()
    await queue.send("later", in_s=60.0)
    counts = await queue.counts()
    assert (counts.active, counts.dead_letter, counts.scheduled, counts.deferred) == (2, 1, 1, 1)
    assert counts.size_bytes > 0


@covers("M3")
async def test_one_message_is_deleted_by_its_number_and_not_while_it_is_locked(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b")
    one, _ = await queue.peek()
    await queue.ask("delete_one", queue.lane, one.number)
    with pytest.raises(MessageNotFound):
        await queue.ask("delete_one", queue.lane, one.number)
    locked = await queue.receive_one()
    with pytest.raises(BusError):
        await queue.ask("delete_one", queue.lane, locked.number)
    await bus.kill()
    assert await queue.held() == ["b"]


@covers("M3", "P22")
async def test_what_waits_is_taken_to_be_moved_in_order_up_to_an_end(queue: Queue) -> None:
    await queue.send("locked", "deferred", *"abcd")
    _, deferred = await queue.receive(2)
    await deferred.defer()
    end = next(one for one in await queue.ask("ends", queue.lane) if one >> 48 == deferred.fragment)
    assert end == deferred.number + 5
    await queue.send("later")
    first = deferred.fragment << 48 | 1
    taken: list[str] = []
    while first < end:
        found = await queue.ask("take_waiting", queue.lane, first, end, 3, 1 << 20)
        taken += [bytes(one.sections[-1:]).decode() for _, one in found.messages]
        first = found.next_number
    assert taken == list("abcd")
    assert [one.body for one in await queue.receive()] == ["later"]


@covers("M7")
async def test_a_sessions_requests_are_its_holders_only(bus: Bus) -> None:
    queue = await bus.queue(requires_session=True, lock_duration_s=30.0)
    await queue.send("a", session="s")
    receiver = await queue.accept("s")
    (one,) = await receiver.take(1)
    tokens = [bytes(one.lock.token)]
    assert len(await queue.ask("find_locks", tokens, queue.lane, receiver.hold)) == 1
    with pytest.raises(BusError):
        await queue.ask("find_locks", tokens, queue.lane)
    await one.defer()
    bus.loop.skip(31.0)
    for request in (
        receiver.state(),
        receiver.set_state(b"x"),
        receiver.renew(),
        queue.receive_deferred(one.number, hold=receiver.hold),
    ):
        with pytest.raises(SessionLockLost):
            await request


async def test_requests_to_what_was_deleted_find_no_entity(bus: Bus, queue: Queue) -> None:
    await queue.send("a")
    one = await queue.receive_one()
    await queue.delete()
    with pytest.raises(EntityNotFound):
        await queue.counts()
    with pytest.raises(BusError):
        await one.complete()
