"""Requests to a fragment of this process: whole sequence numbers, locks by their tokens, sessions by their holder."""

from __future__ import annotations

import pytest

from tandembus.broker.locks import COMPLETE, RELEASE
from tandembus.broker.session import SessionLock
from tandembus.errors import MessageLockLost, MessageNotFound, SessionLockLost
from tandembus.interconnect.answers import settle_all
from tandembus.interconnect.local_requests import LocalRequests
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.interconnect.requests import Counts, Listing
from tandembus.interconnect.traffic import SessionHold
from tandembus.store.messaging_store import DEAD_LETTER, MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, body_of, message, small
from tests.unit.broker.session_queue import SessionQueue

OTHER_FRAGMENT = 1 << 48
OUT_OF_RANGE = [0, -1, OTHER_FRAGMENT | 1, 16 << 48 | 1, 0xFFFF << 48 | 1, 2**63, -(2**63)]


def requests_to(queue: OneQueue) -> LocalRequests:
    return LocalRequests(queue.broker, queue.fragment)


def traffic_of(queue: OneQueue) -> LocalTraffic:
    return LocalTraffic(queue.fragment, queue.broker.want, queue.broker.session_serving.want)


def hold_of(lock: SessionLock) -> SessionHold:
    return SessionHold(lock.session.name, lock.locked_until_ms, 0, lock)


@covers("P26")
@pytest.mark.parametrize("number", OUT_OF_RANGE)
async def test_a_number_that_names_another_fragment_is_one_of_no_message(number: int) -> None:
    async with OneQueue() as queue:
        receiver = queue.receiver()
        await queue.send("one")
        await queue.defer(await receiver.take_one())
        requests = requests_to(queue)
        with pytest.raises(MessageNotFound):
            await requests.receive_deferred(MAIN, [1, number], False)
        with pytest.raises(MessageNotFound):
            await requests.cancel_scheduled([number])
        with pytest.raises(MessageNotFound):
            await requests.delete_one(MAIN, number)
        assert len(await requests.receive_deferred(MAIN, [1], False)) == 1


@covers("P22")
async def test_a_peek_behind_the_fragment_sees_nothing_and_one_before_it_sees_all() -> None:
    async with OneQueue() as queue:
        await queue.send("one", "two")
        requests = requests_to(queue)
        assert [one.sequence_number for one in await requests.peek(MAIN, -5, 10, 1 << 20)] == [1, 2]
        assert [one.sequence_number for one in await requests.peek(MAIN, 2, 10, 1 << 20)] == [2]
        assert await requests.peek(MAIN, OTHER_FRAGMENT, 10, 1 << 20) == []


async def test_counts_are_those_of_all_lanes() -> None:
    async with OneQueue() as queue:
        receiver = queue.receiver()
        await queue.send("dead", "deferred", "waiting")
        await queue.dead_letter(await receiver.take_one())
        await queue.defer(await receiver.take_one())
        await queue.schedule("later", 60)
        counts = await requests_to(queue).counts()
        size_bytes = int(queue.fragment.live_bytes())
        assert counts == Counts(active=2, dead_letter=1, scheduled=1, deferred=1, size_bytes=size_bytes)


async def test_a_lock_is_found_by_its_token_in_its_own_lane_only() -> None:
    async with OneQueue() as queue:
        await queue.send("one")
        lock = await queue.receiver().take_one()
        requests = requests_to(queue)
        assert await requests.find_locks([lock.token], MAIN) == [lock]
        with pytest.raises(MessageLockLost):
            await requests.find_locks([lock.token], DEAD_LETTER)
        with pytest.raises(MessageLockLost):
            await requests.find_locks([lock.token, bytes(16)], MAIN)


async def test_either_all_locks_are_renewed_or_none() -> None:
    async with OneQueue(small(lock_duration_s=10.0)) as queue:
        await queue.send("one")
        lock = await queue.receiver().take_one()
        requests = requests_to(queue)
        queue.clock.advance(5)
        with pytest.raises(MessageLockLost):
            await requests.renew([lock.token, bytes(16)])
        await queue.pass_time(6)
        with pytest.raises(MessageLockLost):
            await requests.renew([lock.token])


async def test_deferred_messages_are_told_until_when_they_are_locked() -> None:
    async with OneQueue(small(lock_duration_s=30.0)) as queue:
        await queue.send("one")
        await queue.defer(await queue.receiver().take_one())
        ((lock, found),) = await requests_to(queue).receive_deferred(MAIN, [1], False)
        assert body_of(found) == "one"
        assert lock.locked_until_ms == queue.clock.now_ms() + 30_000


async def test_numbers_are_told_of_what_was_sent_and_none_of_what_was_dropped() -> None:
    async with OneQueue(small(duplicate_window_ms=60_000)) as queue:
        requests = requests_to(queue)
        assert await requests.schedule([message("one"), message("two")], 100) == [1, 2]
        assert await requests.schedule([message("two"), message("three")], 100) == [0, 3]


async def test_numbers_are_found_by_what_is_in_the_messages_behind_a_number() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b", "c", "b", "gone", "b")
        await queue.receiver().take(5)
        requests = requests_to(queue)
        await requests.delete_one(MAIN, 6)
        wanted = [message(body).sections for body in ("b", "gone", "x", "b", "c")]
        assert list(await requests.find_sent(2, wanted, [])) == [2, 5, 0, 4, 3]
        assert list(await requests.find_sent(3, wanted, [])) == [4, 5, 0, 0, 3]
        assert list(await requests.find_sent(2, wanted, [2, 5])) == [4, 0, 0, 0, 3]


# What waits, for whoever moves it.


async def test_what_waits_is_taken_in_order_and_others_go_without_it() -> None:
    async with OneQueue() as queue:
        await queue.send(*"abcdef")
        requests = requests_to(queue)
        (end,) = await requests.ends(MAIN)
        assert end == 7
        taken = await requests.take_waiting(MAIN, 1, end, 2, 1 << 20)
        assert [body_of(one) for _, one in taken.messages] == ["a", "b"]
        assert taken.next_number == 3
        assert await queue.receiver().take(10) == ["c", "d", "e", "f"]
        await settle_all(traffic_of(queue), [lock for lock, _ in taken.messages], COMPLETE)
        assert await queue.peek() == ["c", "d", "e", "f"]


async def test_nothing_that_came_later_is_taken() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        requests = requests_to(queue)
        (end,) = await requests.ends(MAIN)
        await queue.send("b")
        taken = await requests.take_waiting(MAIN, 1, end, 10, 1 << 20)
        assert ([body_of(one) for _, one in taken.messages], taken.next_number) == (["a"], end)
        assert await requests.take_waiting(MAIN, end, end, 10, 1 << 20) == type(taken)([], end)


async def test_what_is_taken_and_given_back_has_not_been_delivered() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        requests = requests_to(queue)
        for _ in range(5):
            ((lock, _),) = (await requests.take_waiting(MAIN, 1, 2, 10, 1 << 20)).messages
            await settle_all(traffic_of(queue), [lock], RELEASE)
        lock = await queue.receiver().take_one()
        assert lock.delivery_count == 0


async def test_what_somebody_has_or_has_set_aside_is_not_taken() -> None:
    async with OneQueue() as queue:
        await queue.send("locked", "deferred", "waiting")
        receiver = queue.receiver()
        await receiver.take_one()
        await queue.defer(await receiver.take_one())
        await queue.schedule("scheduled", 60)
        (end,) = await requests_to(queue).ends(MAIN)
        taken = await requests_to(queue).take_waiting(MAIN, 1, end, 10, 1 << 20)
        assert [body_of(one) for _, one in taken.messages] == ["waiting"]


# Sessions.


async def test_a_session_is_its_holders_only() -> None:
    async with SessionQueue(small(requires_session=True, lock_duration_s=10.0)) as queue:
        await queue.send_to("s", "one")
        receiver = await queue.accept("s")
        lock = await receiver.take_one()
        other = hold_of((await queue.accept("t")).lock)
        requests, hold = requests_to(queue), hold_of(receiver.lock)
        assert await requests.find_locks([lock.token], MAIN, hold) == [lock]
        with pytest.raises(MessageLockLost):
            await requests.find_locks([lock.token], MAIN, other)
        with pytest.raises(MessageLockLost):
            await requests.find_locks([lock.token], MAIN)


async def test_a_session_that_is_lost_answers_nothing() -> None:
    async with SessionQueue(small(requires_session=True, lock_duration_s=10.0)) as queue:
        await queue.send_to("s", "one")
        hold = hold_of((await queue.accept("s")).lock)
        requests = requests_to(queue)
        await requests.set_session_state(hold, b"state")
        queue.clock.advance(5)
        assert await requests.renew_session(hold) == queue.clock.now_ms() + 10_000 == hold.locked_until_ms
        queue.clock.advance(11)
        for lost in (
            requests.session_state(hold),
            requests.set_session_state(hold, b"other"),
            requests.renew_session(hold),
            requests.find_locks([bytes(16)], MAIN, hold),
            requests.receive_deferred(MAIN, [1], False, hold),
        ):
            with pytest.raises(SessionLockLost):
                await lost
        assert await requests.session_state(hold_of((await queue.accept("s")).lock)) == b"state"


async def test_a_listing_goes_on_where_its_last_page_ended() -> None:
    async with SessionQueue(small(requires_session=True)) as queue:
        for name in "abcd":
            await queue.send_to(name, "one")
        requests, listing = requests_to(queue), Listing()
        first = list(await requests.list_sessions(None, 0, 3, listing))
        await queue.send_to("0", "before all others")
        rest = list(await requests.list_sessions(None, 3, 3, listing))
        assert sorted(first + rest)[-4:] == ["a", "b", "c", "d"]
        assert len(set(first + rest)) == len(first + rest)
        assert await requests.list_sessions(queue.clock.now_ms(), 0, 3, listing) == []
