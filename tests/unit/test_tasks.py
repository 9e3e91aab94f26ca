"""Tasks that must live as long as the process."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.tasks import carry_on, essential, within
from tests.covers import covers


async def break_down() -> None:
    raise RuntimeError("broken")


async def ended(task: asyncio.Task[None]) -> None:
    """Its end is known to everybody who is told of it."""
    await asyncio.wait([task])
    await asyncio.sleep(0)


@covers("M13")
async def test_who_can_stop_the_process_is_told_when_an_essential_task_breaks() -> None:
    told: list[BaseException] = []
    await ended(essential(break_down(), "work", told.append))
    assert [str(error) for error in told] == ["broken"]


@covers("M13")
async def test_an_essential_task_that_breaks_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    await ended(essential(break_down(), "work", carry_on))
    (record,) = [one for one in caplog.records if one.levelname == "CRITICAL"]
    assert "'work'" in record.getMessage()


@covers("M13")
async def test_a_cancelled_task_is_no_fault() -> None:
    told: list[BaseException] = []
    task = essential(asyncio.sleep(3600), "work", told.append)
    task.cancel()
    await ended(task)
    assert told == []


@covers("M13")
async def test_a_task_that_comes_to_its_own_end_is_no_fault() -> None:
    told: list[BaseException] = []
    await ended(essential(asyncio.sleep(0), "work", told.append))
    assert told == []


async def test_what_ends_within_the_time_gives_its_result_or_raises_its_error() -> None:
    assert await within(asyncio.sleep(0, "done"), 10.0) == "done"
    assert await within(asyncio.sleep(0, "done"), None) == "done"
    with pytest.raises(RuntimeError, match="broken"):
        await within(break_down(), 10.0)


async def test_what_takes_too_long_is_cancelled() -> None:
    work = asyncio.ensure_future(asyncio.sleep(3600))
    with pytest.raises(TimeoutError):
        await within(work, 0.001)
    assert work.cancelled()


@pytest.mark.parametrize("error", [None, RuntimeError("broken")])
async def test_who_is_cancelled_in_the_moment_in_which_the_work_ends_is_cancelled(error: Exception | None) -> None:
    work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(within(work, 10.0))
    await asyncio.sleep(0)
    if error is None:
        work.set_result(None)
    else:
        work.set_exception(error)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_who_is_cancelled_waits_until_the_work_has_ended() -> None:
    has_ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            has_ended.set()

    waiting = asyncio.ensure_future(within(work(), None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()
    assert has_ended.is_set()
