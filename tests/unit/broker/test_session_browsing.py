"""Browsing, deleting and listing by session."""

from __future__ import annotations

import asyncio

from tandembus.broker import browsing
from tandembus.broker.session_listing import SessionListing
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import body_of, message
from tests.unit.broker.session_queue import SessionReceiver, session_queue


@covers("M7")
async def test_peeking_in_a_session_goes_on_where_it_was_and_passes_others_over() -> None:
    async with session_queue() as queue:
        for number in range(30):
            await queue.send_to(f"s{number % 3}", f"m{number}")
        found = await browsing.peek(queue.broker, queue.fragment, MAIN, 1, 4, 1 << 20, "s1")
        assert [body_of(one.message) for one in found] == ["m1", "m4", "m7", "m10"]
        last = int(found[-1].message.number)
        found = await browsing.peek(queue.broker, queue.fragment, MAIN, last + 1, 100, 1 << 20, "s1")
        assert [body_of(one.message) for one in found] == [f"m{number}" for number in range(13, 30, 3)]
        assert await browsing.peek(queue.broker, queue.fragment, MAIN, 1, 100, 1 << 20, "nobody") == []


@covers("M7")
async def test_deleting_in_a_session_leaves_the_others_and_what_is_locked() -> None:
    async with session_queue() as queue:
        for number in range(12):
            await queue.send_to(f"s{number % 2}", f"m{number}")
        receiver = await queue.accept("s0")
        await receiver.take(2)
        before_ms = queue.clock.now_ms() + 1
        deleted = asyncio.create_task(browsing.delete_batch(queue.broker, queue.fragment, MAIN, 100, before_ms, "s0"))
        await queue.quiet()
        assert await deleted == 4
        assert await receiver.take(10) == []
        await receiver.leave()
        assert await queue.drain() == {"s0": ["m0", "m2"], "s1": [f"m{number}" for number in range(1, 12, 2)]}


@covers("M7")
async def test_a_purged_queue_has_no_sessions_to_accept_until_something_comes() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", *(f"a{i}" for i in range(20)))
        await queue.send_to("b", "b1")
        before_ms = queue.clock.now_ms() + 1
        purging = asyncio.create_task(browsing.delete_batch(queue.broker, queue.fragment, MAIN, 1000, before_ms))
        await queue.quiet()
        assert await purging == 21
        waiting = queue.accepting()
        await queue.quiet()
        assert not waiting.done()
        await queue.send_to("b", "b2")
        assert await SessionReceiver(queue, waiting.result()).take(5) == ["b2"]


@covers("M7")
async def test_sessions_are_listed_once_each_with_messages_first_and_states_then() -> None:
    async with session_queue() as queue:
        for number in range(30):
            await queue.send_to(f"s{number % 5}", f"m{number}")
        at_ms = queue.clock.now_ms() + 60_000
        queue.stage(message("later", scheduled_at_ms=at_ms, session_id="scheduled"))
        await queue.quiet()
        await queue.set_state("s1", b"x")
        await queue.set_state("idle", b"x")
        receiver = await queue.accept("s2")
        await receiver.take(100)
        listing = SessionListing(queue.broker, queue.fragment, None)
        pages = [list(await listing.page(skip, 2)) for skip in range(0, 8, 2)]
        assert pages == [["s0", "s1"], ["s2", "s3"], ["s4", "idle"], []]
        since = queue.clock.now_ms() + 5
        queue.clock.advance(1)
        await queue.set_state("s3", b"x")
        assert list(await SessionListing(queue.broker, queue.fragment, since).page(0, 10)) == ["s3"]


@covers("M7")
async def test_a_session_of_which_everything_is_deferred_is_listed() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1")
        receiver = await queue.accept("a")
        await queue.defer(await receiver.take_one())
        assert list(await SessionListing(queue.broker, queue.fragment, None).page(0, 10)) == ["a"]
