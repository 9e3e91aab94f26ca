"""Calls that can be given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tandembus.clock import SystemClock
from tandembus.pairing.runtime import Attempt, FailedOver, OutOfTime, Runtime, Timer, Turns
from tests.covers import covers
from tests.unit.pairing.scripted import ManualRuntime

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
