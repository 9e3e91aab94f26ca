"""A store without room: sends are refused, everything else goes on, and nothing is lost."""

from __future__ import annotations

import pytest

from tandembus.broker import browsing
from tandembus.broker.locks import COMPLETE
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.errors import StoreFull
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, message, small
from tests.unit.broker.session_queue import session_queue, sessions


@covers("M13")
async def test_a_full_store_refuses_the_send_and_keeps_what_was_settled_with_it() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        lock = await queue.receiver().take_one()
        queue.fault_next(Fault.FULL)
        settled, refused = queue.settle(lock, COMPLETE), queue.stage(message("c"))
        await queue.quiet()
        assert settled.is_accepted
        assert isinstance(refused.error, StoreFull)
        assert await queue.peek() == ["b"]


@covers("M13")
async def test_a_number_refused_by_a_full_store_is_given_to_the_next_message() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        queue.fault_next(Fault.FULL)
        queue.stage(message("b"), message("c"))
        await queue.quiet()
        queue.broker.check_room()
        assert await queue.send("d") == [2]
        async with await queue.after_crash() as again:
            assert await again.receiver().take(5) == ["a", "d"]


@covers("M13")
async def test_short_of_room_sends_are_refused_while_receiving_and_settling_go_on() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        queue.disk.free_bytes, queue.disk.reserve_bytes = 10, 100
        queue.broker.check_room()
        with pytest.raises(StoreFull):
            queue.stage(message("c"))
        receiver = queue.receiver()
        await queue.complete(await receiver.take_one())
        await queue.dead_letter(await receiver.take_one())
        assert await queue.dead_letters() == ["b"]


@covers("M13")
async def test_sends_resume_above_twice_the_reserve() -> None:
    async with OneQueue() as queue:
        queue.disk.free_bytes, queue.disk.reserve_bytes = 10, 100
        queue.broker.check_room()
        queue.disk.free_bytes = 199
        queue.broker.check_room()
        with pytest.raises(StoreFull):
            queue.stage(message("a"))
        queue.disk.free_bytes = 200
        queue.broker.check_room()
        await queue.send("a")


@covers("M13")
async def test_when_not_even_a_move_fits_nothing_is_lost_and_completing_goes_on() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        lock = await queue.receiver().take_one()
        first = queue.disk.commit_count + 1
        queue.disk.faults.update({first: Fault.FULL, first + 1: Fault.FULL})
        answer = queue.settle(lock, TO_DEAD_LETTERS)
        await queue.quiet()
        assert isinstance(answer.error, StoreFull)
        assert await queue.peek() == ["a", "b"]
        receiver = queue.receiver()
        lock = await receiver.take_one()
        with pytest.raises(StoreFull):
            queue.settle(lock, TO_DEAD_LETTERS)
        await queue.complete(lock)
        assert await queue.peek() == ["b"]


@covers("M13")
async def test_a_full_store_lapses_no_message_into_the_dead_letters_until_there_is_room() -> None:
    async with OneQueue(small(max_delivery_count=1)) as queue:
        await queue.send("a")
        await queue.receiver().take_one()
        queue.disk.free_bytes, queue.disk.reserve_bytes = 10, 100
        queue.broker.check_room()
        queue.broker.room.is_full = True
        queue.broker.check_room()
        await queue.pass_time(60.0)
        assert (await queue.peek(), await queue.dead_letters()) == (["a"], [])
        queue.disk.free_bytes = 1000
        await queue.pass_time(60.0)
        assert (await queue.peek(), await queue.dead_letters()) == ([], ["a"])


@covers("M3", "M13")
async def test_a_full_store_refuses_a_defer_that_would_make_a_dead_letter() -> None:
    async with OneQueue(small(max_delivery_count=2)) as queue:
        await queue.send("a")
        receiver = queue.receiver()
        lock = await receiver.take_one()
        queue.disk.free_bytes, queue.disk.reserve_bytes = 10, 100
        queue.broker.check_room()
        queue.broker.room.is_full = True
        queue.broker.check_room()
        await queue.defer(lock)
        ((lock, _),) = await browsing.receive_deferred(queue.broker, queue.fragment, MAIN, [1], False)
        with pytest.raises(StoreFull):
            await queue.defer(lock)
        queue.disk.free_bytes = 1000
        queue.broker.check_room()
        await queue.defer(lock)
        assert (await queue.peek(), await queue.dead_letters()) == ([], ["a"])


@covers("M2", "M13")
async def test_a_session_that_lapses_in_a_full_store_moves_no_message_into_the_dead_letters() -> None:
    async with session_queue(sessions(max_delivery_count=1)) as queue:
        await queue.send_to("s", "a")
        await (await queue.accept("s")).take_one()
        queue.disk.free_bytes, queue.disk.reserve_bytes = 10, 100
        queue.broker.check_room()
        queue.broker.room.is_full = True
        queue.broker.check_room()
        await queue.pass_time(61.0)
        assert (await queue.peek(), await queue.dead_letters()) == (["a"], [])
        assert await (await queue.accept("s")).take(1) == ["a"]


@covers("M5", "M13")
async def test_a_full_store_activates_scheduled_messages_once_there_is_room() -> None:
    async with OneQueue() as queue:
        await queue.schedule("a", in_s=10.0)
        first = queue.disk.commit_count + 1
        queue.disk.faults.update({first: Fault.FULL, first + 1: Fault.FULL})
        queue.disk.free_bytes, queue.disk.reserve_bytes = 10, 100
        await queue.pass_time(10.0)
        receiver = queue.receiver()
        assert await receiver.take(1) == []
        queue.disk.free_bytes = 1000
        await queue.pass_time(1.0)
        assert receiver.bodies == ["a"]


@covers("M6", "M13")
async def test_a_full_store_drops_expired_messages_all_the_same() -> None:
    async with OneQueue() as queue:
        await queue.send("a", ttl_ms=1000)
        queue.disk.free_bytes, queue.disk.reserve_bytes = 10, 100
        await queue.pass_time(1.0)
        assert await queue.peek() == []
