"""Calls that can be given up, in a loop and on threads."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tandembus.clock import SystemClock
from tandembus.pairing.runtime import Attempt, FailedOver, OutOfTime, Runtime, Timer, Turns
from tandembus.pairing.sync import runtime as threads
from tests.covers import covers
from tests.unit.pairing.scripted import ManualRuntime

IN_THE_CALLERS_TASK = pytest.mark.skipif(sys.version_info < (3, 11), reason="every call has a task of its own there")
HERE = pytest.mark.parametrize("way", ["run", "run_here"])


async def hang() -> None:
    await asyncio.get_running_loop().create_future()


async def hang_and_close_slowly() -> None:
    """As the SDK does when it is cancelled while it opens a link to a peer that is stopped."""
    try:
        await hang()
    finally:
        await asyncio.sleep(3600)


async def answer() -> str:
    await asyncio.sleep(0)
    return "answer"


async def refuse() -> str:
    raise ValueError("refused")


@HERE
async def test_a_call_returns_or_raises_what_it_returns_or_raises(way: str) -> None:
    runtime = ManualRuntime()
    assert await getattr(Attempt(runtime), way)(answer, 60.0) == "answer"
    with pytest.raises(ValueError, match="refused"):
        await getattr(Attempt(runtime), way)(refuse, 60.0)
    assert not runtime.calls


@covers("N1")
@HERE
async def test_a_call_is_given_up_when_its_time_is_up(way: str) -> None:
    runtime = ManualRuntime()
    calls = [asyncio.ensure_future(getattr(Attempt(runtime), way)(hang, limit_s)) for limit_s in (30.0, 10.0, 20.0)]
    await runtime.settle()
    for _ in range(3):
        done = [call.done() for call in calls]
        await runtime.advance(10.0)
        assert [call.done() for call in calls].count(True) == done.count(True) + 1
    for call in calls:
        with pytest.raises(OutOfTime):
            await call
    assert not runtime.calls


@covers("N5")
@HERE
async def test_a_call_that_is_given_up_does_not_cancel_its_caller(way: str) -> None:
    runtime = ManualRuntime()
    attempt = Attempt(runtime)

    async def send() -> str:
        try:
            await getattr(attempt, way)(hang, 60.0)
        except FailedOver:
            await asyncio.sleep(0)
            return "in the backlog"
        return "on the primary"

    sending = asyncio.ensure_future(send())
    await runtime.settle()
    attempt.give_up(FailedOver())
    attempt.give_up(OutOfTime())
    assert await sending == "in the backlog"


@covers("N5")
@HERE
async def test_a_caller_who_cancels_while_the_call_is_given_up_is_cancelled(way: str) -> None:
    runtime = ManualRuntime()
    attempt = Attempt(runtime)
    sending = asyncio.ensure_future(getattr(attempt, way)(hang, 60.0))
    await runtime.settle()
    attempt.give_up(FailedOver())
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


@covers("N5")
@HERE
async def test_a_cancellation_that_the_caller_did_not_follow_is_no_reason_to_follow_it_now(way: str) -> None:
    runtime = ManualRuntime()
    attempt = Attempt(runtime)

    async def say_goodbye() -> None:
        try:
            await hang()
        except asyncio.CancelledError:
            await getattr(attempt, way)(hang, 60.0)

    sending = asyncio.ensure_future(say_goodbye())
    await runtime.settle()
    sending.cancel()
    await runtime.settle()
    attempt.give_up(FailedOver())
    with pytest.raises(FailedOver):
        await sending


@covers("N5")
@IN_THE_CALLERS_TASK
async def test_a_call_in_which_a_cancellation_is_forgotten_is_given_up_all_the_same() -> None:
    runtime = ManualRuntime()
    attempt = Attempt(runtime)
    forgotten = 0

    async def forget_twice() -> None:
        nonlocal forgotten
        while True:
            try:
                await hang()
            except asyncio.CancelledError:
                if forgotten == 2:
                    raise
                forgotten += 1

    async def send() -> str:
        with pytest.raises(FailedOver):
            await attempt.run_here(forget_twice, 60.0)
        await asyncio.sleep(0)
        return "in the backlog"

    sending = asyncio.ensure_future(send())
    await runtime.settle()
    attempt.give_up(FailedOver())
    await runtime.advance(0.1)
    assert forgotten == 2
    assert await sending == "in the backlog"
    assert runtime.timer_count == 0


class CountingRuntime(ManualRuntime):
    timers_set = 0

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.timers_set += 1
        return super().call_later(delay_s, callback)


@covers("N1")
async def test_a_thousand_time_outs_within_a_tenth_of_a_second_take_a_few_looks_at_all_calls() -> None:
    runtime = CountingRuntime()
    limits_s = [10.0 + number / 10_000 for number in range(1000)]
    calls = [asyncio.ensure_future(Attempt(runtime).run(hang, limit_s)) for limit_s in limits_s]
    await runtime.advance(9.999)
    assert len(runtime.calls) == 1000
    await runtime.advance(0.11)
    assert all(isinstance(call.exception(), OutOfTime) for call in calls)
    assert runtime.timers_set <= 30


async def test_the_caller_does_not_wait_until_a_link_that_was_being_opened_is_closed() -> None:
    runtime = ManualRuntime()
    attempt = Attempt(runtime)
    sending = asyncio.ensure_future(attempt.run(hang_and_close_slowly, 60.0))
    await runtime.settle()
    attempt.give_up(FailedOver())
    with pytest.raises(FailedOver):
        await sending
    ending = asyncio.ensure_future(attempt.ended(0.0))
    await ending


@IN_THE_CALLERS_TASK
async def test_an_answer_at_the_last_moment_counts_and_leaves_the_caller_uncancelled() -> None:
    runtime = ManualRuntime()
    attempt = Attempt(runtime)

    async def answer_when_cancelled() -> str:
        try:
            await hang()
        except asyncio.CancelledError:
            return "stored"
        return ""

    async def send() -> str:
        found = await attempt.run_here(answer_when_cancelled, 60.0)
        await asyncio.sleep(0)
        return found

    sending = asyncio.ensure_future(send())
    await runtime.settle()
    attempt.give_up(FailedOver())
    assert await sending == "stored"


async def test_turns_come_in_order_and_who_cancels_or_is_late_takes_none() -> None:
    runtime = ManualRuntime()
    turns = Turns(runtime)
    assert await turns.take(None)
    waiting = [asyncio.ensure_future(turns.take(limit_s)) for limit_s in (None, 5.0, None, None)]
    await runtime.advance(5.0)
    assert waiting[1].done()
    assert waiting[1].result() is False
    waiting[0].cancel()
    await runtime.settle()
    turns.give_back()
    await runtime.settle()
    assert [task.done() for task in waiting] == [True, True, True, False]
    waiting[3].cancel()
    await runtime.settle()
    turns.give_back()
    assert await turns.take(0.0)


async def test_what_fails_in_the_background_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    runtime = Runtime(SystemClock())

    async def fail() -> None:
        raise RuntimeError("a defect")

    runtime.start(fail)
    await runtime.close(5.0)
    assert "a defect" in caplog.text


# On threads.


@pytest.fixture
def blocking() -> Iterator[threads.Runtime]:
    runtime = threads.Runtime(SystemClock())
    yield runtime
    runtime.close(5.0)


def test_a_blocking_call_returns_or_raises_what_it_returns_or_raises(blocking: threads.Runtime) -> None:
    def fail() -> None:
        raise ValueError("refused")

    assert threads.Attempt(blocking).run(lambda: "answer", 60.0) == "answer"
    with pytest.raises(ValueError, match="refused"):
        threads.Attempt(blocking).run(fail, 60.0)


@covers("N1")
def test_a_blocking_call_that_hangs_is_left_behind_when_its_time_is_up(blocking: threads.Runtime) -> None:
    release, ended = threading.Event(), []
    attempt = threads.Attempt(blocking)
    with pytest.raises(OutOfTime):
        attempt.run(lambda: ended.append(release.wait(30.0)), 0.05)
    assert not ended
    release.set()
    attempt.ended(30.0)
    assert ended == [True]


@covers("N5")
def test_a_blocking_call_is_given_up_from_another_thread(blocking: threads.Runtime) -> None:
    release, begun = threading.Event(), threading.Event()
    attempt = threads.Attempt(blocking)

    def hang() -> None:
        begun.set()
        release.wait(30.0)

    def give_up() -> None:
        begun.wait(30.0)
        attempt.give_up(FailedOver())

    threading.Thread(target=give_up).start()
    began = time.monotonic()
    with pytest.raises(FailedOver):
        attempt.run(hang, 60.0)
    assert time.monotonic() - began < 10.0
    release.set()


def test_threads_are_used_again(blocking: threads.Runtime) -> None:
    names = {threads.Attempt(blocking).run(threading.get_ident, 60.0) for _ in range(50)}
    assert len(names) <= 2


def test_timers_come_in_the_order_of_their_times_and_not_when_cancelled(blocking: threads.Runtime) -> None:
    came: list[str] = []
    last = threading.Event()
    blocking.call_later(0.06, lambda: came.append("third"))
    blocking.call_later(0.07, last.set)
    blocking.call_later(0.02, lambda: came.append("first"))
    blocking.call_later(0.03, lambda: came.append("never")).cancel()
    blocking.call_later(0.04, lambda: came.append("second"))
    assert last.wait(30.0)
    assert came == ["first", "second", "third"]


def test_a_timer_that_fails_does_not_stop_the_others(
    blocking: threads.Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    came = threading.Event()

    def fail() -> None:
        raise RuntimeError("a defect")

    blocking.call_later(0.0, fail)
    blocking.call_later(0.01, came.set)
    assert came.wait(30.0)
    assert "a defect" in caplog.text


def test_all_calls_are_made_together_and_the_first_error_is_raised() -> None:
    barrier = threading.Barrier(3)
    threads.together([lambda: (barrier.wait(30.0), None)[1] for _ in range(3)])

    def fail() -> None:
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        threads.together([fail, lambda: None])
