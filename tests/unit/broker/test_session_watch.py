"""Looking out for free sessions, without standing in line for them."""

from __future__ import annotations

from tandembus.broker.session import SessionWatcher
from tandembus.broker.session_locks import leave_session, unwatch_sessions, watch_sessions
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.unit.broker.session_queue import SessionQueue, session_queue


class Lookout:
    def __init__(self, queue: SessionQueue) -> None:
        self._queue = queue
        self.seen: list[tuple[int, int]] = []
        self.nothing_count = 0
        self.watcher = SessionWatcher(self.available, self.nothing)

    async def watch(self) -> None:
        watch_sessions(self._queue.fragment, self.watcher)
        self._queue.session_work()
        await self._queue.quiet()

    def available(self, index: int, enqueued_at_ms: int) -> None:
        self.seen.append((index, enqueued_at_ms))

    def nothing(self, index: int) -> None:
        self.nothing_count += 1


@covers("M7", "P6")
async def test_whoever_looks_out_is_told_when_a_message_makes_a_session_available_and_only_once() -> None:
    async with session_queue() as queue:
        lookout = Lookout(queue)
        await lookout.watch()
        assert lookout.seen == []
        sent_at = queue.clock.now_ms()
        await queue.send_to("a", "1")
        await queue.send_to("b", "1")
        assert lookout.seen == [(0, sent_at)]
        await lookout.watch()
        assert lookout.seen == [(0, sent_at)] * 2


@covers("M7", "P6")
async def test_whoever_looks_out_is_told_once_that_there_is_none_and_goes_on_looking_out() -> None:
    async with session_queue() as queue:
        lookout = Lookout(queue)
        await lookout.watch()
        assert (lookout.nothing_count, lookout.seen) == (1, [])
        queue.session_work()
        await queue.quiet()
        await queue.send_to("a", "1")
        assert (lookout.nothing_count, len(lookout.seen)) == (1, 1)


@covers("M7", "P6")
async def test_nobody_is_told_that_there_is_none_before_all_was_read() -> None:
    async with session_queue() as queue:
        for number in range(30):
            await queue.send_to(f"s{number}", "1", "2")
        async with await queue.again() as again:
            lookout = Lookout(again)
            await lookout.watch()
            assert (lookout.nothing_count, len(lookout.seen)) == (0, 1)


@covers("M7", "P6")
async def test_who_looks_out_at_a_fragment_that_leaves_the_memory_is_told_to_look_again() -> None:
    async with session_queue() as queue:
        lookout = Lookout(queue)
        await lookout.watch()
        assert queue.broker.close_fragment(int(queue.fragment.key))
        assert lookout.seen == [(0, queue.clock.now_ms())]


@covers("M7", "P6")
async def test_the_oldest_free_session_is_told_of() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "1")
        queue.clock.advance(1.0)
        second_at = queue.clock.now_ms()
        await queue.send_to("b", "1")
        queue.clock.advance(1.0)
        await queue.send_to("a", "2")
        await queue.accept("a")
        lookout = Lookout(queue)
        await lookout.watch()
        assert lookout.seen == [(0, second_at)]


@covers("M7", "P6")
async def test_who_waits_in_line_comes_first() -> None:
    async with session_queue() as queue:
        lookout = Lookout(queue)
        await lookout.watch()
        waiting = queue.accepting()
        await queue.quiet()
        await queue.send_to("a", "1")
        assert (await waiting).session.name == "a"
        assert lookout.seen == []
        await queue.send_to("b", "1")
        assert len(lookout.seen) == 1


@covers("M7", "P6")
async def test_a_session_that_is_left_or_lapses_is_told_of() -> None:
    async with session_queue() as queue:
        sent_at = queue.clock.now_ms()
        await queue.send_to("a", "1")
        lookout = Lookout(queue)
        receiver = await queue.accept("a")
        await lookout.watch()
        assert lookout.seen == []
        leave_session(queue.fragment, receiver.lock)
        queue.session_work()
        await queue.quiet()
        assert lookout.seen == [(0, sent_at)]

        receiver = await queue.accept("a")
        await receiver.take(1)
        await lookout.watch()
        assert len(lookout.seen) == 1
        await queue.pass_time(61.0)
        assert lookout.seen == [(0, sent_at)] * 2


@covers("M7", "P6")
async def test_sessions_that_only_columns_know_of_are_found_with_the_age_of_their_first_message() -> None:
    async with session_queue() as queue:
        sent_at = queue.clock.now_ms()
        for number in range(30):
            await queue.send_to(f"s{number}", "1", "2")
            queue.clock.advance(1.0)
        async with await queue.again() as again:
            lookout = Lookout(again)
            await lookout.watch()
            assert lookout.seen == [(0, sent_at)]
            for number in range(30):
                await again.accept(f"s{number}")
                await lookout.watch()
            assert len(lookout.seen) == 30
            assert lookout.seen[-1] == (0, sent_at + 29_000)


@covers("M7", "P6")
async def test_all_who_look_out_are_told_but_not_who_is_gone() -> None:
    async with session_queue() as queue:
        first, second, third = Lookout(queue), Lookout(queue), Lookout(queue)
        for one in (first, second, third, third):
            await one.watch()
        unwatch_sessions(queue.fragment, second.watcher)
        await queue.send_to("a", "1")
        assert (len(first.seen), len(second.seen), len(third.seen)) == (1, 0, 1)


@covers("M7", "P20")
async def test_who_looked_out_before_the_store_failed_does_so_after_it() -> None:
    async with session_queue() as queue:
        lookout = Lookout(queue)
        await lookout.watch()
        queue.fault_next(Fault.UNKNOWN_KEPT)
        sent_at = queue.clock.now_ms()
        answer = queue.stage_to("a", "1")
        await answer.wait()
        while not lookout.seen:
            await queue.broker.next_turn()
        assert lookout.seen == [(0, sent_at)]
