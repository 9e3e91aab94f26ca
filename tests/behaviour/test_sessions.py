"""Sessions: who holds them, their order, their locks and their state."""

from __future__ import annotations

import pytest

from tandembus.errors import (
    BusError,
    InvalidOperation,
    MessageLockLost,
    OperationTimeout,
    SessionCannotBeLocked,
    SessionLockLost,
    StoreFull,
)
from tests.behaviour.driver import Bus, Fault, Queue, message
from tests.behaviour.shapes import UNPARTITIONED, on_shapes
from tests.covers import covers

LOCK_S = 30.0


@pytest.fixture
async def queue(bus: Bus) -> Queue:
    return await bus.queue(requires_session=True, lock_duration_s=LOCK_S, max_delivery_count=3)


async def drained(queue: Queue) -> dict[str, list[str]]:
    """What is in each session that can be had, in the order in which they come."""
    found: dict[str, list[str]] = {}
    while True:
        try:
            receiver = await queue.accept(is_destructive=True)
        except OperationTimeout:
            return found
        found.setdefault(receiver.session, []).extend(one.body for one in await receiver.take(1000))
        await receiver.leave()


@covers("M7")
async def test_a_session_gives_its_own_messages_in_order(bus: Bus, queue: Queue) -> None:
    await queue.send("a1", "a2", session="a")
    await queue.send("b1", session="b")
    await queue.send("a3", session="a")
    receiver = await queue.accept("a")
    assert [one.body for one in await receiver.take(10)] == ["a1", "a2", "a3"]
    assert {one.session for one in receiver.received} == {"a"}
    await bus.advance(1.0)
    await queue.send("a4", session="a")
    assert receiver.bodies[-1] == "a4"


@covers("M7")
async def test_a_session_without_messages_can_be_accepted_and_gets_what_comes(queue: Queue) -> None:
    receiver = await queue.accept("new")
    assert await receiver.take(10) == []
    await queue.send("not for it", session="other")
    await queue.send("for it", session="new")
    assert receiver.bodies == ["for it"]


@covers("M7")
async def test_an_empty_string_is_a_session_id_and_its_case_does_not_matter(queue: Queue) -> None:
    await queue.send("x", session="")
    receiver = await queue.accept()
    assert (receiver.session, [one.body for one in await receiver.take(1)]) == ("", ["x"])
    await queue.send("y", session="Case")
    assert [one.body for one in await (await queue.accept("cASE")).take(1)] == ["y"]


@covers("M7")
async def test_a_held_session_cannot_be_accepted_by_another(queue: Queue) -> None:
    receiver = await queue.accept("a")
    with pytest.raises(SessionCannotBeLocked, match="'a'"):
        await queue.accept("a")
    await receiver.leave()
    await queue.accept("a")


@covers("M7")
async def test_the_next_session_is_the_one_with_the_oldest_message_that_nobody_holds(bus: Bus, queue: Queue) -> None:
    for name in ("first", "second", "third"):
        await queue.send("1", session=name)
        await bus.advance(0.1)
    held = await queue.accept("first")
    assert [(await queue.accept()).session for _ in range(2)] == ["second", "third"]
    await held.leave()
    assert (await queue.accept()).session == "first"


@covers("M7")
async def test_waiting_accepts_get_sessions_in_the_order_they_came(bus: Bus, queue: Queue) -> None:
    first, gone, *others = [await queue.wish() for _ in range(4)]
    await gone.give_up()
    assert not first.is_answered
    for name in ("x", "y", "z"):
        await queue.send("1", session=name)
        await bus.advance(1.0)
    assert [one.session for one in (first, *others)] == ["x", "y", "z"]
    assert not gone.is_answered


@covers("M7")
async def test_an_accept_that_does_not_wait_is_refused_and_takes_nothing(queue: Queue) -> None:
    assert isinstance((await queue.wish(is_patient=False)).error, OperationTimeout)
    await queue.send("a1", session="a")
    assert (await queue.wish(is_patient=False)).session == "a"


@covers("M7")
async def test_of_many_who_gave_up_the_patient_one_gets_the_session(bus: Bus, queue: Queue) -> None:
    patient = await queue.wish()
    for wish in [await queue.wish() for _ in range(200)]:
        await wish.give_up()
    await queue.send("a1", session="a")
    await bus.advance(1.0)
    assert patient.session == "a"


@covers("M7")
async def test_a_waiting_accept_gets_a_session_that_is_let_go_with_messages_left(bus: Bus, queue: Queue) -> None:
    await queue.send("a1", "a2", session="a")
    receiver = await queue.accept("a")
    await (await receiver.take(1))[0].complete()
    waiting = await queue.wish()
    assert not waiting.is_answered
    await receiver.leave()
    await bus.advance(1.0)
    assert [one.body for one in await waiting.receiver().take(10)] == ["a2"]


@covers("M5", "M7")
async def test_a_session_with_nothing_to_give_is_not_offered(bus: Bus, queue: Queue) -> None:
    """Emptied, all deferred, all scheduled, all expired, or all deleted."""
    await queue.send("a1", session="emptied")
    await queue.send("b1", session="deferred")
    for _ in range(2):
        receiver = await queue.accept()
        (one,) = await receiver.take(1)
        await one.settle("defer" if receiver.session == "deferred" else "complete")
        await receiver.leave()
    await queue.send("x1", session="deleted")
    assert await queue.delete_batch() == 1
    await queue.send("e1", session="expired", ttl_s=1.0)
    await queue.send("later", session="scheduled", in_s=60.0)
    bus.loop.skip(2.0)
    waiting = await queue.wish()
    assert not waiting.is_answered
    await bus.advance(61.0)
    assert waiting.session == "scheduled"


@covers("M7")
async def test_messages_without_a_session_are_refused_and_plain_queues_have_none(bus: Bus, queue: Queue) -> None:
    with pytest.raises(InvalidOperation, match="SessionId"):
        await queue.send("a")
    assert await queue.held() == []
    plain = await bus.queue("plain")
    with pytest.raises(InvalidOperation):
        await plain.accept("a")


# Order and exclusivity.


@covers("M7")
async def test_nothing_overtakes_a_message_that_is_on_its_way_back(bus: Bus, queue: Queue) -> None:
    await queue.send("a1", "a2", session="a")
    receiver = await queue.accept("a")
    (one,) = await receiver.take(1)
    bus.fail_next(Fault.HANG)
    answer = await one.stage("abandon")
    receiver.want(2)
    await bus.quiet()
    assert receiver.bodies == ["a1"], "the abandon is not durable yet"
    bus.go_on()
    await bus.quiet()
    assert answer.is_accepted
    assert [(one.body, one.delivery_count) for one in receiver.received[1:]] == [("a1", 1), ("a2", 0)]


@covers("M3", "M7")
async def test_a_deferred_message_is_skipped_and_stays_with_its_session(queue: Queue) -> None:
    await queue.send("a1", "a2", session="a")
    receiver = await queue.accept("a")
    (one,) = await receiver.take(1)
    await one.defer()
    assert [one.body for one in await receiver.take(5)] == ["a2"]
    other = await queue.accept("b")
    with pytest.raises(BusError):
        await queue.receive_deferred(one.number, hold=other.hold)
    (again,) = await queue.receive_deferred(one.number, hold=receiver.hold)
    await again.complete()
    await receiver.leave()
    assert await queue.held() == ["a2"]


@covers("M2", "M7")
async def test_after_loss_the_next_holder_begins_where_the_order_begins(bus: Bus, queue: Queue) -> None:
    await queue.send("a1", "a2", "a3", session="a")
    counts = []
    for end in ("left", "lapsed", "crashed", "over"):
        receiver = await queue.accept("a")
        assert [one.body for one in await receiver.take(2)] == ["a1", "a2"]
        counts.append([one.delivery_count for one in receiver.received])
        if end == "left":
            await receiver.leave()
        elif end == "lapsed":
            await bus.advance(LOCK_S + 1)
        elif end == "crashed":
            await bus.kill()
    assert counts == [[0, 0], [0, 0], [1, 1], [1, 1]]


@covers("M7", "F2")
@pytest.mark.parametrize("crashes", [False, True])
async def test_all_sessions_come_each_whole_and_in_order(bus: Bus, queue: Queue, crashes: bool) -> None:
    for number in range(10):
        await queue.send(*[message(f"{name}{number}", session=name) for name in "abcdefgh"])
    if crashes:
        first = await queue.accept("a")
        await (await first.take(1))[0].complete()
        await bus.kill()
    found = await drained(queue)
    begin = {"a": 1} if crashes else {}
    assert found == {one: [f"{one}{number}" for number in range(begin.get(one, 0), 10)] for one in "abcdefgh"}
    assert (await queue.counts()).active == 0


@covers("M7")
async def test_receivers_of_many_sessions_get_messages_side_by_side(queue: Queue) -> None:
    names = [f"session-{number}" for number in range(16)]
    for name in names:
        await queue.send(*"abcde", session=name)
    receivers = [await queue.accept(name) for name in names]
    for one in receivers:
        one.want(4)
    await queue.bus.quiet()
    assert [one.bodies for one in receivers] == [list("abcd")] * 16


# The lock.


@covers("M2", "M7")
@pytest.mark.parametrize("is_noticed", [False, True])
async def test_a_session_lock_lapses_with_all_that_was_locked_in_it(bus: Bus, queue: Queue, is_noticed: bool) -> None:
    await queue.send("a1", session="a")
    receiver = await queue.accept("a")
    (one,) = await receiver.take(1)
    waiting = await queue.wish()
    if is_noticed:
        await bus.advance(LOCK_S + 1)
        assert isinstance(receiver.loss, SessionLockLost)
    else:
        bus.loop.skip(LOCK_S + 1)
    for request in (one.complete(), receiver.renew(), receiver.set_state(b"x")):
        with pytest.raises((SessionLockLost, MessageLockLost)):
            await request
    await bus.advance(1.0)
    (again,) = await waiting.receiver().take(1)
    assert (again.body, again.delivery_count) == ("a1", 1)


@covers("M7")
async def test_renewing_keeps_a_session_and_all_messages_in_it(bus: Bus, queue: Queue) -> None:
    await queue.send("a1", "a2", session="a")
    receiver = await queue.accept("a")
    first, second = await receiver.take(2)
    for _ in range(5):
        await bus.advance(LOCK_S - 1)
        assert await receiver.renew() == bus.now_ms() + LOCK_S * 1000
    await second.complete()
    await first.complete()
    assert (receiver.loss, await queue.held()) == (None, [])
    with pytest.raises(MessageLockLost):
        await first.complete()


@covers("M2", "M7")
async def test_a_delivery_renews_the_lock_of_its_session(bus: Bus, queue: Queue) -> None:
    receiver = await queue.accept("a")
    await receiver.take(10)
    for body in ("a1", "a2", "a3"):
        await bus.advance(LOCK_S - 5)
        await queue.send(body, session="a")
        assert receiver.received[-1].locked_until_ms == bus.now_ms() + LOCK_S * 1000
    await bus.advance(LOCK_S - 1)
    await receiver.received[0].complete()
    await bus.advance(2.0)
    assert isinstance(receiver.loss, SessionLockLost)


@covers("M2", "M7")
async def test_a_message_that_comes_when_the_lock_has_lapsed_does_not_revive_it(bus: Bus, queue: Queue) -> None:
    receiver = await queue.accept("a")
    await receiver.take(10)
    bus.loop.skip(LOCK_S)
    with pytest.raises(SessionLockLost):
        await receiver.renew()
    await queue.send("late", session="a")
    assert receiver.bodies == []
    await bus.advance(1.0)
    assert [one.body for one in await (await queue.accept("a")).take(1)] == ["late"]


@covers("M7")
async def test_a_renewal_for_a_shorter_time_ends_the_lock_earlier(bus: Bus, queue: Queue) -> None:
    receiver = await queue.accept("a")
    await queue.update(lock_duration_s=10.0)
    await receiver.renew()
    await bus.advance(11.0)
    assert isinstance(receiver.loss, SessionLockLost)


@covers("M7")
async def test_messages_in_a_session_cannot_be_renewed_one_by_one(queue: Queue) -> None:
    await queue.send("a1", session="a")
    (one,) = await (await queue.accept("a")).take(1)
    with pytest.raises(InvalidOperation):
        await one.renew()


@covers("M2", "M7")
async def test_losing_a_session_again_and_again_ends_among_the_dead_letters(bus: Bus, queue: Queue) -> None:
    await queue.send("a1", "a2", session="a")
    for _ in range(3):
        await (await queue.accept("a")).take(1)
        await bus.advance(LOCK_S + 1)
    assert await queue.dead_letters.held() == ["a1"]
    assert [one.body for one in await (await queue.accept("a")).take(5)] == ["a2"]


@covers("M7")
async def test_the_dead_letters_of_a_session_queue_have_no_sessions(queue: Queue) -> None:
    for name in ("a", "b"):
        await queue.send(f"{name}1", session=name)
        (one,) = await (await queue.accept(name)).take(1)
        await one.dead_letter()
    first, second = await queue.dead_letters.receive()
    await first.complete()
    await second.abandon()
    assert await queue.dead_letters.bodies() == [second.body]


@covers("M7")
async def test_receive_and_delete_in_a_session_removes_before_it_delivers(bus: Bus, queue: Queue) -> None:
    await queue.send(*[f"a{number}" for number in range(20)], session="a")
    receiver = await queue.accept("a", is_destructive=True)
    assert [one.body for one in await receiver.take(7)] == [f"a{number}" for number in range(7)]
    bus.fail_next(Fault.HANG)
    receiver.want(1)
    await bus.quiet()
    assert len(receiver.received) == 7
    bus.go_on()
    await bus.quiet()
    await receiver.leave()
    assert [one.body for one in await (await queue.accept("a")).take(1)] == ["a8"]


@covers("M7")
async def test_a_drain_ends_when_the_session_has_nothing_more(queue: Queue) -> None:
    await queue.send("a1", session="a")
    receiver = await queue.accept("a")
    assert [one.body for one in await receiver.drain(5)] == ["a1"]


@covers("M6", "M7")
async def test_a_message_of_a_session_that_expired_is_never_handed_over(bus: Bus, queue: Queue) -> None:
    await queue.send("locked", session="a", ttl_s=5.0)
    receiver = await queue.accept("a")
    await receiver.take(1)
    await queue.send("short", session="a", ttl_s=1.0)
    await queue.send("long", session="a")
    await bus.advance(6.0)
    assert await queue.held() == ["locked", "long"]
    await receiver.leave()
    await bus.advance(6.0)
    assert await drained(queue) == {"a": ["long"]}
    assert (await queue.counts()).active == 0


# State.


@covers("M7")
async def test_a_session_keeps_its_state_without_messages_and_across_a_restart(bus: Bus, queue: Queue) -> None:
    for name, states in (("a", (b"one", b"two")), ("b", (b"",)), ("c", (b"old", None))):
        receiver = await queue.accept(name)
        assert await receiver.state() is None
        for state in states:
            await receiver.set_state(state)
    await bus.kill()
    assert [await (await queue.accept(name)).state() for name in "abc"] == [b"two", b"", None]
    assert sorted(await queue.sessions()) == ["a", "b"]


@covers("M7", "M13", "F4")
async def test_a_state_that_does_not_fit_is_refused_and_clearing_one_goes_on(bus: Bus, queue: Queue) -> None:
    receiver = await queue.accept("a")
    await receiver.set_state(b"old")
    bus.fail_next(Fault.FULL)
    with pytest.raises(StoreFull):
        await receiver.set_state(b"new")
    assert await receiver.state() == b"old"
    bus.fail_next(Fault.FULL)
    await receiver.set_state(None)
    assert await receiver.state() is None


# Failures.


@covers("M7", "F2", "F3")
@on_shapes(*UNPARTITIONED)
async def test_when_the_store_fails_sessions_are_lost_and_come_again_when_it_is_back(bus: Bus, queue: Queue) -> None:
    await queue.send("a1", session="a")
    receiver = await queue.accept("a")
    await receiver.take(1)
    waiting = await queue.wish()
    bus.fail_next(Fault.UNKNOWN_LOST)
    answer = await queue.stage("b1", session="b")
    await bus.advance(0.1)
    assert isinstance(receiver.loss, SessionLockLost)
    await bus.advance(10.0)
    assert isinstance(answer.error, BusError)
    if waiting.error is not None:
        waiting = await queue.wish()
    assert waiting.session == "a"
    assert [one.body for one in await waiting.receiver().take(5)] == ["a1"]


@covers("M7", "F4")
async def test_a_refused_send_leaves_no_trace_in_its_session(bus: Bus, queue: Queue) -> None:
    await queue.send(*[f"a{number}" for number in range(6)], session="a")
    bus.fail_next(Fault.FULL)
    with pytest.raises(BusError):
        await queue.send_batch(*[f"no{number}" for number in range(20)], session="b")
    await bus.advance(20.0)
    await queue.send(*[f"c{number}" for number in range(20)], session="c")
    await bus.kill()
    assert await drained(queue) == {
        "a": [f"a{number}" for number in range(6)],
        "c": [f"c{number}" for number in range(20)],
    }


# Looking into sessions.


@covers("M4", "M7")
async def test_peeking_in_a_session_passes_others_over(queue: Queue) -> None:
    await queue.send(*[message(f"m{number:02}", session=f"s{number % 3}") for number in range(30)])
    found = await queue.peek(0, 4, session="s1")
    assert [one.body for one in found] == ["m01", "m04", "m07", "m10"]
    rest = await queue.peek(found[-1].number + 1, session="s1")
    assert [one.body for one in rest] == [f"m{number}" for number in range(13, 30, 3)]
    assert await queue.peek(session="nobody") == []


@covers("M3", "M7")
async def test_deleting_in_a_session_leaves_the_others_and_what_is_locked(queue: Queue) -> None:
    await queue.send(*[message(f"m{number:02}", session=f"s{number % 2}") for number in range(12)])
    receiver = await queue.accept("s0")
    await receiver.take(2)
    assert await queue.delete_batch(session="s0") == 4
    assert await receiver.take(10) == []
    await receiver.leave()
    assert await drained(queue) == {"s0": ["m00", "m02"], "s1": [f"m{number:02}" for number in range(1, 12, 2)]}


@covers("M7")
async def test_sessions_with_messages_or_a_state_are_listed_once_each_in_pages(bus: Bus, queue: Queue) -> None:
    await queue.send(*[message(f"m{number}", session=f"s{number % 5}") for number in range(30)])
    await queue.send("later", session="scheduled", in_s=60.0)
    for name in ("s1", "idle"):
        await (await queue.accept(name)).set_state(b"x")
    receiver = await queue.accept("deferred")
    await queue.send("d1", session="deferred")
    await (await receiver.take(1))[0].defer()
    everything = ["deferred", "idle", "s0", "s1", "s2", "s3", "s4"]
    assert sorted(await queue.sessions()) == everything
    before_ms = bus.now_ms() + 1
    await bus.advance(1.0)
    await (await queue.accept("s3")).set_state(b"x")
    assert await queue.sessions(before_ms) == ["s3"]
